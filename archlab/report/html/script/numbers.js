// How numbers read: exact ones with every digit, measured ones with four; bytes binary, counts in powers of ten.

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

function digits(value) {
  const size = Math.abs(value);
  if (size >= 1000) return GROUPED.format(Math.round(value));
  if (size >= 1 || value === 0) return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
  return String(Number(value.toPrecision(4)));
}

/** Every digit; a whole number beyond what a page's arithmetic holds says that it is rounded. */
function whole(value) {
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? `≈ ${value.toPrecision(15)}` : GROUPED.format(value);
}

function scaled(value, steps, fixed) {
  for (const [unit, size] of steps) {
    if (Math.abs(value) >= size) return `${fixed(value / size)} ${unit}`;
  }
  return null;
}

const BINARY = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
const DECIMAL = [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e3]];
const trimmed = (value) => String(Number(value.toPrecision(3)));
const isBytes = (unit) => unit === "B" || unit.startsWith("B/");

const bytes = (value) => scaled(value, BINARY.slice(0, 3), (v) => v.toFixed(2)) || `${GROUPED.format(value)} B`;

/** A number as a table shows it, without its unit unless that is scaled. */
function figureText(value, unit, kind) {
  if (kind === "exact") return whole(value);
  return unit === "B" ? bytes(value) : digits(value);
}

/** A few digits, for axes and for what stands beside an exact number. */
function brief(value, unit = "") {
  if (value === 0) return "0";
  if (isBytes(unit)) return scaled(value, BINARY, trimmed) || `${trimmed(value)} B`;
  if (Math.abs(value) >= 1000) return scaled(value, DECIMAL, trimmed).replace(" ", "\u202f");
  return Math.abs(value) < 1e-3 ? value.toExponential(1) : trimmed(value);
}

/** A figure of a row in a column of the table. */
function cellText(column, row) {
  const value = column.values[row];
  if (!column.figure) return value === null ? "" : typeof value === "number" ? plain(value) : String(value);
  if (!Number.isNaN(value)) {
    return figureText(value, column.unit, valueAt(row, "record", "figures", column.key, "kind"));
  }
  const status = valueAt(row, "record", "figures", column.key, "status");
  return status && status !== "ok" ? status : "–";
}

/** A setting as it was written, with its thousands parted. */
const plain = (value) => (Number.isSafeInteger(value) ? GROUPED.format(value) : String(value));

const signed = (value, text) => (value > 0 ? "+" : value < 0 ? "−" : "") + text(Math.abs(value));

// --- axes ------------------------------------------------------------------------------------------------------------

/** Ticks of an axis: [values, texts], about `most` of them, at round numbers of the unit. */
function ticks(low, high, log, unit, most = 6) {
  const values = log ? logTicks(low, high, isBytes(unit), most) : evenTicks(low, high, isBytes(unit), most);
  return [values, values.map((value) => brief(value, unit))];
}

function evenTicks(low, high, binary, most) {
  const wanted = (high - low) / most || 1;
  const base = binary ? 2 : 10;
  const power = base ** Math.floor(Math.log(wanted) / Math.log(base) + 1e-9);
  const step = (binary ? [1, 2] : [1, 2, 5, 10]).map((m) => m * power).find((size) => size >= wanted * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12) + 1e-12; i += 1) found.push(i * step);
  return found;
}

function logTicks(low, high, binary, most) {
  if (high / low < 4) return evenTicks(low, high, binary, most);
  if (binary) {
    const [first, last] = [Math.ceil(Math.log2(low) - 1e-9), Math.floor(Math.log2(high) + 1e-9)];
    const step = Math.max(1, Math.ceil((last - first + 1) / most));
    return rangeOf(Math.ceil(first / step) * step, last, step).map((power) => 2 ** power);
  }
  const decades = Math.log10(high / low);
  const heads = decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5];
  const found = rangeOf(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)), 1)
    .flatMap((power) => heads.map((head) => head * 10 ** power))
    .filter((value) => value >= low * 0.999 && value <= high * 1.001);
  const step = Math.ceil(found.length / (most + 3));
  return found.filter((_, index) => index % step === 0);
}

const rangeOf = (first, last, step) => {
  const found = [];
  for (let value = first; value <= last; value += step) found.push(value);
  return found;
};

/** Whether values span so much that an axis is better drawn by their logarithm. */
function spansMuch(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (!Number.isNaN(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  return low > 0 && high > 30 * low;
}

// --- filters ---------------------------------------------------------------------------------------------------------

const SIZES = {
  "": 1, k: 1e3, m: 1e6, b: 1e9, t: 1e12, g: 1e9, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40,
};

function readNumber(text, unit) {
  const found = /^\s*(-?(?:\d[\d,_]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*([a-z]*)\s*$/i.exec(text);
  if (!found) return NaN;
  const power = isBytes(unit) && found[2].toLowerCase() === "b" ? 1 : SIZES[found[2].toLowerCase()];
  return power === undefined ? NaN : Number(found[1].replace(/[,_]/g, "")) * power;
}

const COMPARE = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "!=": (a, b) => a !== b,
};

/** What a filter typed under a column's head asks: a test of a value, or null where it cannot be read.
 *  Of numbers `<200M`, `>=32KiB`, `8..16`, `=7`; of texts a part, `=all of it`, `!=not this`. */
function readFilter(text, column) {
  const range = column.numeric && /^(.+)\.\.(.+)$/.exec(text);
  if (range) {
    const [low, high] = [readNumber(range[1], column.unit), readNumber(range[2], column.unit)];
    return Number.isNaN(low + high) ? null : (value) => value >= low && value <= high;
  }
  const [, sign, rest] = /^\s*(<=|>=|!=|<|>|=)?\s*(.*?)\s*$/s.exec(text);
  if (column.numeric) {
    const number = readNumber(rest, column.unit);
    return Number.isNaN(number) ? null : (value) => COMPARE[sign || "="](value, number);
  }
  const wanted = rest.toLowerCase();
  const lower = (value) => String(value ?? "").toLowerCase();
  if (sign === "=" || sign === "!=") return (value) => (lower(value) === wanted) === (sign === "=");
  return sign ? null : (value) => lower(value).includes(wanted);
}
