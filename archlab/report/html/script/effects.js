// What each choice changes on average where only it differs: worked out by `archlab results`, over all points.

function effectNames() {
  const wanted = [...data.front, state.x, state.y].filter((name) => name && figures.get(name).merit);
  return [...new Set(wanted)].filter((name) => data.effects.some((row) => typeof row[name] === "number"));
}

function drawEffects() {
  if (!data.effects.length) return;
  const names = effectNames();
  const reach = Math.max(0.01, ...data.effects.flatMap((row) => names.map((name) => Math.abs(ratio(row[name])))));
  const head = ["axis", "choice", "against"].map((name) => element("th", {}, name));
  const body = data.effects.map((row, index) => element("tr", { class: index && data.effects[index - 1].axis !== row.axis ? "first" : "" },
    element("td", {}, index && data.effects[index - 1].axis === row.axis ? "" : row.axis), element("td", { class: "strong" }, row.choice), element("td", { class: "quiet" }, row.against),
    element("td", { class: "number quiet" }, GROUPED.format(row.pairs)), ...names.map((name) => effectCell(row[name], name, reach))));
  byId("effects-table").replaceChildren(element("table", { class: "list effects" },
    element("thead", {}, element("tr", {}, ...head, element("th", { class: "number" }, "pairs"), ...names.map((name) => figureHead(name, "%")))),
    element("tbody", {}, ...body)));
  byId("effects-note").textContent = effectsNote();
}

/** A change as a factor's logarithm, so that twice and half are as far from no change. */
const ratio = (percent) => (typeof percent === "number" && percent > -100 ? Math.log(1 + percent / 100) : 0);

function effectCell(percent, name, reach) {
  if (typeof percent !== "number") return element("td", { class: "number quiet" }, "–");
  const better = Math.sign(percent) === figures.get(name).better;
  const bar = element("i", { class: `change ${better ? "better" : "worse"}` });
  const width = Math.min(50, Math.abs(ratio(percent)) / reach * 50);
  bar.style.width = `${width}%`;
  bar.style.left = percent < 0 ? `${50 - width}%` : "50%";
  return element("td", { class: "number" }, element("span", { class: "track" }, bar), signed(percent, (v) => percentText(v)));
}

/** One decimal, so that they stand below one another; more where that would make a nothing of it. */
function percentText(value) {
  const small = value > 0 && value < 0.05;
  return `${small ? value.toPrecision(1) : value.toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} %`;
}

function effectsNote() {
  const folded = [...new Set(data.effects.map((row) => row.axis))].flatMap((axis) => {
    const column = columns.get(`label:${axis}`);
    const values = column ? distinct(column).length : 0;
    const shown = data.effects.filter((row) => row.axis === axis).length + 1;
    return values > shown ? [`${axis}: ${shown} of ${values} values`] : [];
  });
  return [`Mean change of a figure in percent over the pairs of points that differ in that choice alone, of all ${count(data.count, "point")}, whatever is filtered. Bars by the factor: twice is as long as half; in colour where it is better.`, ...folded].join(" ");
}

function setUpEffects() {
  if (data.effects.length) draws((cause) => (cause === "axes" || cause === "") && drawEffects());
  else byId("effects").hidden = true;
}
