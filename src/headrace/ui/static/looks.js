// The rows of the result, questions in SQL, late rows, and the button that starts a verify.
import { get, post } from "./api.js";
import { h, show, table } from "./dom.js";
import { compact, counted, instant, seconds, whole } from "./format.js";

const cell = (value) => (value === null ? h("span", { class: "soft" }, "NULL") : String(value));
const result = (label, found) => [
  table(label, found.columns.map((each, at) => [each, typeof found.rows[0]?.[at] === "number" ? "num" : ""]), found.rows.map((row) => h("tr", {}, row.map((each) => h("td", { class: typeof each === "number" ? "num" : "" }, cell(each))))), "tall"),
  h("p", { class: "soft" }, `${counted(found.rows.length, "rows")}${found.more ? ", there are more" : ""}${found.order ? `; ${found.order}` : ""}`),
];
const WITHOUT = "Set HEADRACE_UI_TOKEN and start the dashboard again: rows are shown, questions answered and verifies started only for who has the token.";
const notice = () => h("p", { class: "soft" }, WITHOUT);
const wrong = (error) => h("p", { class: "notice", role: "alert" }, error.message);

export const newestRows = (path, may) => {
  const place = h("div", {});
  if (!may.act) return notice();
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

export const askBox = (query, may) => {
  if (!may.ask) return h("p", { class: "soft" }, "The sink of this query is no database that answers SQL.");
  if (!may.act) return notice();
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

export const verifyButton = (query, may) => {
  if (!may.act) return null;
  const said = h("span", { class: "soft", role: "status" });
  const button = h("button", { type: "button" }, "Verify now");
  const look = async () => {
    const told = await get("/api/verify");
    button.disabled = told.state === "running";
    const whose = told.query === query ? "" : ` (${told.query})`;
    show(said, told.state === "running" ? `runs since ${instant(told.since)}${whose}` : told.query === query && told.state === "failed" ? `no verdict: ${told.said}` : told.query === query && told.state === "ended" ? `ended: ${told.said}` : "");
    if (told.state === "running") setTimeout(() => look().catch(() => {}), 1500);
  };
  button.addEventListener("click", async () => {
    button.disabled = true;
    try { await post("/api/verify", { query }); await look(); } catch (error) { show(said, error.message); button.disabled = false; }
  });
  look().catch(() => {});
  return h("span", { class: "tools push" }, said, button);
};

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
    h("p", { class: "soft" }, "As Spark tells: rows are counted after partial aggregation, so there may be more, and each counts as late as the oldest one of its batch. What each row was, only its source knows: ", h("code", {}, "headrace late"), " reads them."),
  ];
};
