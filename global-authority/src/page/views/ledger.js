// Rows of the ledger: every grant that was ever made, in order of place.
import { ask, part, query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { card, code, empty, link, table } from "../lib/parts.js";
import { grouped, plural, when } from "../lib/words.js";

const ROWS = 100;

export default {
  every: 10000,
  async load({ parts: [name], query: want }) {
    const from = /^[1-9][0-9]{0,18}$/.test(want.from || "") ? String(BigInt(want.from) - 1n) : null;
    return { name, want, page: await ask(`/v1/grants${query({ namespace: name, region: want.region, after: from })}`) };
  },
  draw({ name, want, page }) {
    const rows = page.grants.slice(0, ROWS), last = rows[rows.length - 1];
    const more = page.grants.length > ROWS || page.next !== null;
    const plain = name.split("@")[0];
    return [card("ledger", `Ledger of ${name}`,
      h("p", {}, link(`#/namespace/${part(plain)}`, `Back to ${plain}`), want.from ? [" · ", link(`#/ledger/${part(name)}`, "From its beginning")] : null),
      rows.length === 0 ? empty("No grant lies here.", "Grants appear as regions ask for them.")
        : table(`${plural(rows.length, "grant")} in order of place (ordinals, the end not included)`,
          [["Ordinals"], ["Length", 1], ["Region"], ["Epoch", 1], ["When"], ["Adopted"], ["Grant"]], rows.map(g => ({
            key: g.grant_id,
            cells: [`${grouped(g.lo)} to ${grouped(g.hi)}`, grouped(BigInt(g.hi) - BigInt(g.lo)), link(`#/region/${part(g.region)}`, g.region), String(g.epoch), when(g.at), g.confirmed ? "yes" : "not yet", code(g.grant_id)],
          }))),
      more ? h("p", {}, link(`#/ledger/${part(name)}${query({ from: String(BigInt(last.lo) + 1n), region: want.region })}`, "Next rows")) : null)];
  },
};
