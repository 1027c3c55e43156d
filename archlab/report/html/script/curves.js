// The KV cache over context, a curve for each way in which it grows: points with the same bytes share one.

const MOST_CURVES = 40;
const CONTEXTS = [...figures.keys()].map((name) => /^kv_bytes\.(\d+)$/.exec(name)).filter(Boolean)
  .map((found) => ({ name: found[0], tokens: Number(found[1]) })).sort((a, b) => a.tokens - b.tokens);
let curveLogs = true;

/** Points by their curve: what they share, those on the front and the selected one first. */
function curveGroups() {
  const groups = new Map();
  for (const row of kept.shown) {
    if (!isOk(row)) continue;
    const points = CONTEXTS.map(({ name, tokens }) => [tokens, columnOf(name)[row]]).filter(([, value]) => !Number.isNaN(value));
    if (points.length < 2) continue;
    const key = points.join(";");
    if (!groups.has(key)) groups.set(key, { points, rows: [] });
    groups.get(key).rows.push(row);
  }
  const made = [...groups.values()];
  for (const group of made) {
    group.rows.sort((a, b) => kept.isFront.has(b) - kept.isFront.has(a));
    group.rank = group.rows.includes(state.selected) ? 2 : kept.isFront.has(group.rows[0]) ? 1 : 0;
  }
  return made.sort((a, b) => b.rank - a.rank || a.points.at(-1)[1] - b.points.at(-1)[1]);
}

function drawCurves() {
  const all = curveGroups();
  const groups = spread(all, MOST_CURVES);
  const colours = theme();
  const tint = colourOf(kept.shown);
  const curveColour = ({ rows }) => (rows.some((row) => tint(row) !== tint(rows[0])) ? colours.muted : tint(rows[0]) ?? colours.accent);
  const traces = groups.map((group) => ({
    type: "scatter", mode: "lines+markers", hoverinfo: "none", customdata: group.points.map(() => groups.indexOf(group)),
    x: group.points.map(([tokens]) => tokens), y: group.points.map(([, value]) => value),
    line: { color: group.rank === 2 ? colours.text : curveColour(group), width: group.rank === 2 ? 2.6 : group.rank ? 1.8 : 1 },
    marker: { size: group.rank ? 6 : 4 }, opacity: group.rank || groups.length < 12 ? 1 : 0.45,
  })).reverse();
  const values = groups.flatMap((group) => group.points.map(([, value]) => value));
  const tokens = groups.flatMap((group) => group.points.map(([at]) => at));
  byId("curves-plot").groups = groups;
  plot("curves-plot", traces, baseLayout(colours, { xaxis: tokenAxis(tokens, colours), yaxis: byteAxis(values, colours) }), {
    click: (event) => select(byId("curves-plot").groups[event.points[0].customdata].rows[0]),
    hover: (event) => tipOfCurve(event, byId("curves-plot").groups[event.points[0].customdata]),
  });
  byId("curves-note").textContent = curvesNote(all, groups, groups.some((group) => curveColour(group) === colours.muted));
}

/** At most so many: those of the front and the selected one, then some of the others from the least to the most. */
function spread(groups, most) {
  if (groups.length <= most) return groups;
  const first = groups.filter((group) => group.rank).slice(0, most - 10);
  const rest = groups.slice(groups.filter((group) => group.rank).length);
  const wanted = Math.min(most - first.length, rest.length);
  const some = Array.from({ length: wanted }, (_, i) => rest[Math.round(i * (rest.length - 1) / Math.max(1, wanted - 1))]);
  return [...first, ...new Set(some)];
}

function tokenAxis(tokens, colours) {
  const [low, high] = bounds(tokens, curveLogs);
  const values = curveLogs ? logTicks(low, high, true, 7) : evenTicks(low, high, true, 6);
  return { ...plainAxis(colours), type: curveLogs ? "log" : "linear", range: curveLogs ? [Math.log10(low), Math.log10(high)] : [0, high], tickvals: values, ticktext: values.map((v) => GROUPED.format(v)), title: { text: `context  (tokens${curveLogs ? ", log" : ""})`, font: { size: 12 }, standoff: 10 } };
}

function byteAxis(values, colours) {
  const [low, high] = bounds(values, curveLogs);
  const [tickvals, ticktext] = ticks(curveLogs ? low : 0, high, curveLogs, "B");
  return { ...plainAxis(colours), type: curveLogs ? "log" : "linear", range: curveLogs ? [Math.log10(low), Math.log10(high)] : [0, high], tickvals, ticktext, title: { text: `KV cache  (required, exact${curveLogs ? ", log" : ""})`, font: { size: 12 }, standoff: 10 } };
}

function tipOfCurve(event, group) {
  const at = event.points[0];
  const more = group.rows.length - 1;
  showTip(event.event, nameOf(group.rows[0]), [[`${GROUPED.format(at.x)} tokens`, `${whole(at.y)} B (${brief(at.y, "B")})`]], more ? `${count(more, "more point")} with this curve` : "");
}

function curvesNote(all, groups, shared) {
  const points = all.reduce((sum, group) => sum + group.rows.length, 0);
  const batches = [...new Set(kept.shown.map((row) => valueAt(row, "record", "config", "workload", "batch")))].filter((batch) => batch !== null);
  const parts = [
    `${count(all.length, "different curve")} of ${count(points, "point")}${batches.length ? `, batch ${batches.map(plain).join(", ")}` : ""}`,
    all.length > groups.length ? `${GROUPED.format(groups.length)} drawn: the front's and some of the others from the least to the most` : "the front's are thick",
    shared ? "one that several colours share is grey" : "",
    "what lies between the marks is drawn straight",
  ];
  return `${parts.join("; ")}.`;
}

function setUpCurves() {
  if (CONTEXTS.length < 2) { byId("curves").hidden = true; return; }
  byId("curves-controls").replaceChildren(checkBox("log", curveLogs, (on) => { curveLogs = on; drawCurves(); }));
  draws(drawCurves);
}
