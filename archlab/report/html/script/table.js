// The table: every point, sorted and filtered; only the rows in view are in the document.

const [ROW, MOST_HEIGHT] = [27, 560]; // px, as the style sheet has them
const shownColumns = new Set();
let tableRows = [];

function usualColumns() {
  for (const key of data.labels) shownColumns.add(`label:${key}`);
  if (columns.has("mark:breaks")) shownColumns.add("mark:breaks");
  if (statusOf.some((status) => status !== "ok")) shownColumns.add("mark:status");
  const usual = [...data.front, "weight_bytes", "flops_decode_per_token", "prefill_tok_s", "decode_tok_s", "train_tok_s", "decode_peak_bytes",
    ...[...figures.keys()].filter((name) => name.startsWith("solved_") || name === "budget_residual")];
  for (const name of usual) if (figures.has(name)) shownColumns.add(`figure:${name}`);
}

const tableColumns = () => [...columns.values()].filter((column) => shownColumns.has(column.id));

function sortedRows() {
  if (!state.sort) return kept.shown;
  const [id, sign] = state.sort;
  const { values, numeric } = columns.get(id);
  const lacks = (value) => value === null || value === "" || Number.isNaN(value);
  const order = numeric ? (a, b) => a - b : (a, b) => String(a).localeCompare(String(b), "en", { numeric: true });
  return [...kept.shown].sort((a, b) => {
    const [x, y] = [values[a], values[b]];
    if (lacks(x) || lacks(y)) return lacks(x) - lacks(y) || a - b;
    return sign * order(x, y) || a - b;
  });
}

/** The best of a figure among the points shown, where they are not all equal. */
function bestOf(column) {
  if (!column.figure || !column.figure.merit) return null;
  const values = kept.shown.filter(isWanted).map((row) => column.values[row]).filter((value) => !Number.isNaN(value));
  const best = values.reduce((a, b) => ((b - a) * column.figure.better > 0 ? b : a), values[0]);
  return values.some((value) => value !== best) ? best : null;
}

function drawHead() {
  const heads = tableColumns().map((column) => {
    const sorted = state.sort?.[0] === column.id ? state.sort[1] : 0;
    const about = column.figure ? `${column.unit}, ${column.figure.kind}` : column.group === "option" ? "option" : "";
    return element("th", { class: column.numeric ? "number" : "", "aria-sort": sorted ? (sorted > 0 ? "ascending" : "descending") : "none", "data-column": column.id },
      button("", () => sortBy(column), { title: `Sort by ${column.key}` }),
      element("input", { type: "text", value: state.filters.get(column.id) || "", placeholder: column.numeric ? "< > =" : "filter", "aria-label": `Filter ${column.key}`, title: column.numeric ? "<200M  >=32KiB  8..16  =7" : "a part, =all of it, !=not this", oninput: (event) => typeFilter(column, event.target) }));
  });
  byId("table").replaceChildren(element("thead", {}, element("tr", {}, element("th", { class: "mark", "aria-label": "On the front" }), ...heads)), element("tbody"));
  tableColumns().forEach((column, index) => {
    const sorted = state.sort?.[0] === column.id ? state.sort[1] : 0;
    const head = heads[index].firstChild;
    head.append(element("span", { class: "name" }, breakable(column.key), sorted ? element("span", { class: "arrow" }, sorted > 0 ? " ↑" : " ↓") : ""));
    head.append(element("span", { class: "about" }, column.figure ? `${column.unit}, ${column.figure.kind}` : column.group === "option" ? "option" : " "));
  });
}

/** The better way first, then the other, then as the points came. */
function sortBy(column) {
  const first = column.figure?.better > 0 ? -1 : 1;
  const now = state.sort?.[0] === column.id ? state.sort[1] : 0;
  state.sort = now === 0 ? [column.id, first] : now === first ? [column.id, -first] : null;
  drawHead();
  drawRows();
}

let typing = 0;
function typeFilter(column, input) {
  const text = input.value.trim();
  input.setAttribute("aria-invalid", String(Boolean(text) && !readFilter(text, column)));
  clearTimeout(typing);
  typing = setTimeout(() => setFilter(column.id, text), 150);
}

