// Is anything wrong, and which region runs dry first, when.
import { ask } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { badge, bar, card, code, empty, link } from "../lib/parts.js";
import { ago, duration, grouped, LEVEL, perSecond, plural, SIGN } from "../lib/words.js";

const TILES = 12, RANK = { ok: 0, watch: 1, act: 2 };

// Where a finding is looked into.
function toward(finding) {
  if (finding.kind === "quarantine") return "#/quarantine";
  if (finding.namespace) return `#/namespace/${encodeURIComponent(finding.namespace)}`;
  return finding.region ? `#/region/${encodeURIComponent(finding.region)}` : null;
}

function hero(overview) {
  const top = overview.findings[0], first = overview.first_dry;
  const nothing = overview.regions.length === 0 || overview.namespaces.ok + overview.namespaces.watch + overview.namespaces.act === 0;
  return h("section", { class: `hero ${overview.level}`, "data-key": "hero", "aria-label": "Verdict" },
    h("span", { class: "sign" }, `${SIGN[overview.level]} ${LEVEL[overview.level]}`),
    h("h1", {}, top ? top.text : nothing ? "Nothing to watch yet." : "All is well."),
    h("p", { id: "first-dry" }, first === null ? "Nothing is being issued, so nothing runs dry."
      : ["If every region were cut off now, ", link(`#/region/${encodeURIComponent(first.region)}`, first.region), " would run dry first: ",
        link(`#/namespace/${encodeURIComponent(first.namespace)}`, first.namespace), " in ", h("strong", {}, duration(first.seconds)), "."]));
}

function findings(overview) {
  const rest = overview.findings.slice(1, 13), more = overview.findings_total - 1 - rest.length;
  if (rest.length === 0) return null;
  return card("findings", `${plural(overview.findings_total, "finding")}`,
    h("ul", { class: "findings" }, rest.map(f => h("li", { "data-key": `${f.kind}/${f.region}/${f.namespace}` }, badge(f.level),
      h("span", {}, toward(f) ? link(toward(f), f.text) : f.text))),
      more > 0 ? h("li", { "data-key": "more" }, link("#/headroom?level=watch", `and ${grouped(more)} more, by namespace`)) : null));
}

export function tile(r) {
  const first = r.first_dry;
  return h("li", { "data-key": r.region }, h("a", { class: "tile", href: `#/region/${encodeURIComponent(r.region)}` },
    h("span", { class: "name" }, r.region, badge(r.level)),
    h("span", { class: `lasts ${first === null ? "idle" : ""}` }, first === null ? "idle" : duration(first.seconds)),
    bar(first === null ? null : first.seconds, r.level),
    h("span", { class: "soft small" }, first === null ? "nothing is being issued" : `until it is out of ${first.namespace}, alone`),
    h("span", { class: "soft small" }, `${r.state}, epoch ${r.epoch} · ${plural(r.agents, "agent")} · heard ${ago(r.heard_seconds)} · ${perSecond(r.rate_per_second)}`)));
}

function regions(overview) {
  if (overview.regions.length === 0) {
    return card("regions", "Regions", empty("No regions yet.", "Register one, and start its agent with the token that is shown: ", code("cadastre region create eu")));
  }
  const live = overview.regions.filter(r => r.state !== "retired");
  const soon = r => (r.first_dry === null ? Infinity : r.first_dry.seconds);
  live.sort((a, b) => RANK[b.level] - RANK[a.level] || soon(a) - soon(b) || (a.region < b.region ? -1 : 1));
  return card("regions", "Regions, the one that runs dry first in front",
    h("ul", { class: "tiles" }, live.slice(0, TILES).map(tile)),
    live.length > TILES ? h("p", {}, link("#/regions", `All ${live.length} regions`)) : null);
}

function namespaces(overview, page) {
  const n = overview.namespaces, all = n.ok + n.watch + n.act;
  if (all === 0) {
    return card("namespaces", "Namespaces", empty("No namespaces yet.", "Make the first, then admit a service to it: ",
      code("cadastre namespace create orders"), ", ", code("cadastre service create shop --namespace orders")));
  }
  return card("namespaces", "Namespaces",
    h("div", { class: "row" }, badge("ok", `${grouped(n.ok)} well`), n.watch ? badge("watch", `${grouped(n.watch)} to watch`) : null, n.act ? badge("act", `${grouped(n.act)} to act on`) : null),
    h("ul", { class: "findings" }, page.namespaces.map(row => h("li", { "data-key": row.name }, badge(row.level),
      h("span", {}, link(`#/namespace/${encodeURIComponent(row.name)}`, row.name), " ",
        h("span", { class: "soft" }, row.first_dry === null ? "nothing is being issued" : `lasts ${duration(row.first_dry.seconds)} in ${row.first_dry.region}`))))),
    h("p", {}, link("#/headroom", all > page.namespaces.length ? `All ${grouped(all)} namespaces by region` : "By region")));
}

export default {
  async load() {
    return { page: await ask("/v1/overview/namespaces?limit=5") };
  },
  draw({ page }, { overview }) {
    return [hero(overview), findings(overview), regions(overview), namespaces(overview, page),
      h("p", { class: "soft small", "data-key": "store" }, `The authority's store: ${overview.continuity}.`)];
  },
};
