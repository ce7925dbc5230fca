// Switches of a namespace's home from one region to another, and drills with their reports: what goes on, what is
// next, and an operator's hand on it.
import { ask, has, part, send } from "../lib/api.js";
import { confirm } from "../lib/confirm.js";
import { h } from "../lib/dom.js";
import { badge, card, code, empty, fact, facts, link, notice } from "../lib/parts.js";
import { isOperator } from "../lib/session.js";
import { duration, grouped, when } from "../lib/words.js";

const KIND = { wan_cut: "wide area cut", failover: "failover", restore: "restore", clock: "clock" };
const SWITCH_LEVEL = { done: "ok", backed_out: "watch" };
const words = text => String(text).replaceAll("_", " ");
const choice = (id, name, options, title) => h("div", {}, h("label", { for: id }, title), h("select", { id, name }, options.map(([value, text]) => h("option", { value }, text))));
const field = (id, name, title, more) => h("div", {}, h("label", { for: id }, title), h("input", { id, name, autocomplete: "off", spellcheck: "false", ...more }));
const names = overview => overview.regions.filter(r => r.state !== "retired").map(r => [r.region, r.region]);

function timeline(lines) {
  return h("ol", { class: "timeline" }, lines.map((line, at) => h("li", { "data-key": String(at) }, h("span", { class: "soft num" }, when(line.at).slice(11, 19)), " ", line.text)));
}
const button = (verb, id, text, danger) => h("button", { type: "button", "data-do": verb, "data-id": id, class: danger ? "danger" : null }, text);

function switchItem(s) {
  const open = !["done", "backed_out"].includes(s.step);
  const level = s.stopped ? "act" : SWITCH_LEVEL[s.step] || "watch";
  return h("article", { class: "entry", "data-key": s.switch_id, "aria-label": `Switch from ${s.from} to ${s.to}` },
    h("div", { class: "head" }, badge(level, words(s.step)), h("strong", {}, `${s.namespaces.slice(0, 4).join(", ")}${s.namespaces.length > 4 ? ` and ${s.namespaces.length - 4} more` : ""}: ${s.from} → ${s.to}`),
      h("span", { class: "soft small push" }, `${s.who}, ${when(s.made_at)}`)),
    s.stopped ? notice("act", `It stands still: ${s.stopped}`) : s.waiting_for && open ? notice("watch", `It waits: ${s.waiting_for}.`) : null,
    s.windows_end_at ? h("p", { class: "small soft" }, `The last time window of ${s.from} ends ${when(s.windows_end_at)}.`) : null,
    timeline(s.lines),
    open && isOperator() ? h("div", { class: "row" }, button("resume", s.switch_id, "Resume"), button("backOut", s.switch_id, "Back out …", true)) : null);
}

function newSwitch(overview, memory) {
  if (!isOperator() || overview.regions.length < 2) return null;
  return h("details", { "data-key": "new-switch" }, h("summary", {}, "Move a home to another region"),
    h("form", { class: "line", "data-form": "makeSwitch" }, choice("switch-from", "from", names(overview), "From"), choice("switch-to", "to", names(overview), "To"),
      field("switch-namespace", "namespace", "Namespace (all, where empty)"), h("div", { class: "check" }, h("input", { id: "switch-fence", name: "fence", type: "checkbox" }), h("label", { for: "switch-fence" }, "fence the region that is left")),
      h("button", { type: "submit", class: "main" }, "Switch …")));
}

function report(r) {
  if (!r) return null;
  const total = Object.values(r.namespaces).reduce((sum, n) => sum + BigInt(n.issued), 0n);
  const least = Object.values(r.namespaces).map(n => n.least_runway_seconds).filter(s => s !== null);
  const would = Object.values(r.namespaces).map(n => n.would_be_dry_after_seconds).filter(s => s !== null);
  const errors = Object.entries(r.errors).map(([name, n]) => `${words(name)}: ${grouped(n)}`);
  const checked = r.verified;
  return facts(fact("Issued meanwhile", grouped(total), true), fact("Least runway", least.length ? duration(Math.min(...least)) : "idle", true),
    fact("Would have run dry after", would.length ? duration(Math.min(...would)) : "not while idle", true), fact("Healed within", `${(r.heal_seconds ?? 0).toFixed(1)} s`, true),
    fact("Errors that callers saw", errors.join(", ") || "none"), fact("Ledgers", checked ? (checked.ok ? `checked: no overlap in ${grouped(checked.checked.grants)} grants and ${grouped(checked.checked.segments)} segments` : "FINDINGS") : "not checked"),
    fact("Why", r.why.join("; ")));
}

