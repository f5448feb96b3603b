/** Health of objects in three levels, from the words that kas and kubectl use. */

/** @typedef {"ok" | "progress" | "bad"} Level */
/** @typedef {{ok: number, progress: number, bad: number, total: number}} Shares */
/** @typedef {Record<string, {total: number, states: Record<string, number>}>} Summary counts by plural */

const OK = new Set([
  "current", "Ready", "Running", "Completed", "Succeeded", "Active", "Bound",
]);
const PROGRESS = new Set([
  "in progress", "terminating", "Terminating", "Pending", "ContainerCreating", "PodInitializing",
  "Ready,SchedulingDisabled", "other", "waiting",
]);

/** The kinds whose objects have pods. */
export const WORKLOADS = ["deployments", "statefulsets", "daemonsets", "jobs", "cronjobs"];

/** The kinds that can be problems. */
const TROUBLED = [...WORKLOADS, "nodes", "pods", "namespaces"];

/**
 * Return the level of a state.
 *
 * @param {string} state
 * @returns {Level}
 */
export function levelOf(state) {
  if (OK.has(state)) return "ok";
  return PROGRESS.has(state) || /^Init:\d+\/\d+$/.test(state) ? "progress" : "bad";
}

/**
 * Return the level of an object; the worse one of its health and its state, unless it is current.
 *
 * @param {{health?: string, state?: string}} row
 * @returns {Level}
 */
export function levelOfObject({ health, state }) {
  if (!health || health === "current") return levelOf(health || state || "");
  const levels = [levelOf(health), levelOf(state || health)];
  return levels.includes("bad") ? "bad" : "progress";
}

/**
 * Return how many objects of some kinds are on each level; null if the summary has none of the kinds, because the
 * user may not list them.
 *
 * @param {Summary | undefined} summary
 * @param {readonly string[]} kinds
 * @returns {Shares | null}
 */
export function sharesOf(summary, kinds) {
  /** @type {Shares} */
  const shares = { ok: 0, progress: 0, bad: 0, total: 0 };
  let isKnown = false;
  for (const kind of kinds) {
    const counts = summary?.[kind];
    if (!counts) continue;
    isKnown = true;
    shares.total += numberOf(counts.total);
    const states = typeof counts.states === "object" && counts.states ? counts.states : {};
    for (const [state, count] of Object.entries(states)) shares[levelOf(state)] += numberOf(count);
  }
  return isKnown ? shares : null;
}

/**
 * Return a number of objects; 0 for anything else, because agentk of a hostile cluster chooses it.
 *
 * @param {unknown} value
 */
export function numberOf(value) {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : 0;
}

/**
 * Tell whether the user may list each kind that can have problems: otherwise, nobody knows that there are none.
 *
 * @param {Summary | undefined} summary
 */
export function seesAll(summary) {
  return TROUBLED.every((kind) => summary?.[kind]);
}

/**
 * Return the number of objects that have not reached the state of their specification.
 *
 * @param {Summary | undefined} summary
 * @returns {number | null} null without the right to list any of the kinds
 */
export function problemsOf(summary) {
  const shares = sharesOf(summary, TROUBLED);
  return shares && shares.bad + shares.progress;
}
