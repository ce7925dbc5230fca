// Nothing is changed before a person has read what will happen, said why, and typed the name of what it happens to.
import { byId, h } from "./dom.js";

// { title, happens: [sentences], name, button, extra: nodes } -> { reason, form } or null.
export function confirm({ title, happens, name, button, extra, noReason }) {
  const dialog = byId("confirm");
  const sure = h("button", { type: "submit", class: "danger sure", disabled: name !== undefined }, button);
  const typed = name === undefined ? null : h("input", { id: "confirm-name", name: "name", autocomplete: "off", spellcheck: "false", required: true });
  if (typed) typed.addEventListener("input", () => { sure.disabled = typed.value !== name; });
  const form = h("form", { method: "dialog" },
    h("h2", { id: "confirm-title" }, title),
    h("ul", { id: "confirm-happens" }, happens.map(text => h("li", {}, text))),
    extra || null,
    noReason ? null : [h("label", { for: "confirm-reason" }, "Why? It is written into the audit, with your name."),
      h("input", { id: "confirm-reason", name: "reason", autocomplete: "off", required: true, maxlength: "200" })],
    typed ? [h("label", { for: "confirm-name" }, "Type ", h("code", {}, name), " to confirm"), typed] : null,
    h("div", { class: "row" }, sure, h("button", { type: "button", value: "no" }, "Do nothing")));
  dialog.replaceChildren(form);
  dialog.setAttribute("aria-describedby", "confirm-happens");
  return new Promise(answer => {
    const end = value => { dialog.close(); dialog.replaceChildren(); answer(value); };
    form.addEventListener("submit", event => {
      event.preventDefault();
      end({ reason: form.elements.reason ? form.elements.reason.value.trim() : "", values: Object.fromEntries(new FormData(form)) });
    });
    form.querySelector("button[value=no]").addEventListener("click", () => end(null));
    dialog.oncancel = event => { event.preventDefault(); end(null); };
    dialog.showModal();
  });
}
