// What the server answers, and what it reports as it happens.
import { base, byId, h, text } from "./dom.js";
import { clock } from "./format.js";

export const get = async (path) => {
  const answer = await fetch(base + path, { headers: { Accept: "application/json" } });
  if (answer.status === 401) location.assign("/login");
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.findings?.[0]?.what ?? body.error);
  return body;
};

// An action: the server accepts it from its own pages only.
export const post = async (path, value) => {
  const answer = await fetch(base + path, { method: "POST", headers: { "Content-Type": "application/json", "X-Headrace": "1" }, body: JSON.stringify(value) });
  if (answer.status === 401) location.assign("/login");
  const body = await answer.json();
  if (!answer.ok) throw new Error([body.error, body.fix && `Fix: ${body.fix}.`].filter(Boolean).join(". "));
  return body;
};

export const live = (update) => {
  const mark = byId("live");
  const state = (kind, words) => {
    mark.className = `live ${kind}`;
    text(mark, words);
  };
  let declared;
  const source = new EventSource(`${base}/api/live`);
  source.addEventListener("standing", (event) => {
    const standing = JSON.parse(event.data);
    if (standing.findings) return state("off", "the history cannot be read");
    // After a deploy the graph and the definitions may differ: they are drawn again.
    declared ??= standing.declared;
    if (declared !== standing.declared) return location.reload();
    state("on", `live · ${clock(Date.now() / 1000)} UTC`);
    return update(standing);
  });
  source.addEventListener("error", () => state("off", "connection lost, trying again"));
  addEventListener("pagehide", () => source.close());
};

// Requests that the browser cuts off as the page is left are not reported.
let left = false;
addEventListener("pagehide", () => { left = true; });
addEventListener("pageshow", () => { left = false; });

// Calls at most once in each pause, and once more if it was called meanwhile.
export const throttle = (work, pause) => {
  let waiting = false;
  let again = false;
  const call = async () => {
    if (waiting) {
      again = true;
      return;
    }
    waiting = true;
    try { await work(); } catch (error) { if (!left) console.warn(error); }
    setTimeout(() => {
      waiting = false;
      if (again) { again = false; call(); }
    }, pause);
  };
  return call;
};

export const showFailure = (main, error) =>
  main.replaceChildren(h("p", { class: "notice", role: "alert" }, `The page cannot be shown: ${error.message}`));
