// Services: what each may ask for, its limits, and what it uses of them.
import { ask, part } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { badge, card, code, empty, link, notice, table } from "../lib/parts.js";
import { grouped, perSecond, plural } from "../lib/words.js";

const limit = (n, unit) => (n === null || n === undefined ? h("span", { class: "soft" }, "no limit") : `${grouped(n)}${unit}`);

// A share of a limit at which somebody should look, and one at which callers are about to be refused.
const WATCH = 0.7, ACT = 0.95;
const level = share => (share >= ACT ? "act" : share >= WATCH ? "watch" : "ok");
const of = (used, most) => (most === null || most === undefined ? h("span", { class: "soft" }, "no limit") : `${used} of ${grouped(most)}`);

function uses({ uses: rows, unheard }) {
  const missing = unheard.map(u => notice("watch", `An agent of ${u.region} could not be asked, so its figures are not here: ${u.problem.detail}.`));
  if (rows.length === 0) return card("uses", "Use of limits", ...missing, empty("No service has a limit.", "Give it one, so that it cannot make the others dry: ", code("cadastre service set shop --ids-per-second 1000")));
  return card("uses", "Use of limits", ...missing, table("Just now, the nearest to a limit first",
    [["Service"], ["Region"], ["Used"], ["IDs a second", 1], ["Requests at once", 1], ["Processes", 1], ["IDs they hold", 1]], rows.map(u => ({
      key: `${u.service}/${u.region}`,
      cells: [u.service, link(`#/region/${part(u.region)}`, u.region), badge(level(u.share), `${Math.round(u.share * 100)} % of ${u.nearest}`),
        of(perSecond(u.ids_per_second), u.limits.ids_per_second), of(grouped(u.in_flight), u.limits.in_flight),
        of(grouped(u.holders), u.limits.holders), of(grouped(u.held_ids), u.limits.held_ids)],
    }))));
}

export default {
  every: 5000,
  async load() {
    const [all, used] = await Promise.all([ask("/v1/services"), ask("/v1/services/use")]);
    return { services: all.services, used };
  },
  draw({ services, used }) {
    if (services.length === 0) return [card("services", "Services", empty("No services yet.", "A service is who may ask for IDs: ", code("cadastre service create shop --namespace orders"), ", then ", code("cadastre service token shop")))];
    return [uses(used), card("services", plural(services.length, "service"), table("Limits are per region; a region's agents share them",
      [["Service"], ["Namespaces"], ["IDs a second", 1], ["Requests at once", 1], ["IDs in one request", 1], ["Live tokens", 1]], services.map(s => ({
        key: s.name,
        cells: [s.name, h("span", {}, s.namespaces.slice(0, 8).map((n, at) => [at ? ", " : "", link(`#/namespace/${encodeURIComponent(n)}`, n)]), s.namespaces.length > 8 ? ` and ${s.namespaces.length - 8} more` : ""),
          limit(s.limits.ids_per_second, "/s"), limit(s.limits.in_flight, ""), limit(s.limits.batch, ""), String(s.tokens.filter(t => !t.revoked).length)],
      }))))];
  },
};
