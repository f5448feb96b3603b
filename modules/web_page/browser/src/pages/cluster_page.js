/** One cluster: its overview, and a live table for each view. */

import { now, second } from "../clock.js";
import { sharesOf, WORKLOADS } from "../lib/health.js";
import { command } from "../lib/shell.js";
import { duration } from "../lib/times.js";
import { connection, useFeed } from "../live/cable.js";
import { agents, clustersByName, fleetFeed } from "../live/fleet.js";
import { groupEvents, objectsOf } from "../live/object_rows.js";
import { noteVisit, pinned, togglePin } from "../preferences.js";
import { BASE, clusterAddress } from "../route.js";
import { ClusterBadge } from "../ui/badge.js";
import { Command, CopyButton } from "../ui/copy.js";
import { Heading } from "../ui/heading.js";
import { html, useEffect, useMemo } from "../ui/html.js";
import { Icon } from "../ui/icon.js";
import { Denied, Empty, Failed, Loading } from "../ui/states.js";
import { ApplicationList } from "./application_list.js";
import { ClusterOverview } from "./cluster_overview.js";
import { ObjectList } from "./object_list.js";
import { ObjectPanel } from "./object_panel.js";
import { TROUBLE, VIEW_COLUMNS } from "./view_columns.js";

/** The tabs, with the kinds that each shows. @type {[string, string, readonly string[]][]} */
const TABS = [
  ["", "Overview", []], ["workloads", "Workloads", WORKLOADS], ["nodes", "Nodes", ["nodes"]],
  ["services", "Services", ["services"]], ["problems", "Problems", []], ["events", "Events", ["events"]],
  ["applications", "Applications", []],
];

/** What a list says if nothing is there. @type {Record<string, [string, string]>} */
const NOTHING = {
  workloads: ["No workloads", "Deployments, StatefulSets, DaemonSets, Jobs and CronJobs appear here."],
  nodes: ["No nodes", "Nodes appear here as soon as they join the cluster."],
  services: ["No Services", "Services appear here with their ports and addresses."],
  problems: ["No problems", "Each object that you see has reached the state of its specification."],
  events: ["No warnings", "The cluster has written no warning within the last hour."],
};

/** Filters that show the language. @type {Record<string, string>} */
const EXAMPLES = {
  workloads: "kind=Deployment name~api", nodes: "state!=Ready", services: "type=LoadBalancer",
  problems: "kind!=Pod", events: "reason=BackOff",
};

/** @param {{name: string, tab: string}} props */
export function ClusterPage({ name, tab }) {
  const cluster = clustersByName.value.get(name);
  // If kas cannot list the clusters of this user, the page lists those that it has opened.
  const known = Boolean(cluster) || !agents.value.isComplete;
  useEffect(() => {
    if (known) noteVisit(name);
  }, [name, known]);
  const isPinned = pinned.value.includes(name);
  const isLoading = !cluster && (fleetFeed().state.value === "loading" || !agents.value.isLoaded);
  return html`
    <${Heading} title=${name} above=${html`<a class="heading__above" href=${`${BASE}/fleet`}>Fleet</a>`} actions=${html`
      ${cluster && html`<${ClusterBadge} state=${cluster.state} />`}
      <${CopyButton} text=${name} label="name of the cluster" />
      <button type="button" class="icon-button" aria-pressed=${isPinned} aria-label="pin" title=${isPinned ? "unpin" : "pin"}
        onClick=${() => togglePin(name)}><${Icon} name="pin" /></button>`} />
    <nav class="tabs" aria-label="views of the cluster">
      ${TABS.map(([id, title, kinds]) => html`
        <a key=${id} href=${clusterAddress(name, id)} aria-current=${id === tab ? "page" : null}>${title}
          <${Count} cluster=${cluster} id=${id} kinds=${kinds} /></a>`)}
    </nav>
    ${cluster && html`<${Staleness} cluster=${cluster} />`}
    ${isLoading ? html`<${Loading} />` : html`<${Content} key=${tab} name=${name} tab=${tab} cluster=${cluster} />`}`;
}

