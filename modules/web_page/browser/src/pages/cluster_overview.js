/** The overview of a cluster: what is wrong, what runs there, and what kas knows of it. */

import { levelOfObject, numberOf, seesAll, sharesOf } from "../lib/health.js";
import { useFeed } from "../live/cable.js";
import { groupEvents, objectsOf } from "../live/object_rows.js";
import { command } from "../lib/shell.js";
import { sortRows } from "../lib/sorting.js";
import { clusterAddress } from "../route.js";
import { Age } from "../ui/age.js";
import { Command } from "../ui/copy.js";
import { HealthBar } from "../ui/health_bar.js";
import { html, useMemo } from "../ui/html.js";
import { Labels } from "../ui/labels.js";
import { Name } from "../ui/name.js";
import { Loading } from "../ui/states.js";
import { openName, TROUBLE } from "./view_columns.js";

/** Kinds in the order of the list, with the tab that has their rows. @type {[string, string][]} */
const KINDS = [
  ["nodes", "nodes"], ["deployments", "workloads"], ["statefulsets", "workloads"], ["daemonsets", "workloads"],
  ["jobs", "workloads"], ["cronjobs", "workloads"], ["pods", "problems"], ["services", "services"],
  ["namespaces", "problems"],
];

/** Kinds in the singular, as filters need them. @type {Record<string, string>} */
const SINGULAR = {
  nodes: "Node", deployments: "Deployment", statefulsets: "StatefulSet", daemonsets: "DaemonSet", jobs: "Job",
  cronjobs: "CronJob", pods: "Pod", services: "Service", namespaces: "Namespace",
};

/** Number of lines of a card. */
const MOST = 8;

/** @param {{name: string, cluster: import("../live/fleet.js").Cluster | undefined}} props */
export function ClusterOverview({ name, cluster }) {
  return html`
    <div class="cards">
      <div class="cards__column">
        <${ProblemsCard} name=${name} cluster=${cluster} /><${WarningsCard} name=${name} cluster=${cluster} />
      </div>
      <div class="cards__column">
        <${KindsCard} name=${name} cluster=${cluster} /><${AboutCard} name=${name} cluster=${cluster} />
      </div>
    </div>`;
}

/**
 * @param {{title: string, href?: string, more?: string, children?: any}} props
 */
function Card({ title, href, more, children }) {
  return html`
    <section class="card" aria-label=${title}>
      <header class="card__head"><h2>${title}</h2>${href && more && html`<a href=${href}>${more}</a>`}</header>
      ${children}
    </section>`;
}

/** @param {string} name @param {string} view */
function useObjects(name, view) {
  const feed = useFeed({ channel: "ClusterChannel", cluster: name, view });
  const version = feed.version.value;
  const objects = useMemo(() => objectsOf(feed.rows).objects, [feed, version]);
  return { objects, isLoading: feed.state.value === "loading" };
}

/** @param {{name: string, cluster: import("../live/fleet.js").Cluster | undefined}} props */
function ProblemsCard({ name, cluster }) {
  const { objects, isLoading } = useObjects(name, "problems");
  const worst = sortRows(objects, { column: TROUBLE, direction: -1 }).slice(0, MOST);
  return html`
    <${Card} title="Problems" href=${clusterAddress(name, "problems")} more=${objects.length ? `all ${objects.length}` : ""}>
      ${isLoading && !objects.length && html`<${Loading} rows=${3} />`}
      ${!isLoading && !objects.length && html`<div class="card__body muted">${
    seesAll(cluster?.summary) ? "Each object has reached the state of its specification."
    : cluster?.problems === null || !cluster ? "You see no objects of this cluster."
    : "Each object that you see has reached the state of its specification."}</div>`}
      <ul class="lines">${worst.map((one) => html`
        <li key=${one.key}><a class="line" href=${clusterAddress(name, "problems", { open: openName(one) })}>
          <span class="line__what"><${Name} text=${one.name} /></span>
          <span class=${levelOfObject(one) === "bad" ? "number--bad" : "muted"}>${one.state}</span>
          <span class="line__why">${one.kind}${one.namespace && ` in ${one.namespace}`}, <${Age} at=${one.sinceAt} />${
    one.reason ? ` · ${one.reason}` : ""}</span></a></li>`)}
      </ul>
    <//>`;
}

