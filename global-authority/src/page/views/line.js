// The number line of a namespace, to scale: the whole space, what was granted of it and to whom, and closer up the
// segments that a region carved. A time-based namespace has one line per slot, and its ordinals are units of time.
import { ask, askIfThere, part, query, Refused } from "../lib/api.js";
import { h, svg } from "../lib/dom.js";
import { card, empty, link, notice, table } from "../lib/parts.js";
import { grouped, percent, plural, when } from "../lib/words.js";

const SHOWN = 40, CLOSE = 6;

// Text that is not an ordinal shows the whole line.
const ordinal = text => (/^(0|[1-9][0-9]{0,18})$/.test(text || "") ? text : null);

export async function loadLine(name, view, want) {
  if (view.slots && view.slots.length > 0) {
    const slots = await Promise.all(view.slots.map(async s => ({ slot: s, line: await askIfThere(`/v1/namespaces/${part(`${name}@${s.slot}`)}/line`) })));
    return { slots };
  }
  const [lo, hi] = [ordinal(want.lo), ordinal(want.hi)];
  const line = await ask(`/v1/namespaces/${part(name)}/line${query({ lo, hi })}`);
  return { line, zoomed: lo !== null || hi !== null, ...(await segmentsOf(name, line)) };
}

// Of few stretches the regions' own ledgers are asked; what cannot be asked is said.
async function segmentsOf(name, line) {
  if (!line.complete || line.stretches.length === 0 || line.stretches.length > CLOSE) return { segments: null, away: [] };
  const away = [], segments = [];
  for (const s of line.stretches) {
    const after = BigInt(s.lo) > 0n ? String(BigInt(s.lo) - 1n) : null;
    try {
      const page = await ask(`/v1/regions/${part(s.region)}/segments${query({ namespace: name, after })}`);
      segments.push(...page.segments.filter(it => BigInt(it.lo) < BigInt(s.hi) && BigInt(it.hi) > BigInt(s.lo)).map(it => ({ ...it, region: s.region })));
    } catch (error) {
      if (!(error instanceof Refused) || error.status === 401) throw error;
      away.push(s.region);
    }
  }
  return { segments, away: [...new Set(away)] };
}

const colours = names => new Map([...new Set(names)].sort().map((name, at) => [name, `r${at % 8}`]));
// Where an ordinal lies between two others, of a thousand.
const place = (at, lo, hi) => Number(((BigInt(at) - BigInt(lo)) * 1000000n) / (BigInt(hi) - BigInt(lo) || 1n)) / 1000;
function box(range, lo, hi) {
  const from = Math.max(0, place(range.lo, lo, hi)), to = Math.min(1000, place(range.hi, lo, hi));
  return { x: from.toFixed(3), width: Math.max(0.6, to - from).toFixed(3), y: "0", height: "10" };
}
const canvas = (label, kind, ...inside) => svg("svg", { class: `number-line ${kind}`, viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "group", "aria-label": label }, ...inside);
const ends = (from, to) => h("div", { class: "ends" }, h("span", {}, from), h("span", {}, to));

function legend(colour) {
  return h("ul", { class: "legend", "aria-label": "Colours" }, [...colour].map(([name, kind]) => h("li", { "data-key": name }, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), name)));
}

function whole(line) {
  return [h("p", { class: "small soft" }, `The whole space: ${percent(line.watermark, line.capacity)} of ${grouped(line.capacity)} ordinals were granted.`),
    canvas("The whole space, and what was granted of it", "thin", svg("rect", { class: "granted", ...box({ lo: "0", hi: line.watermark }, "0", line.capacity) }))];
}

function stretchTable(name, line) {
  const rows = line.stretches.slice(0, SHOWN);
  const more = line.stretches.length - rows.length;
  return [table("Who holds what: closer up by the first column, ledger rows by the last", [["Ordinals"], ["Region"], ["Epoch", 1], ["Length", 1], ["Ledger"]], rows.map(s => ({
    key: s.lo,
    cells: [link(`#/namespace/${encodeURIComponent(name)}?lo=${s.lo}&hi=${s.hi}`, `${grouped(s.lo)} to ${grouped(s.hi)}`),
      s.region, h("span", {}, String(s.epoch), s.live ? "" : " (ended)"), grouped(BigInt(s.hi) - BigInt(s.lo)),
      link(`#/ledger/${encodeURIComponent(name)}?from=${s.lo}`, "rows")],
  }))), more > 0 ? h("p", { class: "soft small" }, `and ${plural(more, "more stretch", "more stretches")}: go closer, or read the `, link(`#/ledger/${encodeURIComponent(name)}`, "ledger"), ".") : null];
}

