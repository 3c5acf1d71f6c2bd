"use strict";
// Nodes: a map of them, a search for one, and a card that shows it. Names are untrusted: they are
// set as text, never as markup.
(() => {
  const source = document.getElementById("explorer-data");
  if (!source) return;
  const models = JSON.parse(source.textContent);
  const root = document.getElementById("explorer");
  const find = (name) => root.querySelector(`[data-part="${name}"]`);
  const canvas = find("map"), label = find("label"), legend = find("legend");
  const input = find("search"), list = find("matches"), card = find("card");
  const chooser = find("model"), caption = find("caption");
  const MOST_MATCHES = 20, NEAR = 16;  // lines of the list; pixels around the pointer
  // Okabe and Ito's colours, those that can be seen on white and on black.
  const COLOURS = ["#0f83c4", "#dd6a12", "#0aa67c", "#cf7aae", "#b89b0a", "#6a5acd", "#56b4e9", "#a5533b"];
  const LOW = [15, 131, 196], MIDDLE = [150, 150, 150], HIGH = [221, 106, 18], NONE = "#8b939e";
  const state = { model: models[0], colouring: "class", chosen: -1, only: -1, active: -1, matches: [] };
  let names = [], printing = false;

  const element = (tag, text = "", className = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const shown = (value, digits = 2) =>
    value === null || value === undefined ? "unknown" : Number(value).toFixed(digits);
  const number = (place) => (state.model.nodes ? state.model.nodes[place] : place);
  const name = (place) => (state.model.ids ? state.model.ids[place] : String(number(place)));
  const isClassed = () => state.model.labels.length > 0;
  const classOf = (place) => {
    const each = isClassed() ? state.model.labels[place] : -1;
    return each < 0 ? "unknown" : state.model.classes[each] || `class ${each}`;
  };
  const classColour = (each) => {
    if (each < 0) return NONE;
    return each < COLOURS.length ? COLOURS[each] : `hsl(${(each * 137.5) % 360} 55% 52%)`;
  };
  const gateColour = (gate) => {
    const end = gate > 0.5 ? LOW : HIGH, share = Math.abs(gate - 0.5) * 2;
    const mixed = MIDDLE.map((from, each) => Math.round(from + share * (end[each] - from)));
    return `rgb(${mixed.join(" ")})`;
  };
  const colour = (place) => {
    if (state.colouring === "gate") return gateColour(state.model.gate[place]);
    return classColour(isClassed() ? state.model.labels[place] : -1);
  };

  // The map.
  const size = () => ({ width: canvas.clientWidth, height: canvas.clientHeight });
  const position = (place) => {
    const { width, height } = size(), margin = 12;
    return [
      margin + state.model.x[place] * (width - 2 * margin),
      height - margin - state.model.y[place] * (height - 2 * margin),
    ];
  };
  const isFaded = (place) =>
    state.colouring === "class" && state.only >= 0 && state.model.labels[place] !== state.only;
  const draw = () => {
    const { width, height } = size(), scale = printing ? 3 : devicePixelRatio || 1;
    if (width === 0) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    const count = state.model.x.length;
    const radius = count > 5000 ? 1.6 : count > 1200 ? 2.2 : 3.4;
    const ink = printing ? "#000" : getComputedStyle(root).color;
    const dot = (place, bigger) => {
      pen.beginPath();
      pen.arc(...position(place), radius + bigger, 0, 2 * Math.PI);
    };
    for (let place = 0; place < count; place += 1) {
      pen.globalAlpha = isFaded(place) ? 0.08 : 0.78;
      pen.fillStyle = colour(place);
      dot(place, 0);
      pen.fill();
    }
    pen.globalAlpha = 1;
    if (state.chosen < 0) return;
    pen.strokeStyle = ink;
    pen.lineWidth = 0.8;
    for (const other of state.model.neighbours[state.chosen]) {
      pen.globalAlpha = 0.55;
      pen.beginPath();
      pen.moveTo(...position(state.chosen));
      pen.lineTo(...position(other));
      pen.stroke();
      pen.globalAlpha = 1;
      dot(other, 1.5);
      pen.fillStyle = colour(other);
      pen.fill();
      pen.stroke();
    }
    dot(state.chosen, 3);
    pen.fillStyle = colour(state.chosen);
    pen.fill();
    pen.lineWidth = 2;
    pen.stroke();
  };
  const nearest = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, least = NEAR * NEAR;
    for (let place = 0; place < state.model.x.length; place += 1) {
      const [a, b] = position(place);
      const distance = (a - x) ** 2 + (b - y) ** 2;
      if (distance < least) [best, least] = [place, distance];
    }
    return best;
  };
  const point = (event) => {
    const place = nearest(event);
    label.hidden = place < 0;
    canvas.style.cursor = place < 0 ? "default" : "pointer";
    if (place < 0) return;
    label.replaceChildren(element("strong", name(place)));
    label.append(element("span", `class: ${classOf(place)}`));
    if (state.model.gate) label.append(element("span", `gate: ${shown(state.model.gate[place])}`));
    const [x, y] = position(place), { width } = size();
    label.style.left = `${Math.max(0, Math.min(x + 12, width - label.offsetWidth))}px`;
    label.style.top = `${y > label.offsetHeight + 14 ? y - label.offsetHeight - 12 : y + 14}px`;
  };

  // The legend, which is also a filter of classes.
  const classKey = (each, title) => {
    const button = element("button", title);
    button.type = "button";
    button.setAttribute("aria-pressed", String(state.only === each));
    const swatch = element("i");
    swatch.style.background = classColour(each);
    button.prepend(swatch);
    button.addEventListener("click", () => {
      state.only = state.only === each ? -1 : each;
      explain();
      draw();
    });
    return button;
  };
  const explain = () => {
    legend.replaceChildren();
    const model = state.model;
    if (state.colouring === "gate") {
      legend.append(element("span", "high band (0)"), element("i", "", "scale"), element("span", "low band (1)"));
    } else if (isClassed()) {
      model.classes.forEach((title, each) => legend.append(classKey(each, title)));
    } else {
      legend.append(element("span", "The graph has no classes."));
    }
    const kept = model.x.length;
    const part = kept < model.count ? ` ${kept.toLocaleString("en")} of ${model.count.toLocaleString("en")} nodes are shown.` : "";
    caption.textContent =
      `${model.title} on ${model.graph}: the embedding by ${model.map}.${part} ` +
      "Point at a dot, or choose it to see its neighbours.";
    canvas.setAttribute(
      "aria-label",
      `Map of ${kept} nodes of ${model.graph}, coloured by ${state.colouring}; the search beside it reaches every node.`,
    );
  };

  // One node.
  const row = (title, content) => {
    const value = element("dd");
    value.append(content);
    return [element("dt", title), value];
  };
  const bar = (title, share, text, kind) => {
    const outer = element("div", "", `bar ${kind}`);
    outer.setAttribute("role", "img");
    outer.setAttribute("aria-label", `${title}: ${text}`);
    const inner = element("i");
    inner.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
    outer.append(inner);
    const line = element("div", "", "barred");
    line.append(outer, element("span", text));
    return line;
  };
  // Bars reach from the least to the greatest value of any node, so that small differences are seen.
  const bandRows = (what, bands, place) => {
    const every = bands.flatMap(([, values]) => values);
    const least = every.reduce((a, b) => Math.min(a, b), Infinity);
    const most = every.reduce((a, b) => Math.max(a, b), -Infinity);
    return bands.flatMap(([band, values]) => {
      const kind = band === "low" ? "low" : band === "high" ? "high" : "";
      const share = most > least ? (values[place] - least) / (most - least) : 1;
      const title = `${what}, ${band}`;
      return row(title, bar(title, share, shown(values[place], 3), kind));
    });
  };
  const facts = (place) => {
    const model = state.model, all = element("dl");
    all.append(...row("Class", classOf(place)), ...row("Degree", model.degrees[place].toLocaleString("en")));
    if (model.homophily) all.append(...row("Local homophily", shown(model.homophily[place])));
    if (model.gate) {
      const gate = model.gate[place];
      all.append(...row("Gate", bar("Gate", gate, `${shown(gate)} low, ${shown(1 - gate)} high`, "gate")));
    }
    all.append(...bandRows("Loss", model.losses, place));
    if (model.gap) all.append(...row("Cost gap", shown(model.gap[place])));
    all.append(...bandRows("Sensitivity", model.moved, place));
    return all;
  };
  const link = (place) => {
    const item = element("li"), button = element("button");
    button.type = "button";
    const swatch = element("i");
    swatch.style.background = classColour(isClassed() ? state.model.labels[place] : -1);
    const gate = state.model.gate ? shown(state.model.gate[place]) : "";
    button.append(element("b", name(place)), swatch, element("span", classOf(place)), element("span", gate, "number"));
    button.addEventListener("click", () => {
      choose(place);
      card.focus({ preventScroll: true });
    });
    item.append(button);
    return item;
  };
  const neighbours = (place) => {
    const others = state.model.neighbours[place], degree = state.model.degrees[place];
    const count = others.length < degree ? `${others.length} of ${degree}` : String(degree);
    const parts = [element("h4", `Neighbours (${count}): class and gate`)];
    if (others.length > 0) {
      const all = element("ul", "", "neighbours");
      all.append(...others.map(link));
      parts.push(all);
    }
    return parts;
  };
  const choose = (place) => {
    state.chosen = place;
    const heading = element("h3", name(place));
    const parts = [heading];
    if (state.model.ids) parts.push(element("p", `Node ${number(place)}`, "small"));
    card.replaceChildren(...parts, facts(place), ...neighbours(place));
    card.hidden = false;
    draw();
  };

  // The search.
  const close = () => {
    list.hidden = true;
    state.active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const matches = (text) => {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return [];
    const ranked = [[], [], []];  // the same, beginning so, holding it
    for (let place = 0; place < names.length; place += 1) {
      const where = names[place].indexOf(wanted);
      if (where < 0) continue;
      const rank = names[place] === wanted ? 0 : where === 0 ? 1 : 2;
      if (ranked[rank].length < MOST_MATCHES) ranked[rank].push(place);
    }
    return ranked.flat().slice(0, MOST_MATCHES);
  };
  const activate = (each) => {
    state.active = each;
    [...list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === each)));
    if (each < 0) return;
    input.setAttribute("aria-activedescendant", list.children[each].id);
    list.children[each].scrollIntoView({ block: "nearest" });
  };
  const take = (place) => {
    input.value = name(place);
    close();
    choose(place);
  };
  const search = () => {
    state.matches = matches(input.value);
    list.replaceChildren(
      ...state.matches.map((place, each) => {
        const item = element("li", name(place));
        item.id = `match-${each}`;
        item.setAttribute("role", "option");
        if (isClassed()) item.append(element("span", `class: ${classOf(place)}`));
        item.addEventListener("pointerdown", (event) => event.preventDefault());  // keeps the focus
        item.addEventListener("click", () => take(place));
        return item;
      }),
    );
    const isWanted = input.value.trim() !== "";
    if (isWanted && state.matches.length === 0) list.append(element("li", "No node has that in its name.", "none"));
    list.hidden = !isWanted;
    input.setAttribute("aria-expanded", String(isWanted));
    activate(state.matches.length > 0 ? 0 : -1);
  };
  input.addEventListener("input", search);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const last = state.matches.length - 1;
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !list.hidden && state.active >= 0) take(state.matches[state.active]);
    else if (event.key === "ArrowDown" && list.hidden) search();
    else if (event.key === "ArrowDown") activate(Math.min(last, state.active + 1));
    else if (event.key === "ArrowUp") activate(Math.max(Math.min(0, last), state.active - 1));
    else return;
    event.preventDefault();
  });

  // What all of them show.
  const colourings = [...root.querySelectorAll("input[name=colouring]")];
  const open = (model) => {
    Object.assign(state, { model, chosen: -1, only: -1 });
    names = model.x.map((_, place) => name(place).toLowerCase());
    const byGate = colourings.find((each) => each.value === "gate");
    byGate.disabled = !model.gate;
    if (!model.gate) colourings.find((each) => each.value === "class").checked = true;
    state.colouring = colourings.find((each) => each.checked).value;
    input.value = "";
    close();
    explain();
    // Something to look at: the node with the most neighbours.
    choose(model.degrees.indexOf(model.degrees.reduce((a, b) => Math.max(a, b), 0)));
  };
  models.forEach((model, each) => {
    const option = element("option", `${model.graph}: ${model.title}`);
    option.value = String(each);
    chooser.append(option);
  });
  chooser.closest("label").hidden = models.length < 2;
  chooser.addEventListener("change", () => open(models[Number(chooser.value)]));
  for (const each of colourings) {
    each.addEventListener("change", () => {
      state.colouring = each.value;
      explain();
      draw();
    });
  }
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerleave", () => { label.hidden = true; });
  canvas.addEventListener("click", (event) => {
    point(event);
    const place = nearest(event);
    if (place >= 0) choose(place);
  });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  for (const [moment, value] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(moment, () => {
      printing = value;
      draw();
    });
  }
  root.hidden = false;
  open(models[0]);
})();
