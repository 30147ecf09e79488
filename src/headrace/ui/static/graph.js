// The graph of the project: laid out by dagre, drawn as SVG, moved and zoomed by mouse, touch and keyboard.
import { h, queryPage, s, SIGNS, text } from "./dom.js";
import { compact, lag, ms } from "./format.js";

const WIDTH = 216;
const HEIGHT = 78;
const NARROW = 640;
// Shortens a text until it fits; only the browser knows its width.
const shorten = (element, words, most) => {
  if (element.dataset.words === words) return;
  element.textContent = words;
  if (!element.getComputedTextLength()) return;
  element.dataset.words = words;
  let kept = Math.min(words.length, Math.ceil((words.length * most) / element.getComputedTextLength()));
  while (element.getComputedTextLength() > most && kept > 1) element.textContent = `${words.slice(0, --kept).trimEnd()}…`;
};
const LEFT = 18;
const SIGN = 28;

export const drawGraph = (graph) => {
  const svg = s("svg", { role: "group", "aria-label": "Graph of the project", tabindex: "0" });
  const frame = h("div", { class: "graph" }, svg);
  const figures = new Map();
  const signs = new Map();
  const boxes = new Map();
  const edges = [];
  let view = { x: 0, y: 0, w: 1, h: 1 };
  let bounds = view;
  let upright = null;
  let zoomed = 1;

  const look = () => {
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
    // On a narrow page the frame scrolls over the whole graph, as all else there does.
    svg.style.width = upright ? `${zoomed * (bounds.w + 40)}px` : "";
    svg.style.height = upright ? `${zoomed * (bounds.h + 40)}px` : "";
  };
  const fit = () => {
    const { width, height } = frame.getBoundingClientRect();
    if (!width) return;
    if (upright) {
      zoomed = 1;
      view = { x: -20, y: -20, w: bounds.w + 40, h: bounds.h + 40 };
      return look();
    }
    // Never above its natural size, never too small to read: the user moves a graph that does not fit.
    const scale = Math.min(1.15, Math.max(0.62, Math.min(width / (bounds.w + 40), height / (bounds.h + 40))));
    view = { w: width / scale, h: height / scale, x: 0, y: 0 };
    view.x = view.w >= bounds.w + 40 ? (bounds.w - view.w) / 2 : -20;
    view.y = view.h >= bounds.h + 40 ? (bounds.h - view.h) / 2 : -20;
    look();
  };
  const zoom = (factor) => {
    if (upright) {
      zoomed = Math.min(3, Math.max(0.4, zoomed / factor));
      return look();
    }
    view = { x: view.x + view.w * (1 - factor) / 2, y: view.y + view.h * (1 - factor) / 2, w: view.w * factor, h: view.h * factor };
    look();
  };
  const move = (x, y) => {
    if (upright) return frame.scrollBy(x, y);
    view = { ...view, x: view.x + x, y: view.y + y };
    look();
  };

  const drawNode = (node, at) => {
    const linked = node.kind === "query" || node.kind === "sink";
    const name = node.kind === "sink" ? (node.more || node.about) : node.name;
    const figure = s("text", { class: "figure", x: LEFT, y: 64 });
    const sign = s("text", { class: "sign idle", x: WIDTH - 12, y: 24 });
    const shown = s(linked ? "a" : "g",
      { class: "node", transform: `translate(${at.x - WIDTH / 2} ${at.y - HEIGHT / 2})`, href: linked ? queryPage(node.name) : null },
      s("title", {}, `${node.kind} ${name}${node.about ? `, ${node.about}` : ""}`),
      s("rect", { class: "box", width: WIDTH, height: HEIGHT, rx: 9 }),
      s("rect", { class: `stripe ${node.kind}`, x: 0.6, y: 10, width: 5, height: HEIGHT - 20, rx: 2 }),
      s("text", { class: "kind", x: LEFT, y: 22 }, node.kind === "source" ? `source · ${node.about}` : node.kind),
      s("text", { class: "name", x: LEFT, y: 43 }, name),
      figure, sign);
    figures.set(node.id, figure);
    signs.set(node.id, sign);
    boxes.set(node.id, shown);
    return shown;
  };

  const place = () => {
    const now = (frame.clientWidth || innerWidth) < NARROW;
    if (upright === now) return;
    upright = now;
    const plan = new dagre.graphlib.Graph();
    plan.setGraph({ rankdir: upright ? "TB" : "LR", nodesep: 26, ranksep: upright ? 44 : 64 });
    plan.setDefaultEdgeLabel(() => ({}));
    graph.nodes.forEach((node) => plan.setNode(node.id, { width: WIDTH, height: HEIGHT }));
    graph.edges.forEach((edge) => plan.setEdge(edge.from, edge.to));
    dagre.layout(plan);
    bounds = { w: Math.max(1, plan.graph().width), h: Math.max(1, plan.graph().height) };
    frame.style.height = upright ? "" : `${Math.min(560, Math.max(240, bounds.h + 56))}px`;
    edges.length = 0;
    const lines = graph.edges.map((edge) => {
      const [a, b] = [plan.node(edge.from), plan.node(edge.to)];
      const [x1, y1, x2, y2] = upright
        ? [a.x, a.y + HEIGHT / 2, b.x, b.y - HEIGHT / 2 - 7]
        : [a.x + WIDTH / 2, a.y, b.x - WIDTH / 2 - 7, b.y];
      const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
      const curve = upright ? `M${x1} ${y1}C${x1} ${my} ${x2} ${my} ${x2} ${y2}` : `M${x1} ${y1}C${mx} ${y1} ${mx} ${y2} ${x2} ${y2}`;
      const line = s("path", { class: "edge", d: curve, "marker-end": "url(#arrow)" });
      edges.push({ ...edge, line });
      return line;
    });
    svg.replaceChildren(
      s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 1, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto", markerUnits: "userSpaceOnUse" },
        s("path", { d: "M0 0L8 4L0 8z", fill: "context-stroke" }))),
      ...lines,
      ...graph.nodes.map((node) => drawNode(node, plan.node(node.id))));
    fit();
  };

  let last = null;
  const update = (queries) => {
    last = queries;
    const standings = Object.values(queries);
    const flowing = new Set();
    for (const node of graph.nodes) {
      const figure = figures.get(node.id);
      if (!figure) continue;
      let words = node.kind === "sink" ? node.about : node.more;
      let level = null;
      let on = false;
      if (node.kind === "source") {
        const seen = standings.map((standing) => standing.sources[node.name]).filter(Boolean);
        const rate = Math.max(0, ...seen.map((source) => source.rate));
        const most = seen.map((source) => source.lag).filter(Boolean).sort((a, b) => b.count - a.count)[0];
        if (seen.length) words = `${compact(rate)} rows/s${most ? ` · lag ${lag(most)}` : ""}`;
        on = rate > 0;
      }
      if (node.kind === "sink" && queries[node.name]?.state === "waiting for sink") level = queries[node.name].level;
      if (node.kind === "query") {
        const standing = queries[node.name];
        level = standing.level;
        const rate = standing.rates.input;
        on = rate > 0 && !standing.in_trouble;
        words = standing.state === "running" && rate !== null ? `${compact(rate)} rows/s · ${ms(standing.batch_ms)}` : standing.state;
      }
      if (on) flowing.add(node.id);
      shorten(figure, words, WIDTH - LEFT - SIGN);
      figure.setAttribute("class", `figure ${on ? "on" : ""}`);
      const sign = signs.get(node.id);
      text(sign, level ? SIGNS[level] : "");
      sign.setAttribute("class", `sign ${level ?? ""}`);
      boxes.get(node.id).setAttribute("class", `node ${level ?? ""}`);
    }
    svg.querySelectorAll(".name, .kind").forEach((label) => shorten(label, label.dataset.words ?? label.textContent, WIDTH - LEFT - SIGN));
    // An edge into a view flows if a query behind the view runs.
    const reaches = (id, seen = new Set()) => flowing.has(id) || (!seen.has(id) && seen.add(id) &&
      graph.edges.some((edge) => edge.from === id && edge.to.split(":")[0] !== "sink" && reaches(edge.to, seen)));
    for (const { from, to, line } of edges) {
      const flows = from.startsWith("query:") ? flowing.has(from) : !from.startsWith("table:") && reaches(to);
      line.setAttribute("class", `edge ${flows ? "flows" : ""}`);
    }
  };

  let held = null;
  svg.addEventListener("pointerdown", (event) => { held = upright ? null : { x: event.clientX, y: event.clientY, far: 0 }; });
  addEventListener("pointermove", (event) => {
    if (!held) return;
    const scale = view.w / frame.clientWidth;
    const [x, y] = [event.clientX - held.x, event.clientY - held.y];
    held = { x: event.clientX, y: event.clientY, far: held.far + Math.abs(x) + Math.abs(y) };
    if (held.far > 4) { svg.classList.add("held"); move(-x * scale, -y * scale); }
  });
  addEventListener("pointerup", () => {
    const moved = held && held.far > 4;
    held = null;
    svg.classList.remove("held");
    if (moved) svg.addEventListener("click", (event) => event.preventDefault(), { once: true, capture: true });
  });
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.12 : 0.89);
  }, { passive: false });
  svg.addEventListener("keydown", (event) => {
    const step = view.w / 12;
    const doing = { ArrowLeft: () => move(-step, 0), ArrowRight: () => move(step, 0), ArrowUp: () => move(0, -step),
      ArrowDown: () => move(0, step), "+": () => zoom(0.85), "-": () => zoom(1.18), 0: fit }[event.key];
    if (!doing || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    doing();
  });
  place();
  new ResizeObserver(() => { place(); if (!upright || !svg.style.width) fit(); if (last) update(last); }).observe(frame);
  return { frame, update, zoom, fit };
};
