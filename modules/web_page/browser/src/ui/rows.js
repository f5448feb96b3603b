/** The rows of a list as the address of the page asks for them: filtered, sorted and grouped. */

import { labelCounts, matcher, parseFilter } from "../lib/filter.js";
import { parseSort, sortRows } from "../lib/sorting.js";
import { here } from "../route.js";
import { useMemo } from "./html.js";

/** @typedef {import("./table.js").Column} Column */

/**
 * @param {readonly any[]} rows
 * @param {readonly Column[]} columns
 * @param {string} order the sort order without a choice of the user
 * @param {readonly Column[]} [hidden] columns only for sorting
 */
export function useRows(rows, columns, order, hidden = []) {
  const { params } = here.value;
  const [filter, chosen, group] = [params.get("q") ?? "", params.get("sort") ?? "", params.get("group") ?? ""];
  const sort = parseSort(chosen, columns);
  const effective = sort ?? parseSort(order, [...columns, ...hidden]);
  const sorted = useMemo(
    () => (effective ? sortRows(rows, effective) : [...rows]), [rows, columns, chosen, order],
  );
  const terms = useMemo(() => parseFilter(filter), [filter]);
  const found = useMemo(
    () => (terms.length ? sorted.filter(matcher(terms, columns)) : sorted), [sorted, terms, columns],
  );
  const items = useMemo(() => (group ? groupItems(found, group) : found.map((row) => ({ key: row.key, row }))),
    [found, group]);
  return { sort, terms, found, items, group, query: `${filter}\n${chosen}\n${group}\n${params.get("ns") ?? ""}` };
}

/**
 * @param {readonly any[]} rows
 * @param {string} label
 * @returns {import("./table.js").Item[]}
 */
function groupItems(rows, label) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const row of rows) {
    const value = row.labels && Object.hasOwn(row.labels, label) ? row.labels[label] : "";
    const group = groups.get(value);
    if (group) group.push(row);
    else groups.set(value, [row]);
  }
  const names = [...groups.keys()].sort((left, right) => Number(!left) - Number(!right) || (left < right ? -1 : 1));
  return names.flatMap((name) => {
    const members = groups.get(name) ?? [];
    return [
      { key: `group/${name}`, title: name ? `${label}=${name}` : `without ${label}`, count: members.length },
      ...members.map((row) => ({ key: row.key, row })),
    ];
  });
}

/**
 * Return the labels by which rows can be grouped, the most frequent first.
 *
 * @param {readonly any[]} rows
 */
export function labelKeys(rows) {
  return [...labelCounts(rows)].sort((left, right) => right[1] - left[1]).slice(0, 20).map(([key]) => key);
}
