// The batches as a table: the newest first, searched on the server, more on request.
import { get, throttle } from "./api.js";
import { h, scrollBox, show } from "./dom.js";
import { bytes, compact, amount, instant, lag, ms, seconds, skewText, whole } from "./format.js";

const COLUMNS = [["", ""], ["Batch", "num"], ["Triggered", ""], ["Rows", "num"], ["Rows/s in", "num"], ["Duration", "num"], ["Watermark", ""], ["Late", "num"], ["State rows", "num"], ["Lag", "num"], ["Ledger", "ledger"]];

const pairs = (title, rows) => rows.length > 0 && h("div", {}, h("h3", {}, title), h("table", {}, h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
const code = (words) => h("code", {}, words ?? "the beginning");
const detail = (batch) => h("div", { class: "detail" },
  pairs("Offsets", batch.sources.map((source) => [source.name, amount(source.rows, "rows"), h("span", {}, code(source.start), " to ", code(source.end))])),
  pairs("Durations", Object.entries(batch.durations).flatMap(([part, value]) => [[part, ms(value)], part === "addBatch" && batch.write_ms !== null && ["of it, the sink by itself", ms(batch.write_ms)]]).filter(Boolean)),
  pairs("Changes", batch.changes ? [...Object.entries(batch.changes).map(([effect, count]) => [effect, whole(count)]), ["behind the source", seconds(batch.change_lag_seconds)]] : []),
  pairs("Tasks", batch.skew ? [["skew", skewText(batch.skew)]] : []),
  pairs("State", batch.operators.map((operator) => [operator.name, amount(operator.rows, "rows", compact), bytes(operator.bytes), `${whole(operator.updated)} updated`, `commit ${ms(operator.commit_ms)}`])),
  pairs("Event time", [["oldest", instant(batch.event_min)], ["mean", instant(batch.event_mean)], ["newest", instant(batch.event_max)]].filter(([, at]) => batch.event_max && at)),
  pairs("Spark", [["run", h("code", {}, batch.run_id)]]));

const inLedger = (line) => (line ? h("span", { title: line.committed_at ? `committed at ${instant(line.committed_at)} UTC` : "" }, `✓ ${amount(line.rows, "rows")}`) : "–");

export const drawBatches = (path) => {
  const opened = new Set();
  const body = h("tbody", {});
  const status = h("p", { class: "soft", role: "status" });
  const input = h("input", { type: "search", "aria-label": "Search the batches", placeholder: "Search: 42   100-200   rows>1000   ms>500   late>0   or a text, as of an offset" });
  const more = h("button", { type: "button", hidden: true }, "Older batches");
  let shown = [];
  let before = null;
  let further = false;
  let lines = {};

  const rowsOf = (batch) => {
    const open = opened.has(batch.batch);
    const button = h("button", { type: "button", class: "open", "aria-expanded": String(open), "aria-label": `Details of batch ${batch.batch}`, onclick: () => {
      if (!opened.delete(batch.batch)) opened.add(batch.batch);
      draw();
      body.querySelector(`[aria-label="Details of batch ${batch.batch}"]`)?.focus();
    } }, open ? "▾" : "▸");
    return [
      h("tr", {}, h("td", {}, button), h("td", { class: "num" }, batch.batch), h("td", {}, instant(batch.at)), h("td", { class: "num" }, whole(batch.rows)),
        h("td", { class: "num" }, compact(batch.input_rate || !batch.rows ? batch.input_rate : null)), h("td", { class: "num" }, ms(batch.duration_ms)), h("td", {}, instant(batch.watermark)),
        h("td", { class: `num ${batch.dropped_by_watermark ? "warning" : ""}` }, whole(batch.dropped_by_watermark)), h("td", { class: "num" }, compact(batch.state_rows)), h("td", { class: "num" }, lag(batch.backlog)), h("td", { class: "ledger" }, inLedger(lines[batch.batch]))),
      open && h("tr", {}, h("td", { colspan: COLUMNS.length }, detail(batch))),
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
      const page = await get(`${path}/batches?${query}`);
      shown = from === null ? page.batches : [...shown, ...page.batches];
      before = page.before;
      show(status, shown.length ? "" : before !== null ? `Not among the batches from ${before} on.` : words ? "No batch fits." : "No batch yet.");
    } catch (error) {
      [shown, before] = [[], null];
      show(status, error.message);
    }
    draw();
    const numbers = shown.map((batch) => batch.batch);
    if (!numbers.length || Math.max(...numbers) - Math.min(...numbers) >= 500) return;
    const ledger = await get(`${path}/ledger?first=${Math.min(...numbers)}&last=${Math.max(...numbers)}`).catch(() => ({ lines: {} }));
    lines = ledger.lines;
    if (Object.keys(lines).length) draw();
  };
  // Rows that somebody reads do not move: only the first page, with nothing opened or searched, is refreshed.
  const renew = throttle(() => (further || opened.size || (input.value && shown.length) ? null : load(null)), 2500);
  let typed = 0;
  input.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => { further = false; opened.clear(); load(null); }, 250);
  });
  more.addEventListener("click", () => { further = true; load(before); });
  const frame = h("div", { class: "stack" }, h("div", { class: "tools" }, h("span", { class: "grow" }, input)),
    scrollBox("Batches", "", h("table", {},
      h("thead", {}, h("tr", {}, COLUMNS.map(([name, kind]) => h(name ? "th" : "td", name ? { scope: "col", class: kind } : {}, name)))), body)), status, h("div", {}, more));
  return { frame, renew };
};
