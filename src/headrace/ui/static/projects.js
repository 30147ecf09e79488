// The list of the projects that are on this board.
import { showFailure, get, live } from "./api.js";
import { badge, byId, card, findingBox, h, show, table } from "./dom.js";
import { compact, whole } from "./format.js";

const main = byId("main");

const row = (project) => h("tr", {},
  h("td", {}, project.target ? h("a", { href: `/projects/${project.key}/` }, project.key) : h("b", {}, project.key)),
  h("td", {}, badge(project.level, project.state)),
  h("td", { class: "num" }, project.target ? `${project.running} of ${project.queries}` : "–"),
  h("td", { class: "num" }, project.running ? compact(project.rate) : "–"),
  h("td", { class: "num" }, project.target ? whole(project.rows) : "–"),
  h("td", { class: "num" }, whole(project.attention)),
  h("td", {}, project.target || "–"),
  h("td", { class: "long soft" }, project.directory));

const faults = (projects) => projects.flatMap((project) => project.findings.map((finding) => [h("p", { class: "soft" }, project.directory), findingBox(finding)]));

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

start().catch((error) => showFailure(main, error));
