/** Rows with the expected types only: agentk chooses the columns, and one odd row must not hide the others. */

const TEXTS = [
  "cluster", "group", "kind", "namespace", "name", "state", "health", "reason", "version", "object", "message", "os",
  "architecture", "type", "owner", "node", "schedule",
];
const NUMBERS = ["ready", "wanted", "restarts", "count"];
const LISTS = ["images", "addresses", "ports", "pressures"];
const MAPPINGS = ["labels", "capacity", "selector"];

/**
 * Return a copy of a row, in which a value of an unexpected type is text or missing.
 *
 * @param {any} source
 * @returns {any}
 */
export function cleanRow(source) {
  const row = { ...source };
  for (const name of TEXTS) {
    if (row[name] !== undefined && typeof row[name] !== "string") row[name] = textOf(row[name]);
  }
  for (const name of NUMBERS) {
    if (row[name] !== undefined && typeof row[name] !== "number") delete row[name];
  }
  for (const name of LISTS) {
    if (row[name] !== undefined) row[name] = Array.isArray(row[name]) ? row[name].map(textOf) : [];
  }
  for (const name of MAPPINGS) {
    if (row[name] === undefined) continue;
    const isMapping = typeof row[name] === "object" && row[name] !== null && !Array.isArray(row[name]);
    row[name] = Object.fromEntries(isMapping
      ? Object.entries(row[name]).map(([key, value]) => [key, textOf(value)]) : []);
  }
  return row;
}

/** @param {unknown} value */
function textOf(value) {
  if (typeof value === "string") return value;
  return typeof value === "number" || typeof value === "boolean" ? `${value}` : "";
}
