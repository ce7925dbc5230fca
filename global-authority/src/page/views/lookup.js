// Whom an ID was given to, by the ledgers.
import { ask, part } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { card, code, fact, facts, link, notice } from "../lib/parts.js";
import { grouped, when } from "../lib/words.js";

function answer(o) {
  const range = r => `${grouped(r.lo)} to ${grouped(r.hi)}, ${when(r.at)}`;
  return [h("p", { id: "origin-word" }, h("strong", {}, `${o.namespace} ${o.id}`), " was given to region ", link(`#/region/${part(o.region)}`, o.region), `, epoch ${o.epoch}. This does not say that an object with this ID exists.`),
    o.partial ? notice("watch", "Partial: no agent of the region could be asked, so only the grant is known.") : null,
    facts(fact("Service", o.service || "not known"), fact("Instance", o.instance || "not known"), fact("Incarnation", o.incarnation ? code(o.incarnation) : "not known"),
      fact("Grant (ordinals)", range(o.grant)), fact("Segment (ordinals)", o.segment ? range(o.segment) : "not known"),
      o.decoded ? fact("Stamped", `${when(o.decoded.stamped_at)}, worker ${o.decoded.worker}, number ${grouped(o.decoded.sequence)}`) : null,
      fact("Ledger", link(`#/ledger/${part(o.namespace)}?from=${o.grant.lo}`, "the grant's row")))];
}

export default {
  every: 15000,
  async load() { return {}; },
  draw(_, { memory }) {
    return [card("lookup", "Who was given this ID?",
      h("form", { class: "line", "data-form": "look", "data-key": "form" },
        h("div", {}, h("label", { for: "lookup-namespace" }, "Namespace"), h("input", { id: "lookup-namespace", name: "namespace", autocomplete: "off", spellcheck: "false", required: true })),
        h("div", {}, h("label", { for: "lookup-id" }, "ID"), h("input", { id: "lookup-id", name: "id", inputmode: "numeric", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "lookup-help" })),
        h("button", { type: "submit", class: "main" }, "Look up")),
      h("p", { id: "lookup-help", class: "soft small" }, "In plain digits, as it was issued. An ID that a program rounded (JavaScript above 2^53) names somebody else's, or nobody's."),
      h("div", { role: "status", "data-key": "answer" }, memory.refused ? notice("watch", memory.refused) : null, memory.origin ? answer(memory.origin) : null))];
  },
  does: {
    async look(form, { memory, draw }) {
      const { namespace, id } = Object.fromEntries(new FormData(form));
      Object.assign(memory, { origin: null, refused: null });
      if (!/^(0|-?[1-9][0-9]{0,19})$/.test(id.trim())) { memory.refused = "An ID is written in plain digits, without spaces or leading zeros."; return; }
      memory.refused = "Looking ...";
      draw();
      memory.origin = await ask(`/v1/origins/${part(namespace.trim())}/${id.trim()}`);
      memory.refused = null;
    },
  },
};
