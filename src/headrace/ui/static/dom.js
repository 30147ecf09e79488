// Elements, made of plain values: text never becomes markup.
const SVG = "http://www.w3.org/2000/svg";

const fill = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
};

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
// The prefix of this project's addresses on a board of several projects.
export const base = location.pathname.match(/^\/projects\/[^/]+/)?.[0] ?? "";
export const queryPage = (query) => `${base}/queries/${encodeURIComponent(query)}`;

export const byId = (id) => document.getElementById(id);

// Replaces the content of a node if it differs, so that unchanged content keeps the focus.
const shown = new WeakMap();
export const show = (node, ...children) => {
  const made = h("div", {}, ...children);
  if (made.innerHTML === (shown.get(node) ?? node.innerHTML)) return;
  shown.set(node, made.innerHTML);
  node.replaceChildren(...made.childNodes);
};

// Marks a box whose content is wider than itself.
const widths = new ResizeObserver((entries) => entries.forEach(({ target }) => target.classList.toggle("wider", target.scrollWidth > target.clientWidth + 1)));
export const scrollBox = (label, more, ...children) => {
  const made = h("div", { class: `scroll ${more ?? ""}`, tabindex: "0", role: "group", "aria-label": label }, ...children);
  widths.observe(made);
  return made;
};
export const text = (node, value) => {
  if (node.textContent !== value) node.textContent = value;
};

export const card = (title, aside, ...body) =>
  h("section", { class: "card", "aria-label": title }, h("header", {}, h("h2", {}, title), aside), ...body);

export const SIGNS = { good: "✓", warning: "▲", bad: "✕", idle: "○" };
export const badge = (level, words) =>
  h("span", { class: `badge ${level}` }, h("span", { "aria-hidden": "true" }, SIGNS[level]), words);

const SEVERITY = { error: "✕", warning: "▲", note: "ℹ" };
export const findingBox = (finding, query) =>
  h("div", { class: `finding ${finding.severity}` },
    h("div", { class: "head" },
      h("span", { class: "sign", "aria-hidden": "true" }, SEVERITY[finding.severity]),
      h("span", {}, `${finding.code} ${finding.severity}`),
      query && h("a", { href: queryPage(query) }, query),
      finding.where?.line ? h("span", {}, `${finding.where.file}:${finding.where.line}`) : null),
    h("p", {}, finding.what),
    finding.fix && h("p", { class: "fix" }, h("b", {}, "Fix: "), finding.fix));

export const table = (label, columns, rows, more) =>
  scrollBox(label, more, h("table", {},
    h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
    h("tbody", {}, rows)));
