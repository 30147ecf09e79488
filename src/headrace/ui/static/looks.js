// The rows of the result, questions in SQL, late rows, and the button that starts a verify.
import { get, post } from "./api.js";
import { h, show, table } from "./dom.js";
import { compact, counted, instant, seconds, whole } from "./format.js";

const cell = (value) => (value === null ? h("span", { class: "soft" }, "NULL") : String(value));
const result = (label, found) => [
  table(label, found.columns.map((each, at) => [each, typeof found.rows[0]?.[at] === "number" ? "num" : ""]), found.rows.map((row) => h("tr", {}, row.map((each) => h("td", { class: typeof each === "number" ? "num" : "" }, cell(each))))), "tall"),
  h("p", { class: "soft" }, `${counted(found.rows.length, "rows")}${found.more ? ", there are more" : ""}${found.stopped ? ` (${found.stopped})` : ""}${found.order ? `; ${found.order}` : ""}`),
];
const wrong = (error) => h("p", { class: "notice", role: "alert" }, error.message);

export const newestRows = (path) => {
  const place = h("div", {});
  const button = h("button", { type: "button" }, "Read again");
  const load = async () => {
    button.disabled = true;
    try {
      const found = await get(`${path}/rows?limit=20`);
      show(place, found.why ? h("p", { class: "soft" }, found.why) : found.rows.length ? result("Newest rows", found) : h("p", { class: "soft" }, "The result is empty."));
    } catch (error) { show(place, wrong(error)); }
    button.disabled = false;
  };
  button.addEventListener("click", load);
  load();
  return h("div", { class: "stack" }, place, h("div", {}, button));
};

export const askBox = (query, answers) => {
  if (!answers) return h("p", { class: "soft" }, "The sink of this query is not a database that answers SQL.");
  const words = h("textarea", { rows: "4", spellcheck: "false", "aria-label": "A statement of SQL that reads", placeholder: "SELECT ... FROM ..." });
  const place = h("div", { role: "status" });
  const button = h("button", { type: "button" }, "Ask");
  const ask = async () => {
    button.disabled = true;
    try { show(place, result("Answer", await post("/api/ask", { query, sql: words.value }))); } catch (error) { show(place, wrong(error)); }
    button.disabled = false;
  };
  button.addEventListener("click", ask);
  words.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask(); });
  return h("div", { class: "stack" }, words, h("div", { class: "tools" }, button, h("span", { class: "soft" }, "Ctrl+Enter · reads only, 5 seconds, 200 rows")), place);
};

// A button that starts work on the server, and follows it until it ends.
const started = (query, work, words, ended) => {
  const said = h("span", { class: "soft", role: "status" });
  const button = h("button", { type: "button" }, words);
  const look = async () => {
    const told = await get(`/api/${work}`);
    button.disabled = told.state === "running";
    const own = told.query === query && told.work === work;
    show(said, told.state === "running" ? `${told.work} runs since ${instant(told.since)}${told.query === query ? "" : ` (${told.query})`}` : own && told.state === "failed" ? `no answer: ${told.said}` : own && told.state === "ended" ? `ended: ${told.said}` : "");
    if (own && told.state === "ended") ended(told);
    if (told.state === "running") setTimeout(() => look().catch(() => {}), 1500);
  };
  button.addEventListener("click", async () => {
    button.disabled = true;
    try { await post(`/api/${work}`, { query }); await look(); } catch (error) { show(said, error.message); button.disabled = false; }
  });
  look().catch(() => {});
  return h("span", { class: "tools push" }, said, button);
};

export const verifyButton = (query) => started(query, "verify", "Verify now", () => {});
export const lateRowsButton = (query, place) => started(query, "late", "Show the rows", ({ rows }) => show(place, rows.length > 0 && [
  table("The late rows", [["Batch", "num"], ["Time"], ["Behind the watermark", "num"], ["Row"]], rows.map((each) => h("tr", {}, h("td", { class: "num" }, each.batch), h("td", {}, instant(each.time)),
    h("td", { class: "num" }, seconds(each.behind_seconds)), h("td", { class: "long" }, h("code", {}, JSON.stringify(each.row).slice(0, 500)))))),
  h("p", { class: "soft" }, `${counted(rows.length, "rows")}, as the operator that dropped them got them; at most 100 are shown`),
]));

const line = (words) => h("span", { class: words.startsWith("+") ? "good" : words.startsWith("-") ? "bad" : "" }, `${words}\n`);
export const versionList = (found) => (!found.length ? h("p", { class: "soft" }, "Nothing is noted yet: each start of another code, plan or setting is, once batches can be continued.") : found.map((each) =>
  h("details", { class: "version", open: each === found[0] && Object.keys(each.changes).length > 0 },
    h("summary", {}, h("b", {}, `From batch ${each.from_batch}`), ` (generation ${each.generation}), ${instant(each.at)} UTC ${each.until ? `to ${instant(each.until)}` : "until now"}: `,
      Object.keys(each.changes).length ? `${Object.keys(each.changes).join(", ")} changed` : "the first version that is noted"),
    Object.entries(each.changes).map(([part, words]) => [h("p", { class: "soft" }, part), h("pre", { tabindex: "0", role: "group", "aria-label": `Changes of ${part}` }, h("code", {}, words.split("\n").map(line)))]),
    h("details", {}, h("summary", {}, "Code, settings and plan of this version"),
      Object.entries({ ...each.code, settings: Object.entries(each.settings).map(([name, value]) => `${name}: ${value}`).join("\n"), plan: each.plan }).map(([name, words]) =>
        [h("p", { class: "soft" }, name), h("pre", { tabindex: "0", role: "group", "aria-label": `${name} of this version` }, h("code", {}, words))])))));

const part = (each, before) => (each === null ? `${seconds(before)} or more` : `${before ? `${seconds(before)} to ` : "up to "}${seconds(each)}`);
export const lateRows = (found) => {
  if (!found.rows) return h("p", { class: "soft" }, "No row was dropped as late in the batches that the history has.");
  const most = Math.max(...found.histogram.map((each) => each.rows), 1);
  const label = (at) => part(found.histogram[at].up_to_seconds, at ? found.histogram[at - 1].up_to_seconds : 0);
  return [
    h("p", {}, h("b", {}, counted(found.rows, "rows", compact)), ` in ${counted(found.batches, "batches")}`, found.of_unknown_lateness ? `; of ${compact(found.of_unknown_lateness)} it is not known how late` : ""),
    table("How late", [["Behind the watermark"], ["Rows", "num"], ["Batches", "num"], ["Share"]], found.histogram.map((each, at) => h("tr", {}, h("td", {}, label(at)), h("td", { class: "num" }, whole(each.rows)), h("td", { class: "num" }, whole(each.batches)),
      h("td", {}, h("meter", { min: 0, max: most, value: each.rows, "aria-label": `${label(at)}: ${counted(each.rows, "rows")}` }))))),
    found.windows.length > 0 && table("Windows of late rows", [["Window"], ["Length"], ["Rows", "num"], ["Batches", "num"]], found.windows.map((each) => h("tr", {}, h("td", {}, `${instant(each.begins)} to ${instant(each.ends)}`), h("td", {}, each.length),
      h("td", { class: "num" }, whole(each.rows)), h("td", { class: "num" }, whole(each.batches)))), "tall"),
    h("p", { class: "soft" }, "As Spark tells: rows are counted after partial aggregation, so there may be more, and each counts as late as the oldest one of its batch. What each row was, only its source knows: the button starts ", h("code", {}, "headrace late"), ", which reads them."),
  ];
};
