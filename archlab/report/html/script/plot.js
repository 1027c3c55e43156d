// What all plots share: the theme's colours, axes, the tooltip, and text that the library must not read as markup.

const MARKS = ["circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "star", "x"];
const MOST_COLOURS = 8;

/** The theme as it is now, from the style sheet. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: of("text"), muted: of("muted"), line: of("line"), panel: of("panel"), accent: of("accent"), faint: of("faint"),
    series: Array.from({ length: MOST_COLOURS }, (_, index) => of(`series-${index + 1}`)),
    scale: [[0, of("scale-low")], [0.5, of("scale-middle")], [1, of("scale-high")]],
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: of("muted") },
  };
}

/** So many colours of the scale, from its low end to its high one. */
function shades(scale, number) {
  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return Array.from({ length: number }, (_, index) => {
    const at = number > 1 ? (index / (number - 1)) * 2 : 1;
    const [from, to] = [channels(scale[Math.min(1, Math.floor(at))][1]), channels(scale[Math.min(1, Math.floor(at)) + 1][1])];
    const part = at - Math.min(1, Math.floor(at));
    return `rgb(${from.map((value, channel) => Math.round(value + (to[channel] - value) * part)).join(",")})`;
  });
}

/** Text for the library, which reads some tags, entities and formulas in it: shown as it is. */
const verbatim = (text) => String(text).replace(/[&<>$]/g, (char) => `&#${char.charCodeAt(0)};`);

const CONFIG = { displayModeBar: false, scrollZoom: false, doubleClick: false };

/** An axis of a figure: its title with the unit and what is wanted, round ticks, the range that was zoomed to. */
function axisOf(name, values, log, zoomed, colours, more = {}) {
  const unit = figures.get(name).unit;
  const [low, high] = zoomed || bounds(values, log);
  const [tickvals, ticktext] = ticks(low, high, log, unit);
  const kind = figures.get(name).kind;
  return {
    ...plainAxis(colours), type: log ? "log" : "linear", tickvals, ticktext,
    range: log ? [Math.log10(low), Math.log10(high)] : [low, high],
    title: { text: verbatim(`${name}  (${[unit, kind, log ? "log" : ""].filter(Boolean).join(", ")})`), standoff: 10, font: { size: 12 } },
    ...more,
  };
}

function plainAxis(colours) {
  return {
    gridcolor: colours.line, linecolor: colours.line, showline: true, zeroline: false, ticks: "outside", ticklen: 4,
    tickcolor: colours.line, automargin: true, tickfont: { size: 11.5 },
  };
}

/** The least and the greatest value with room around them. */
function bounds(values, log) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (!Number.isNaN(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return log ? [1, 10] : [0, 1];
  if (log) {
    const room = Math.max(Math.log10(high / low) * 0.05, 0.02);
    return [low / 10 ** room, high * 10 ** room];
  }
  const room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  return [low - room, high + room];
}

function baseLayout(colours, more = {}) {
  return {
    autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: colours.font, showlegend: false,
    margin: { l: 8, r: 14, t: 8, b: 8 }, dragmode: "zoom", hovermode: "closest", hoverdistance: 18, ...more,
  };
}

// --- the tooltip -----------------------------------------------------------------------------------------------------

/** Show lines beside the pointer: the first is who, the others are pairs of a name and a value. */
function showTip(event, head, pairs, foot = "") {
  const tip = byId("tip");
  const rows = pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
  tip.replaceChildren(element("p", {}, head), element("dl", {}, ...rows), foot ? element("p", { class: "foot" }, foot) : "");
  tip.hidden = false;
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 16 : event.clientX + 16;
  const top = event.clientY + 16 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

const hideTip = () => { byId("tip").hidden = true; };

/** A figure of a row with its unit and, where it was measured, its spread. */
function toldFigure(row, name) {
  const figure = figureOf(row, name);
  if (!figure || typeof figure.value !== "number" || figure.status !== "ok") return figure && figure.status !== "ok" ? figure.status : "–";
  const text = figureText(figure.value, figure.unit, figure.kind);
  const spread = typeof figure.low === "number" ? `, ${digits(figure.low)} to ${digits(figure.high)}` : "";
  return `${text}${figure.unit === "B" && figure.kind !== "exact" ? "" : ` ${figure.unit}`}${spread}`;
}

/** Keep a plot as wide as its place, which the panel of a point makes narrower. */
function resizes(place) {
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth === width || !place.clientWidth) return;
    width = place.clientWidth;
    if (place.data) Plotly.Plots.resize(place);
  }).observe(place);
}

/** Draw a plot, and tell its events once. */
function plot(id, traces, layout, events = {}) {
  const place = byId(id);
  const first = !place.data;
  Plotly.react(place, traces, layout, CONFIG);
  if (!first) return;
  resizes(place);
  for (const [name, heard] of Object.entries(events)) place.on(`plotly_${name}`, heard);
  place.on("plotly_unhover", hideTip);
}
