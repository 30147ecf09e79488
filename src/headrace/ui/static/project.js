// The project's page.
import { showFailure, get, live, throttle } from "./api.js";
import { badge, base, byId, card, findingBox, h, queryPage, s, show, SIGNS, table } from "./dom.js";
import { asOf, clock, compact, amount, instant, lag, moment, ms, seconds, unitOf, levelOf, whole } from "./format.js";
import { drawGraph } from "./graph.js";

const main = byId("main");
const ORDER = ["error", "warning", "note"];
const link = (name) => h("a", { href: queryPage(name) }, name);

const tile = (name, words, unit, under) =>
  h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, words, unit && h("small", {}, ` ${unit}`)), h("dd", { class: "under", title: under }, under ?? ""));

const spark = (numbers) => {
  const top = Math.max(1, ...numbers);
  const points = numbers.map((number, at) => `${(at * 76 / Math.max(1, numbers.length - 1) + 2).toFixed(1)},${(22 - 18 * number / top).toFixed(1)}`);
  return s("svg", { class: "spark", width: 80, height: 24, role: "img", "aria-label": `the last ${amount(numbers.length, "batches")}, the longest ${ms(top)}` },
    s("polyline", { points: points.join(" ") }));
};

const tiles = (queries) => {
  const all = Object.values(queries);
  const running = all.filter((standing) => standing.state === "running" && !standing.in_trouble).length;
  const bad = all.filter((standing) => standing.level === "bad").length;
  const late = all.reduce((sum, standing) => sum + (standing.late ?? 0), 0);
  const rate = all.reduce((sum, standing) => sum + (standing.rates.input ?? 0), 0);
  const rows = all.reduce((sum, standing) => sum + (standing.rows_total ?? 0), 0);
  const quarantined = all.reduce((sum, standing) => sum + (standing.rows_quarantined ?? 0), 0);
  const slowest = all.filter((standing) => standing.durations?.length).map((standing) => [Math.max(...standing.durations), standing]).sort(([a], [b]) => b - a)[0];
  const behind = all.filter((standing) => standing.backlog).sort((a, b) => b.backlog.count - a.backlog.count)[0];
  const unknown = all.filter((standing) => !standing.backlog).length;
  return [
    tile("Queries running", `${running}`, `of ${all.length}`, bad ? `${bad} in trouble` : "none in trouble"),
    tile("Rows in", compact(rate), "rows/s", `${whole(rows)} in all${quarantined ? `, ${whole(quarantined)} of them quarantined` : ""}`),
    tile("Largest lag", behind ? compact(behind.backlog.count) : "–", behind && unitOf(behind.backlog.count, behind.backlog.unit),
      [behind && `${behind.query}${asOf(behind.backlog)}`, unknown && `unknown of ${amount(unknown, "queries")}`].filter(Boolean).join("; ")),
    tile("Longest batch", slowest ? ms(slowest[0]) : "–", "", slowest && `${slowest[1].query}, of its last ${amount(slowest[1].durations.length, "batches")}`),
    tile("Late rows", whole(late), "", "of the last batches"),
  ];
};

