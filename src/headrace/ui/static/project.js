// The project's page.
import { failed, get, live, paced } from "./api.js";
import { badge, base, byId, card, finding, h, queryPage, s, show, SIGNS, table } from "./dom.js";
import { asOf, clock, compact, counted, instant, lag, ms, seconds, unitOf, levelOf, verdictOf, whole } from "./format.js";
import { drawGraph } from "./graph.js";

const main = byId("main");
const ORDER = ["error", "warning", "note"];
const link = (name) => h("a", { href: queryPage(name) }, name);

const tile = (name, words, unit, under) =>
  h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, words, unit && h("small", {}, ` ${unit}`)), h("dd", { class: "under" }, under ?? ""));

const spark = (numbers) => {
  const top = Math.max(1, ...numbers);
  const points = numbers.map((each, at) => `${(at * 76 / Math.max(1, numbers.length - 1) + 2).toFixed(1)},${(22 - 18 * each / top).toFixed(1)}`);
  return s("svg", { class: "spark", width: 80, height: 24, role: "img", "aria-label": `the last ${counted(numbers.length, "batches")}, the longest ${ms(top)}` },
    s("polyline", { points: points.join(" ") }));
};

const tiles = (queries) => {
  const all = Object.values(queries);
  const running = all.filter((each) => each.state === "running" && !each.in_trouble).length;
  const bad = all.filter((each) => each.level === "bad").length;
  const late = all.reduce((sum, each) => sum + (each.late ?? 0), 0);
  const rate = all.reduce((sum, each) => sum + (each.rates.input ?? 0), 0);
  const rows = all.reduce((sum, each) => sum + (each.rows_total ?? 0), 0);
  const quarantined = all.reduce((sum, each) => sum + (each.rows_quarantined ?? 0), 0);
  const slowest = all.filter((each) => each.durations?.length).map((each) => [Math.max(...each.durations), each]).sort(([a], [b]) => b - a)[0];
  const behind = all.filter((each) => each.backlog).sort((a, b) => b.backlog.count - a.backlog.count)[0];
  const unknown = all.filter((each) => !each.backlog).length;
  return [
    tile("Queries running", `${running}`, `of ${all.length}`, bad ? `${bad} in trouble` : "none in trouble"),
    tile("Rows in", compact(rate), "rows/s", `${whole(rows)} in all${quarantined ? `, ${whole(quarantined)} of them quarantined` : ""}`),
    tile("Largest lag", behind ? compact(behind.backlog.count) : "–", behind && unitOf(behind.backlog.count, behind.backlog.unit),
      [behind && `${behind.query}${asOf(behind.backlog)}`, unknown && `unknown of ${counted(unknown, "queries")}`].filter(Boolean).join("; ")),
    tile("Longest batch", slowest ? ms(slowest[0]) : "–", "", slowest && `${slowest[1].query}, of its last ${counted(slowest[1].durations.length, "batches")}`),
    tile("Late rows", whole(late), "", "of the last batches"),
  ];
};

