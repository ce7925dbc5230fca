// The matrix of namespaces and regions: how long each goes on alone. A page at a time, worst first.
import { ask, query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { card, cell, empty, link, table } from "../lib/parts.js";
import { ends, grouped, perSecond, plural } from "../lib/words.js";

const ROWS = 25, WIDE = 12;

function wanted(route) {
  const { matching, level, order, page } = route.query;
  return { matching, level, order, page: Math.max(0, Number.parseInt(page || "0", 10) || 0) };
}
const to = values => `#/headroom${query(values)}`;

function controls(want) {
  const choice = (name, now, options) => h("select", { id: name, name }, options.map(([value, text]) => h("option", { value, selected: value === (now || "") }, text)));
  return h("form", { class: "line", "data-form": "filter", "data-live": true, role: "search", "data-key": "filter" },
    h("div", {}, h("label", { for: "matching" }, "Name contains"), h("input", { id: "matching", name: "matching", value: want.matching || "", autocomplete: "off", spellcheck: "false" })),
    h("div", {}, h("label", { for: "level" }, "Show"), choice("level", want.level, [["", "all"], ["watch", "what to watch or act on"], ["act", "what to act on now"]])),
    h("div", {}, h("label", { for: "order" }, "In order"), choice("order", want.order, [["", "worst first"], ["name", "by name"]])));
}

// Regions of the page: all of them, or where there are many only those that are not well and the ones that run dry first.
function columns(rows, all) {
  const names = [...new Set(rows.flatMap(row => row.regions.map(c => c.region)))].sort();
  if (all || names.length <= WIDE) return { names, left: 0 };
  const weight = name => Math.max(...rows.map(row => {
    const c = row.regions.find(it => it.region === name);
    return c === undefined ? -1 : { ok: 0, watch: 1e12, act: 2e12 }[c.level] + 1e9 / (1 + (c.runway_seconds ?? 1e9));
  }));
  const shown = names.map(name => [weight(name), name]).sort((a, b) => b[0] - a[0]).slice(0, WIDE).map(([, name]) => name).sort();
  return { names: shown, left: names.length - shown.length };
}

export function spaceWords(row) {
  if (row.kind === "uuid_v7") return "does not end";
  return BigInt(row.space_left) === 0n ? "used up" : ends(row.space_ends_at);
}

const none = () => h("span", { class: "soft", title: "not counted: only namespaces of kind range are" }, "–");

function matrix(rows, names) {
  const titles = [["Namespace"], ["Whole space ends"], ["Issued", 1], ["Burned", 1], ["Rate", 1], ...names.map(name => [name])];
  return table("How long each region goes on if it is cut off now: at the rate seen, and at its peak", titles, rows.map(row => ({
    key: row.name,
    cells: [
      link(`#/namespace/${encodeURIComponent(row.name)}`, row.name),
      [spaceWords(row)],
      row.kind === "range" ? grouped(row.issued_estimate) : none(), row.kind === "range" ? grouped(row.burned) : none(), row.kind === "range" ? perSecond(row.rate_per_second) : none(),
      ...names.map(name => { const c = row.regions.find(it => it.region === name); return c ? cell(c, row.kind === "snowflake") : h("span", { class: "soft" }, "none"); }),
    ],
  })), "matrix");
}

function pager(want, total) {
  const pages = Math.ceil(total / ROWS);
  if (pages <= 1) return null;
  const step = (page, text) => (page < 0 || page >= pages ? h("span", { class: "soft" }, text) : link(to({ ...want, page: page || null }), text));
  return h("nav", { class: "row", "aria-label": "Pages", "data-key": "pager" }, step(want.page - 1, "Previous"),
    h("span", { class: "soft num" }, `${want.page * ROWS + 1} to ${Math.min(total, (want.page + 1) * ROWS)} of ${grouped(total)}`), step(want.page + 1, "Next"));
}

export default {
  async load(route) {
    const want = wanted(route);
    const asked = { matching: want.matching, level: want.level, by_name: want.order === "name" ? "true" : null, offset: want.page * ROWS, limit: ROWS };
    return { want, page: await ask(`/v1/overview/namespaces${query(asked)}`) };
  },
  draw({ want, page }, { memory }) {
    const { names, left } = columns(page.namespaces, memory.all);
    const body = page.namespaces.length > 0 ? matrix(page.namespaces, names)
      : want.matching || want.level ? empty("No namespace is like that.", link("#/headroom", "Show all"))
        : empty("No namespaces yet.", "Make the first: ", h("code", {}, "cadastre namespace create orders"), ", then admit a service to it.");
    return [card("headroom", `Headroom: ${plural(page.total, "namespace")}`, controls(want), body,
      left > 0 ? h("button", { type: "button", "data-do": "all" }, `Show ${left} more regions`) : null, pager(want, page.total))];
  },
  does: {
    all(_, { memory }) { memory.all = true; },
    filter(form) {
      const { matching, level, order } = Object.fromEntries(new FormData(form));
      history.replaceState(null, "", to({ matching, level, order }));
      window.dispatchEvent(new HashChangeEvent("hashchange"));
    },
  },
};
