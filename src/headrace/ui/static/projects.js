// The list of the projects that are on this board.
import { failed, get, live } from "./api.js";
import { badge, byId, card, finding, h, show, table } from "./dom.js";
import { compact, whole } from "./format.js";

const main = byId("main");

const row = (each) => h("tr", {},
  h("td", {}, each.target ? h("a", { href: `/projects/${each.key}/` }, each.key) : h("b", {}, each.key)),
  h("td", {}, badge(each.level, each.state)),
  h("td", { class: "num" }, each.target ? `${each.running} of ${each.queries}` : "–"),
  h("td", { class: "num" }, each.running ? compact(each.rate) : "–"),
  h("td", { class: "num" }, each.target ? whole(each.rows) : "–"),
  h("td", { class: "num" }, whole(each.attention)),
  h("td", {}, each.target || "–"),
  h("td", { class: "long soft" }, each.directory));

const faults = (projects) => projects.flatMap((each) => each.findings.map((one) => [h("p", { class: "soft" }, each.directory), finding(one)]));

const start = async () => {
  const list = h("div", {});
  const broken = h("div", { class: "stack" });
  const update = ({ projects }) => {
    show(list, table("Projects", [["Project"], ["State"], ["Running", "num"], ["Rows/s in", "num"], ["Rows", "num"], ["Needs attention", "num"], ["Target"], ["Directory"]], projects.map(row)));
    const cards = faults(projects);
    show(broken, cards.length > 0 && card("Cannot be shown", null, cards));
  };
  document.title = "Projects: Headrace";
  byId("crumbs").replaceChildren(h("b", {}, "Projects"));
  main.replaceChildren(h("h1", { class: "visually-hidden" }, "Projects"), card("Projects", null, list), broken);
  update(await get("/api/projects"));
  live(update);
};

start().catch((error) => failed(main, error));
