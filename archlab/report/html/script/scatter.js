// Two figures against each other: the points, their colours, the front.

const MOST_DRAWN = 3000;
let zoomed = { x: null, y: null };

/** The column that colours points, and how: by its values, by a scale, or not at all. */
function colouring(rows) {
  const column = columns.get(state.colour);
  const colours = theme();
  if (!column) return { groups: [["", rows, colours.faint, "circle"]], of: () => 0 };
  const values = distinct(column);
  if (column.numeric && values.length > MOST_COLOURS) return { scale: column, groups: [["", rows, null, "circle"]] };
  const named = values.slice(0, values.length > MOST_COLOURS ? MOST_COLOURS - 1 : MOST_COLOURS);
  const tints = column.numeric ? shades(colours.scale, named.length) : colours.series;
  const place = new Map(named.map((value, index) => [value, index]));
  const of = (row) => place.get(column.values[row]) ?? named.length;
  const groups = named.map((value, index) => [value, [], tints[index], MARKS[index]]);
  const more = values.length - named.length;
  if (more || rows.some((row) => of(row) === named.length)) {
    groups.push([more ? `${more} others` : "none", [], colours.faint, "circle-open"]);
  }
  for (const row of rows) groups[of(row)][1].push(row);
  return { column, groups, of };
}

/** A row's colour where a column of few values colours them, as in every plot; null where none does. */
function colourOf(rows) {
  const tint = colouring(rows);
  return (row) => (tint.column ? tint.groups[tint.of(row)][2] : null);
}

/** Of points at the same place one, the others counted with it; always those of the front. */
function thinned(rows) {
  if (rows.length <= MOST_DRAWN) return { rows, hidden: 0, with: new Map() };
  const [xs, ys] = [columnOf(state.x), columnOf(state.y)];
  for (let cells = 400; ; cells = Math.floor(cells * 0.7)) {
    const places = new Map();
    const [px, py] = [placer(rows, xs, logOf("x"), cells), placer(rows, ys, logOf("y"), cells / 2)];
    for (const row of rows) {
      const key = `${px(xs[row])},${py(ys[row])}`;
      const found = places.get(key);
      if (!found) places.set(key, [row]);
      else if (kept.isFront.has(row)) found.unshift(row);
      else found.push(row);
    }
    const one = [...places.values()];
    const drawn = one.flatMap((group) => [group[0], ...group.slice(1).filter((row) => kept.isFront.has(row))]);
    if (drawn.length <= MOST_DRAWN || cells < 40) {
      return { rows: drawn, hidden: rows.length - drawn.length, with: new Map(one.map((group) => [group[0], group.length - 1])) };
    }
  }
}

function placer(rows, values, log, cells) {
  const [low, high] = bounds(rows.map((row) => values[row]), log);
  const [from, to] = log ? [Math.log(low), Math.log(high)] : [low, high];
  return (value) => Math.round(((log ? Math.log(value) : value) - from) / (to - from) * cells);
}

const logOf = (side) => {
  const values = columnOf(state[side]);
  const wanted = state.log[side] ?? spansMuch(values);
  return wanted && kept.shown.every((row) => !(values[row] <= 0));
};

const inView = (row) => ["x", "y"].every((side) => {
  const value = columnOf(state[side])[row];
  return !zoomed[side] || (value >= zoomed[side][0] && value <= zoomed[side][1]);
});

let alike = new Map();

