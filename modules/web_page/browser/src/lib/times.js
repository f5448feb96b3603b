/** Durations and times as text. */

const UNITS = /** @type {const} */ ([["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]);

/**
 * Return a duration such as `45s`, `7m`, `2d 4h`: seconds only below two minutes, and at most two units.
 *
 * @param {number} seconds
 */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  for (let index = 0; index < 3; index += 1) {
    const [unit, size] = UNITS[index];
    if (whole < size) continue;
    const first = Math.floor(whole / size);
    const [next, nextSize] = UNITS[index + 1];
    const second = Math.floor((whole % size) / nextSize);
    // The second unit of a long duration says nothing.
    return unit === "m" || !second || first >= 10 ? `${first}${unit}` : `${first}${unit} ${second}${next}`;
  }
  return `${whole}s`;
}

/**
 * Return seconds since 1970 of a time in a row; NaN without one.
 *
 * @param {unknown} value seconds, or text in ISO 8601
 */
export function secondsOf(value) {
  // Beyond this, a time is no date, and its text an exception.
  if (typeof value === "number") return Math.abs(value) < 8.64e12 ? value : Number.NaN;
  return typeof value === "string" && value ? Date.parse(value) / 1000 : Number.NaN;
}

/**
 * Return a time for programs, such as `2026-11-29T00:37:23.000Z`; empty if it is none.
 *
 * @param {number} seconds since 1970
 */
export function isoTime(seconds) {
  return Math.abs(seconds) < 8.64e12 ? new Date(seconds * 1000).toISOString() : "";
}

/** @type {Map<string, Intl.DateTimeFormat>} */
const FORMATS = new Map();

/**
 * Return a time such as `2026-11-29 00:37:23 UTC`.
 *
 * @param {number} seconds since 1970
 * @param {string} zone `UTC`, or empty for the zone of the browser
 */
export function exactTime(seconds, zone) {
  if (!(Math.abs(seconds) < 8.64e12)) return "";
  let format = FORMATS.get(zone);
  if (!format) {
    format = new Intl.DateTimeFormat("en-CA", {
      year: "numeric", month: "2-digit", day: "2-digit",
      hour: "2-digit", minute: "2-digit", second: "2-digit",
      hourCycle: "h23", timeZoneName: "short", ...(zone ? { timeZone: zone } : {}),
    });
    FORMATS.set(zone, format);
  }
  /** @type {Record<string, string>} */
  const parts = {};
  for (const { type, value } of format.formatToParts(seconds * 1000)) parts[type] = value;
  return `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second} ${parts.timeZoneName}`;
}
