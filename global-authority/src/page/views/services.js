// Services: what each may ask for, its limits, and what it uses of them.
import { ask } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { card, code, empty, link, table } from "../lib/parts.js";
import { grouped, plural } from "../lib/words.js";

const limit = (n, unit) => (n === null || n === undefined ? h("span", { class: "soft" }, "no limit") : `${grouped(n)}${unit}`);

export default {
  every: 5000,
  async load() { return await ask("/v1/services"); },
  draw({ services }) {
    if (services.length === 0) return [card("services", "Services", empty("No services yet.", "A service is who may ask for IDs: ", code("cadastre service create shop --namespace orders"), ", then ", code("cadastre service token shop")))];
    return [card("services", plural(services.length, "service"), table("Limits are per region; a region's agents share them",
      [["Service"], ["Namespaces"], ["IDs a second", 1], ["Requests at once", 1], ["IDs in one request", 1], ["Live tokens", 1]], services.map(s => ({
        key: s.name,
        cells: [s.name, h("span", {}, s.namespaces.slice(0, 8).map((n, at) => [at ? ", " : "", link(`#/namespace/${encodeURIComponent(n)}`, n)]), s.namespaces.length > 8 ? ` and ${s.namespaces.length - 8} more` : ""),
          limit(s.limits.ids_per_second, "/s"), limit(s.limits.in_flight, ""), limit(s.limits.batch, ""), String(s.tokens.filter(t => !t.revoked).length)],
      }))))];
  },
};
