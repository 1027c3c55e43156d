// The records, read back from their columns (see columns.py), and what can be asked of them.

const data = JSON.parse(document.getElementById("data").textContent);
const ABSENT = Symbol("absent");

/** What row `row` has at a node; ABSENT where it has nothing. */
function cell(node, row) {
  if ("all" in node) return node.all;
  if ("each" in node) return node.each[row];
  if ("at" in node && node.at[row] >= 0) return node.of[node.at[row]];
  if (!("in" in node)) return ABSENT;
  const found = Object.create(null);
  for (const [key, inside] of Object.entries(node.in)) {
    const value = cell(inside, row);
    if (value !== ABSENT) found[key] = value;
  }
  return Object.keys(found).length ? found : ABSENT;
}

function nodeAt(...keys) {
  let node = data.points;
  for (const key of keys) {
    if (!node || !node.in || !Object.hasOwn(node.in, key)) return null;
    node = node.in[key];
  }
  return node;
}

function valueAt(row, ...keys) {
  const node = nodeAt(...keys);
  const value = node ? cell(node, row) : ABSENT;
  return value === ABSENT ? null : value;
}

const recordOf = (row) => cell(data.points.in.record, row);
const rowsAll = Array.from({ length: data.count }, (_, row) => row);
const statusOf = rowsAll.map((row) => valueAt(row, "record", "status"));
const reasonOf = rowsAll.map((row) => valueAt(row, "record", "reason"));
const isOk = (row) => statusOf[row] === "ok";
const breaksOf = rowsAll.map((row) => valueAt(row, "breaks") ?? "");
/** Whether a point may be the best: it is ok and keeps the constraints of its sweep. */
const isWanted = (row) => isOk(row) && !breaksOf[row];

/** A figure's entry in a record: value, unit, kind, how, low, high, repeats, status, reason, facts. */
const figureOf = (row, name) => valueAt(row, "record", "figures", name);

/** The values of a figure that hold, as a comparison takes them: NaN where there is none or it is not valid. */
const columnOf = (() => {
  const made = new Map();
  return (name) => {
    if (!made.has(name)) made.set(name, rowsAll.map((row) => held(row, name)));
    return made.get(name);
  };
})();

function held(row, name) {
  if (valueAt(row, "record", "figures", name, "status") !== "ok") return NaN;
  const value = valueAt(row, "record", "figures", name, "value");
  return typeof value === "number" ? value : NaN;
}

const figures = new Map(data.figures.map((figure) => [figure.name, figure]));
for (const figure of figures.values()) {
  const node = nodeAt("record", "figures", figure.name, "kind");
  figure.kinds = node ? ("all" in node ? [node.all] : node.of || [...new Set(node.each)]) : [];
  figure.kind = figure.kinds.join(", ");
}

/** Labels, options and figures as columns that a table, a colour or a filter can take. */
const columns = new Map();
function addColumn(key, group, get, more = {}) {
  const values = rowsAll.map(get);
  const there = values.filter((value) => value !== null && value !== "" && !Number.isNaN(value));
  const numeric = there.length > 0 && there.every((value) => typeof value === "number");
  columns.set(`${group}:${key}`, { id: `${group}:${key}`, key, group, values, numeric, unit: "", ...more });
}

/** An override's text as the number that it is, where it is one. */
function typed(text) {
  return typeof text === "string" && /^-?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : text;
}

for (const key of data.labels) {
  const texts = rowsAll.map((row) => valueAt(row, "label", key));
  const numbers = texts.map(typed);
  const all = numbers.every((value) => typeof value === "number" || value === "");
  addColumn(key, "label", (row) => (all && numbers[row] !== "" ? numbers[row] : texts[row]));
}
if (breaksOf.some(Boolean)) addColumn("breaks", "mark", (row) => breaksOf[row]);
addColumn("status", "mark", (row) => statusOf[row]);
for (const figure of figures.values()) {
  addColumn(figure.name, "figure", (row) => columnOf(figure.name)[row], { unit: figure.unit, numeric: true, figure });
}
for (const key of data.options) {
  addColumn(key, "option", (row) => {
    const value = valueAt(row, "option", key);
    return value === null || typeof value === "number" ? value : typeof value === "string" ? value : JSON.stringify(value);
  });
}

/** Who a point is, in a line: what varies, and its value. */
function nameOf(row) {
  return data.labels.map((key) => {
    const text = valueAt(row, "label", key);
    return key === "model" || key === "folder" ? text : `${key} ${text === "" ? "–" : text}`;
  }).join(" · ");
}

/** The distinct values of a column in the rows, numbers by size, texts as they came. */
function distinct(column, rows = rowsAll) {
  const found = [...new Set(rows.map((row) => column.values[row]))].filter((v) => v !== null && !Number.isNaN(v));
  return column.numeric ? found.sort((a, b) => a - b) : found;
}