const attention = (queries) => {
  const findings = Object.values(queries).flatMap((standing) => standing.findings.map((finding) => [finding, standing.query]));
  findings.sort(([a], [b]) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
  return findings.length ? findings.map(([finding, query]) => findingBox(finding, query)) : h("p", { class: "good" }, `${SIGNS.good} Nothing needs attention.`);
};

const restart = (standing) => `restart ${standing.attempt}${standing.limit === null ? "" : ` of ${standing.limit}`}${standing.next_attempt ? `, next ${clock(standing.next_attempt)}` : ""}`;
const queryRow = (standing) => {
  const watermark = standing.watermark && standing.event_max ? (Date.parse(standing.event_max) - Date.parse(standing.watermark)) / 1000 : null;
  return h("tr", {},
    h("td", {}, link(standing.query)),
    h("td", {}, badge(standing.level, standing.state), standing.in_trouble && standing.attempt ? h("div", { class: "soft" }, restart(standing)) : ""),
    h("td", { class: "num" }, standing.rates.input === null ? "–" : compact(standing.rates.input)),
    h("td", { class: "num" }, standing.rates.processed === null ? "–" : compact(standing.rates.processed)),
    h("td", {}, standing.durations?.length ? spark(standing.durations) : ""),
    h("td", { class: "num" }, ms(standing.batch_ms)),
    h("td", { class: "num" }, seconds(watermark)),
    h("td", { class: "num" }, compact(standing.state_rows)),
    h("td", { class: "num" }, lag(standing.backlog)),
    h("td", { class: standing.verdict ? levelOf(standing.verdict) : "soft" }, standing.verdict ? `${SIGNS[levelOf(standing.verdict)] ?? ""} ${standing.verdict.verdict}${standing.verdict.shown_by === "rerun" ? " (rerun)" : ""}` : "not verified"));
};

const sourceRows = (graph, queries) => graph.nodes.filter((node) => node.kind === "source").map((source) => {
  const readers = Object.values(queries).filter((standing) => standing.sources[source.name]);
  const seen = readers.map((standing) => standing.sources[source.name]);
  const most = seen.filter((reading) => reading.lag).sort((a, b) => b.lag.count - a.lag.count)[0];
  return h("tr", {},
    h("td", {}, h("b", {}, source.name)), h("td", {}, source.about),
    h("td", { class: "num" }, seen.length ? compact(Math.max(...seen.map((reading) => reading.rate))) : "–"),
    h("td", { class: "num" }, lag(most?.lag)), h("td", { class: "num" }, seconds(most?.waiting_seconds)),
    h("td", { class: "long" }, readers.map((standing, at) => [at ? ", " : "", link(standing.query)])),
    h("td", { class: "soft" }, source.more));
});

// A start alone is neither good nor bad.
const EVENT_LEVEL = { failed: "bad", killed: "bad", restarting: "bad", waiting: "bad", finding: "warning", answered: "good", recovered: "good", finished: "good" };
const FOLDED_WITHIN = 15 * 60;
// Events of one kind, query and code that follow each other closely become the newest of them, with their number.
const foldEvents = (events) => {
  const open = new Map();
  return events.flatMap((event) => {
    const key = [event.kind, event.query, event.detail.finding?.code].join(" ");
    const newer = open.get(key);
    if (newer && Date.parse(newer.first) - Date.parse(event.at) <= FOLDED_WITHIN * 1000) { newer.times += 1; newer.first = event.at; return []; }
    const group = { ...event, times: 1, first: event.at };
    open.set(key, group);
    return [group];
  });
};
const eventWords = (event) => {
  const finding = event.detail.finding;
  const words = finding ? `${finding.code}: ${finding.what}` : event.kind === "killed" ? `process ${event.detail.pid} is gone without a word` : event.detail.by ? `by ${event.detail.by}` : event.detail.trigger ? `trigger ${event.detail.trigger}` : "";
  const times = event.times > 1 && h("span", { class: "soft", title: `since ${instant(event.first)} UTC` }, ` × ${event.times}`);
  return [h("b", {}, event.kind), times, " ", event.query ? link(event.query) : "", words ? ` ${words}` : ""];
};
const eventItem = (event) => {
  const severity = event.detail.finding?.severity;
  const level = event.kind === "finding" && severity === "note" ? "idle" : EVENT_LEVEL[event.kind] ?? "idle";
  return h("li", {}, h("time", { datetime: event.at, title: `${instant(event.at)} UTC` }, moment(event.at)),
    h("span", { class: level, "aria-hidden": "true" }, SIGNS[level]), h("div", {}, eventWords(event)));
};

const start = async () => {
  const project = await get("/api/project");
  document.title = `${project.name}: Headrace`;
  byId("crumbs").replaceChildren(base && h("a", { href: "/" }, "Projects"), base && " / ", h("b", {}, project.name), ` · target ${project.target}`);
  const graph = drawGraph(project.graph);
  const parts = {
    tiles: h("dl", { class: "tiles", "aria-label": "The project in figures" }),
    attention: h("div", { class: "attention", tabindex: "0", role: "group", "aria-label": "What needs attention" }),
    events: h("ul", { class: "events" }),
    queries: h("div", {}), sources: h("div", {}),
  };
  let events = [];
  let newest = -1;
  const search = h("input", { type: "search", placeholder: "Filter: a word, a query, a code", "aria-label": "Filter the events" });
  const showEvents = () => {
    const words = search.value.trim().toLowerCase().split(/\s+/);
    const shown = events.filter((event) => words.every((word) => `${event.kind} ${event.query ?? ""} ${JSON.stringify(event.detail)}`.toLowerCase().includes(word)));
    show(parts.events, shown.length ? foldEvents(shown).map(eventItem) : h("li", { class: "soft" }, h("span"), h("span"), events.length ? "No event fits." : "Nothing has happened yet."));
  };
  search.addEventListener("input", showEvents);
  const loadEvents = throttle(async () => { events = (await get("/api/events?count=300")).events; showEvents(); }, 2000);

  const update = ({ queries, newest_event: event }) => {
    show(parts.tiles, tiles(queries));
    show(parts.attention, attention(queries));
    show(parts.queries, table("Queries", [["Query"], ["State"], ["Rows/s in", "num"], ["Rows/s processed", "num"], ["Last batches"], ["Duration", "num"],
      ["Watermark behind", "num"], ["State rows", "num"], ["Lag", "num"], ["Verified"]], Object.values(queries).map(queryRow)));
    show(parts.sources, table("Sources", [["Source"], ["Kind"], ["Rows/s", "num"], ["Lag", "num"], ["Waiting", "num"], ["Read by"], ["Declared"]], sourceRows(project.graph, queries)));
    graph.update(queries);
    if (event !== newest) { newest = event; loadEvents(); }
  };

  const tool = (label, words, work) => h("button", { type: "button", "aria-label": label, onclick: work }, words);
  const graphCard = card("Graph", h("span", { class: "group push" }, tool("Zoom in", "+", () => graph.zoom(0.8)), tool("Zoom out", "−", () => graph.zoom(1.25)), tool("Fit the graph", "Fit", graph.fit)), graph.frame);
  main.replaceChildren(
    h("h1", { class: "visually-hidden" }, project.name), parts.tiles,
    h("div", { class: "columns" },
      h("div", { class: "stack" }, project.graph.nodes.length ? graphCard : h("p", { class: "card" }, "The project declares no query yet."), card("Queries", null, parts.queries),
        project.graph.nodes.some((node) => node.kind === "source") && card("Sources", null, parts.sources)),
      h("div", { class: "stack" }, card("Needs attention", null, parts.attention),
        card("Events", h("span", { class: "soft" }, "UTC"), h("div", { class: "tools" }, h("span", { class: "grow" }, search)),
          h("div", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": "Events" }, parts.events)))));
  update(project);
  live(update);
};

start().catch((error) => showFailure(main, error));
