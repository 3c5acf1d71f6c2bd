"use strict";
// What stands behind a number: shown beside the cell under the pointer, the finger or the focus.
// One cell of a table is reached by Tab, the others from there by the arrow keys.
(() => {
  const cells = [...document.querySelectorAll("td[data-tip]")];
  if (cells.length === 0) return;
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.id = "tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  let shown = null;

  const hide = () => {
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  };
  const show = (cell) => {
    hide();
    shown = cell;
    tip.textContent = cell.dataset.tip;
    tip.hidden = false;
    cell.setAttribute("aria-describedby", tip.id);
    const box = cell.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const left = Math.min(Math.max(8, box.right - tip.offsetWidth), width - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 0 ? above : box.bottom + 6}px`;
  };
  const step = (cell, key) => {
    const row = cell.parentNode;
    const rows = [...row.closest("table").rows];
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const [down, right] = moves[key];
    let line = rows.indexOf(row) + down;
    let column = cell.cellIndex + right;
    for (; rows[line] && rows[line].cells[column]; line += down, column += right) {
      const next = rows[line].cells[column];
      if (next.matches("td[data-tip]")) return next;
    }
    return null;
  };

  for (const cell of cells) {
    const first = cell.closest("table").querySelector("td[data-tip]");
    cell.tabIndex = cell === first ? 0 : -1;
    cell.addEventListener("pointerenter", () => show(cell));
    cell.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") hide();
    });
    cell.addEventListener("click", () => show(cell));
    cell.addEventListener("focus", () => show(cell));
    cell.addEventListener("blur", hide);
    cell.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      if (!event.key.startsWith("Arrow")) return;
      const next = step(cell, event.key);
      if (!next) return;
      event.preventDefault();
      cell.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }
  addEventListener("scroll", hide, { capture: true, passive: true });
})();
