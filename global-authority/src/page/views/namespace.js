// One namespace: what is left where, its number line, what became of it.
import { ask, part, query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { badge, card, cell, empty, fact, facts, link, notice, spark, table } from "../lib/parts.js";
import { duration, grouped, percent, perSecond, plural, WHY } from "../lib/words.js";
import { spaceWords } from "./headroom.js";
import { drawLine, loadLine } from "./line.js";

async function rowOf(name) {
  const page = await ask(`/v1/overview/namespaces${query({ matching: name, by_name: "true", limit: 200 })}`);
  return page.namespaces.find(row => row.name === name) || null;
}

function byRegion(name, row, headroom, history) {
  const detail = new Map(headroom.regions.map(r => [r.region, r]));
  const time = row.kind === "snowflake";
  const titles = time ? [["Region"], ["Stamps for"], ["State"], ["Epoch", 1]]
    : [["Region"], ["Goes on alone for"], ["Lately"], ["Left", 1], ["Rate", 1], ["Carved", 1], ["Granted, ever", 1], ["State"], ["Epoch", 1]];
  return table(time ? "For how long each may stamp without the authority" : "How long each goes on alone, and what it holds", titles, row.regions.map(c => {
    const d = detail.get(c.region) || {};
    const who = link(`#/region/${encodeURIComponent(c.region)}`, c.region);
    const cells = time ? [who, cell(c, true), d.state, String(d.epoch)]
      : [who, cell(c), spark(history.regions[c.region] || [], history.every_seconds), grouped(d.left), perSecond(d.rate_per_second ?? 0), grouped(d.carved), grouped(d.granted), d.state, String(d.epoch)];
    return { key: c.region, cells };
  }));
}

function head(name, row, view) {
  const whole = view.sequence ? [`${grouped(view.sequence.start)}, step ${grouped(view.sequence.increment)}, up to ${grouped(view.sequence.max)}`] : [];
  return h("section", { class: "card", "data-key": "head", "aria-label": name },
    h("div", { class: "head" }, h("h1", {}, name), badge(row.level), view.frozen ? badge("watch", "frozen") : null, h("span", { class: "soft push" }, row.kind)),
    view.frozen ? notice("watch", "Frozen by an operator: no tier gives anything new out.") : null,
    row.kind === "uuid_v7" ? notice("ok", "UUIDs of version 7: nothing is granted, and nothing runs dry.")
      : facts(fact("Whole space ends", spaceWords(row), true),
        row.kind === "range" ? fact("Issued (estimate)", grouped(row.issued_estimate), true) : null,
        row.kind === "range" ? fact("Burned: gaps, never issued", grouped(row.burned), true) : null,
        row.kind === "range" ? fact("Rate, all regions", perSecond(row.rate_per_second), true) : null,
        row.kind === "range" ? fact("Still to be granted", grouped(row.space_left)) : null,
        row.kind === "range" ? fact("Of all that was granted, burned", percent(row.burned, view.watermark)) : null,
        row.kind === "range" ? fact("Values", whole) : null,
        fact("Home", view.home === null ? "every region" : view.home.join(", ") || "no region"),
        fact("Meant to survive an outage of", `${duration(view.policy.grant_target_seconds)}, at the peak`)));
}

export default {
  async load({ parts: [name], query: want }, { memory }) {
    const path = `/v1/namespaces/${part(name)}`;
    const [row, view, headroom, history] = await Promise.all([rowOf(name), ask(path), ask(`/v1/headroom${query({ namespace: name })}`), ask(`${path}/history`)]);
    const line = row === null || row.kind === "uuid_v7" ? null : await loadLine(name, view, want, memory);
    return { name, row, view, headroom: headroom.namespaces[0] || { regions: [] }, history, line };
  },
  draw({ name, row, view, headroom, history, line }, context) {
    if (row === null) return [card("gone", name, empty("There is no namespace of this name (any more).", link("#/headroom", "All namespaces")))];
    const troubles = row.regions.filter(c => c.level !== "ok" && c.why);
    return [head(name, row, view),
      row.kind === "uuid_v7" ? null : card("regions", "By region",
        troubles.length ? notice(row.level, `${plural(troubles.length, "region")} not well here: ${troubles.slice(0, 6).map(c => `${c.region} (${WHY[c.why]})`).join(", ")}.`) : null,
        row.regions.length ? byRegion(name, row, headroom, history)
          : empty("No region holds anything of it yet.", "A region asks for its first grant once a service is admitted: ", h("code", {}, `cadastre service create NAME --namespace ${name}`))),
      line ? drawLine(name, view, line, context) : null];
  },
  does: {},
};
