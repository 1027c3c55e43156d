// What the reader has chosen, and the points that are left by it. Whatever changes it calls `refresh`.

const state = {
  x: data.axes[0], y: data.axes[1],
  log: { x: null, y: null }, // null: as the values ask for
  want: { x: 0, y: 0 }, // which way is better on an axis, 1 more and -1 less; 0: as the figure's unit has it
  frontOf: "axes", // or "sweep": the figures that `archlab results` takes
  colour: null, // a column's id
  selected: null,
  filters: new Map(), // column id: text as it was typed
  brush: new Map(), // column id: for an axis of the parallel plot with a brush on it, its ranges and a test of a row
  search: "",
  sort: null, // [column id, 1 or -1]
};

/** The rows that the typed filters and the search leave, without the parallel plot's brushes. */
function filtered() {
  const tests = [...state.filters].map(([id, text]) => [columns.get(id), readFilter(text, columns.get(id))]);
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  return rowsAll.filter((row) =>
    tests.every(([column, test]) => !test || test(column.values[row])) && words.every((word) => textOf(row).includes(word)));
}

/** Everything that a search looks through: who a point is, its overrides, how it ended. */
const textOf = (() => {
  const made = [];
  return (row) => (made[row] ??= [
    nameOf(row), ...(valueAt(row, "record", "overrides") || []), statusOf[row], reasonOf[row] || "",
    valueAt(row, "record", "folder") || "",
  ].join(" ").toLowerCase());
})();

let kept = { filtered: rowsAll, shown: rowsAll, front: [], isFront: new Set() };

/** The figures that the front is of, each with which way is better. */
const frontNames = () => (state.frontOf === "sweep" ? data.front : data.axes.length ? [state.x, state.y] : []);
const frontWants = () => frontNames().map((name, index) => (state.frontOf === "axes" && state.want["xy"[index]]) || figures.get(name).better);
const wishes = () => frontWants().map((want, index) => `${want > 0 ? "more" : "less"} ${frontNames()[index]}`).join(", ");

const drawers = [];
/** Run `draw` at each change; it is told the cause: filter, brush, selection, axes, colour, front, theme; none at first. */
const draws = (draw) => drawers.push(draw);

function refresh(cause = "") {
  if (["filter", "axes", "front"].includes(cause)) state.brush.clear(); // its axes are others now
  const rows = filtered();
  const shown = rows.filter((row) => [...state.brush.values()].every(({ test }) => test(row)));
  const best = front(shown, frontNames(), frontWants());
  kept = { filtered: rows, shown, front: best, isFront: new Set(best) };
  for (const draw of drawers) draw(cause);
}

function select(row) {
  state.selected = row;
  refresh("selection");
}

function setFilter(id, text) {
  if (text) state.filters.set(id, text);
  else state.filters.delete(id);
  refresh("filter");
}

// --- elements --------------------------------------------------------------------------------------------------------

const byId = (id) => document.getElementById(id);

/** An element; texts become text and are never read as HTML. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** A name that may be broken after its `_`, `.` and `/`. */
function breakable(name) {
  const parts = name.split(/(?<=[_./])/);
  return element("span", {}, ...parts.flatMap((part, index) => (index ? [element("wbr"), part] : [part])));
}

function button(text, press, attributes = {}) {
  return element("button", { type: "button", onclick: press, ...attributes }, text);
}

/** A choice among values: [value, text] pairs, or [group, pairs] where the second is a list of pairs. */
function selectBox(label, groups, value, change) {
  const box = element("select", { "aria-label": label, onchange: (event) => change(event.target.value) });
  for (const [name, pairs] of groups) {
    const options = pairs.map(([id, text]) => element("option", { value: id, selected: id === value }, text));
    box.append(...(name ? [element("optgroup", { label: name }, ...options)] : options));
  }
  return element("label", { class: "choice" }, element("span", {}, label), box);
}

function checkBox(label, checked, change) {
  const box = element("input", { type: "checkbox", checked, onchange: (event) => change(event.target.checked) });
  return element("label", { class: "choice" }, box, element("span", {}, label));
}

const count = (number, noun) => `${GROUPED.format(number)} ${noun}${number === 1 ? "" : "s"}`;
