// A quarantine: what is closed, what it waits for, and how a person ends it who knows what nobody else can know.
import { ask, part, send } from "../lib/api.js";
import { confirm } from "../lib/confirm.js";
import { h } from "../lib/dom.js";
import { card, code, empty, fact, facts, link, notice, table } from "../lib/parts.js";
import { isOperator } from "../lib/session.js";
import { when } from "../lib/words.js";

function liftForm(scopes, regions) {
  const namespaces = scopes.filter(s => s.startsWith("ns/")).map(s => s.slice(3));
  if (!isOperator()) return h("p", { class: "soft small" }, "Only operators may lift; this token reads.");
  if (namespaces.length === 0) return null;
  return h("form", { "data-form": "lift", "data-key": "lift" },
    h("h2", {}, "A region is gone for good?"),
    h("p", { class: "soft" }, "State, for each silent region, an ordinal that everything it ever held of a namespace lies below. Everything below the highest is burned."),
    h("label", { for: "lift-namespace" }, "Namespace"), h("select", { id: "lift-namespace", name: "namespace" }, namespaces.map(n => h("option", { value: n }, n))),
    regions.map(name => [h("label", { for: `bound-${name}` }, `All that ${name} ever held lies below`),
      h("input", { id: `bound-${name}`, name: `bound-${name}`, "data-region": name, inputmode: "numeric", pattern: "0|[1-9][0-9]{0,18}", autocomplete: "off" })]),
    h("div", { class: "check" }, h("input", { type: "checkbox", id: "lift-stopped", name: "stopped", required: true }),
      h("label", { for: "lift-stopped" }, "The old store and every authority on it are stopped. Nobody but me can know that.")),
    h("div", { class: "row" }, h("button", { type: "submit", class: "danger" }, "State these bounds …")));
}

export default {
  async load() { return await ask("/v1/quarantines"); },
  draw({ quarantines, continuity }, { memory, overview }) {
    const refused = memory.refused ? notice("act", memory.refused) : null, did = memory.did ? notice("ok", memory.did) : null;
    if (quarantines.length === 0) return [card("quarantine", "Quarantine", did, refused, empty("There is none.", `The authority's store: ${continuity}.`))];
    const waiting = [...new Set(quarantines.flatMap(q => q.waiting_for))];
    const silent = overview.regions.filter(r => waiting.includes(r.region)).map(r => r.region);
    return [card("quarantine", "Quarantine", did, refused,
      notice("act", "The authority's store may have gone back in time, so it gives nothing out. Regions go on from what they hold; their runway is your time. It ends by itself once the witness or every region has answered."),
      facts(fact("It waits for", waiting.join(", ") || "nothing: it is being settled", true), fact("Since", when(quarantines[0].since), true), fact("What to do", h("span", {}, "start the silent regions, or state what they may hold; see ", link("#/regions", "regions"), " and ", code("docs/operating/witness-and-quarantine.md")))),
      table("What is closed", [["Scope"], ["State"], ["Why"], ["Since"]], quarantines.slice(0, 50).map(q => ({ key: q.scope, cells: [q.scope, q.state === "back" ? "the store went back" : "in doubt", q.reason, when(q.since)] }))),
      quarantines.length > 50 ? h("p", { class: "soft small" }, `and ${quarantines.length - 50} more`) : null,
      silent.length > 0 ? liftForm(quarantines.map(q => q.scope), silent) : null)];
  },
  does: {
    async lift(form, { memory, refresh }) {
      const namespace = form.elements.namespace.value;
      const inputs = [...form.querySelectorAll("[data-region]")].filter(input => input.value.trim() !== "");
      const bounds = Object.fromEntries(inputs.map(input => [input.getAttribute("data-region"), input.value.trim()]));
      Object.assign(memory, { refused: null, did: null });
      const told = Object.entries(bounds).map(([region, bound]) => `Everything that ${region} ever held of ${namespace} lies below ${bound}, on your word. If it does not, duplicates are possible.`);
      if (told.length === 0) { memory.refused = "State at least one region's bound."; return; }
      const sure = await confirm({ title: `State bounds of ${namespace}?`, happens: [...told, "Everything below is burned. Once every namespace is covered the quarantine ends."], name: namespace, button: "State them" });
      if (sure === null) return;
      await send("POST", `/v1/quarantines/${part(namespace)}/lift`, { bounds, old_store_stopped: form.elements.stopped.checked, reason: sure.reason });
      memory.did = `The bounds of ${namespace} are stated.`;
      await refresh();
    },
  },
};
