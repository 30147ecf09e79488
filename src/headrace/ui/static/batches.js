// The batches as a table: the newest first, searched on the server, more on request.
import { get, paced } from "./api.js";
import { h, scrolling, show } from "./dom.js";
import { bytes, compact, counted, instant, lag, ms, seconds, skewed, whole } from "./format.js";

const COLUMNS = [["", ""], ["Batch", "num"], ["Triggered", ""], ["Rows", "num"], ["Rows/s in", "num"], ["Duration", "num"], ["Watermark", ""], ["Late", "num"], ["State rows", "num"], ["Lag", "num"], ["Ledger", "ledger"]];

const pairs = (title, rows) => rows.length > 0 && h("div", {}, h("h3", {}, title), h("table", {}, h("tbody", {}, rows.map((row) => h("tr", {}, row.map((each) => h("td", {}, each)))))));
const code = (words) => h("code", {}, words ?? "the beginning");
const detail = (each) => h("div", { class: "detail" },
  pairs("Offsets", each.sources.map((one) => [one.name, counted(one.rows, "rows"), h("span", {}, code(one.start), " to ", code(one.end))])),
  pairs("Durations", Object.entries(each.durations).flatMap(([part, value]) => [[part, ms(value)], part === "addBatch" && each.write_ms !== null && ["of it, the sink by itself", ms(each.write_ms)]]).filter(Boolean)),
  pairs("Changes", each.changes ? [...Object.entries(each.changes).map(([effect, count]) => [effect, whole(count)]), ["behind the source", seconds(each.change_lag_seconds)]] : []),
  pairs("Tasks", each.skew ? [["skew", skewed(each.skew)]] : []),
  pairs("State", each.operators.map((one) => [one.name, counted(one.rows, "rows", compact), bytes(one.bytes), `${whole(one.updated)} updated`, `commit ${ms(one.commit_ms)}`])),
  pairs("Event time", [["oldest", instant(each.event_min)], ["mean", instant(each.event_mean)], ["newest", instant(each.event_max)]].filter(([, at]) => each.event_max && at)),
  pairs("Spark", [["run", h("code", {}, each.run_id)]]));

const inLedger = (line) => (line ? h("span", { title: line.committed_at ? `committed at ${instant(line.committed_at)} UTC` : "" }, `✓ ${counted(line.rows, "rows")}`) : "–");

export const drawBatches = (path) => {
  const opened = new Set();
  const body = h("tbody", {});
  const said = h("p", { class: "soft", role: "status" });
  const input = h("input", { type: "search", "aria-label": "Search the batches", placeholder: "Search: 42   100-200   rows>1000   ms>500   late>0   or a text, as of an offset" });
  const more = h("button", { type: "button", hidden: true }, "Older batches");
  let shown = [];
  let before = null;
  let further = false;
  let lines = {};

  const rowsOf = (each) => {
    const open = opened.has(each.batch);
    const button = h("button", { type: "button", class: "open", "aria-expanded": String(open), "aria-label": `Details of batch ${each.batch}`, onclick: () => {
      if (!opened.delete(each.batch)) opened.add(each.batch);
      draw();
      body.querySelector(`[aria-label="Details of batch ${each.batch}"]`)?.focus();
    } }, open ? "▾" : "▸");
    return [
      h("tr", {}, h("td", {}, button), h("td", { class: "num" }, each.batch), h("td", {}, instant(each.at)), h("td", { class: "num" }, whole(each.rows)),
        h("td", { class: "num" }, compact(each.input_rate)), h("td", { class: "num" }, ms(each.duration_ms)), h("td", {}, instant(each.watermark)),
        h("td", { class: `num ${each.dropped_by_watermark ? "warning" : ""}` }, whole(each.dropped_by_watermark)), h("td", { class: "num" }, compact(each.state_rows)), h("td", { class: "num" }, lag(each.backlog)), h("td", { class: "ledger" }, inLedger(lines[each.batch]))),
      open && h("tr", {}, h("td", { colspan: COLUMNS.length }, detail(each))),
    ];
  };
  const draw = () => {
    body.replaceChildren(...shown.flatMap(rowsOf).filter(Boolean));
    more.hidden = before === null;
    more.textContent = input.value.trim() && !shown.length ? "Search further back" : "Older batches";
  };
  const load = async (from) => {
    const words = input.value.trim();
    const query = new URLSearchParams({ limit: "25", search: words, ...(from === null ? {} : { before: from }) });
    try {
      const found = await get(`${path}/batches?${query}`);
      shown = from === null ? found.batches : [...shown, ...found.batches];
      before = found.before;
      show(said, shown.length ? "" : before !== null ? `Not among the batches from ${before} on.` : words ? "No batch fits." : "No batch yet.");
    } catch (error) {
      [shown, before] = [[], null];
      show(said, error.message);
    }
    draw();
    const numbers = shown.map((each) => each.batch);
    if (!numbers.length || Math.max(...numbers) - Math.min(...numbers) >= 500) return;
    const told = await get(`${path}/ledger?first=${Math.min(...numbers)}&last=${Math.max(...numbers)}`).catch(() => ({ lines: {} }));
    lines = told.lines;
    if (Object.keys(lines).length) draw();
  };
  // What somebody reads does not move: only the first page, with nothing opened or searched, follows what happens.
  const renew = paced(() => (further || opened.size || (input.value && shown.length) ? null : load(null)), 2500);
  let typed = 0;
  input.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => { further = false; opened.clear(); load(null); }, 250);
  });
  more.addEventListener("click", () => { further = true; load(before); });
  const frame = h("div", { class: "stack" }, h("div", { class: "tools" }, h("span", { class: "grow" }, input)),
    scrolling("Batches", "", h("table", {},
      h("thead", {}, h("tr", {}, COLUMNS.map(([name, kind]) => h(name ? "th" : "td", name ? { scope: "col", class: kind } : {}, name)))), body)), said, h("div", {}, more));
  return { frame, renew };
};
