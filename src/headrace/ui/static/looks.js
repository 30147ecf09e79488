// The rows of the result, questions in SQL, late rows, and the button that starts a verify.
import { get, post } from "./api.js";
import { h, show, table } from "./dom.js";
import { compact, amount, instant, seconds, whole } from "./format.js";

const cell = (value) => (value === null ? h("span", { class: "soft" }, "NULL") : String(value));
const result = (label, answer) => [
  table(label, answer.columns.map((name, at) => [name, typeof answer.rows[0]?.[at] === "number" ? "num" : ""]), answer.rows.map((row) => h("tr", {}, row.map((value) => h("td", { class: typeof value === "number" ? "num" : "" }, cell(value))))), "tall"),
  h("p", { class: "soft" }, `${amount(answer.rows.length, "rows")}${answer.more ? ", there are more" : ""}${answer.stopped ? ` (${answer.stopped})` : ""}${answer.order ? `; ${answer.order}` : ""}`),
];
const wrong = (error) => h("p", { class: "notice", role: "alert" }, error.message);

export const newestRows = (path, hasRun) => {
  const place = h("div", {}, h("p", { class: "soft" }, "The query has not run yet."));
  const button = h("button", { type: "button" }, "Read again");
  const load = async () => {
    button.disabled = true;
    try {
      const answer = await get(`${path}/rows?limit=20`);
      show(place, answer.why ? h("p", { class: "soft" }, answer.why) : answer.rows.length ? result("Newest rows", answer) : h("p", { class: "soft" }, "The result is empty."));
    } catch (error) { show(place, wrong(error)); }
    button.disabled = false;
  };
  button.addEventListener("click", load);
  if (hasRun) load();
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
const workButton = (query, work, words, ended) => {
  const status = h("span", { class: "soft", role: "status" });
  const button = h("button", { type: "button" }, words);
  const poll = async () => {
    const job = await get(`/api/${work}`);
    button.disabled = job.state === "running";
    const own = job.query === query && job.work === work;
    show(status, job.state === "running" ? `${job.work} runs since ${instant(job.since)}${job.query === query ? "" : ` (${job.query})`}` : own && job.state === "failed" ? `no answer: ${job.said}` : own && job.state === "ended" ? `ended: ${job.said}` : "");
    if (own && job.state === "ended") ended(job);
    if (job.state === "running") setTimeout(() => poll().catch(() => {}), 1500);
  };
  button.addEventListener("click", async () => {
    button.disabled = true;
    try { await post(`/api/${work}`, { query }); await poll(); } catch (error) { show(status, error.message); button.disabled = false; }
  });
  poll().catch(() => {});
  return h("span", { class: "tools push" }, status, button);
};

export const verifyButton = (query) => workButton(query, "verify", "Verify now", () => {});
export const lateRowsButton = (query, place) => workButton(query, "late", "Show the rows", ({ rows }) => show(place, rows.length > 0 && [
  table("The late rows", [["Batch", "num"], ["Time"], ["Behind the watermark", "num"], ["Row"]], rows.map((row) => h("tr", {}, h("td", { class: "num" }, row.batch), h("td", {}, instant(row.time)),
    h("td", { class: "num" }, seconds(row.behind_seconds)), h("td", { class: "long" }, h("code", {}, JSON.stringify(row.row).slice(0, 500)))))),
  h("p", { class: "soft" }, `${amount(rows.length, "rows")}, as the operator that dropped them got them; at most 100 are shown`),
]));

const line = (words) => h("span", { class: words.startsWith("+") ? "good" : words.startsWith("-") ? "bad" : "" }, `${words}\n`);
export const versionList = (versions) => (!versions.length ? h("p", { class: "soft" }, "No version yet. A start with other code, plan or settings adds one, once batches can be continued.") : versions.map((version) =>
  h("details", { class: "version", open: version === versions[0] && Object.keys(version.changes).length > 0 },
    h("summary", {}, h("b", {}, `From batch ${version.from_batch}`), ` (generation ${version.generation}), ${instant(version.at)} UTC ${version.until ? `to ${instant(version.until)}` : "until now"}: `,
      Object.keys(version.changes).length ? `${Object.keys(version.changes).join(", ")} changed` : "the first version that is noted"),
    Object.entries(version.changes).map(([part, words]) => [h("p", { class: "soft" }, part), h("pre", { tabindex: "0", role: "group", "aria-label": `Changes of ${part}` }, h("code", {}, words.split("\n").map(line)))]),
    h("details", {}, h("summary", {}, "Code, settings and plan of this version"),
      Object.entries({ ...version.code, settings: Object.entries(version.settings).map(([name, value]) => `${name}: ${value}`).join("\n"), plan: version.plan }).map(([name, words]) =>
        [h("p", { class: "soft" }, name), h("pre", { tabindex: "0", role: "group", "aria-label": `${name} of this version` }, h("code", {}, words))])))));

const part = (upTo, before) => (upTo === null ? `${seconds(before)} or more` : `${before ? `${seconds(before)} to ` : "up to "}${seconds(upTo)}`);
export const lateRows = (late) => {
  if (!late.rows) return h("p", { class: "soft" }, "No row was dropped as late in the batches that the history has.");
  const most = Math.max(...late.histogram.map((bin) => bin.rows), 1);
  const label = (at) => part(late.histogram[at].up_to_seconds, at ? late.histogram[at - 1].up_to_seconds : 0);
  return [
    h("p", {}, h("b", {}, amount(late.rows, "rows", compact)), ` in ${amount(late.batches, "batches")}`, late.of_unknown_lateness ? `; of ${compact(late.of_unknown_lateness)} it is not known how late` : ""),
    table("How late", [["Behind the watermark"], ["Rows", "num"], ["Batches", "num"], ["Share"]], late.histogram.map((bin, at) => h("tr", {}, h("td", {}, label(at)), h("td", { class: "num" }, whole(bin.rows)), h("td", { class: "num" }, whole(bin.batches)),
      h("td", {}, h("meter", { min: 0, max: most, value: bin.rows, "aria-label": `${label(at)}: ${amount(bin.rows, "rows")}` }))))),
    late.windows.length > 0 && table("Windows of late rows", [["Window"], ["Length"], ["Rows", "num"], ["Batches", "num"]], late.windows.map((lateWindow) => h("tr", {}, h("td", {}, `${instant(lateWindow.begins)} to ${instant(lateWindow.ends)}`), h("td", {}, lateWindow.length),
      h("td", { class: "num" }, whole(lateWindow.rows)), h("td", { class: "num" }, whole(lateWindow.batches)))), "tall"),
    h("p", { class: "soft" }, "As Spark counts them: after partial aggregation, so there may be more, and each counts as late as the oldest one of its batch. Only the source has the rows themselves: the button starts ", h("code", {}, "headrace late"), ", which reads them."),
  ];
};