function drawTable(cause) {
  for (const input of document.querySelectorAll("#table thead input")) {
    const id = input.closest("th").dataset.column;
    if (document.activeElement !== input) input.value = state.filters.get(id) || "";
  }
  drawRows(cause === "selection");
}

function drawRows(keep = false) {
  tableRows = sortedRows();
  tableBest = new Map(tableColumns().map((column) => [column.id, bestOf(column)]));
  if (!keep) byId("rows").scrollTop = 0;
  drawWindow();
  byId("table").setAttribute("aria-rowcount", String(tableRows.length + 1));
  byId("table-note").textContent = `${GROUPED.format(tableRows.length)} of ${count(data.count, "point")}; ${wishes() ? `◉ is on the front (${wishes()}); ` : ""}the best of a column is in bold; click a row for its config, a head to sort.`;
}
let tableBest = new Map();

/** Only what is in view, between two empty rows as high as the rest. */
function drawWindow() {
  const box = byId("rows");
  const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 10);
  const last = Math.min(tableRows.length, first + Math.ceil(Math.min(innerHeight, MOST_HEIGHT) / ROW) + 20);
  const list = tableColumns();
  const filler = (rows) => element("tr", { class: "filler", "aria-hidden": "true" }, element("td", { colspan: list.length + 1, style: `height:${rows * ROW}px` }));
  const rows = tableRows.slice(first, last).map((row, index) => tableRow(row, list, first + index));
  byId("table").tBodies[0].replaceChildren(filler(first), ...rows, filler(tableRows.length - last));
}

function tableRow(row, list, index) {
  const cells = list.map((column) => {
    const value = column.values[row];
    const best = isWanted(row) && tableBest.get(column.id) === value && value !== null;
    const wrong = column.id === "mark:status" && value !== "ok";
    return element("td", { class: [column.numeric ? "number" : "", best ? "best" : "", wrong ? "wrong" : ""].join(" ").trim(), title: wrong ? reasonOf[row] : !column.numeric && String(value).length > 24 ? value : null },
      column.key === "status" || column.figure ? cellText(column, row) : value === "" || value === null ? "–" : cellText(column, row));
  });
  return element("tr", { tabindex: 0, "data-row": row, "aria-rowindex": index + 2, class: row === state.selected ? "chosen" : "" }, element("td", { class: "mark" }, kept.isFront.has(row) ? "◉" : ""), ...cells);
}

function setUpTable() {
  usualColumns();
  drawHead();
  const box = byId("rows");
  box.addEventListener("scroll", () => requestAnimationFrame(drawWindow));
  const pick = (event) => {
    const row = event.target.closest("tr[data-row]");
    if (row) select(Number(row.dataset.row));
  };
  byId("table").addEventListener("click", pick);
  byId("table").addEventListener("keydown", (event) => event.key === "Enter" && pick(event));
  byId("table-controls").replaceChildren(
    element("input", { type: "search", placeholder: "search all points", "aria-label": "Search all points", id: "search", oninput: (event) => { state.search = event.target.value; refresh("filter"); } }),
    columnPicker(), button("CSV of these", saveCsv, { class: "plain", id: "csv" }));
  draws(drawTable);
}

function columnPicker() {
  const boxes = [...columns.values()].filter((column) => column.group !== "mark").map((column) => checkBox(column.key, shownColumns.has(column.id), (on) => {
    if (on) shownColumns.add(column.id); else shownColumns.delete(column.id);
    drawHead();
    drawRows(true);
  }));
  return element("details", { class: "picker" }, element("summary", {}, "columns"), element("div", {}, ...boxes));
}

/** The rows shown with all figures, unrounded. */
function saveCsv() {
  const list = [...columns.values()];
  const quoted = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const text = (value) => (value === null || Number.isNaN(value) ? "" : quoted(String(value)));
  const lines = [list.map((column) => quoted(column.key)), ...tableRows.map((row) => list.map((column) => text(column.values[row])))];
  const link = element("a", { href: URL.createObjectURL(new Blob([lines.map((line) => line.join(",")).join("\n") + "\n"], { type: "text/csv" })), download: "points.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}
