// The page's head, its smaller parts, and the first drawing.

function drawBar() {
  const filters = [...state.filters].map(([id, text]) => [`${columns.get(id).key} ${text}`, () => setFilter(id, "")]);
  const brushes = [...state.brush.keys()].map((id) => [`${columns.get(id).key} brushed`, () => refresh("filter")]);
  const search = state.search ? [[`“${state.search}”`, () => { byId("search").value = state.search = ""; refresh("filter"); }]] : [];
  const all = [...search, ...filters, ...brushes];
  const chips = all.map(([text, drop]) => element("span", { class: "chip" }, text, button("×", drop, { "aria-label": `Drop ${text}` })));
  if (all.length > 1) chips.push(button("show all", showAll, { class: "plain" }));
  byId("chips").replaceChildren(...chips);
  byId("shown").replaceChildren(element("b", {}, GROUPED.format(kept.shown.length)), ` of ${count(data.count, "point")}`);
}

function showAll() {
  state.filters.clear();
  state.brush.clear();
  byId("search").value = state.search = "";
  refresh("filter");
}

/** What the page is of: the sources, how the points ended, when and where they ran, what they were held to. */
function drawTitle() {
  byId("title").textContent = data.title;
  const ended = [...new Set(statusOf)].map((status) => `${GROUPED.format(statusOf.filter((s) => s === status).length)} ${status}`);
  const seen = (...keys) => [...new Set(rowsAll.map((row) => valueAt(row, "record", ...keys)))].filter((value) => value !== null && value !== "");
  const days = [...new Set(seen("created").map((text) => text.slice(0, 10)))].sort();
  const devices = seen("environment", "device_name");
  const parts = [
    `${count(data.count, "point")}: ${ended.join(", ")}`,
    data.where ? `where ${data.where} (of ${GROUPED.format(data.found)})` : "",
    days.length ? (days.length > 1 ? `${days[0]} to ${days.at(-1)}` : days[0]) : "",
    some(devices), budgetText(seen), `archlab ${data.archlab}`,
  ];
  byId("facts").replaceChildren(...parts.filter(Boolean).map((text) => element("span", {}, text)));
}

const some = (texts) => (texts.length > 3 ? `${texts.slice(0, 3).join(", ")} and ${texts.length - 3} more` : texts.join(", "));

/** The budget that all points were solved for. */
function budgetText(seen) {
  const told = ["params", "params_active", "params_non_embedding", "kv_bytes_per_token", "flops_per_token", "base"]
    .map((name) => [name, seen("config", "budget", name)]).filter(([, values]) => values.length)
    .map(([name, values]) => `${name} ${some(values.map((value) => (typeof value === "number" ? plain(value) : String(value))))}`);
  return told.length ? `at an equal budget: ${told.join(", ")}, solved for ${some(seen("config", "budget", "solve"))}` : "";
}

/** The points that are not ok, by what they say. */
function drawFailed() {
  const groups = new Map();
  for (const row of rowsAll) {
    if (isOk(row)) continue;
    const key = JSON.stringify([statusOf[row], reasonOf[row]]);
    groups.set(key, [...(groups.get(key) || []), row]);
  }
  byId("failed").hidden = !groups.size;
  const few = rowsAll.filter((row) => !isOk(row)).length <= 12;
  const parts = [...groups.values()].sort((a, b) => b.length - a.length).map((rows) => {
    const list = element("ul");
    const fill = () => list.childNodes.length || list.append(...rows.map((row) => element("li", {}, button(nameOf(row), () => select(row), { class: "link" }))));
    const details = element("details", { open: few, ontoggle: fill }, element("summary", {}, element("span", { class: "badge wrong" }, statusOf[rows[0]]), ` ${GROUPED.format(rows.length)} `, element("span", { class: "reason" }, reasonOf[rows[0]] || "no reason was given")), list);
    if (few) fill();
    return details;
  });
  byId("failed-list").replaceChildren(...parts);
}

/** The kinds of numbers, and the definition of each figure of the table. */
function drawHow() {
  const kinds = { exact: "closed form, equal to the built module to the unit", measured: "from a clock or an allocator, with its spread", estimated: "from a model of the hardware", bound: "no run can do better" };
  const present = new Set([...figures.values()].flatMap((figure) => figure.kinds));
  const about = [...present].filter((kind) => kinds[kind]).flatMap((kind) => [element("dt", {}, kind), element("dd", {}, kinds[kind])]);
  const names = [...figures.values()].filter((figure) => figure.headline || data.front.includes(figure.name));
  const told = names.flatMap(({ name, unit, kind }) => [element("dt", {}, name), element("dd", {}, element("span", { class: "quiet" }, `${unit}, ${kind}: `), howOf(name))]);
  byId("how-list").replaceChildren(element("dl", { class: "kinds" }, ...about), element("dl", { class: "kinds" }, ...told));
}

function howOf(name) {
  const node = nodeAt("record", "figures", name, "how");
  const texts = "all" in node ? [node.all] : node.of || [...new Set(node.each)];
  return texts.length > 1 ? `${texts[0]} (and ${count(texts.length - 1, "other wording")}, with each point)` : texts[0];
}

function drawNav() {
  const parts = [["front", "front"], ["effects", "effects"], ["parallel", "parallel"], ["curves", "KV cache"], ["bars", "throughput"], ["points", "table"], ["failed", "not ok"]];
  byId("nav").replaceChildren(...parts.filter(([id]) => !byId(id).hidden).map(([id, text]) => element("a", { href: `#${id}` }, text)));
}

// --- light and dark --------------------------------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";

function setUpTheme() {
  const told = () => { byId("theme").textContent = isDark() ? "☀ light" : "☾ dark"; };
  byId("theme").addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try { localStorage.setItem("archlab-theme", chosen); } catch { /* a page from a file may have no storage */ }
    told();
    refresh("theme");
  });
  dark.addEventListener("change", () => { told(); refresh("theme"); });
  told();
}

for (const setUp of [setUpTheme, setUpScatter, setUpEffects, setUpParallel, setUpCurves, setUpBars, setUpTable, setUpPoint]) setUp();
draws(drawBar);
drawTitle();
drawFailed();
drawHow();
drawNav();
refresh();
document.documentElement.dataset.ready = "true";
