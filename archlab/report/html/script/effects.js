// What each choice changes on average where only it differs, as `archlab results` has it: of the points that are shown.

const MOST_VALUES = 8; // of one axis, as `results.py` has it

/** The choices of each row by the overrides that vary; null where a row has none. */
const choiceOf = new Map(data.swept.map(({ key }) => [key, rowsAll.map((row) => valueAt(row, "swept", key))]));

function effects(rows, names) {
  return data.swept.flatMap(({ key, name }) => effectsOf(rows, key, names).map((effect) => ({ axis: name, ...effect })));
}

function effectsOf(rows, key, names) {
  const others = data.swept.map((one) => one.key).filter((other) => other !== key);
  const chosen = choiceOf.get(key);
  const alike = new Map(); // the other choices: choice to the first row that made it
  for (const row of rows) {
    if (!isOk(row) || chosen[row] === null) continue;
    const same = JSON.stringify(others.map((other) => choiceOf.get(other)[row]));
    if (!alike.has(same)) alike.set(same, new Map());
    if (!alike.get(same).has(chosen[row])) alike.get(same).set(chosen[row], row);
  }
  const groups = [...alike.values()];
  const [base, ...values] = new Set(groups.flatMap((group) => [...group.keys()]));
  const pairsOf = (value) => groups.filter((group) => group.has(base) && group.has(value)).map((group) => [group.get(base), group.get(value)]);
  const paired = values.map((value) => [value, pairsOf(value)]).filter(([, pairs]) => pairs.length);
  return someOf(paired).map(([choice, pairs]) => ({
    choice, against: base, pairs: pairs.length, of: paired.length, ...Object.fromEntries(names.map((name) => [name, meanChange(pairs, columnOf(name))])),
  }));
}

/** At most `MOST_VALUES`, the first and the last among them. */
function someOf(values) {
  if (values.length <= MOST_VALUES) return values;
  return rangeOf(0, MOST_VALUES - 1, 1).map((i) => values[Math.round(i * (values.length - 1) / (MOST_VALUES - 1))]);
}

/** In percent; null where no pair has the figure on both sides. */
function meanChange(pairs, values) {
  const changes = pairs.filter(([a, b]) => values[a] && !Number.isNaN(values[b])).map(([a, b]) => values[b] / values[a] - 1);
  return changes.length ? 100 * changes.reduce((sum, change) => sum + change, 0) / changes.length : null;
}

function drawEffects() {
  const wanted = [...new Set([...data.front, state.x, state.y])].filter((name) => name && figures.get(name).merit);
  const made = effects(kept.shown, wanted);
  const names = wanted.filter((name) => made.some((row) => row[name] !== null));
  const reach = Math.max(0.01, ...made.flatMap((row) => names.map((name) => Math.abs(ratio(row[name])))));
  const head = ["axis", "choice", "against"].map((name) => element("th", {}, name));
  const isFirst = (index) => !index || made[index - 1].axis !== made[index].axis;
  const body = made.map((row, index) => element("tr", { class: index && isFirst(index) ? "first" : "" },
    element("td", {}, isFirst(index) ? row.axis : ""), element("td", { class: "strong" }, row.choice), element("td", { class: "quiet" }, row.against),
    element("td", { class: "number quiet" }, GROUPED.format(row.pairs)), ...names.map((name) => effectCell(row[name], name, reach))));
  byId("effects-table").replaceChildren(...(made.length ? [element("table", { class: "list effects" },
    element("thead", {}, element("tr", {}, ...head, element("th", { class: "number" }, "pairs"), ...names.map((name) => figureHead(name, "%")))),
    element("tbody", {}, ...body))] : []));
  byId("effects-note").textContent = effectsNote(made);
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

function effectsNote(made) {
  if (!made.length) return `No two of the ${count(kept.shown.length, "point")} shown differ in one choice alone.`;
  const folded = [...new Map(made.map((row) => [row.axis, row.of]))].filter(([, of]) => of > MOST_VALUES)
    .map(([axis, of]) => ` Of ${axis} ${MOST_VALUES} of ${GROUPED.format(of)} values are listed.`);
  return `Mean change of a figure in percent over the pairs of points that differ in that choice alone, of the ${count(kept.shown.length, "point")} shown. Bars by the factor: twice is as long as half; in colour where it is better.${folded.join("")}`;
}

function setUpEffects() {
  const any = effects(rowsAll, []).length > 0;
  byId("effects").hidden = !any;
  if (any) draws((cause) => (["", "filter", "brush", "axes"].includes(cause)) && drawEffects());
}
