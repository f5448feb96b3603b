/** The side panel: everything that kas knows about one object. */

import { groupEvents, objectsOf } from "../live/object_rows.js";
import { useFeed } from "../live/cable.js";
import { command } from "../lib/shell.js";
import { clusterAddress } from "../route.js";
import { Age, ExactTime } from "../ui/age.js";
import { StateBadge } from "../ui/badge.js";
import { Command, CopyButton } from "../ui/copy.js";
import { html } from "../ui/html.js";
import { Labels } from "../ui/labels.js";
import { Panel } from "../ui/panel.js";
import { openName, readyText } from "./view_columns.js";

/** Plural names for kubectl and for the filter of a list. */
const WORKLOADS = new Set(["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"]);

/** @param {{row: any, tab: string}} props tab: the view that the row is from */
export function ObjectPanel({ row, tab }) {
  const isEvent = row.kind === "Event";
  const kind = isEvent ? row.objectKind : row.kind;
  const name = isEvent ? row.objectName : row.name;
  return html`
    <${Panel} title=${name} kind=${kind} link=${tab ? "" : clusterAddress(row.cluster)}>
      <section class="panel__section">
        ${isEvent ? html`<strong>${row.reason}</strong>`
    : html`<div><${StateBadge} state=${row.state || row.health} health=${row.health} /></div>`}
        ${(isEvent ? row.message : row.reason) && html`
          <p class=${row.health === "failed" ? "message message--bad" : "message"}>${isEvent ? row.message : row.reason}</p>`}
        <${Facts} row=${row} isEvent=${isEvent} />
      </section>
      ${row.labels && Object.keys(row.labels).length > 0 && html`
        <section class="panel__section"><h3>Labels</h3><${Labels} labels=${row.labels} /></section>`}
      ${WORKLOADS.has(kind) && html`<${BrokenPods} row=${row} kind=${kind} name=${name} />`}
      <${Events} cluster=${row.cluster} namespace=${row.namespace} kind=${kind} name=${name} />
      <${Commands} kind=${kind} namespace=${row.namespace} name=${name} />
    <//>`;
}

/** @param {{row: any, isEvent: boolean}} props */
function Facts({ row, isEvent }) {
  /** @type {[string, any][]} */
  const facts = [
    ["Cluster", html`<a href=${clusterAddress(row.cluster)}>${row.cluster}</a>`],
    ["Namespace", row.namespace],
    ["Since", row.sinceAt > 0 && html`<${Age} at=${row.sinceAt} suffix=" ago" /><span class="muted"><${ExactTime}
      at=${row.sinceAt} /></span>`],
    ["Last", row.lastAt > 0 && html`<${Age} at=${row.lastAt} suffix=" ago" /><span class="muted"><${ExactTime}
      at=${row.lastAt} /></span>`],
    ["Count", isEvent && row.count],
    ["Ready", readyText(row)],
    ["Schedule", row.schedule && html`<code>${row.schedule}</code>${row.suspended && html`<span>suspended</span>`}`],
    ["Restarts", row.restarts > 0 && row.restarts],
    ["Owner", row.owner],
    ["Node", row.node],
    ["Type", row.type],
    ["Ports", row.ports?.join(", ")],
    ["Version", row.version],
    ["System", [row.os, row.architecture].filter(Boolean).join(", ")],
    ["Capacity", row.capacity && Object.entries(row.capacity).map(([name, value]) => `${name} ${value}`).join(", ")],
    ["Pressure", row.pressures?.join(", ")],
    ["Created", row.createdAt > 0 && html`<${Age} at=${row.createdAt} suffix=" ago" /><span class="muted"><${ExactTime}
      at=${row.createdAt} /></span>`],
  ];
  return html`
    <dl class="facts">
      ${facts.filter(([, value]) => value).map(([title, value]) => html`
        <div key=${title}><dt>${title}</dt><dd>${value}</dd></div>`)}
      ${[...(row.images ?? [])].map((image) => html`
        <div key=${image}><dt>Image</dt><dd><code>${image}</code><${CopyButton} text=${image} label="image" /></dd></div>`)}
      ${[...(row.addresses ?? [])].map((one) => html`
        <div key=${one}><dt>Address</dt><dd><code>${one}</code><${CopyButton} text=${one} label="address" /></dd></div>`)}
      ${row.selector && html`<div><dt>Selector</dt><dd><code>${Object.entries(row.selector).map(([key, value]) =>
    `${key}=${value}`).join(",")}</code></dd></div>`}
    </dl>`;
}

