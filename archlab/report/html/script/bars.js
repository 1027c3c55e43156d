// Throughput as it was measured: the median as a bar, from the 10th to the 90th percentile as a line.

const MOST_BARS = 30;
const PHASES = ["prefill", "decode", "train"].filter((phase) => columns.has(`figure:${phase}_tok_s`) && columnOf(`${phase}_tok_s`).some((v) => !Number.isNaN(v)));
let phase = PHASES.includes("decode") ? "decode" : PHASES[0];

function drawBars() {
  const name = `${phase}_tok_s`;
  const values = columnOf(name);
  const timed = kept.shown.filter((row) => isOk(row) && !Number.isNaN(values[row])).sort((a, b) => values[b] - values[a]);
  const rows = barRows(timed);
  const colours = theme();
  const found = rows.map((row) => figureOf(row, name));
  const part = (high) => found.map((f) => (typeof f.low === "number" ? (high ? f.high - f.value : f.value - f.low) : 0));
  const tint = colourOf(kept.shown);
  const colour = rows.map((row) => (row === state.selected ? colours.text : tint(row) ?? (kept.isFront.has(row) ? colours.accent : colours.faint)));
  const edges = rows.map((row) => (tint(row) && kept.isFront.has(row) ? 1.6 : 0));
  const trace = {
    type: "bar", orientation: "h", hoverinfo: "none", customdata: rows, x: rows.map((row) => values[row]), y: rows.map((_, index) => index),
    marker: { color: colour, line: { width: edges, color: colours.text } },
    error_x: { type: "data", symmetric: false, array: part(true), arrayminus: part(false), color: colours.text, thickness: 1.2, width: 3 },
  };
  const place = byId("bars-plot");
  place.style.height = `${Math.max(180, 64 + rows.length * 20)}px`;
  const most = Math.max(1, ...found.map((f) => f.high ?? f.value));
  const [tickvals, ticktext] = ticks(0, most * 1.04, false, "tok/s", 5);
  const room = place.clientWidth < 460 ? 16 : 34;
  const texts = rows.map((row) => verbatim(clip(shortName(row), room)));
  plot("bars-plot", [trace], baseLayout(colours, {
    bargap: 0.35, dragmode: false,
    xaxis: { ...plainAxis(colours), range: [0, most * 1.04], tickvals, ticktext, title: { text: `${name}  (tok/s, measured)`, font: { size: 12 }, standoff: 10 }, fixedrange: true },
    yaxis: { ...plainAxis(colours), range: [rows.length - 0.4, -0.6], tickvals: rows.map((_, index) => index), ticktext: texts, gridcolor: "rgba(0,0,0,0)", fixedrange: true, ticks: "" },
  }), {
    click: (event) => select(event.points[0].customdata),
    hover: (event) => tipOfBar(event),
  });
  byId("bars-note").textContent = barsNote(rows, timed);
}

/** The front's and the selected one, then the fastest of the others. */
function barRows(timed) {
  if (timed.length <= MOST_BARS) return timed;
  const first = timed.filter((row) => kept.isFront.has(row) || row === state.selected).slice(0, MOST_BARS);
  const rest = timed.filter((row) => !first.includes(row)).slice(0, MOST_BARS - first.length);
  const chosen = new Set([...first, ...rest]);
  return timed.filter((row) => chosen.has(row));
}

function tipOfBar(event) {
  const row = event.points[0].customdata;
  const figure = figureOf(row, `${phase}_tok_s`);
  showTip(event.event, nameOf(row), [[`${phase}_tok_s`, toldFigure(row, `${phase}_tok_s`)]], figure.repeats ? count(figure.repeats, "run") : "");
}

function barsNote(rows, timed) {
  const without = kept.shown.length - timed.length;
  const parts = [
    "Median of the runs, the line from the 10th to the 90th percentile; the front's with an edge or, without a colour, in blue",
    timed.length > rows.length ? `${GROUPED.format(rows.length)} of ${count(timed.length, "timed point")} drawn: the front's and the fastest of the others` : "",
    without ? `${GROUPED.format(without)} without this figure` : "",
  ];
  return `${parts.filter(Boolean).join("; ")}.`;
}

function setUpBars() {
  if (!PHASES.length) {
    byId("bars-plot").hidden = true;
    byId("bars-note").textContent = "No point was timed.";
    byId("bars").classList.add("empty");
    return;
  }
  byId("bars-controls").replaceChildren(selectBox("phase", [["", PHASES.map((name) => [name, name])]], phase, (name) => { phase = name; drawBars(); }));
  draws(drawBars);
}
