"use strict";
// A click on a column's name sorts the rows by it.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const table = head.closest("table");
    const column = [...head.parentNode.children].indexOf(head);
    const falling = head.getAttribute("aria-sort") !== "descending";
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const body = table.tBodies[0];
    const isNumeric = [...body.rows].some((row) => "value" in row.cells[column].dataset);
    const value = (row) => {
      const cell = row.cells[column];
      if (!isNumeric) return cell.textContent.trim();
      return "value" in cell.dataset ? Number(cell.dataset.value) : "-";
    };
    const empty = (row) => value(row) === "-";  // gaps stay below, with or without a footnote
    const compare = (a, b) => {
      if (empty(a) || empty(b)) return empty(a) - empty(b);
      const x = value(a), y = value(b);
      const order = typeof x === "number" ? x - y : x.localeCompare(y);
      return falling ? -order : order;
    };
    body.append(...[...body.rows].sort(compare));
  });
}