/** Pods of a workload that are problems. @param {{row: any, kind: string, name: string}} props */
function BrokenPods({ row, kind, name }) {
  const feed = useFeed({ channel: "ClusterChannel", cluster: row.cluster, view: "problems" });
  void feed.version.value;
  const owner = kind === "Deployment" ? `ReplicaSet/${name}-` : kind === "CronJob" ? `Job/${name}-` : `${kind}/${name}`;
  const { objects } = objectsOf(feed.rows);
  const pods = objects.filter((one) => one.kind === "Pod" && one.namespace === row.namespace
    && (owner.endsWith("-") ? one.owner?.startsWith(owner) : one.owner === owner));
  if (!pods.length) return null;
  return html`
    <section class="panel__section"><h3>Pods with problems (${pods.length})</h3>
      ${pods.slice(0, 10).map((one) => html`
        <div class="event" key=${one.key}>
          <span class="event__line"><a href=${clusterAddress(one.cluster, "problems", { open: openName(one) })}>${one.name}</a>
            <span class="muted"><${Age} at=${one.sinceAt} /></span></span>
          <p>${[one.state, one.reason, one.restarts && `${one.restarts} restarts`].filter(Boolean).join(" · ")}</p>
        </div>`)}
    </section>`;
}

/** Warnings about an object and the objects that it created. */
function Events(/** @type {{cluster: string, namespace: string, kind: string, name: string}} */ { cluster, namespace, kind, name }) {
  const feed = useFeed({ channel: "EventsChannel", clusters: [cluster], namespace });
  void feed.version.value;
  const { objects } = objectsOf(feed.rows);
  const own = `${kind}/${name}`;
  const found = groupEvents(objects.filter((one) => {
    const object = String(one.object ?? "");
    return object === own
      || (WORKLOADS.has(kind) && object.slice(object.indexOf("/") + 1).startsWith(`${name}-`) && /^(?:Pod|ReplicaSet|Job)\//.test(object));
  })).sort((left, right) => right.lastAt - left.lastAt);
  return html`
    <section class="panel__section"><h3>Warnings</h3>
      ${feed.state.value === "refused" && html`<p class="muted">not available: ${feed.reason.value}</p>`}
      ${feed.state.value === "live" && !found.length && html`<p class="muted">none in the last hour</p>`}
      ${found.slice(0, 20).map((one) => html`
        <div class="event" key=${one.key}>
          <span class="event__line"><span><strong>${one.reason}</strong>${one.count > 1 && html` <span class="muted">×${
    one.count}</span>`}</span><span class="muted"><${Age} at=${one.lastAt} /></span></span>
          <p>${one.object !== own && html`${one.object}: `}${one.message}</p>
        </div>`)}
    </section>`;
}

function Commands(/** @type {{kind: string, namespace: string, name: string}} */ { kind, namespace, name }) {
  const lower = kind.toLowerCase();
  const found = [namespace ? command`kubectl -n ${namespace} describe ${lower} ${name}` : command`kubectl describe ${lower} ${name}`];
  if (kind === "Pod") found.push(command`kubectl -n ${namespace} logs ${name} --all-containers --previous`);
  else if (WORKLOADS.has(kind) && kind !== "CronJob") {
    found.push(command`kubectl -n ${namespace} logs ${lower}/${name} --since=10m`);
  }
  const safe = found.filter(Boolean);
  if (!safe.length) return null;
  return html`
    <section class="panel__section"><h3>kubectl</h3>
      ${safe.map((text) => html`<${Command} key=${text} text=${text} />`)}
    </section>`;
}
