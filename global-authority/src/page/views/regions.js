// Every region, worst first.
import { h } from "../lib/dom.js";
import { badge, bar, card, code, empty, link, table } from "../lib/parts.js";
import { ago, duration, offset, perSecond } from "../lib/words.js";

const RANK = { ok: 0, watch: 1, act: 2 };

export default {
  async load() { return {}; },
  draw(_, { overview }) {
    const soon = r => (r.first_dry === null ? Infinity : r.first_dry.seconds);
    const rows = [...overview.regions].sort((a, b) => RANK[b.level] - RANK[a.level] || soon(a) - soon(b) || (a.region < b.region ? -1 : 1));
    if (rows.length === 0) return [card("regions", "Regions", empty("No regions yet.", "Register one, and start its agent with the token that is shown: ", code("cadastre region create eu")))];
    return [card("regions", "Regions", table("How long each goes on if it is cut off now, and how it is",
      [["Region"], ["Verdict"], ["Runs dry in"], ["State"], ["Epoch", 1], ["Agents", 1], ["Last heard", 1], ["Clock", 1], ["Rate", 1], ["Waits for"]], rows.map(r => ({
        key: r.region,
        cells: [link(`#/region/${encodeURIComponent(r.region)}`, r.region), badge(r.level),
          r.first_dry === null ? h("span", { class: "soft" }, "idle") : [h("strong", { class: "num" }, duration(r.first_dry.seconds)), h("span", { class: "sub" }, `of ${r.first_dry.namespace}`), bar(r.first_dry.seconds, r.level)],
          r.state, String(r.epoch), String(r.agents), ago(r.heard_seconds), offset(r.clock_offset_ms), perSecond(r.rate_per_second), r.waiting_for || "nothing"],
      }))))];
  },
};
