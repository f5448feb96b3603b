/** Sort orders of tables, as the URL has them: `name`, or `-name` for the largest first. */

/** @typedef {{id: string, value: (row: any) => string | number | null | undefined}} SortColumn */

const NAMES = new Intl.Collator("en", { numeric: true });

/**
 * Compare two values; missing ones are last in both directions.
 *
 * @param {unknown} left
 * @param {unknown} right
 * @param {number} direction 1 or -1
 */
export function compareValues(left, right, direction) {
  const leftMissing = left === null || left === undefined || left === "" || Number.isNaN(left);
  const rightMissing = right === null || right === undefined || right === "" || Number.isNaN(right);
  if (leftMissing || rightMissing) return Number(leftMissing) - Number(rightMissing);
  if (typeof left === "number" && typeof right === "number") return direction * (left - right);
  const [first, second] = [String(left), String(right)];
  return first === second ? 0 : direction * NAMES.compare(first, second);
}

/**
 * Return the column and the direction of a sort order.
 *
 * @template {SortColumn} T
 * @param {string} text
 * @param {readonly T[]} columns
 * @returns {{column: T, direction: number} | null} null for an unknown column
 */
export function parseSort(text, columns) {
  const direction = text.startsWith("-") ? -1 : 1;
  const column = columns.find((one) => one.id === text.replace(/^-/, ""));
  return column ? { column, direction } : null;
}

/**
 * Return sorted rows; rows with the same value keep the order of their keys.
 *
 * @template {{key: string}} T
 * @param {readonly T[]} rows
 * @param {{column: SortColumn, direction: number}} sort
 * @returns {T[]}
 */
export function sortRows(rows, { column, direction }) {
  const decorated = rows.map((row) => ({ row, value: column.value(row) }));
  decorated.sort((left, right) =>
    compareValues(left.value, right.value, direction)
    || (left.row.key < right.row.key ? -1 : Number(left.row.key > right.row.key)));
  return decorated.map((one) => one.row);
}
