/** All clusters of the user: what their agents say of themselves, and the state that kas pushes. */

import { computed, signal } from "@preact/signals";

import { now } from "../clock.js";
import { problemsOf, sharesOf, seesAll, WORKLOADS } from "../lib/health.js";
import { recent } from "../preferences.js";
import { dropFeed, keepFeed } from "./cable.js";
import { getJson } from "./rest.js";

/**
 * @typedef {object} Agent
 * @property {string} id
 * @property {string} name
 * @property {Record<string, string>} labels
 * @property {boolean} connected
 * @property {string} [agentkVersion]
 * @property {string} [kubernetesVersion]
 *
 * @typedef {"live" | "late" | "offline" | "never" | "denied"} ClusterState
 *
 * @typedef {object} Cluster
 * @property {string} key
 * @property {string} id
 * @property {string} name
 * @property {Record<string, string>} labels
 * @property {ClusterState} state
 * @property {number | null} lastSeen seconds since 1970; null while it is live
 * @property {import("../lib/health.js").Summary | undefined} summary
 * @property {import("../lib/health.js").Shares | null} nodes
 * @property {import("../lib/health.js").Shares | null} workloads
 * @property {number | null} problems
 * @property {string} kubernetesVersion
 * @property {string} agentkVersion
 * @property {unknown} source
 */

/** The answer of kas about the agents of the user. */
export const agents = signal({
  list: /** @type {Agent[]} */ ([]), isComplete: true, reason: "", isLoaded: false,
  error: /** @type {import("./rest.js").RequestError | null} */ (null), since: now(),
});

/** Read the agents again. */
export async function loadAgents() {
  try {
    const found = await getJson("/ui/api/agents");
    agents.value = {
      list: found.agents, isComplete: found.complete, reason: found.reason ?? "", isLoaded: true, error: null,
      since: now(),
    };
  } catch (error) {
    agents.value = { ...agents.peek(), error: /** @type {any} */ (error), since: now() };
  }
}

/** Milliseconds between two requests for the agents: their labels and versions change rarely. */
const AGENTS = 60_000;
setInterval(() => {
  if (!document.hidden) loadAgents();
}, AGENTS);

/** @type {{names: string, feed: import("./cable.js").Feed | null}} */
let followed = { names: "", feed: null };

/** Return the feed of all clusters, or of those that the user opened if kas cannot list all. */
export function fleetFeed() {
  const names = [...clusterNames()].sort();
  const key = names.join(",");
  if (!followed.feed || followed.names !== key) {
    if (followed.feed) dropFeed(followed.feed);
    followed = { names: key, feed: keepFeed({ channel: "FleetChannel", clusters: names }) };
  }
  return /** @type {import("./cable.js").Feed} */ (followed.feed);
}

/** Cluster rows of the last computation, which stay the same objects while nothing changed. @type {Map<string, Cluster>} */
let earlier = new Map();

/** All clusters, in no order. */
export const clusters = computed(() => {
  const following = fleetFeed();
  void following.version.value;
  const { list } = agents.value;
  /** @type {Map<string, Cluster>} */
  const found = new Map();
  const byId = new Map(list.map((one) => [one.id, one]));
  const byName = new Map(list.map((one) => [one.name, one]));
  for (const [key, row] of following.rows) {
    if (!key.startsWith("cluster/")) continue;
    const id = key.slice("cluster/".length);
    const agent = byId.get(id) ?? byName.get(row.name);
    found.set(key, clusterOf(key, id, row, agent));
  }
  for (const one of list) {
    const key = `cluster/${one.id}`;
    if (found.has(key)) continue;
    const state = following.state.value === "live" ? "never" : one.connected ? "live" : "offline";
    found.set(key, clusterOf(key, one.id, NOTHING[state], one));
  }
  earlier = found;
  return [...found.values()];
});

/** @type {Record<string, {state: ClusterState, name: string}>} */
const NOTHING = {
  never: { state: "never", name: "" }, live: { state: "live", name: "" }, offline: { state: "offline", name: "" },
};

/**
 * @param {string} key
 * @param {string} id
 * @param {any} row
 * @param {Agent | undefined} agent
 * @returns {Cluster}
 */
function clusterOf(key, id, row, agent) {
  const before = earlier.get(key);
  if (before && before.source === row && before.agentkVersion === (agent?.agentkVersion ?? "")
    && before.kubernetesVersion === (agent?.kubernetesVersion ?? "")
    && (before.labels === agent?.labels || JSON.stringify(before.labels) === JSON.stringify(agent?.labels ?? {}))) {
    return before;
  }
  return {
    key, id, source: row,
    name: row.name || agent?.name || id,
    labels: agent?.labels ?? {},
    state: row.state,
    lastSeen: row.lastSeen || null,
    summary: row.summary,
    nodes: sharesOf(row.summary, ["nodes"]),
    workloads: sharesOf(row.summary, WORKLOADS),
    problems: problemsOf(row.summary),
    kubernetesVersion: agent?.kubernetesVersion ?? "",
    agentkVersion: agent?.agentkVersion ?? "",
  };
}

/** Clusters by name. */
export const clustersByName = computed(() => new Map(clusters.value.map((one) => [one.name, one])));

/** The numbers of the whole fleet. */
export const totals = computed(() => {
  const found = {
    clusters: 0, live: 0, late: 0, offline: 0, never: 0, denied: 0,
    nodes: 0, brokenNodes: 0, workloads: 0, brokenWorkloads: 0, problems: 0, troubled: 0,
    oldProblems: 0,
    // Clusters whose numbers the user may see, and has.
    knowNodes: 0, knowWorkloads: 0, knowProblems: 0,
  };
  for (const one of clusters.value) {
    found.clusters += 1;
    found[one.state] += 1;
    found.nodes += one.nodes?.total ?? 0;
    found.brokenNodes += one.nodes?.bad ?? 0;
    found.workloads += one.workloads?.total ?? 0;
    found.brokenWorkloads += one.workloads?.bad ?? 0;
    found.problems += one.problems ?? 0;
    if (one.problems) found.troubled += 1;
    if (one.nodes) found.knowNodes += 1;
    if (one.workloads) found.knowWorkloads += 1;
    if (one.problems !== null && seesAll(one.summary)) found.knowProblems += 1;
    // Numbers of a cluster that is away are history.
    if (one.state !== "live") found.oldProblems += one.problems ?? 0;
  }
  return found;
});

/** Names of clusters for queries over the fleet. */
export function clusterNames() {
  return agents.value.isComplete || !recent.value.length ? ["*"] : recent.value;
}
