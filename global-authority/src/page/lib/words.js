// Figures as people read them. Ordinals, values and ids are never JavaScript numbers (rounded above 2^53): BigInt for
// sums, strings for the rest.

export const SIGN = { ok: "✓", watch: "▲", act: "✕" };
export const LEVEL = { ok: "ok", watch: "watch", act: "act now" };
export const WHY = {
  fenced: "fenced", nothing_left: "nothing left", time_ended: "its time has ended", dry_soon: "runs dry soon",
  short: "short of headroom", silent: "silent", draining: "draining",
};
export const TREND = { rising: ["↗", "rising"], steady: ["→", "steady"], falling: ["↘", "falling"] };

export const grouped = text => String(text).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");

export function duration(seconds) {
  const year = 365 * 86400;
  if (seconds >= 100 * year) return "over 100 years";
  if (seconds >= 2 * year) return `${Math.floor(seconds / year)} years`;
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24, minutes = Math.floor(seconds / 60) % 60;
  if (days >= 10) return `${days} d`;
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${Math.floor(seconds) % 60} s`;
  return `${Math.floor(seconds)} s`;
}
export const runway = seconds => (seconds === null || seconds === undefined ? "idle" : duration(seconds));
export const ago = seconds => (seconds === null || seconds === undefined ? "never" : `${duration(seconds)} ago`);

const LAST_DAY = 8640000000000000n;
const dayOf = n => new Date(Number(n)).toISOString();
// `ms` is a decimal string.
export function when(ms) {
  const n = BigInt(ms);
  return n > LAST_DAY ? "beyond any calendar" : `${dayOf(n).replace("T", " ").slice(0, 19)} UTC`;
}
export function ends(ms) {
  if (ms === null || ms === undefined) return "not while nothing is issued";
  const n = BigInt(ms), seconds = Number((n - BigInt(Date.now())) / 1000n);
  if (n > LAST_DAY || seconds >= 1000 * 365 * 86400) return "not within 1,000 years";
  return `${dayOf(n).slice(0, 10)} (in ${duration(Math.max(0, seconds))})`;
}
export function perSecond(rate) {
  if (rate === 0) return "0/s";
  return rate < 10 ? `${rate.toFixed(2)}/s` : `${grouped(Math.round(rate))}/s`;
}
export const offset = ms => (ms === null || ms === undefined ? "not known" : `${ms > 0 ? "+" : ""}${grouped(ms)} ms`);
// Of decimal strings, exactly; with as many digits as say something.
export function percent(part, whole) {
  const [p, w] = [BigInt(part), BigInt(whole)];
  if (w === 0n) return "0 %";
  const share = Number((p * 10000000000n) / w) / 1e8;
  if (p === 0n) return "0 %";
  if (share < 0.0001) return "under 0.0001 %";
  return `${share >= 10 ? share.toFixed(1) : share.toPrecision(2)} %`;
}
export const plural = (n, one, many) => `${grouped(n)} ${Number(n) === 1 ? one : many || `${one}s`}`;
