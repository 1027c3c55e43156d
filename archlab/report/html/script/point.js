// One point: its config, its figures with how each was got, its notes and where it ran.

/** Plain data as YAML; texts that YAML could read as something else are quoted. */
function yaml(value, indent = "") {
  if (Array.isArray(value)) return ` [${value.map((item) => yaml(item, indent).trim()).join(", ")}]\n`;
  if (value === null || typeof value !== "object") return ` ${scalar(value)}\n`;
  const lines = Object.entries(value).map(([key, item]) => `${indent}${scalar(key)}:${yaml(item, `${indent}  `)}`);
  return lines.length ? `\n${lines.join("")}` : " {}\n";
}

function scalar(value) {
  if (typeof value !== "string") return String(value);
  const bare = /^[A-Za-z_][\w./+-]*( [\w./+-]+)*$/.test(value) && !/^(null|true|false|yes|no|on|off|y|n)$/i.test(value);
  return bare ? value : JSON.stringify(value);
}

function drawPoint() {
  const panel = byId("point");
  const row = state.selected;
  document.body.classList.toggle("has-point", row !== null);
  panel.hidden = row === null;
  if (row === null || panel.dataset.row === String(row)) return;
  panel.dataset.row = String(row);
  const record = recordOf(row);
  panel.replaceChildren(
    element("div", { class: "head" }, element("h2", {}, nameOf(row)), button("×", () => select(null), { class: "plain close", "aria-label": "Close" })),
    element("div", { class: "body" }, ...statusLines(record), ...repeatLine(record), configPart(record), figuresPart(record),
      ...listPart("Notes", record.notes), ...checksPart(record), ...placePart(record), jsonPart(record)));
  panel.scrollTop = 0;
}

function statusLines(record) {
  const about = [element("span", { class: record.status === "ok" ? "badge" : "badge wrong" }, record.status)];
  if (kept.isFront.has(state.selected)) about.push(element("span", { class: "badge front" }, "on the front"));
  const breaks = breaksOf[state.selected];
  if (breaks) about.push(element("span", { class: "badge wrong" }, `breaks ${breaks}`));
  return [element("p", {}, ...about), record.reason ? element("p", { class: "reason" }, record.reason) : ""];
}

function repeatLine(record) {
  const where = record.folder;
  if (!where) return [];
  const text = /^[\w./:@%+,-]+$/.test(where) ? where : `'${where.replaceAll("'", "'\\''")}'`;
  return [element("p", { class: "again" }, "once again: ", element("code", {}, `archlab build --from ${text}`))];
}

/** The overrides that made the point, and its config, to copy. */
function configPart(record) {
  const text = record.config ? yaml(record.config).trimStart() : "";
  const code = element("pre", { id: "config", tabindex: 0 }, text);
  const made = (record.overrides || []).map((override) => element("li", {}, element("code", {}, override)));
  return element("details", { open: true }, element("summary", {}, "Config"), made.length ? element("ul", { class: "overrides" }, ...made) : "", copier(code), code);
}

function copier(code) {
  return button("copy", async (event) => {
    const pressed = event.currentTarget;
    try {
      await navigator.clipboard.writeText(code.textContent);
      pressed.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
      pressed.textContent = "selected";
    }
    setTimeout(() => { pressed.textContent = "copy"; }, 1500);
  }, { class: "plain copy" });
}

function figuresPart(record) {
  const rows = Object.entries(record.figures || {}).flatMap(([name, figure]) => {
    const there = typeof figure.value === "number";
    const spread = typeof figure.low === "number" ? `${digits(figure.low)} to ${digits(figure.high)}${figure.repeats ? `, ${count(figure.repeats, "run")}` : ""}` : "";
    const wrong = figure.status && figure.status !== "ok" ? `${figure.status}${figure.reason ? `: ${figure.reason}` : ""}` : "";
    return [
      element("tr", {}, element("th", {}, breakable(name)), element("td", { class: "number" }, there ? figureText(figure.value, figure.unit, figure.kind) : "–"), element("td", { class: "quiet" }, figure.unit), element("td", { class: "quiet" }, figure.kind)),
      element("tr", { class: "how" }, element("td", { colspan: 4 }, wrong ? element("span", { class: "wrong" }, `${wrong} `) : "", spread ? `${spread}; ` : "", figure.how)),
    ];
  });
  return element("details", { open: true }, element("summary", {}, "Figures"), element("table", { class: "figures" }, element("tbody", {}, ...rows)));
}

const listPart = (title, texts) => (texts && texts.length ? [element("details", { open: true }, element("summary", {}, title), element("ul", {}, ...texts.map((text) => element("li", {}, text))))] : []);

function checksPart(record) {
  return listPart("Checks", (record.checks || []).map((check) => `${check.name}: ${plain(check.expected)} ${check.ok ? "=" : "≠"} ${plain(check.found)} ${check.ok ? "ok" : "MISMATCH"}`));
}

function placePart(record) {
  const about = { created: record.created, folder: record.folder, ...record.environment };
  const pairs = Object.entries(about).filter(([, value]) => value !== null && value !== "").flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, typeof value === "object" ? JSON.stringify(value) : String(value))]);
  return [element("details", {}, element("summary", {}, "Where it ran"), element("dl", {}, ...pairs))];
}

function jsonPart(record) {
  const code = element("pre", { id: "record", tabindex: 0 }, "");
  const part = element("details", { ontoggle: () => { code.textContent ||= JSON.stringify(record, null, 1); } }, element("summary", {}, "The record, as JSON"), copier(code), code);
  return part;
}

function setUpPoint() {
  draws(drawPoint);
  addEventListener("keydown", (event) => event.key === "Escape" && state.selected !== null && select(null));
}
