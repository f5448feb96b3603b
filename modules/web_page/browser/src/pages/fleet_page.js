/** All clusters, the worst first. */

import { agents, clusters, fleetFeed, loadAgents, totals } from "../live/fleet.js";
import { address, BASE, clusterAddress, go, withParams } from "../route.js";
import { html } from "../ui/html.js";
import { ExportButton } from "../ui/export_button.js";
import { FilterBar } from "../ui/filter_bar.js";
import { Heading } from "../ui/heading.js";
import { Empty, Failed, Incomplete, Loading, NoHits } from "../ui/states.js";
import { labelKeys, useRows } from "../ui/rows.js";
import { Table } from "../ui/table.js";
import { CLUSTER_COLUMNS, narrowCluster, WORST } from "./cluster_columns.js";

/** @type {readonly import("../ui/table.js").Column[]} */
const HIDDEN = [WORST];

/** @param {string} filter */
const filtered = (filter) => address(`${BASE}/fleet`, { q: filter });

export function FleetPage() {
  const feed = fleetFeed();
  const rows = clusters.value;
  const { error, isLoaded, isComplete, list, reason, since } = agents.value;
  const { found, items, sort, terms, query, group } = useRows(rows, CLUSTER_COLUMNS, "-worst", HIDDEN);
  // kas refuses a subscription to the clusters of a user who has none.
  const isEmpty = isLoaded && isComplete && !list.length;
  const isLoading = !isEmpty && !rows.length && (feed.state.value === "loading" || (!isLoaded && !error));
  const isRefused = feed.state.value === "refused";

  return html`
    <${Heading} title="Fleet"><${Totals} /><//>
    ${rows.length > 0 && isRefused && html`<${RefusedNotice} feed=${feed} />`}
    ${!isComplete && html`<${Unlisted} reason=${reason} />`}
    ${isLoading && html`<${Loading} label="loading clusters" />`}
    ${!isEmpty && !isLoading && !rows.length && (error || isRefused) && html`
      <${Failed} what="Clusters" status=${error?.status ?? feed.status.value} message=${error?.message ?? feed.reason.value}
        since=${error ? since : feed.since.value} retryAt=${feed.retryAt.value} retry=${() => {
    loadAgents();
    if (isRefused) feed.retry();
  }} />`}
    ${isEmpty && !rows.length && html`
      <${Empty} icon="server" title="No clusters yet">
        <p>Ask an administrator of kas for access to a cluster.  Administrators add an agent, and install agentk in its
          cluster, with one command:</p>
        <p class="command"><code>kasctl agent install NAME --context CONTEXT</code></p>
      <//>`}
    ${rows.length > 0 && html`
      <section class="list" aria-label="clusters">
        <${FilterBar} columns=${CLUSTER_COLUMNS} rows=${rows} hits=${found.length} total=${rows.length} noun="clusters"
          example="env=prod state!=live">
          <${GroupMenu} rows=${rows} group=${group} />
          <${ExportButton} name="clusters" columns=${CLUSTER_COLUMNS} rows=${found} />
        <//>
        <${Table} label="clusters" columns=${CLUSTER_COLUMNS} items=${items} sort=${sort} query=${query}
          link=${(/** @type {any} */ one) => clusterAddress(one.name)} openKey=""
          rowTitle=${(/** @type {any} */ one) => ({ title: one.name, detail: one.state })} narrow=${narrowCluster} />
        ${!found.length && html`<${NoHits} terms=${terms} columns=${CLUSTER_COLUMNS} rows=${rows} noun="clusters" />`}
      </section>`}`;
}

/** @param {number} count */
const grouped = (count) => count.toLocaleString("en");

/** @param {number} count @param {number} known number of clusters that the count is of */
function numberOr(count, known) {
  return known ? grouped(count) : "–";
}

/** Return what holds for the clusters that the user sees. @param {string} text @param {number} known */
function verdict(text, known) {
  const all = totals.value.clusters;
  if (!known) return "not visible to you";
  return known === all ? text : `${text} in ${known} of ${all} clusters`;
}

function Totals() {
  const all = totals.value;
  if (!all.clusters) return html`<p class="totals"> </p>`;
  const states = /** @type {const} */ (["late", "offline", "never", "denied"]).filter((one) => all[one]);
  return html`
    <dl class="totals">
      <div><dt>clusters</dt><dd><a href=${`${BASE}/fleet`}>${grouped(all.clusters)}</a></dd>
        <dd class="totals__more"><a href=${filtered("state=live")}>${all.live} live</a>
          ${states.map((one) => html`
            <a key=${one} class="totals__warn" href=${filtered(`state=${one}`)}>${all[one]} ${one}</a>`)}</dd></div>
      <div><dt>nodes</dt><dd><a href=${address(`${BASE}/fleet`, { sort: "-nodes" })}>${
    numberOr(all.nodes, all.knowNodes)}</a></dd>
        <dd class="totals__more">${all.brokenNodes
    ? html`<a class="totals__bad" href=${filtered("nodes-bad>0")}>${all.brokenNodes} not ready</a>`
    : verdict("all ready", all.knowNodes)}</dd></div>
      <div><dt>workloads</dt><dd><a href=${address(`${BASE}/fleet`, { sort: "-workloads" })}>${
    numberOr(all.workloads, all.knowWorkloads)}</a></dd>
        <dd class="totals__more">${all.brokenWorkloads
    ? html`<a class="totals__bad" href=${filtered("workloads-bad>0")}>${all.brokenWorkloads} failed</a>`
    : verdict("none failed", all.knowWorkloads)}</dd></div>
      <div><dt>problems</dt><dd><a href=${`${BASE}/problems`}>${numberOr(all.problems, all.knowProblems || all.problems)}</a></dd>
        <dd class="totals__more">${all.problems
    ? `in ${all.troubled} ${all.troubled === 1 ? "cluster" : "clusters"}` : verdict("everything is as specified", all.knowProblems)}${
    all.oldProblems ? `, ${all.oldProblems} of old data` : ""}</dd></div>
    </dl>`;
}

/** @param {{rows: readonly any[], group: string}} props */
function GroupMenu({ rows, group }) {
  const keys = labelKeys(rows);
  if (!keys.length && !group) return null;
  /** @param {any} event */
  const choose = (event) => go(withParams({ group: event.target.value || null }));
  return html`
    <label class="select"><span>Group by</span>
      <select value=${group} onChange=${choose}>
        <option value="">no group</option>
        ${[...new Set([...keys, ...(group ? [group] : [])])].map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select></label>`;
}

/** @param {{feed: import("../live/cable.js").Feed}} props */
function RefusedNotice({ feed }) {
  return html`<div class="notice notice--warning"><span>kas sends no changes: ${feed.reason}</span>
    <button type="button" class="button" onClick=${() => feed.retry()}>Retry now</button></div>`;
}

/** kas cannot list the clusters of this user. @param {{reason: string}} props */
function Unlisted({ reason }) {
  /** @param {SubmitEvent} event */
  function open(event) {
    event.preventDefault();
    const name = new FormData(/** @type {HTMLFormElement} */ (event.target)).get("name");
    if (typeof name === "string" && name.trim()) go(clusterAddress(name.trim()));
  }
  return html`
    <form class="notice open-cluster" onSubmit=${open}>
      <p>${reason || "kas cannot list all your clusters."} The list has the clusters that you opened here.</p>
      <label>Open a cluster <input name="name" type="text" autocomplete="off" required placeholder="name of its agent" /></label>
      <button type="submit" class="button button--primary">Open</button>
    </form>`;
}
