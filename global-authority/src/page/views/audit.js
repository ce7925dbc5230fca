// Who did what, newest first.
import { ask, query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { card, empty, link, table } from "../lib/parts.js";
import { when } from "../lib/words.js";

export default {
  every: 5000,
  async load({ query: want }) {
    return { want, page: await ask(`/v1/audit${query({ before: want.before, limit: 50 })}`) };
  },
  draw({ want, page }) {
    return [card("audit", "Audit", page.entries.length === 0 ? empty("Nothing was done yet.", "Every change by an operator, and every step that the authority takes by itself, is written here.")
      : table("Who did what, newest first", [["When"], ["Who"], ["What"], ["To what"]], page.entries.map(e => ({ key: e.id, cells: [when(e.at), e.who, e.what.replaceAll("_", " "), e.detail] }))),
    h("nav", { class: "row", "aria-label": "Pages" }, want.before ? link("#/audit", "Newest") : null, page.next ? link(`#/audit${query({ before: page.next })}`, "Older") : null))];
  },
};
