// Parallel coordinates: what varies and the figures, a line a point. A brush on an axis leaves only the points in it.

const MOST_PLACES = 12;
const MOST_LINES = 1500;
let frontOnly = false;
let dimensions = [];

/** The columns that have an axis: what varies, then the figures of the front and of the scatter. */
function parallelColumns(rows) {
  const names = [...new Set([...data.front, state.x, state.y])].filter(Boolean);
  const labels = data.labels.filter((key) => key !== "folder").map((key) => columns.get(`label:${key}`));
  return [...labels, ...names.map((name) => columns.get(`figure:${name}`))].filter((column) => distinct(column, rows).length > 1);
}

/** An axis: where each row lies on it, its ticks, and its title. */
function dimensionOf(column, rows) {
  const values = distinct(column, rows);
  if (!column.figure && (!column.numeric || values.length <= MOST_PLACES)) return placesOf(column, values, rows);
  const log = column.figure && spansMuch(rows.map((row) => column.values[row]));
  const at = log ? Math.log10 : (value) => value;
  const [low, high] = [values[0], values.at(-1)];
  const [tickvals, ticktext] = ticks(low, high, log, column.unit, 7);
  return { column, at: (row) => at(column.values[row]), values: rows.map((row) => at(column.values[row])), range: [at(low), at(high)], tickvals: tickvals.map(at), ticktext, label: column.key };
}

function placesOf(column, values, rows) {
  const up = column.numeric ? (index) => index : (index) => values.length - 1 - index; // texts as they came, from above
  const place = new Map(values.map((value, index) => [value, up(index)]));
  const step = Math.ceil(values.length / 24);
  const shown = values.map((_, index) => index).filter((index) => index % step === 0);
  const text = (value) => (value === "" ? "–" : typeof value === "number" ? plain(value) : clip(String(value), 18));
  return {
    column, at: (row) => place.get(column.values[row]), values: rows.map((row) => place.get(column.values[row]) ?? -1),
    range: [-0.3, values.length - 0.7], tickvals: shown.map(up), ticktext: shown.map((index) => text(values[index])), label: column.key,
  };
}

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function drawParallel(cause) {
  if (cause === "brush" || cause === "selection") return;
  const able = kept.filtered.filter((row) => isOk(row) && data.front.every((name) => !Number.isNaN(columnOf(name)[row])));
  const best = front(kept.filtered, frontNames(), frontWants());
  const isBest = new Set(best);
  const rows = frontOnly && best.length ? able.filter((row) => isBest.has(row)) : someLines(able, isBest);
  const used = parallelColumns(rows.length > 1 ? rows : able);
  const colours = theme();
  byId("parallel-note").textContent = parallelNote(rows, able);
  if (rows.length < 2 || used.length < 2) { Plotly.purge("parallel-plot"); dimensions = []; return; }
  const there = rows.filter((row) => used.every((column) => !Number.isNaN(column.values[row])));
  dimensions = used.map((column) => dimensionOf(column, there));
  const place = byId("parallel-plot");
  place.style.minWidth = `${dimensions.length * 96}px`;
  Plotly.purge(place);
  Plotly.newPlot(place, [parallelTrace(there, colours)], baseLayout(colours, { margin: { l: 64, r: 64, t: 44, b: 16 } }), CONFIG);
  place.on("plotly_restyle", brushed);
}

/** The front and, of very many others, one in so many. */
function someLines(able, isBest) {
  const step = Math.ceil(able.length / MOST_LINES);
  return able.filter((row, index) => isBest.has(row) || index % step === 0);
}

function parallelTrace(rows, colours) {
  const tint = colouring(rows);
  const line = tint.scale
    ? { color: rows.map((row) => tint.scale.values[row]), colorscale: colours.scale }
    : stepped(rows.map(tint.of), tint.groups.map(([, , colour]) => colour));
  return {
    type: "parcoords", line, labelangle: 0, labelside: "top",
    labelfont: { size: 12, color: colours.text }, tickfont: { size: 11, color: colours.muted }, rangefont: { size: 1, color: "rgba(0,0,0,0)" },
    unselected: { line: { color: colours.line, opacity: 0.25 } },
    dimensions: dimensions.map(({ column, label, values, range, tickvals, ticktext }) => ({
      ...(state.brush.has(column.id) && { constraintrange: state.brush.get(column.id).ranges }), label: verbatim(clip(label, 20)), values, range, tickvals, ticktext,
    })),
  };
}

/** A line's colour from a few, by their number. */
function stepped(numbers, list) {
  const scale = list.flatMap((colour, index) => [[index / list.length, colour], [(index + 1) / list.length, colour]]);
  return { color: numbers, cmin: -0.5, cmax: list.length - 0.5, colorscale: scale };
}

function brushed() {
  state.brush.clear();
  byId("parallel-plot").data[0].dimensions.forEach((drawn, index) => {
    const range = drawn.constraintrange;
    if (!range || !range.length) return;
    const ranges = Array.isArray(range[0]) ? range : [range];
    const { at, column } = dimensions[index];
    state.brush.set(column.id, { ranges, test: (row) => ranges.some(([low, high]) => at(row) >= low && at(row) <= high) });
  });
  refresh("brush");
}

function parallelNote(rows, able) {
  const left = able.length - rows.length;
  const lacking = kept.filtered.length - able.length;
  const parts = [
    `A line a point${left ? `; ${frontOnly ? "only the front" : "the front and some of the others"}: ${GROUPED.format(left)} of ${GROUPED.format(able.length)} are not drawn` : ""}`,
    lacking ? `${GROUPED.format(lacking)} not ok or without one of the figures` : "",
    "drag along an axis to keep only what lies there, click it to let go; drag a name to move its axis",
  ];
  return `${parts.filter(Boolean).join("; ")}.`;
}

function setUpParallel() {
  if (!state.x || data.count < 2) { byId("parallel").hidden = true; return; }
  resizes(byId("parallel-plot"));
  byId("parallel-controls").replaceChildren(checkBox("only the front", frontOnly, (on) => { frontOnly = on; refresh("filter"); }));
  draws(drawParallel);
}
