// Asking the authority. The token travels in a header that no other site can make a browser send, and is in no
// cookie: a forged request carries none.

const PATIENCE_MS = 8000;

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || `HTTP ${status}`);
    this.status = status;
    this.code = problem.code || "";
  }
}

let token = null;
export const hold = text => { token = text; };
export const holds = () => token !== null;

async function call(method, path, body) {
  const stop = new AbortController(), late = setTimeout(() => stop.abort(), PATIENCE_MS);
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    const answer = await fetch(path, {
      method, headers, signal: stop.signal, cache: "no-store", credentials: "omit", redirect: "error",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const said = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Refused(answer.status, said);
    return said;
  } finally { clearTimeout(late); }
}

export const ask = path => call("GET", path);
export const send = (method, path, body) => call(method, path, body);
// Of what this authority may not have: null instead of a refusal.
export const askIfThere = path => ask(path).catch(error => {
  if (error instanceof Refused && error.code === "not_found") return null;
  throw error;
});
export const part = encodeURIComponent;
export const query = values => {
  const set = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return set.length === 0 ? "" : `?${set.map(([name, value]) => `${name}=${part(value)}`).join("&")}`;
};
// Whether this authority has a path at all: asked of its own description, once.
let described = null;
export async function has(path) {
  described = described || call("GET", "/openapi.json").then(it => it.paths || {}, error => { described = null; throw error; });
  return Object.hasOwn(await described, path);
}
