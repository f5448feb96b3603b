/** Rows of objects as tables need them, with a key and seconds in place of texts. */

import { cleanRow } from "../lib/clean_row.js";
import { secondsOf } from "../lib/times.js";

/** @type {WeakMap<object, any>} */
const ROWS = new WeakMap();

/**
 * Return the row of a table for a row of kas; the same one for the same row.
 *
 * @param {any} source
 * @param {string} [key]
 */
export function objectRow(source, key) {
  let row = ROWS.get(source);
  if (!row) {
    row = {
      ...cleanRow(source),
      key: key ?? [source.cluster, source.group, source.kind, source.namespace, source.name].join("/"),
      createdAt: secondsOf(source.created), sinceAt: secondsOf(source.since), lastAt: secondsOf(source.last),
    };
    ROWS.set(source, row);
  }
  return row;
}

/**
 * Return the objects of a feed, and the clusters whose rows are missing or old.
 *
 * @param {Map<string, any>} rows
 */
export function objectsOf(rows) {
  const objects = [];
  const incomplete = [];
  for (const [key, row] of rows) {
    if (key.startsWith("cluster/")) incomplete.push(row);
    else if (typeof row === "object" && row !== null) objects.push(objectRow(row, key));
  }
  return { objects, incomplete, isCut: rows.get("more") === true };
}

/** @type {WeakMap<object, any>} */
const GROUPS = new WeakMap();

/**
 * Return one row for all events about an object with the same reason, with their number and span.
 *
 * @param {readonly any[]} events
 */
export function groupEvents(events) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const one of events) {
    const key = [one.cluster, one.namespace, one.object, one.reason].join("/");
    const group = groups.get(key);
    if (group) group.push(one);
    else groups.set(key, [one]);
  }
  return [...groups].map(([key, members]) => {
    members.sort((left, right) => right.lastAt - left.lastAt);
    const newest = members[0];
    const before = GROUPS.get(newest);
    if (before && before.members.length === members.length
      && members.every((one, index) => before.members[index] === one)) return before;
    const [objectKind = "", objectName = ""] = String(newest.object ?? "").split("/");
    const row = {
      ...newest, key, members, objectKind, objectName,
      count: members.reduce((sum, one) => sum + (one.count ?? 1), 0),
      firstAt: members[members.length - 1].lastAt,
    };
    GROUPS.set(newest, row);
    return row;
  });
}