function drillItem(d, memory) {
  const open = d.state !== "ended", verdict = d.report ? d.report.verdict : null;
  const level = open ? "watch" : verdict === "passed" ? "ok" : "act";
  return h("article", { class: "entry", "data-key": d.drill_id, "aria-label": `Drill: ${KIND[d.kind] || words(d.kind)} of ${d.region}` },
    h("div", { class: "head" }, badge(level, open ? words(d.state) : words(verdict || "ended")), h("strong", {}, `${KIND[d.kind] || words(d.kind)} of ${d.region}${d.to ? ` → ${d.to}` : ""}${d.clock_ms ? ` by ${d.clock_ms / 1000} s` : ""}, ${duration(d.for_seconds)} at most`),
      h("span", { class: "soft small push" }, `${d.who}, ${when(d.made_at)}`)),
    open && d.ends_at ? h("p", {}, `It ends by itself ${when(d.ends_at)}, even if nobody comes back.`) : null,
    report(d.report), timeline(d.lines),
    h("div", { class: "row" }, open && isOperator() ? button("abort", d.drill_id, "Abort the drill …", true) : null,
      open ? null : button("markdown", d.drill_id, memory.markdown && memory.markdown.id === d.drill_id ? "Hide the report" : "Report as Markdown")),
    memory.markdown && memory.markdown.id === d.drill_id ? h("pre", { class: "report", tabindex: "0" }, memory.markdown.text) : null);
}

function newDrill(overview) {
  if (!isOperator() || overview.regions.length === 0) return null;
  return h("details", { "data-key": "new-drill" }, h("summary", {}, "Rehearse a bad night"),
    h("form", { class: "line", "data-form": "makeDrill" }, choice("drill-kind", "kind", Object.entries(KIND).filter(([kind]) => kind !== "restore"), "What"),
      choice("drill-region", "region", names(overview), "Region"), choice("drill-to", "to", names(overview), "To (a failover)"), field("drill-off", "off", "Seconds off (a clock)", { value: "-30", pattern: "[+\\-]?[1-9][0-9]{0,4}" }), field("drill-minutes", "minutes", "For minutes, at most", { inputmode: "numeric", value: "10", pattern: "[1-9][0-9]{0,3}", required: true }),
      h("button", { type: "submit", class: "main" }, "Begin …")));
}

// What each kind asks before it begins, and what its order says besides.
const drillWords = (region, minutes, to, off) => ({
  wan_cut: { title: `Cut ${region} off for ${minutes} minutes?`, more: {},
    happens: [`The agents of ${region} refuse their own way to the authority for ${minutes} minutes at most, and heal themselves even if nobody comes back.`, `${region} goes on from what it holds. It is refused where that would use too much of its headroom.`] },
  failover: { title: `Give what ${region} serves to ${to} for ${minutes} minutes?`, more: { to },
    happens: [`${to} is asked first to hold enough for both; without that nothing moves.`, `${region} sends its callers to ${to}; those that do not follow are refused.`, `After ${minutes} minutes ${region} is the home again, also if the authority was restarted meanwhile.`] },
  clock: { title: `Let ${region} read its clocks ${off} s off for ${minutes} minutes?`, more: { clock_ms: Number(off) * 1000 },
    happens: [`Only the agents' reading is off, never a machine's clock; it is right again after ${minutes} minutes at most.`, `${region} refuses time-based ids meanwhile, and no id comes twice. Numbers go on.`] },
});

function schedule(s) {
  return s ? notice(s.last && s.last.startsWith("skipped") ? "watch" : "ok", `Game day: ${KIND[s.drill.kind] || words(s.drill.kind)} of ${s.drill.region}, every ${duration(s.every_hours * 3600)}; next ${when(s.next_at)}.${s.last ? ` Last, ${when(s.last_at)}: ${s.last}.` : ""}`) : h("p", { class: "soft small" }, "No game day is scheduled.");
}

