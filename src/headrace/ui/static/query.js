// The page of one query.
import { showFailure, get, live, throttle } from "./api.js";
import { chart } from "./charts.js";
import { badge, base, byId, card, findingBox, h, show, SIGNS, table } from "./dom.js";
import { drawBatches } from "./batches.js";
import { askBox, lateRows, lateRowsButton, newestRows, verifyButton, versionList } from "./looks.js";
import { asOf, bytes, clock, compact, amount, instant, moment, ms, seconds, since, skewText, unitOf, levelOf, whole } from "./format.js";

const main = byId("main");
const name = decodeURIComponent(location.pathname.slice(base.length).split("/")[2]);
const path = `/api/queries/${encodeURIComponent(name)}`;
const RANGES = [["5 min", 300], ["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["1 day", 86400], ["All", 0]];
const PHASES = { latestOffset: "find offsets", getBatch: "get batch", queryPlanning: "plan", walCommit: "log offsets", addBatch: "process, write", write: "write", commitOffsets: "commit", other: "other" };
const COLOURS = { latestOffset: "--c3", getBatch: "--c4", queryPlanning: "--c2", walCommit: "--c5", addBatch: "--c1", write: "--c8", commitOffsets: "--c6", other: "--c7" };
// Fits the width of the axis.
const length = (value) => (value < 1000 ? `${Math.round(value)} ms` : `${Number((value / 1000).toPrecision(3))} s`);
const LEAST_BATCHES = 3;
const GUARANTEE = { "exactly once": "good", "at least once": "warning", none: "bad" };

const tile = (title, words, unit, under) =>
  h("div", { class: "tile" }, h("dt", {}, title), h("dd", {}, words, unit && h("small", {}, ` ${unit}`)), h("dd", { class: "under", title: under }, under ?? ""));

const tiles = (now) => {
  const behind = now.watermark && now.event_max ? (Date.parse(now.event_max) - Date.parse(now.watermark)) / 1000 : null;
  const slow = Math.max(0, ...now.durations ?? []);
  return [
    tile("Rows in", compact(now.rates.input), "rows/s", `${whole(now.rows_total ?? 0)} in all${now.rows_quarantined ? `, ${whole(now.rows_quarantined)} of them quarantined` : ""}${untimed(now) ? `, ${whole(untimed(now))} without event time` : ""}`),
    tile("Processed", compact(now.rates.processed), "rows/s", now.rates.processed && now.rates.input ? `busy ${Math.min(100, Math.round(100 * now.rates.input / now.rates.processed))} % of the time` : ""),
    tile("Last batch took", ms(now.batch_ms), "", [now.durations?.length > 0 && `longest of the last ${now.durations.length}: ${ms(slow)}`, now.skew && skewText(now.skew)].filter(Boolean).join("; ")),
    tile("Lag", now.backlog ? compact(now.backlog.count) : "–", now.backlog && unitOf(now.backlog.count, now.backlog.unit), now.backlog ? [now.backlog.bytes && bytes(now.backlog.bytes), asOf(now.backlog)].filter(Boolean).join(",") : "unknown"),
    now.watermarked?.length > 0 && tile("Watermark", clock(now.watermark), now.watermark && "UTC", now.watermark ? `${moment(now.watermark) === clock(now.watermark) ? "" : `${instant(now.watermark).slice(0, 10)}, `}${seconds(behind)} behind the newest` : "has not begun to move"),
    now.state_bytes !== null && now.state_bytes !== undefined && tile("State", compact(now.state_rows), now.state_rows === null ? "" : unitOf(now.state_rows, "rows"), bytes(now.state_bytes)),
    tile("Last batch", now.batch === null || now.batch === undefined ? "–" : `no. ${whole(now.batch)}`, "", now.at ? `${seconds(since(now.at))} ago` : ""),
    tile("Restarts", whole(now.restarts ?? 0), "", now.in_trouble && now.next_attempt ? `next attempt ${clock(now.next_attempt)}` : `generation ${now.generation ?? 1}`),
  ];
};

const definition = (about, plan, page) => [
  h("dl", { class: "facts" },
    h("dt", {}, "Reads"), h("dd", {}, about.inputs.map((input, at) => `${at ? ", " : ""}${input.name} (${input.kind})`).join("") || "nothing"),
    h("dt", {}, "Writes"), h("dd", {}, `${about.sink.kind}${about.sink.place ? `: ${about.sink.place}` : ""}, ${about.mode} mode`),
    h("dt", {}, "Trigger"), h("dd", {}, about.trigger),
    page && [h("dt", {}, "Spark's page"), h("dd", {}, h("a", { href: page }, page))],
    h("dt", {}, "Guarantee"), h("dd", {}, badge(GUARANTEE[about.guarantee.level], about.guarantee.level), " ", about.guarantee.sentence),
    h("dt", {}, "Declared"), h("dd", {}, about.where)),
  h("pre", { tabindex: "0", role: "group", "aria-label": `The ${about.code.language === "sql" ? "SQL" : "Python"} of ${about.name}` }, h("code", {}, about.code.text)),
  about.views.map((view) => [h("p", { class: "soft" }, `View ${view.name}`), h("pre", { tabindex: "0", role: "group", "aria-label": `View ${view.name}` }, h("code", {}, view.code.text))]),
  plan && h("details", {}, h("summary", {}, "Plan, as noted at the first batch of the newest start"), h("pre", { tabindex: "0", role: "group", "aria-label": "The plan" }, h("code", {}, plan))),
];

const runTable = ({ runs, queries }) => table("Runs", [["Started"], ["State"], ["Lasted", "num"], ["Process", "num"], ["Error"]], runs.map((entry, at) => {
  // Only the state of the query shows whether its newest run still lives.
  const run = at ? entry : { ...entry, state: queries[name].state };
  const level = run.error || run.state === "killed" ? "bad" : run.ended || at ? "idle" : queries[name].level;
  return h("tr", {}, h("td", {}, instant(run.started)), h("td", {}, badge(level, run.state)),
    h("td", { class: "num" }, run.ended ? seconds((Date.parse(run.ended) - Date.parse(run.started)) / 1000) : "–"),
    h("td", { class: "num" }, run.pid),
    h("td", { class: run.error && "long" }, run.error ? [h("b", {}, run.error.code), ` ${run.error.what}`, run.error.fix && h("div", { class: "soft" }, `Fix: ${run.error.fix}`)] : ""));
}), "tall");

const untimed = (now) => Object.values(now.null_times ?? {}).reduce((sum, count) => sum + count, 0);

const verdicts = (verifications) => {
  if (!verifications.length) return [h("p", { class: "soft" }, "Not verified yet. Run: ", h("code", {}, `headrace verify ${name}`))];
  return [
    h("ol", { class: "verdicts", "aria-label": "Verdicts, the oldest first" }, verifications.slice(-12).map((verification) =>
      h("li", { title: `${instant(verification.at)} UTC` }, badge(levelOf(verification), verification.verdict)))),
    table("Verdicts", [["At"], ["Verdict"], ["Batch", "num"], ["Read", "num"], ["Expected", "num"], ["Missing", "num"], ["Unexpected", "num"], ["Different", "num"], ["Late", "num"]],
      verifications.slice(-10).reverse().map((verification) => h("tr", {}, h("td", {}, instant(verification.at).slice(5, 16)), h("td", {}, badge(levelOf(verification), verification.verdict), h("span", { class: "soft" }, [verification.shown_by === "rerun" ? " by another run" : "", verification.scope ? ` ${verification.scope}` : ""].join(""))),
        ["batch", "rows_read", "rows_expected", "missing", "unexpected", "different", "rows_late"].map((key) => h("td", { class: "num" }, whole(verification[key])))))),
  ];
};

const drawCharts = (place) => {
  const made = new Map();
  const notice = h("p", { class: "card soft wide" });
  const addChart = (id, title, unit, options, width) => {
    const drawn = chart({ label: title, ...options });
    const shown = card(title, h("span", { class: "soft" }, unit), drawn.frame);
    if (width) shown.classList.add(width);
    made.set(id, { ...drawn, card: shown });
  };
  addChart("rows", "Rows a second", "rows that arrive, and rows that batches process", { format: compact });
  addChart("phases", "Batch duration by phase", "mean of a point", { format: ms, ticks: length, stack: true });
  addChart("times", "Event time", "event time of the rows over the time of their batch, and the watermark; UTC", { format: moment, time: true, height: 270 }, "wide");
  addChart("late", "Late rows", "dropped as later than the watermark, as Spark counts them", { format: compact });
  addChart("lag", "Lag", "waits in the source", { format: compact });
  addChart("state", "State rows", "by operator", { format: compact }, "third");
  addChart("memory", "State memory", "by operator", { format: bytes }, "third");
  addChart("commit", "State commit", "by operator", { format: ms, ticks: length }, "third");

  return (columns) => {
    const some = (column) => column.some((value) => value !== null);
    const any = (lines) => lines.some((column) => column.some((value) => value > 0));
    const by = (things, key) => Object.entries(things).map(([label, column]) => ({ label, values: key ? column[key] : column }));
    const series = {
      rows: [{ label: "in", values: columns.input_rate }, { label: "processed", values: columns.processed_rate }],
      phases: Object.entries(columns.phases).map(([phase, values]) => ({ label: phase === "addBatch" && columns.phases.write ? "process" : PHASES[phase] ?? phase, values, colour: COLOURS[phase] })),
      times: some(columns.event_max) ? [
        { label: "watermark", values: columns.watermark, colour: "--c2", dash: [], width: 2.6, zone: "--late-zone" },
        { label: "newest", values: columns.event_max, colour: "--c1", dash: [] },
        { label: "mean", values: columns.event_mean, colour: "--c3", dash: [7, 4] },
        { label: "oldest", values: columns.event_min, colour: "--c4", dash: [2, 3] },
        { label: "late rows", values: columns.late.map((count, at) => (count > 0 ? columns.watermark[at] ?? columns.event_min[at] : null)), colour: "--late", points: true,
          say: (value, at) => whole(columns.late[at]) },
      ] : [],
      late: some(columns.watermark) && any([columns.late]) ? [{ label: "late", values: columns.late, colour: "--c2", dash: [] }] : [],
      lag: !any(Object.values(columns.lags)) ? [] : by(columns.lags).map((line) => ({ ...line, label: `${line.label}${columns.lag_units[line.label] ? ` (${columns.lag_units[line.label]})` : ""}` })),
      state: by(columns.operators, "rows").filter((line) => some(line.values)),
      memory: by(columns.operators, "bytes"),
      commit: by(columns.operators, "commit_ms"),
    };
    // Fewer batches would show only points.
    const enough = columns.batches >= LEAST_BATCHES;
    const isDrawn = ([id]) => enough && series[id].length && any(series[id].map((line) => line.values));
    const wanted = [...made].filter(isDrawn).map(([, entry]) => entry.card);
    made.get("lag").card.classList.toggle("wide", !series.late.length);
    notice.textContent = columns.batches ? `Charts begin with batch number ${LEAST_BATCHES} of the time that is shown; the table of batches has ${amount(columns.batches, "batches")}.` : "No batch has been made yet.";
    if (!wanted.length) wanted.push(notice);
    if (wanted.length !== place.children.length || wanted.some((child, at) => place.children[at] !== child)) place.replaceChildren(...wanted);
    for (const [id, entry] of [...made].filter(isDrawn)) entry.draw(columns.at, series[id]);
  };
};

const start = async () => {
  let range = 3600;
  let [page, columns] = await Promise.all([get(path), get(`${path}/series?points=300&seconds=${range}`)]);
  const { definition: about } = page;
  document.title = `${name}: ${page.name}`;
  byId("crumbs").replaceChildren(base && h("a", { href: "/" }, "Projects"), base && " / ", h("a", { href: `${base}/` }, page.name), " / ", h("b", {}, name));
  const parts = Object.fromEntries(["state", "attention", "runs", "verdicts", "late", "rows", "versions"].map((part) => [part, h("div", {})]));
  parts.state = h("span", {});
  parts.attention = h("div", { class: "attention", tabindex: "0", role: "group", "aria-label": "What needs attention" });
  parts.tiles = h("dl", { class: "tiles", "aria-label": "The query in figures" });
  const charts = h("div", { class: "charts" });
  const draw = drawCharts(charts);
  const drawn = h("span", { class: "soft", role: "status" });
  const buttons = RANGES.map(([words, length]) => h("button", { type: "button", "aria-pressed": String(length === range), onclick: () => {
    range = length;
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(RANGES[at][1] === range)));
    refresh();
  } }, words));
  const showSeries = () => {
    draw(columns);
    const last = columns.batch.length;
    show(drawn, last ? `${amount(columns.batches, "batches")}${columns.step > 1 ? `, every ${whole(columns.step)}th one of the history` : ""}${columns.per_point > 1 ? `, ${columns.per_point} a point` : ""}` : "");
  };
  const refresh = throttle(async () => {
    columns = await get(`${path}/series?points=300&seconds=${range}`);
    showSeries();
  }, 1500);
  const batches = drawBatches(path);
  const changes = throttle(async () => show(parts.versions, versionList((await get(`${path}/versions`)).versions)), 2000);
  const details = throttle(async () => {
    page = await get(path);
    show(parts.runs, runTable(page));
    show(parts.verdicts, verdicts(page.verdicts));
    changes();
  }, 2000);
  const lateness = throttle(async () => show(parts.late, lateRows(await get(`${path}/late`))), 5000);
  let batch = null;
  let newest = null;
  let state = null;
  let verdict = null;

  const update = (standing) => {
    const now = standing.queries[name];
    show(parts.state, badge(now.level, now.state));
    show(parts.tiles, tiles(now).filter(Boolean));
    show(parts.attention, now.findings.length ? now.findings.map((finding) => findingBox(finding)) : h("p", { class: "good" }, `${SIGNS.good} Nothing needs attention.`));
    const mark = JSON.stringify(now.verdict);
    if (newest !== null && (now.batch !== batch || now.at !== newest)) { refresh(); batches.renew(); if (now.late) lateness(); }
    if (state !== null && (now.state !== state || mark !== verdict || now.run !== page.queries[name].run)) details();
    [batch, newest, state, verdict] = [now.batch, now.at ?? "", now.state, mark];
  };

  const sections = [
    ["charts", "Charts", h("div", { class: "tools" }, h("span", { class: "group", role: "group", "aria-label": "How far back" }, buttons), drawn), charts],
    ["runs", "Runs and verdicts", h("div", { class: "halves" }, card("Runs and errors", h("span", { class: "soft" }, "UTC"), parts.runs),
      card("Verified", [h("span", { class: "soft" }, "does the sink hold the batch answer; UTC"), verifyButton(name)], parts.verdicts))],
    ["late", "Late rows", card("Late rows, how late", [h("span", { class: "soft" }, "of the batches that the history has; UTC"), lateRowsButton(name, parts.rows)], parts.late, parts.rows)],
    ["versions", "What changed", card("What changed", h("span", { class: "soft" }, "code, settings and plan of each version that ran; UTC"), parts.versions)],
    ["definition", "Definition", card("Definition", h("span", { class: "soft" }, "as loaded when the dashboard was started"), definition(about, page.plan, page.spark_page))],
    ["rows", "Rows", h("div", { class: "halves" }, card("Newest rows", h("span", { class: "soft" }, "of the result"), newestRows(path, page.runs.length > 0)), card("Ask", h("span", { class: "soft" }, "the database of the result"), askBox(name, page.answers_sql)))],
    ["batches", "Batches", card("Batches", h("span", { class: "soft" }, "UTC"), batches.frame)],
  ];
  main.replaceChildren(
    h("div", { class: "title" }, h("h1", {}, name), parts.state, badge(GUARANTEE[about.guarantee.level], about.guarantee.level),
      h("span", { class: "soft" }, about.description)),
    h("div", { class: "top" }, parts.tiles, card("Needs attention", null, parts.attention)),
    h("nav", { class: "sections", "aria-label": "Sections" }, sections.map(([id, words]) => h("a", { href: `#${id}` }, words))),
    ...sections.map(([id, , ...body]) => h("div", { class: "stack part", id }, ...body)));
  show(parts.runs, page.runs.length ? runTable(page) : h("p", { class: "soft" }, "It has not run yet."));
  show(parts.verdicts, verdicts(page.verdicts));
  update(page);
  showSeries();
  batches.renew();
  lateness();
  changes();
  live(update);
};

start().catch((error) => showFailure(main, error));
