// Elements. Text is only ever set as text, so nothing that an API says can become markup; handlers are found by
// their names in data-do and data-form, so an element that stays on the screen never holds on to old figures.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(3).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = id => document.getElementById(id);

const keyOf = node => (node.getAttribute ? node.getAttribute("data-key") : null);

// Makes `old` look like `next`, touching only what differs: focus, selection, what was typed and the place that was
// scrolled to stay.
export function morph(old, next) {
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  morphChildren(old, [...next.childNodes]);
}

export function morphChildren(old, wanted) {
  wanted.forEach((node, at) => {
    const held = old.childNodes[at];
    if (!held) old.append(node);
    else if (held.nodeType !== node.nodeType || held.nodeName !== node.nodeName || keyOf(held) !== keyOf(node)) held.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) { if (held.data !== node.data) held.data = node.data; }
    else if (!held.hasAttribute("data-keep")) morph(held, node);
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}
