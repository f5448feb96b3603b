/** Requests to kas. */

import { noteTime } from "../clock.js";
import { signedOut } from "./session.js";

/** A response that is not a success, or no response at all. */
export class RequestError extends Error {
  /**
   * @param {number} status of HTTP; 0 without a response
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * Return the JSON document at an address.
 *
 * @param {string} address
 * @param {Record<string, string>} [params]
 * @param {AbortSignal} [abort]
 * @returns {Promise<any>}
 * @throws {RequestError}
 */
export async function getJson(address, params = {}, abort) {
  const query = new URLSearchParams(params).toString();
  let response;
  try {
    response = await fetch(query ? `${address}?${query}` : address, {
      headers: { Accept: "application/json" }, credentials: "same-origin", signal: abort ?? null,
    });
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new RequestError(0, "kas did not respond");
  }
  let found;
  try {
    found = await response.json();
  } catch {
    found = {};
  }
  if (response.status === 401) signedOut.value = true;
  if (!response.ok) throw new RequestError(response.status, found.message || `kas responded with ${response.status}`);
  noteTime(found.asOf);
  return found;
}

/**
 * Return all pages of rows.
 *
 * @param {string} address
 * @param {Record<string, string>} params
 * @param {AbortSignal} [abort]
 * @returns {Promise<{items: any[], incomplete: any[], missingKas: number, asOf: number, isCut: boolean}>}
 */
export async function getRows(address, params, abort) {
  const items = [];
  let page = "";
  let found;
  do {
    found = await getJson(address, { ...params, limit: "5000", ...(page ? { continue: page } : {}) }, abort);
    items.push(...found.items);
    page = found.continue;
  } while (page && items.length < MAX_ROWS);
  return {
    items, incomplete: found.clusters.incomplete, missingKas: found.missingKas, asOf: found.asOf, isCut: Boolean(page),
  };
}

/** Maximum number of rows of a list: a table with more helps nobody. */
const MAX_ROWS = 20000;
