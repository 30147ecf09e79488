// Line, stacked and event-time charts over one column of times, by uPlot; colours follow the theme.
import { h } from "./dom.js";
import { clock, instant, moment } from "./format.js";

const HEIGHT = 190;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7"];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [], [7, 4], [2, 3]];
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000];
const utc = (values, step) => values.map((at) =>
  at === null ? "" : step >= 86400 || (step >= 3600 && at % 86400 === 0) ? instant(at).slice(5, 10) : step >= 60 ? clock(at).slice(0, 5) : clock(at));
const all = [];

const stackColumns = (columns) => {
  const sums = columns[0]?.map(() => 0) ?? [];
  // The largest sum is drawn first, and those below it over it.
  return columns.map((column) => column.map((value, at) => (value === null ? null : (sums[at] += value)))).reverse();
};

// A point between two breaks is not a line; it is drawn as a point.
const alone = (u, index) => {
  const column = u.data[index] ?? [];
  const points = [];
  column.forEach((value, at) => { if (value !== null && (column[at - 1] ?? null) === null && (column[at + 1] ?? null) === null) points.push(at); });
  return points;
};

// series: [{ label, values, colour?, dash?, points? }]; format: how a value is written.
export const chart = ({ label, format, ticks = format, stack = false, time = false, height = HEIGHT }) => {
  const frame = h("div", { class: "chart", tabindex: "0", role: "img", "aria-label": label });
  let plot = null;
  let shape = "";
  let given = [];

  const build = (data) => {
    plot?.destroy();
    const shown = stack ? [...given].reverse() : given;
    plot = new uPlot({
      width: Math.max(200, frame.clientWidth), height,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
      cursor: { sync: { key: "query" }, y: false, points: { size: 7 } },
      legend: { live: true },
      scales: { x: { time: true }, y: time ? {} : { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      axes: [
        { stroke: () => css("--soft"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { size: 5, stroke: () => css("--grid"), width: 1 }, incrs: TIME_STEPS,
          values: (u, values, at, space, step) => utc(values, step), space: 70, font: "11.5px system-ui", size: 28 },
        { stroke: () => css("--soft"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { size: 5, stroke: () => css("--grid"), width: 1 }, size: 66, font: "11.5px system-ui",
          ...(time ? { incrs: TIME_STEPS, values: (u, values, at, space, step) => utc(values, step) } : { values: (u, values) => values.map(ticks) }) },
      ],
      series: [
        { label: "Time", value: (u, value) => (value === null ? "" : moment(value)) },
        ...shown.map((line, number) => {
          const place = stack ? shown.length - 1 - number : number;
          const colour = line.colour ?? COLOURS[place % COLOURS.length];
          return {
            label: line.label,
            stroke: () => css(stack ? "--card" : colour),
            width: stack ? 1 : line.width ?? 1.8,
            dash: stack ? [] : line.dash ?? DASHES[place % DASHES.length],
            fill: stack ? () => css(colour) : line.zone ? () => css(line.zone) : undefined,
            fillTo: line.zone ? (u) => u.scales.y.min : undefined,
            paths: line.points ? () => null : undefined,
            points: line.points ? { show: true, size: 9, fill: () => css(colour), stroke: () => css("--card"), width: 1.5 } : { show: true, size: 5, fill: () => css(colour), filter: alone },
            value: (u, value, index, at) => (at === null || at === undefined ? "–" : (line.say ?? format)(line.values[at], at)),
            spanGaps: false,
          };
        }),
      ],
      hooks: { setCursor: [(u) => { if (u.cursor.idx === null || u.cursor.left < 0) last(u); }] },
    }, data, frame);
    last(plot);
  };
  const last = (u) => u.setLegend({ idx: u.data[0].length - 1 }, false);
  const draw = (times, series) => {
    given = series;
    const now = JSON.stringify(series.map((line) => line.label));
    const data = [times, ...(stack ? stackColumns(series.map((line) => line.values)) : series.map((line) => line.values))];
    if (!plot || now !== shape) { shape = now; build(data); } else {
      const shown = stack ? [...given].reverse() : given;
      shown.forEach((line, at) => { plot.series[at + 1].value = (u, value, index, place) => (place === null || place === undefined ? "–" : (line.say ?? format)(line.values[place], place)); });
      plot.setData(data);
      last(plot);
    }
    const end = times.length - 1;
    const words = series.map((line) => `${line.label} ${(line.say ?? format)(line.values[end], end)}`).join(", ");
    frame.setAttribute("aria-label", `${label}. ${times.length ? `At ${moment(times[end])} UTC: ${words}` : "No batch in this time"}.`);
  };
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !plot) return;
    event.preventDefault();
    const end = plot.data[0].length - 1;
    const at = Math.min(end, Math.max(0, (plot.cursor.idx ?? end) + step));
    plot.setCursor({ left: plot.valToPos(plot.data[0][at], "x"), top: 10 });
  });
  frame.addEventListener("blur", () => plot?.setCursor({ left: -10, top: -10 }));
  new ResizeObserver(() => { if (plot && frame.clientWidth) plot.setSize({ width: frame.clientWidth, height }); }).observe(frame);
  all.push(() => plot && build(plot.data));
  return { frame, draw };
};

addEventListener("themechange", () => all.forEach((redraw) => redraw()));