const attention = (queries) => {
  const found = Object.values(queries).flatMap((each) => each.findings.map((one) => [one, each.query]));
  found.sort(([a], [b]) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
  return found.length ? found.map(([one, query]) => finding(one, query)) : h("p", { class: "good" }, `${SIGNS.good} Nothing needs attention.`);
};

const restart = (each) => `restart ${each.attempt}${each.limit === null ? "" : ` of ${each.limit}`}${each.next_attempt ? `, next ${clock(each.next_attempt)}` : ""}`;
const queryRow = (each) => {
  const watermark = each.watermark && each.event_max ? (Date.parse(each.event_max) - Date.parse(each.watermark)) / 1000 : null;
  return h("tr", {},
    h("td", {}, link(each.query)),
    h("td", {}, badge(each.level, each.state), each.in_trouble && each.attempt ? h("div", { class: "soft" }, restart(each)) : ""),
    h("td", { class: "num" }, each.rates.input === null ? "–" : compact(each.rates.input)),
    h("td", { class: "num" }, each.rates.processed === null ? "–" : compact(each.rates.processed)),
    h("td", {}, each.durations?.length ? spark(each.durations) : ""),
    h("td", { class: "num" }, ms(each.batch_ms)),
    h("td", { class: "num" }, seconds(watermark)),
    h("td", { class: "num" }, compact(each.state_rows)),
    h("td", { class: "num" }, lag(each.backlog)),
    h("td", { class: each.verdict ? levelOf(each.verdict) : "soft" }, each.verdict ? `${SIGNS[levelOf(each.verdict)] ?? ""} ${verdictOf(each.verdict)}${each.verdict.shown_by === "rerun" ? " (rerun)" : ""}` : "not verified"));
};

const sourceRows = (graph, queries) => graph.nodes.filter((each) => each.kind === "source").map((source) => {
  const readers = Object.values(queries).filter((each) => each.sources[source.name]);
  const seen = readers.map((each) => each.sources[source.name]);
  const most = seen.filter((each) => each.lag).sort((a, b) => b.lag.count - a.lag.count)[0];
  return h("tr", {},
    h("td", {}, h("b", {}, source.name)), h("td", {}, source.about),
    h("td", { class: "num" }, seen.length ? compact(Math.max(...seen.map((each) => each.rate))) : "–"),
    h("td", { class: "num" }, lag(most?.lag)), h("td", { class: "num" }, seconds(most?.waiting_seconds)),
    h("td", { class: "long" }, readers.map((each, at) => [at ? ", " : "", link(each.query)])),
    h("td", { class: "soft" }, source.more));
});

// A start alone shows nothing that is good.
const EVENT_LEVEL = { failed: "bad", killed: "bad", restarting: "bad", waiting: "bad", finding: "warning", answered: "good", recovered: "good", finished: "good" };
const FOLDED_WITHIN = 15 * 60;
// Events of one kind, query and code that follow each other closely become the newest of them, with their number.
const folded = (events) => {
  const open = new Map();
  return events.flatMap((event) => {
    const key = [event.kind, event.query, event.detail.finding?.code].join(" ");
    const newer = open.get(key);
    if (newer && Date.parse(newer.first) - Date.parse(event.at) <= FOLDED_WITHIN * 1000) { newer.times += 1; newer.first = event.at; return []; }
    const one = { ...event, times: 1, first: event.at };
    open.set(key, one);
    return [one];
  });
};
const eventWords = (event) => {
  const told = event.detail.finding;
  const words = told ? `${told.code}: ${told.what}` : event.kind === "killed" ? `process ${event.detail.pid} is gone without a word` : event.detail.by ? `by ${event.detail.by}` : event.detail.trigger ? `trigger ${event.detail.trigger}` : "";
  const times = event.times > 1 && h("span", { class: "soft", title: `since ${instant(event.first)} UTC` }, ` × ${event.times}`);
  return [h("b", {}, event.kind), times, " ", event.query ? link(event.query) : "", words ? ` ${words}` : ""];
};
const eventItem = (event) => {
  const severity = event.detail.finding?.severity;
  const level = event.kind === "finding" && severity === "note" ? "idle" : EVENT_LEVEL[event.kind] ?? "idle";
  return h("li", {}, h("time", { datetime: event.at, title: `${instant(event.at)} UTC` }, clock(event.at)),
    h("span", { class: level, "aria-hidden": "true" }, SIGNS[level]), h("div", {}, eventWords(event)));
};

const start = async () => {
  const found = await get("/api/project");
  document.title = `${found.name}: Headrace`;
  byId("crumbs").replaceChildren(base && h("a", { href: "/" }, "Projects"), base && " / ", h("b", {}, found.name), ` · target ${found.target}`);
  const graph = drawGraph(found.graph);
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
    const shown = events.filter((each) => words.every((word) => `${each.kind} ${each.query ?? ""} ${JSON.stringify(each.detail)}`.toLowerCase().includes(word)));
    show(parts.events, shown.length ? folded(shown).map(eventItem) : h("li", { class: "soft" }, h("span"), h("span"), events.length ? "No event fits." : "Nothing has happened yet."));
  };
  search.addEventListener("input", showEvents);
  const loadEvents = paced(async () => { events = (await get("/api/events?count=300")).events; showEvents(); }, 2000);

  const update = ({ queries, newest_event: event }) => {
    show(parts.tiles, tiles(queries));
    show(parts.attention, attention(queries));
    show(parts.queries, table("Queries", [["Query"], ["State"], ["Rows/s in", "num"], ["Rows/s processed", "num"], ["Last batches"], ["Duration", "num"],
      ["Watermark behind", "num"], ["State rows", "num"], ["Lag", "num"], ["Verified"]], Object.values(queries).map(queryRow)));
    show(parts.sources, table("Sources", [["Source"], ["Kind"], ["Rows/s", "num"], ["Lag", "num"], ["Waiting", "num"], ["Read by"], ["Declared"]], sourceRows(found.graph, queries)));
    graph.update(queries);
    if (event !== newest) { newest = event; loadEvents(); }
  };

  const tool = (label, words, work) => h("button", { type: "button", "aria-label": label, onclick: work }, words);
  const graphCard = card("Graph", h("span", { class: "group push" }, tool("Zoom in", "+", () => graph.zoom(0.8)), tool("Zoom out", "−", () => graph.zoom(1.25)), tool("Fit the graph", "Fit", graph.fit)), graph.frame);
  main.replaceChildren(
    h("h1", { class: "visually-hidden" }, found.name), parts.tiles,
    h("div", { class: "columns" },
      h("div", { class: "stack" }, graphCard, card("Queries", null, parts.queries),
        found.graph.nodes.some((each) => each.kind === "source") && card("Sources", null, parts.sources)),
      h("div", { class: "stack" }, card("Needs attention", null, parts.attention),
        card("Events", h("span", { class: "soft" }, "UTC"), h("div", { class: "tools" }, h("span", { class: "grow" }, search)),
          h("div", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": "Events" }, parts.events)))));
  update(found);
  live(update);
};

start().catch((error) => failed(main, error));