function drawScatter() {
  if (!state.x) return;
  const colours = theme();
  const [xs, ys] = [columnOf(state.x), columnOf(state.y)];
  const able = kept.shown.filter((row) => isOk(row) && !Number.isNaN(xs[row]) && !Number.isNaN(ys[row]));
  const thin = thinned(able.filter(inView));
  alike = thin.with;
  const tint = colouring(thin.rows);
  const traces = tint.groups.map(([, rows, colour, mark]) => markers(rows, colour, mark, tint, colours));
  plot("scatter", [...spreads(thin.rows, colours), ...traces, ...frontTraces(colours), ...selectedTrace(colours)], scatterLayout(able, colours), {
    click: (event) => event.points[0].customdata !== undefined && select(event.points[0].customdata),
    hover: (event) => tipOf(event),
    relayout: (change) => {
      const axes = byId("scatter").layout;
      const range = (axis) => (axis.type === "log" ? axis.range.map((power) => 10 ** power) : [...axis.range]);
      if (Object.keys(change).some((key) => key.includes("range["))) {
        zoomed = { x: range(axes.xaxis), y: range(axes.yaxis) };
        drawScatter();
      }
    },
    doubleclick: () => { zoomed = { x: null, y: null }; drawScatter(); },
  });
  drawLegend(tint);
  noteScatter(able, thin);
}

function markers(rows, colour, symbol, tint, colours) {
  const [xs, ys] = [columnOf(state.x), columnOf(state.y)];
  const size = rows.length > 600 ? 6 : 8;
  const scaled = tint.scale && {
    color: rows.map((row) => tint.scale.values[row]), colorscale: colours.scale, showscale: true,
    colorbar: { thickness: 8, len: 0.7, outlinewidth: 0, title: { text: verbatim(tint.scale.key), font: { size: 11 } }, tickfont: { size: 11 } },
  };
  return {
    type: "scatter", mode: "markers", hoverinfo: "none", customdata: rows,
    x: rows.map((row) => xs[row]), y: rows.map((row) => ys[row]),
    marker: { size, symbol, color: colour, opacity: 0.85, line: { width: 0.6, color: colours.panel }, ...scaled },
  };
}

/** The spread of what was measured, where few points leave room for it. */
function spreads(rows, colours) {
  if (rows.length > 60) return [];
  const bar = (name) => {
    const found = rows.map((row) => figureOf(row, name));
    if (!found.some((figure) => typeof figure.low === "number")) return null;
    const part = (high) => found.map((f) => (typeof f.low === "number" ? (high ? f.high - f.value : f.value - f.low) : 0));
    return { type: "data", symmetric: false, array: part(true), arrayminus: part(false), color: colours.muted, thickness: 1, width: 0 };
  };
  const [error_x, error_y] = [bar(state.x), bar(state.y)];
  if (!error_x && !error_y) return [];
  const value = (name) => rows.map((row) => columnOf(name)[row]);
  return [{ type: "scatter", mode: "markers", hoverinfo: "skip", x: value(state.x), y: value(state.y), marker: { size: 1, color: colours.muted }, opacity: 0.6, ...(error_x && { error_x }), ...(error_y && { error_y }) }];
}

/** The front: a ring around each point; where the axes are what it is of, the steps that nothing lies beyond, and numbers. */
function frontTraces(colours) {
  const [xs, ys] = [columnOf(state.x), columnOf(state.y)];
  const rows = kept.front.filter((row) => !Number.isNaN(xs[row]) && !Number.isNaN(ys[row])).sort((a, b) => xs[a] - xs[b]);
  const at = { x: rows.map((row) => xs[row]), y: rows.map((row) => ys[row]) };
  const shape = frontWants()[0] < 0 ? "hv" : "vh";
  const number = new Map(frontOrder().map((row, index) => [row, index + 1]));
  const few = rows.length <= 30;
  const ring = {
    type: "scatter", mode: few ? "markers+text" : "markers", hoverinfo: "none", customdata: rows, ...at,
    marker: { size: rows.length > 100 ? 9 : 13, symbol: "circle-open", color: colours.accent, line: { width: 1.8, color: colours.accent } },
    text: rows.map((row) => String(number.get(row))), textposition: "top center", textfont: { size: 11, color: colours.accent }, cliponaxis: false,
  };
  const line = { type: "scatter", mode: "lines", hoverinfo: "skip", ...at, line: { shape, color: colours.accent, width: 1.4 }, opacity: 0.75 };
  return state.frontOf === "axes" ? [line, ring] : [ring];
}

