// What views are put together from.
import { h, svg } from "./dom.js";
import { LEVEL, SIGN, TREND, WHY, duration, runway } from "./words.js";

export const badge = (level, text) => h("span", { class: `badge ${level}` }, h("span", { "aria-hidden": "true" }, SIGN[level]), text || LEVEL[level]);
export const fact = (term, text, big) => h("div", {}, h("dt", {}, term), h("dd", { class: big ? "big" : null }, text));
export const facts = (...all) => h("dl", { class: "facts" }, ...all);
export const card = (key, title, ...children) =>
  h("section", { class: "card", "data-key": key, "aria-label": title }, h("div", { class: "head" }, h("h2", {}, title)), ...children);
export const empty = (title, ...what) => h("div", { class: "empty" }, h("strong", {}, title), h("p", {}, ...what));
export const notice = (level, ...text) => h("p", { class: `notice ${level}` }, ...text);
export const code = text => h("code", {}, text);
export const link = (to, ...text) => h("a", { href: to }, ...text);

// columns: [title, isNumber]; rows: { key, cells, class }. The first cell names its row. Roles are written out since a
// narrow screen shows rows as cards (display: block), which would hide them from a screen reader.
export function table(caption, columns, rows, kind) {
  const head = h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
    columns.map(([title, number]) => h("th", { scope: "col", role: "columnheader", class: number ? "num" : null }, title))));
  const body = h("tbody", { role: "rowgroup" }, rows.map(({ key, cells }) => h("tr", { role: "row", "data-key": key },
    cells.map((cell, at) => at === 0
      ? h("th", { scope: "row", role: "rowheader" }, cell)
      : h("td", { role: "cell", class: columns[at][1] ? "num" : null, "data-label": columns[at][0] }, h("span", {}, cell))))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", { role: "table", class: kind || null }, h("caption", {}, caption), head, body));
}

// A bar of how long something lasts, from a minute to a month, each step ten times the last.
export function bar(seconds, level) {
  const share = seconds === null || seconds === undefined ? 100
    : Math.max(1.5, Math.min(100, (100 * Math.log10(Math.max(1, seconds / 60))) / Math.log10(43200)));
  return svg("svg", { class: `runway ${seconds === null || seconds === undefined ? "none" : level}`, viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", width: "100", height: "4", rx: "1" }), svg("rect", { class: "fill", width: share.toFixed(2), height: "4", rx: "1" }));
}

// What was seen lately, oldest first; gaps where nothing was issued.
export function spark(samples, every) {
  const seen = samples.filter(s => s !== null);
  if (seen.length < 2) return h("span", { class: "soft small" }, "too little seen yet");
  const low = Math.min(...seen), span = Math.max(...seen) - low || 1, step = 100 / (samples.length - 1);
  let path = "", pen = "M";
  samples.forEach((s, at) => {
    if (s === null) { pen = "M"; return; }
    path += `${pen}${(at * step).toFixed(1)} ${(22 - (20 * (s - low)) / span).toFixed(1)}`;
    pen = "L";
  });
  const words = `over ${duration(every * (samples.length - 1))}: between ${duration(low)} and ${duration(low + (span === 1 && Math.max(...seen) === low ? 0 : span))}, now ${runway(samples[samples.length - 1])}`;
  return svg("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": words }, svg("path", { d: path }));
}

// `time`: what is held is time, given for as long as the policy says, at any rate.
export function cell(c, time) {
  const [arrow, word] = TREND[c.trend] || ["", ""];
  const idle = c.runway_seconds === null && c.why === null;
  const main = c.why && c.runway_seconds === null ? WHY[c.why] : runway(c.runway_seconds);
  return h("span", { class: `cell ${idle ? "none" : c.level}`, "data-level": c.level },
    h("span", { class: "word" }, idle ? null : h("span", { "aria-hidden": "true" }, `${SIGN[c.level]} `), main,
      word ? h("span", { title: word }, ` ${arrow}`, h("span", { class: "unseen" }, word)) : null),
    h("span", { class: "sub" }, c.why && c.runway_seconds !== null ? `${WHY[c.why]}, ` : "",
      time ? "of time given" : c.runway_at_peak_seconds === null ? "nothing issued" : `at peak ${duration(c.runway_at_peak_seconds)}`));
}
