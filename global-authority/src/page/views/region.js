// One region: how it is, what its agents say of themselves, and an operator's hand on it.
import { ask, part, send } from "../lib/api.js";
import { confirm } from "../lib/confirm.js";
import { h } from "../lib/dom.js";
import { badge, card, code, empty, fact, facts, link, notice, table } from "../lib/parts.js";
import { isOperator } from "../lib/session.js";
import { ago, duration, grouped, offset, perSecond, plural } from "../lib/words.js";

const UPLINK = { up: "ok", down: "act", refused: "act", never: "watch" };
const PAST = { witnessed: "ok", confirmed: "ok", unproven: "watch", went_back: "act" };

// What may be done to a region in a state, and what will happen then.
const STEPS = {
  drain: {
    from: ["active"], word: "Drain", done: "is draining",
    happens: name => [`${name} gets nothing new from now on, and goes on issuing what it holds.`, "When that is used up its callers are told so: see to it that they can go elsewhere.", "Recover brings it back under a new epoch."],
  },
  fence: {
    from: ["active", "draining"], word: "Fence", done: "is fenced",
    happens: name => [`${name} loses its epoch: as soon as it hears of it, it issues nothing any more.`, "All that it holds unissued is burned: gaps, never issued again.", "While it is cut off it does not hear of it, and goes on with the numbers that it holds; they are its own, so there is no duplicate. Time windows end by themselves."],
  },
  recover: {
    from: ["draining", "fenced"], word: "Recover", done: "is active again",
    happens: name => [`${name} comes back under a new epoch and asks for new grants.`, "What it held under the old epoch stays burned."],
  },
};

function actions(r) {
  if (!isOperator()) return h("p", { class: "soft small" }, "Only operators may drain, fence or recover; this token reads.");
  const allowed = Object.entries(STEPS).filter(([, step]) => step.from.includes(r.state));
  if (allowed.length === 0) return h("p", { class: "soft small" }, r.state === "retired" ? "It is retired: nothing can be done to it any more." : "Nothing can be done to it before its agent has called.");
  return h("div", { class: "row" }, allowed.map(([verb, step]) => h("button", { type: "button", "data-do": verb, "data-name": r.region, class: verb === "fence" ? "danger" : null }, `${step.word} ${r.region} …`)));
}

function agentTable(agents) {
  if (agents.length === 0) {
    return empty("None of its agents was heard in the last 15 seconds.", "Is the process running, and can it reach this authority? ", code("cadastre doctor"), " at the agent says what is wrong. Until then the region goes on from what it holds.");
  }
  return table("Each one's own word, asked just now", [["Agent"], ["Way to the authority"], ["Store"], ["Witnessed past"], ["Clock", 1], ["Last answer", 1]], agents.map(a => {
    const name = h("span", {}, code(a.incarnation.slice(0, 8)), h("span", { class: "sub" }, a.url || "no address"));
    if (a.status === null) return { key: a.incarnation, cells: [name, h("span", {}, badge("watch", "not asked"), h("span", { class: "sub" }, a.problem.detail)), "not known", "not known", "not known", "not known"] };
    const s = a.status;
    return {
      key: a.incarnation,
      cells: [name,
        h("span", {}, badge(UPLINK[s.uplink.state] || "watch", s.uplink.state), s.uplink.last_error && s.uplink.state !== "up" ? h("span", { class: "sub" }, s.uplink.last_error) : null),
        h("span", {}, badge(s.store.state === "ok" ? "ok" : "act", s.store.state), s.store.last_error ? h("span", { class: "sub" }, s.store.last_error) : null),
        badge(PAST[s.continuity] || "watch", s.continuity.replace("_", " ")), offset(s.clock_offset_ms), ago(s.uplink.last_answer_seconds)],
    };
  }));
}

function step(verb) {
  return async (element, { refresh, memory, say }) => {
    const name = element.getAttribute("data-name"), { word, happens, done } = STEPS[verb];
    const sure = await confirm({ title: `${word} region ${name}?`, happens: happens(name), name, button: `${word} ${name}` });
    if (sure === null) return;
    memory.refused = null;
    const stands = await send("POST", `/v1/regions/${part(name)}/${verb}`, { reason: sure.reason });
    memory.did = `Region ${name} ${done}, epoch ${stands.epoch}.`;
    say(memory.did);
    await refresh();
  };
}

export default {
  async load({ parts: [name] }) {
    return { name, agents: (await ask(`/v1/regions/${part(name)}/agents`)).agents };
  },
  draw({ name, agents }, { overview, memory }) {
    const r = overview.regions.find(it => it.region === name);
    if (!r) return [card("gone", name, empty("It is not in the picture yet.", "It appears within a second."))];
    return [h("section", { class: "card", "data-key": "head", "aria-label": name },
      h("div", { class: "head" }, h("h1", {}, name), badge(r.level), h("span", { class: "soft push" }, `${r.state}, epoch ${r.epoch}`)),
      memory.did ? notice("ok", memory.did) : null, memory.refused ? notice("act", memory.refused) : null,
      r.waiting_for ? notice("watch", `It waits for ${r.waiting_for}.`) : null,
      facts(fact("Goes on alone for", r.first_dry === null ? "as long as nothing is issued" : duration(r.first_dry.seconds), true),
        fact("First to run dry", r.first_dry === null ? "nothing" : link(`#/namespace/${encodeURIComponent(r.first_dry.namespace)}`, r.first_dry.namespace), true),
        fact("Rate, all namespaces", perSecond(r.rate_per_second), true), fact("Last heard", ago(r.heard_seconds), true),
        fact("Clock against the authority's", offset(r.clock_offset_ms)), fact("Live agents", String(r.agents)),
        fact("Namespaces", `${grouped(r.namespaces.ok)} well, ${grouped(r.namespaces.watch)} to watch, ${grouped(r.namespaces.act)} to act on`)),
      actions(r)),
    card("agents", plural(agents.length, "agent"), agentTable(agents))];
  },
  does: { drain: step("drain"), fence: step("fence"), recover: step("recover") },
};