/** The front as it is listed: by the first of its figures. */
const frontOrder = () => {
  const values = columnOf(frontNames()[0]);
  return [...kept.front].sort((a, b) => values[a] - values[b]);
};

function selectedTrace(colours) {
  const row = state.selected;
  if (row === null || !kept.shown.includes(row)) return [];
  return [{
    type: "scatter", mode: "markers", hoverinfo: "skip", x: [columnOf(state.x)[row]], y: [columnOf(state.y)[row]],
    marker: { size: 19, symbol: "circle-open", line: { width: 2.2, color: colours.text }, color: colours.text },
  }];
}

function scatterLayout(rows, colours) {
  const axis = (side) => {
    const values = rows.map((row) => columnOf(state[side])[row]);
    return axisOf(state[side], values, logOf(side), zoomed[side], colours);
  };
  return baseLayout(colours, { xaxis: axis("x"), yaxis: axis("y") });
}

function tipOf(event) {
  const row = event.points[0].customdata;
  if (row === undefined) return;
  const names = [...new Set([state.x, state.y, ...data.front])];
  const more = alike.get(row) || 0;
  const foot = [kept.isFront.has(row) ? "on the front" : "", more ? `${count(more, "more point")} at this place` : ""];
  showTip(event.event, nameOf(row), names.map((name) => [name, toldFigure(row, name)]), foot.filter(Boolean).join("; "));
}

/** A press on a value shows only the points that have it; another shows all. */
function drawLegend(tint) {
  const legend = byId("legend");
  legend.replaceChildren();
  if (!tint.column) return;
  legend.append(element("span", { class: "about" }, tint.column.key));
  tint.groups.forEach(([value, rows, colour, mark], index) => {
    const own = index < MOST_COLOURS && tint.column.values.includes(value);
    const text = `=${value}`;
    const on = state.filters.get(tint.column.id) === text;
    const swatch = element("i", { class: `swatch ${mark}` });
    swatch.style.setProperty("--colour", colour);
    legend.append(button("", () => own && setFilter(tint.column.id, on ? "" : text), { "aria-pressed": String(on), class: "key", disabled: !own }));
    legend.lastChild.append(swatch, value === "" ? "–" : tint.column.numeric ? plain(value) : String(value));
  });
}

function noteScatter(able, thin) {
  const absent = kept.shown.length - able.length;
  const parts = [
    `${count(able.length, "point")}${thin.rows.length < able.length ? `, ${GROUPED.format(thin.rows.length)} drawn` : ""}`,
    thin.hidden ? `${GROUPED.format(thin.hidden)} lie on one that is drawn` : "",
    absent ? `${GROUPED.format(absent)} not ok or without one of the two figures` : "",
    "click a point for its config; drag to zoom, double-click to see all",
  ];
  byId("scatter-note").textContent = parts.filter(Boolean).join("; ");
}

const figureChoices = () => [
  ["usual", [...figures.values()].filter((f) => f.headline).map((f) => [f.name, f.name])],
  ["others", [...figures.values()].filter((f) => !f.headline).map((f) => [f.name, f.name])],
].filter(([, pairs]) => pairs.length);

function colourChoices() {
  const of = (group) => [...columns.values()].filter((column) => column.group === group && distinct(column).length > 1);
  return [["", [["", "nothing"]]], ["what varies", of("label").map((c) => [c.id, c.key])], ["options", of("option").map((c) => [c.id, c.key])]]
    .filter(([, pairs]) => pairs.length);
}

