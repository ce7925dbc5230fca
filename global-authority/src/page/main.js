// The frame: signs in, shows one view at a time, asks anew every two seconds, and says when what is shown is old.
import { ask, holds, Refused } from "./lib/api.js";
import { byId, h, morphChildren } from "./lib/dom.js";
import { card, link, notice } from "./lib/parts.js";
import { session, showSignIn, signIn } from "./lib/session.js";
import { duration, plural, SIGN } from "./lib/words.js";
import audit from "./views/audit.js";
import headroom from "./views/headroom.js";
import ledger from "./views/ledger.js";
import lookup from "./views/lookup.js";
import namespace from "./views/namespace.js";
import now from "./views/now.js";
import quarantine from "./views/quarantine.js";
import region from "./views/region.js";
import regions from "./views/regions.js";
import services from "./views/services.js";
import switches from "./views/switches.js";

const EVERY_MS = 2000;
const VIEWS = { now, headroom, namespace, regions, region, ledger, lookup, services, switches, audit, quarantine };
const NAV = [["now", "Now"], ["headroom", "Headroom"], ["regions", "Regions"], ["lookup", "Look up"], ["services", "Services"], ["switches", "Switches & drills"], ["audit", "Audit"]];

// `data` of the view that is shown, as of `at`; `trouble` why there is nothing newer.
const state = { route: null, data: null, overview: null, at: 0, trouble: null, timer: 0, round: 0, spoken: "", memory: {} };

// An address that somebody typed may be no address.
function plain(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

// #/name/part?key=value
function routeOf(hash) {
  const [path, rest] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(plain);
  return { name: VIEWS[name] ? name : "now", parts, query: Object.fromEntries(new URLSearchParams(rest || "")) };
}

function context() {
  return { route: state.route, overview: state.overview, memory: state.memory, refresh: round, draw, say };
}
function say(text) {
  byId("live").textContent = text;
}

function drawFrame() {
  const open = session.who !== null;
  byId("nav").hidden = !open;
  byId("leave").hidden = !open;
  byId("who").textContent = open ? (session.who.role === "viewer" ? `${session.who.name} (reads)` : session.who.name) : "";
  const current = { namespace: "headroom", ledger: "headroom", region: "regions", quarantine: "now" }[state.route.name] || state.route.name;
  morphChildren(byId("nav"), NAV.map(([name, title]) => h("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null }, title)));
  const overview = state.overview, pill = byId("level");
  pill.hidden = !open || overview === null;
  if (overview !== null) {
    const count = overview.findings_total;
    pill.className = `pill ${state.trouble ? "act" : overview.level}`;
    pill.textContent = state.trouble ? "✕ not reached" : `${SIGN[overview.level]} ${count === 0 ? "all well" : plural(count, "finding")}`;
    document.title = `${pill.textContent} · Cadastre`;
  } else document.title = "Cadastre";
  const old = Math.floor((Date.now() - state.at) / 1000);
  byId("age").textContent = state.at === 0 || !open ? "" : state.trouble ? `last answer ${duration(old)} ago` : `as of ${new Date(state.at).toTimeString().slice(0, 8)}`;
}

function draw() {
  drawFrame();
  const view = byId("view"), trouble = byId("trouble");
  morphChildren(trouble, state.trouble && session.who ? [notice("act", state.trouble, " ", state.at === 0 ? "Nothing was heard from it yet." : `What is shown is ${duration(Math.floor((Date.now() - state.at) / 1000))} old; regions go on from what they hold.`, " This page asks again every two seconds.")] : []);
  view.className = state.trouble ? "stale" : "";
  if (session.who === null) { view.replaceChildren(); return; }
  if (state.data === null) { morphChildren(view, state.trouble ? [] : [h("p", { class: "soft", "data-key": "wait" }, "Asking the authority ...")]); return; }
  const drawn = state.data.missing ? [card("missing", "Not there", notice("watch", state.data.missing), h("p", {}, link("#/now", "Back to what there is")))]
    : VIEWS[state.route.name].draw(state.data, context());
  morphChildren(view, drawn.flat().filter(Boolean));
  speak();
}

// A screen reader is told of what changed for better or worse, once, and not of every figure.
function speak() {
  if (state.overview === null) return;
  const { level, findings, first_dry } = state.overview, top = findings[0];
  const kind = state.trouble ? "trouble" : top ? `${level} ${top.kind} ${top.region} ${top.namespace}` : "ok";
  if (kind === state.spoken) return;
  state.spoken = kind;
  say(state.trouble ? state.trouble : top ? `${level}: ${top.text}` : `All is well.${first_dry ? ` ${first_dry.region} would run dry first, of ${first_dry.namespace}.` : ""}`);
}

function leave(why) {
  clearTimeout(state.timer);
  Object.assign(state, { data: null, overview: null, at: 0, trouble: null, spoken: "", memory: {} });
  showSignIn(why);
  draw();
}

// One round of questions. A round that was overtaken (another view, another person) changes nothing.
async function round() {
  clearTimeout(state.timer);
  if (!holds() || session.who === null) return;
  const mine = ++state.round, view = VIEWS[state.route.name], route = state.route;
  try {
    const [overview, data] = await Promise.all([ask("/v1/overview"), view.load(route, context())]);
    if (mine !== state.round) return;
    Object.assign(state, { overview, data, at: Date.now(), trouble: null });
  } catch (error) {
    if (mine !== state.round) return;
    if (error instanceof Refused && error.status === 401) return leave("The authority does not know this token any more. Sign in again.");
    if (error instanceof Refused && error.status === 404) Object.assign(state, { data: { missing: error.message }, trouble: null, at: Date.now() });
    else state.trouble = error instanceof Refused ? `The authority answers, but not with figures: ${error.message}.` : "The authority does not answer.";
  }
  try { draw(); } finally { state.timer = setTimeout(round, view.every || EVERY_MS); }
}

function go() {
  const before = state.route;
  state.route = routeOf(location.hash);
  const other = before === null || before.name !== state.route.name || before.parts.join() !== state.route.parts.join();
  if (other) {
    Object.assign(state, { data: null, memory: {} });
    window.scrollTo(0, 0);
  }
  draw();
  if (other && before !== null && session.who) byId("main").focus({ preventScroll: true });
  round();
}

// Views name what a button or a form does; what they do may refuse, and says so in its place.
async function act(name, element, event) {
  const does = (VIEWS[state.route.name].does || {})[name];
  if (!does) return;
  event.preventDefault();
  try { await does(element, context()); } catch (error) {
    state.memory.refused = error instanceof Refused ? error.message : `That did not work: ${error.message}`;
    say(state.memory.refused);
  }
  draw();
}
byId("view").addEventListener("click", event => {
  const element = event.target.closest("[data-do]");
  if (element) act(element.getAttribute("data-do"), element, event);
});
byId("view").addEventListener("submit", event => act(event.target.getAttribute("data-form"), event.target, event));
byId("view").addEventListener("input", event => {
  const form = event.target.closest("form[data-live]");
  if (form) act(form.getAttribute("data-form"), form, event);
});
byId("signin-form").addEventListener("submit", async event => {
  event.preventDefault();
  const token = byId("token").value.trim();
  byId("token").value = "";
  if (token === "" || !(await signIn(token))) return;
  draw();
  byId("main").focus();
  round();
});
byId("leave").addEventListener("click", () => leave("You are signed out: the token is forgotten."));
document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(state.timer); else round(); });
window.addEventListener("hashchange", go);

go();
showSignIn("");
