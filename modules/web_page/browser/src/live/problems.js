/** The problems of all clusters: read once, and then again for the clusters that have changed. */

import { signal } from "@preact/signals";

import { now } from "../clock.js";
import { useEffect } from "../ui/html.js";
import { clusterNames, clusters, fleetFeed } from "./fleet.js";
import { getRows } from "./rest.js";

/** Milliseconds between two requests. */
const PAUSE = 3000;
/** Milliseconds after a failure. */
const AFTER_FAILURE = 30_000;
/** Maximum number of clusters that a request names. */
const MOST = 50;

/**
 * @typedef {object} Problems
 * @property {any[] | null} rows
 * @property {any[]} incomplete clusters whose rows are missing or old
 * @property {number} missingKas
 * @property {boolean} isCut
 * @property {import("./rest.js").RequestError | null} error
 * @property {number} since seconds since 1970
 * @property {number} retryAt
 */

export const problems = signal(/** @type {Problems} */ ({
  rows: null, incomplete: [], missingKas: 0, isCut: false, error: null, since: now(), retryAt: 0,
}));

/** The state of each cluster when its problems were read. @type {Map<string, unknown>} */
let seen = new Map();
let readers = 0;
let timer = 0;
let isBusy = false;

/** Read the problems of all clusters. */
export async function loadProblems() {
  seen = new Map(clusters.peek().map((one) => [one.name, one.source]));
  await read(() => getRows("/api/v1/problems", { clusters: clusterNames().join(",") }), () => true);
}

/**
 * @param {() => ReturnType<typeof getRows>} request
 * @param {(name: string) => boolean} isOf whether the answer replaces the rows of a cluster
 */
async function read(request, isOf) {
  if (isBusy) return;
  isBusy = true;
  clearTimeout(timer);
  try {
    const found = await request();
    const before = problems.peek();
    problems.value = {
      rows: [...(before.rows ?? []).filter((one) => !isOf(one.cluster)), ...found.items],
      incomplete: [...before.incomplete.filter((one) => !isOf(one.name)), ...found.incomplete],
      missingKas: found.missingKas, isCut: found.isCut, error: null, since: now(), retryAt: 0,
    };
    later(PAUSE);
  } catch (error) {
    problems.value = {
      ...problems.peek(), error: /** @type {any} */ (error), since: now(), retryAt: now() + AFTER_FAILURE / 1000,
    };
    later(AFTER_FAILURE);
  } finally {
    isBusy = false;
  }
}

/** @param {number} pause */
function later(pause) {
  clearTimeout(timer);
  if (readers) timer = setTimeout(refresh, pause);
}

function refresh() {
  if (!readers) return;
  if (problems.peek().rows === null) {
    loadProblems();
    return;
  }
  const changed = document.hidden ? [] : clusters.peek().filter((one) => seen.get(one.name) !== one.source).slice(0, MOST);
  if (!changed.length) {
    later(PAUSE);
    return;
  }
  for (const one of changed) seen.set(one.name, one.source);
  const names = new Set(changed.map((one) => one.name));
  read(() => getRows("/api/v1/problems", { clusters: [...names].join(",") }), (name) => names.has(name));
}

/** Follow the problems of all clusters while a component is visible. */
export function useProblems() {
  useEffect(() => {
    fleetFeed();
    readers += 1;
    if (problems.peek().rows === null) loadProblems();
    else later(0);
    return () => {
      readers -= 1;
    };
  }, []);
  return problems.value;
}