/** @param {{name: string, tab: string, cluster: import("../live/fleet.js").Cluster | undefined}} props */
function Content({ name, tab, cluster }) {
  if (!cluster && agents.value.isComplete) {
    return html`
      <${Empty} icon="search" title="You see no cluster of this name">
        <p>It does not exist, or you have no access to it. <a href=${`${BASE}/fleet`}>All clusters</a></p>
      <//>`;
  }
  if (cluster?.state === "never") {
    return html`
      <${Empty} icon="circleDashed" title="This cluster has never sent data">
        <p>Is the module <code>cluster_data</code> enabled in its agentk, and does no other agentk hold the Lease of this agent?
          This command installs an agentk with it:</p>
        <${Command} text=${command`kasctl agent install ${name} --context CONTEXT --module cluster_data`} />
      <//>`;
  }
  if (cluster?.state === "denied") {
    return html`
      <${Empty} icon="ban" title="You have no access to this cluster">
        <p>Ask an administrator of kas for access to the agent ${name}. To look at your own access:</p>
        <p class="command"><code>kasctl user list</code></p>
      <//>`;
  }
  if (!tab) return html`<${ClusterOverview} name=${name} cluster=${cluster} />`;
  if (tab === "applications") return html`<${ApplicationList} clusters=${[name]} />`;
  if (Object.hasOwn(VIEW_COLUMNS, tab)) return html`<${View} name=${name} tab=${tab} cluster=${cluster} />`;
  return html`<${Empty} icon="search" title="This view does not exist" />`;
}

/** @param {{name: string, tab: string, cluster: import("../live/fleet.js").Cluster | undefined}} props */
function View({ name, tab, cluster }) {
  const feed = useFeed({ channel: "ClusterChannel", cluster: name, view: tab });
  const version = feed.version.value;
  const { rows, isCut } = useMemo(() => {
    const found = objectsOf(feed.rows);
    return { rows: tab === "events" ? groupEvents(found.objects) : found.objects, isCut: found.isCut };
  }, [feed, version, tab]);
  const state = feed.state.value;
  if (state === "loading" && !rows.length) return html`<${Loading} />`;
  if (state === "refused" && !rows.length) {
    return html`<${Failed} what=${tab} status=${feed.status.value} message=${feed.reason.value} since=${feed.since.value}
      retryAt=${feed.retryAt.value} retry=${() => feed.retry()} />`;
  }
  const kinds = (TABS.find(([id]) => id === tab) ?? TABS[0])[2];
  const denied = cluster?.state === "live" ? kinds.filter((one) => !cluster.summary?.[one]) : [];
  const [title, hint] = NOTHING[tab];
  const order = tab === "events" ? "last" : tab === "services" ? "name" : "-trouble";
  return html`
    ${isCut && html`<div class="notice notice--warning">The list has the first 5000 rows only.</div>`}
    <${ObjectList} noun=${tab} columns=${VIEW_COLUMNS[tab]} rows=${rows} order=${order} hidden=${HIDDEN}
      example=${EXAMPLES[tab]} panel=${(/** @type {any} */ row) => html`<${ObjectPanel} row=${row} tab=${tab} />`}
      empty=${denied.length === kinds.length && kinds.length
    ? html`<${Denied} cluster=${name} resources=${denied} />`
    : html`<${Empty} title=${title}><p>${hint}</p><//>`} />`;
}

const HIDDEN = [TROUBLE];

/** @param {{cluster: import("../live/fleet.js").Cluster | undefined, id: string, kinds: readonly string[]}} props */
function Count({ cluster, id, kinds }) {
  const count = id === "problems" ? cluster?.problems : kinds.length && id !== "events"
    ? sharesOf(cluster?.summary, kinds)?.total : null;
  return count ? html`<span class="tabs__count">${count}</span>` : null;
}

/** @param {{cluster: import("../live/fleet.js").Cluster}} props */
function Staleness({ cluster }) {
  if (cluster.state !== "late" && cluster.state !== "offline") return null;
  void connection.value;
  void second.value;
  const age = cluster.lastSeen ? duration(now() - cluster.lastSeen) : "";
  return html`
    <div class="notice notice--warning"><${Icon} name=${cluster.state === "late" ? "clock" : "cloudOff"} />
      <span>${cluster.state === "late" ? "agentk is connected, and sends no data at the moment." : "agentk is not connected."}
      ${age && ` All rows are the state of ${age} ago.`}</span></div>`;
}
