// Numbers and times as people read them; times in UTC, as on the command line.
const NOTHING = "–";
const missing = (value) => value === null || value === undefined || Number.isNaN(value);

export const whole = (value) => (missing(value) ? NOTHING : Math.round(value).toLocaleString("en-US"));

export const compact = (value) => {
  if (missing(value)) return NOTHING;
  const size = Math.abs(value);
  // From what three digits round up to the unit.
  for (const [least, one, unit] of [[999.5e6, 1e9, "G"], [999.5e3, 1e6, "M"], [1e4, 1e3, "k"]]) {
    if (size >= least) return `${Number((value / one).toPrecision(3)).toLocaleString("en-US")}${unit}`;
  }
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(size < 1 ? 2 : 3)));
};

export const bytes = (value) => {
  if (missing(value)) return NOTHING;
  let size = value;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (size < 1000 || unit === "TB") return `${size >= 100 || unit === "B" ? Math.round(size) : size.toFixed(1)} ${unit}`;
    size /= 1000;
  }
  return NOTHING;
};

export const ms = (value) => {
  if (missing(value)) return NOTHING;
  return value < 1000 ? `${Math.round(value)} ms` : seconds(value / 1000);
};

export const seconds = (value) => {
  if (missing(value)) return NOTHING;
  const sign = value < 0 ? "−" : "";
  const size = Math.abs(value);
  if (size < 60) return `${sign}${size < 10 ? Number(size.toFixed(1)) : Math.round(size)} s`;
  const two = (all, large, small) => `${sign}${Math.floor(all / 60)} ${large}${all % 60 ? ` ${all % 60} ${small}` : ""}`;
  if (size < 3600) return two(Math.round(size), "min", "s");
  if (size < 172800) return two(Math.round(size / 60), "h", "min");
  return `${sign}${Math.round(size / 86400)} days`;
};

const iso = (at) => (typeof at === "number" ? new Date(at * 1000) : new Date(at)).toISOString();
export const clock = (at) => (missing(at) ? NOTHING : iso(at).slice(11, 19));
export const instant = (at) => (missing(at) ? NOTHING : iso(at).slice(0, 19).replace("T", " "));
// A time of today without its day.
export const moment = (at) => (missing(at) || iso(at).slice(0, 10) === iso(Date.now() / 1000).slice(0, 10) ? clock(at) : instant(at));
export const since = (at, now = Date.now()) => (missing(at) ? null : (now - Date.parse(at)) / 1000);

// The name of what is counted, given in the plural.
export const unitOf = (count, plural) => (count === 1 ? plural.replace(/(ch)es$|s$/, "$1") : plural);
export const amount = (count, plural, format = whole) => `${format(count)} ${unitOf(count, plural)}`;
export const skewText = (times) => `longest task ${times} × the median`;
export const asOf = (backlog) => (backlog?.at_ms ? ` as of ${moment(backlog.at_ms / 1000)}` : "");
export const lag = (backlog) => (backlog ? `${amount(backlog.count, backlog.unit, compact)}${asOf(backlog)}` : NOTHING);

const VERDICTS = { equal: "good", open: "good", late: "good", mismatch: "bad", undecided: "warning" };
export const levelOf = (verification) => {
  const level = VERDICTS[verification.verdict] ?? "idle";
  return level === "good" && verification.missing ? "warning" : level;
};