const said = memory => [memory.did ? notice("ok", memory.did) : null, memory.refused ? notice("act", memory.refused) : null];

async function change(context, path, body, did) {
  Object.assign(context.memory, { did: null, refused: null });
  await send("POST", path, body);
  context.memory.did = did;
  context.say(did);
  await context.refresh();
}

export default {
  async load() {
    const there = await has("/v1/switches");
    if (!there) return { switches: null, drills: null };
    const [switches, drills] = await Promise.all([ask("/v1/switches"), ask("/v1/drills")]);
    return { switches: switches.switches, drills: drills.drills, next: drills.schedule };
  },
  draw({ switches, drills, next }, { overview, memory }) {
    if (switches === null) {
      return [card("switches", "Switches and drills", empty("This authority has neither.", "A region is taken out of service by hand: drain or fence it ", link("#/regions", "on its page"), ". Its loss is rehearsed on a development cluster: ", code("cadastre dev --demo")))];
    }
    return [card("drills", "Drills", said(memory), schedule(next), newDrill(overview),
      drills.length === 0 ? empty("No drill was held yet.", "A region that was never cut off on purpose is cut off by surprise.") : drills.slice(0, 20).map(d => drillItem(d, memory))),
    card("switches", "Switches", newSwitch(overview, memory),
      switches.length === 0 ? empty("No home was moved yet.", "A switch moves a namespace from one region to another, and says at each step what it waits for.") : switches.slice(0, 20).map(switchItem))];
  },
  does: {
    async makeSwitch(form, context) {
      const { from, to, namespace, fence } = Object.fromEntries(new FormData(form));
      const what = namespace ? namespace : `every namespace of ${from}`;
      const sure = await confirm({ title: `Switch ${what} from ${from} to ${to}?`, name: from, button: "Switch", noReason: true,
        happens: [`${to} is asked first to hold enough for both; without that nothing happens.`, `${from} is ${fence ? "fenced: what it holds unissued is burned" : "granted nothing more here, and goes on with what it holds until it hears of the new home"}.`, "Every step is written down; it can be resumed, or backed out of until it is done."] });
      if (sure) await change(context, "/v1/switches", { from, to, fence: fence === "on", ...(namespace ? { namespace } : {}) }, `The switch from ${from} to ${to} is planned.`);
    },
    async resume(element, context) { await change(context, `/v1/switches/${part(element.getAttribute("data-id"))}/resume`, {}, "The switch goes on."); },
    async backOut(element, context) {
      const sure = await confirm({ title: "Back out of this switch?", happens: ["The home stays, or becomes again, what it was.", "What was granted meanwhile stays granted."], button: "Back out", noReason: true });
      if (sure) await change(context, `/v1/switches/${part(element.getAttribute("data-id"))}/back-out`, {}, "The switch is backed out of.");
    },
    async makeDrill(form, context) {
      const { kind, region, minutes, to, off } = Object.fromEntries(new FormData(form));
      const { title, happens, more } = drillWords(region, minutes, to, off)[kind];
      const sure = await confirm({ title, name: region, button: "Begin the drill", noReason: true, happens: [...happens, "It can be aborted at any time, from here or with cadastre drill abort."] });
      if (sure) await change(context, "/v1/drills", { kind, region, for_seconds: Number(minutes) * 60, confirm: region, ...more }, `The drill of ${region} is ordered.`);
    },
    async abort(element, context) {
      const sure = await confirm({ title: "Abort the drill?", happens: ["All is as before as soon as the region hears of it, at the latest when the drill's time ends."], button: "Abort", noReason: true });
      if (sure) await change(context, `/v1/drills/${part(element.getAttribute("data-id"))}/abort`, {}, "The drill is aborted.");
    },
    async markdown(element, { memory }) {
      const id = element.getAttribute("data-id");
      memory.markdown = memory.markdown && memory.markdown.id === id ? null : { id, text: (await ask(`/v1/drills/${part(id)}`)).markdown || "There is no report." };
    },
  },
};
