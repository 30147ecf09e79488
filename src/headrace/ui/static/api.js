// What the server answers, and what it tells as it happens.
import { base, byId, h, text } from "./dom.js";
import { clock } from "./format.js";

export const get = async (path) => {
  const answer = await fetch(base + path, { headers: { Accept: "application/json" } });
  if (answer.status === 401) location.assign("/login");
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.findings?.[0]?.what ?? found.error);
  return found;
};

// An action: the server takes it from its own pages alone.
export const post = async (path, value) => {
  const answer = await fetch(base + path, { method: "POST", headers: { "Content-Type": "application/json", "X-Headrace": "1" }, body: JSON.stringify(value) });
  if (answer.status === 401) location.assign("/login");
  const found = await answer.json();
  if (!answer.ok) throw new Error([found.error, found.fix && `Fix: ${found.fix}.`].filter(Boolean).join(". "));
  return found;
};

export const live = (told) => {
  const mark = byId("live");
  const state = (kind, words) => {
    mark.className = `live ${kind}`;
    text(mark, words);
  };
  let declared;
  const source = new EventSource(`${base}/api/live`);
  source.addEventListener("standing", (event) => {
    const found = JSON.parse(event.data);
    if (found.findings) return state("off", "the history cannot be read");
    // A deploy has brought another project: its graph and definitions are drawn again.
    declared ??= found.declared;
    if (declared !== found.declared) return location.reload();
    state("on", `live · ${clock(Date.now() / 1000)} UTC`);
    return told(found);
  });
  source.addEventListener("error", () => state("off", "connection lost, trying again"));
  addEventListener("pagehide", () => source.close());
};

// What was asked is broken off as the page is left: nobody is to be told of that.
let left = false;
addEventListener("pagehide", () => { left = true; });
addEventListener("pageshow", () => { left = false; });

// Calls at most once in a while, and once more where it was called meanwhile.
export const paced = (work, pause) => {
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

export const failed = (main, error) =>
  main.replaceChildren(h("p", { class: "notice", role: "alert" }, `The page cannot be shown: ${error.message}`));
