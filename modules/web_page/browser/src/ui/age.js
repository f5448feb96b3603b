/** Times, as the time since then; the exact time is on hover and for screen readers. */

import { minute, now, second } from "../clock.js";
import { duration, exactTime } from "../lib/times.js";
import { zone } from "../preferences.js";
import { html } from "./html.js";

/**
 * @param {{at: number, suffix?: string}} props seconds since 1970
 */
export function Age({ at, suffix = "" }) {
  if (!Number.isFinite(at)) return html`<span class="muted">–</span>`;
  const age = now() - at;
  // Only recent ages change each second.
  void (age < 120 ? second : minute).value;
  const exact = exactTime(at, zone.value);
  return html`<time class="age" dateTime=${isoTime(at)} title=${exact}>${duration(age)}${suffix}</time>`;
}

/** @param {{at: number}} props */
export function ExactTime({ at }) {
  return html`<time dateTime=${isoTime(at)}>${exactTime(at, zone.value)}</time>`;
}

/** @param {number} at */
function isoTime(at) {
  return Math.abs(at) < 8.64e12 ? new Date(at * 1000).toISOString() : "";
}
