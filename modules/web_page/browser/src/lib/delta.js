/** Messages of channels with rows: a snapshot, or changes of the rows before. */

/** @typedef {{e?: unknown, s?: number, snapshot?: Record<string, any>, put?: Record<string, any>, delete?: string[]}} RowsMessage */

/**
 * Apply a message to the rows of a feed.
 *
 * A row that did not change stays the same object, so that a table does not draw it again.
 *
 * @param {Map<string, any>} rows
 * @param {{epoch: unknown, sequence: number}} position of the last message; changed in place
 * @param {RowsMessage} message
 * @returns {{rows: Map<string, any>, isGap: boolean}} whether a message is missing before this one
 */
export function applyMessage(rows, position, message) {
  if (message.snapshot) {
    const found = new Map();
    for (const [key, row] of Object.entries(message.snapshot)) {
      const before = rows.get(key);
      found.set(key, before !== undefined && isSame(before, row) ? before : row);
    }
    position.epoch = message.e;
    position.sequence = message.s ?? 0;
    return { rows: found, isGap: false };
  }
  const sequence = message.s ?? 0;
  const isKnown = message.e === position.epoch;
  // After resume, kas confirms with the number of the last message.
  const isGap = !isKnown || sequence > position.sequence + 1;
  if (isKnown && sequence >= position.sequence) {
    for (const [key, row] of Object.entries(message.put ?? {})) rows.set(key, row);
    for (const key of message.delete ?? []) rows.delete(key);
    position.sequence = sequence;
  }
  return { rows, isGap };
}

/**
 * @param {unknown} left
 * @param {unknown} right
 */
function isSame(left, right) {
  return left === right || JSON.stringify(left) === JSON.stringify(right);
}