/** @param {{name: string, cluster: import("../live/fleet.js").Cluster | undefined}} props */
function KindsCard({ name, cluster }) {
  const summary = cluster?.summary;
  const kinds = KINDS.filter(([kind]) => summary?.[kind]);
  return html`
    <${Card} title="Objects">
      <div class="card__body">
        ${kinds.length ? html`
          <dl class="kinds">${kinds.map(([kind, tab]) => {
    const shares = sharesOf(summary, [kind]) ?? { ok: 0, progress: 0, bad: 0, total: 0 };
    const { total } = shares;
    const { states } = /** @type {any} */ (summary)[kind];
    const term = `kind=${SINGULAR[kind]}`;
    const isOne = tab === kind;
    const title = Object.entries(states ?? {}).map(([state, count]) => `${numberOf(count)} ${state}`).join(", ");
    return html`
            <div key=${kind} title=${title}><dt><a href=${clusterAddress(name, tab, isOne ? {} : { q: term })}>${kind}</a></dt>
              <dd>${total}</dd>
              <dd>${total > 0 && html`<${HealthBar} shares=${shares} name=${kind} isOld=${cluster?.state !== "live"}
                linkTo=${(/** @type {string} */ health) => clusterAddress(name, tab, {
    q: [!isOne && term, `health=${health.includes(" ") ? `"${health}"` : health}`].filter(Boolean).join(" "),
  })} />`}</dd></div>`;
  })}</dl>`
    : html`<p class="muted">The numbers of objects are visible to users who may list them in all namespaces.</p>
        <${Command} text="kubectl auth can-i list pods --all-namespaces" />`}
      </div>
    <//>`;
}

/** @param {{name: string, cluster: import("../live/fleet.js").Cluster | undefined}} props */
function WarningsCard({ name, cluster }) {
  const { objects, isLoading } = useObjects(name, "events");
  const newest = groupEvents(objects).sort((left, right) => right.lastAt - left.lastAt).slice(0, MOST);
  return html`
    <${Card} title="Warnings" href=${clusterAddress(name, "events")} more=${newest.length ? "all" : ""}>
      ${isLoading && !objects.length && html`<${Loading} rows=${3} />`}
      ${!isLoading && !objects.length && html`<div class="card__body muted">${
    cluster?.summary?.events ? "None within the last hour." : "You may not list the events of all namespaces, or there are none."}</div>`}
      <ul class="lines">${newest.map((one) => html`
        <li key=${one.key}><a class="line" href=${clusterAddress(name, "events", { open: openName(one) })}>
          <span class="line__what"><${Name} text=${one.object ?? ""} /></span>
          <span class="muted">${one.count > 1 && `×${one.count} · `}<${Age} at=${one.lastAt} /></span>
          <span class="line__why">${one.reason}: ${one.message}</span></a></li>`)}
      </ul>
    <//>`;
}

/** @param {{name: string, cluster: import("../live/fleet.js").Cluster | undefined}} props */
function AboutCard({ name, cluster }) {
  const { objects } = useObjects(name, "kinds");
  const missing = objects.filter((one) => one.state !== "synced" && !/has no kind/.test(one.reason ?? ""));
  return html`
    <${Card} title="About">
      <div class="card__body">
        <dl class="facts">
          <div><dt>Data</dt><dd>${cluster?.state === "live" ? "now" : cluster?.lastSeen
    ? html`<${Age} at=${cluster.lastSeen} suffix=" ago" />` : "–"}</dd></div>
          ${cluster?.kubernetesVersion && html`<div><dt>Kubernetes</dt><dd>${cluster.kubernetesVersion}</dd></div>`}
          ${cluster?.agentkVersion && html`<div><dt>agentk</dt><dd>${cluster.agentkVersion}</dd></div>`}
          ${cluster && Object.keys(cluster.labels).length > 0 && html`
            <div><dt>Labels</dt><dd><${Labels} labels=${cluster.labels} inFleet=${true} /></dd></div>`}
          ${missing.map((one) => html`
            <div key=${one.key}><dt>${one.kind}</dt><dd>${one.state === "count_only" ? "only counted" : one.state}${
    one.reason ? `: ${one.reason}` : ""}</dd></div>`)}
        </dl>
        <${Command} text=${command`kasctl problems --clusters ${name}`} />
      </div>
    <//>`;
}
