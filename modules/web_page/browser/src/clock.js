/** The time of kas, and ticks that keep ages current. */

import { signal } from "@preact/signals";

import { boot } from "./boot.js";

// The clock of the browser may be wrong by hours.
let offset = boot.now - performance.now() / 1000;

/** Return seconds since 1970 at kas. */
export function now() {
  return offset + performance.now() / 1000;
}

/**
 * Correct the clock by the time of a response.
 *
 * @param {unknown} seconds
 */
export function noteTime(seconds) {
  if (typeof seconds !== "number") return;
  const found = seconds - performance.now() / 1000;
  // A response takes time, so the largest offset is the best; a suspended machine loses some.
  if (found > offset || offset - found > 60) offset = found;
}

/** Changes each second while a recent age is visible, and each minute otherwise. */
export const second = signal(0);
export const minute = signal(0);

setInterval(() => {
  if (document.hidden) return;
  second.value += 1;
  if (second.value % 60 === 0) minute.value += 1;
}, 1000);

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  second.value += 1;
  minute.value += 1;
});