function segments(line, found, colour, name) {
  if (found.segments === null) return null;
  return [h("p", { class: "small soft" }, `Segments that regions carved here, by their own ledgers: ${grouped(found.segments.length)}`, found.segments.length >= 1000 ? " (the first ones)" : "", "."),
    found.away.length ? notice("watch", `${found.away.join(", ")} cannot be asked for segments just now; the grants above are the authority's own word.`) : null,
    found.segments.length === 0 ? null : canvas(`Segments of ${name}`, "thin", ...found.segments.map(s => svg("rect", { class: colour.get(s.region), ...box(s, line.lo, line.hi) },
      svg("title", {}, `${s.region}: ${grouped(s.lo)} to ${grouped(s.hi)}, ${s.instance}`))))];
}

function numbers(name, found) {
  const { line } = found;
  if (line.stretches.length === 0) return card("line", "The number line", ...whole(line), empty("Nothing was granted here yet.", "The first grant is made when a service is admitted and a region asks."));
  const colour = colours(line.stretches.map(s => s.region));
  return card("line", "The number line",
    found.zoomed ? h("p", {}, link(`#/namespace/${encodeURIComponent(name)}`, "Show all that was granted")) : null,
    ...whole(line),
    h("p", { class: "small soft" }, line.complete ? "What was granted, to scale; pale is an epoch that ended. Choose a part to go closer."
      : "What was granted, to scale, in equal steps: each shows who holds its beginning. Choose a part to go closer."),
    canvas(`Who holds what of ${name}`, "", ...line.stretches.map(s => svg("a", { href: `#/namespace/${encodeURIComponent(name)}?lo=${s.lo}&hi=${s.hi}`, "data-key": s.lo },
      svg("rect", { class: `${colour.get(s.region)} ${s.live ? "" : "past"}`, ...box(s, line.lo, line.hi) },
        svg("title", {}, `${s.region}, epoch ${s.epoch}: ${grouped(s.lo)} to ${grouped(s.hi)}`))))),
    ends(grouped(line.lo), grouped(line.hi)), legend(colour), segments(line, found, colour, name), stretchTable(name, line));
}

// Times of a slot's line: its ordinals are units since the layout's own epoch.
function times(name, view, slots) {
  const unit = BigInt(view.layout.unit_ms), begin = BigInt(view.layout.epoch_ms), at = ordinal => begin + BigInt(ordinal) * unit;
  const parts = slots.flatMap(({ slot, line }) => (line ? line.stretches.map(s => ({ ...s, slot: slot.slot })) : []));
  if (parts.length === 0) return card("line", "Time windows", empty("No time was given yet.", "A region takes a slot when a service is admitted and its agent speaks."));
  const low = parts.map(s => BigInt(s.lo)).reduce((a, b) => (a < b ? a : b)), high = parts.map(s => BigInt(s.hi)).reduce((a, b) => (a > b ? a : b));
  const now = String((BigInt(Date.now()) - begin) / unit), colour = colours(parts.map(s => s.region));
  const rows = slots.map(({ slot, line }) => ({
    key: String(slot.slot),
    cells: [`slot ${slot.slot}`, slot.region, String(slot.epoch), when(slot.until),
      canvas(`Windows of slot ${slot.slot}`, "thin", ...(line ? line.stretches : []).map(s => svg("rect", { class: `${colour.get(s.region)} ${s.live ? "" : "past"}`, ...box(s, low, high) })),
        svg("line", { class: "now", x1: place(now, low, high), x2: place(now, low, high), y1: "0", y2: "10" })),
      link(`#/ledger/${encodeURIComponent(`${name}@${slot.slot}`)}`, "rows")],
  }));
  return card("line", "Time windows, to scale", legend(colour), table(`From ${when(String(at(low)))} to ${when(String(at(high)))}; the upright stroke is now`,
    [["Slot"], ["Region"], ["Epoch", 1], ["Given until"], ["Windows"], ["Ledger"]], rows));
}

export const drawLine = (name, view, found) => (found.slots ? times(name, view, found.slots) : numbers(name, found));