function setUpScatter() {
  if (!state.x) {
    byId("front").replaceChildren(element("p", { class: "note" }, "No point has two figures to draw."));
    return;
  }
  const varying = (colourChoices().find(([group]) => group === "what varies")?.[1] ?? []).map(([id]) => id);
  state.colour = varying.find((id) => distinct(columns.get(id)).length <= MOST_COLOURS) ?? varying[0] ?? ""; // as pictures do
  const axis = (side) => (name) => { state[side] = name; state.log[side] = null; state.want[side] = 0; zoomed = { x: null, y: null }; refresh("axes"); controls(); };
  const want = (side) => selectBox("want", [["", [["-1", "less"], ["1", "more"], ...(figures.get(state[side]).better ? [] : [["0", "–"]])]]], String(state.want[side] || figures.get(state[side]).better),
    (way) => { state.want[side] = Number(way); refresh("front"); });
  const controls = () => byId("scatter-controls").replaceChildren(
    selectBox("x", figureChoices(), state.x, axis("x")), want("x"), checkBox("log", logOf("x"), (on) => { state.log.x = on; zoomed.x = null; drawScatter(); }),
    selectBox("y", figureChoices(), state.y, axis("y")), want("y"), checkBox("log", logOf("y"), (on) => { state.log.y = on; zoomed.y = null; drawScatter(); }),
    selectBox("colour", colourChoices(), state.colour, (id) => { state.colour = id; refresh("colour"); }),
    selectBox("front of", [["", frontChoices()]], state.frontOf, (of) => { state.frontOf = of; refresh("front"); }),
  );
  controls();
  draws(drawScatter);
  draws(drawFrontList);
}

function frontChoices() {
  const same = data.front.length === 2 && new Set([...data.front, ...data.axes]).size === 2;
  return [["axes", "these two axes"], ...(data.front.length && !same ? [["sweep", data.front.join(", ")]] : [])];
}

// --- the list beside it ----------------------------------------------------------------------------------------------

const MOST_LISTED = 200;

function drawFrontList() {
  const rows = frontOrder();
  const names = frontNames();
  byId("front-title").textContent = `On the front: ${GROUPED.format(rows.length)} of ${count(kept.shown.length, "point")}`;
  const head = element("tr", {}, element("th", {}, "#"), element("th", {}, data.labels.join(" · ")), ...names.map((name) => figureHead(name, figures.get(name).unit)));
  const body = rows.slice(0, MOST_LISTED).map((row, index) => element("tr", {
    tabindex: 0, class: row === state.selected ? "chosen" : "", onclick: () => select(row),
    onkeydown: (event) => event.key === "Enter" && select(row),
  }, element("td", { class: "rank" }, String(index + 1)), element("td", {}, shortName(row), equalTo(row, names)),
  ...names.map((name) => element("td", { class: "number" }, cellText(columns.get(`figure:${name}`), row)))));
  byId("front-list").replaceChildren(element("table", { class: "list" }, element("thead", {}, head), element("tbody", {}, ...body)));
  byId("front-note").textContent = frontNote(rows, names);
}

/** A column's head: the figure, and what its numbers are. */
const figureHead = (name, unit) => element("th", { class: "number" }, breakable(name), element("span", { class: "kind" }, [unit, figures.get(name).kind].filter(Boolean).join(", ")));

const shortName = (row) => data.labels.map((key) => {
  const value = columns.get(`label:${key}`).values[row];
  return value === "" ? "–" : typeof value === "number" ? plain(value) : value;
}).join(" · ");

function equalTo(row, names) {
  const same = kept.shown.filter((other) => isWanted(other) && names.every((name) => columnOf(name)[other] === columnOf(name)[row])).length - 1;
  return same > 0 ? element("span", { class: "same" }, ` and ${GROUPED.format(same)} equal`) : "";
}

function frontNote(rows, names) {
  if (frontWants().includes(0)) return "Of one of these figures neither less nor more is better; say which is wanted.";
  const rest = rows.length > MOST_LISTED ? `; the first ${MOST_LISTED} are listed, the table has all` : "";
  return `No other point shown is better in one of these and no worse in the others: ${wishes()}${rest}.`;
}
