/** The columns of the list of clusters. */

import { now } from "../clock.js";
import { duration } from "../lib/times.js";
import { clusterAddress } from "../route.js";
import { Age } from "../ui/age.js";
import { ClusterBadge } from "../ui/badge.js";
import { HealthBar } from "../ui/health_bar.js";
import { html } from "../ui/html.js";
import { Labels } from "../ui/labels.js";
import { Name } from "../ui/name.js";

/** @typedef {import("../live/fleet.js").Cluster} Cluster */
/** @typedef {import("../ui/table.js").Column} Column */

/** @type {Record<string, number>} */
const TROUBLE = { offline: 4, late: 3, never: 2, denied: 1, live: 0 };

/**
 * Return a number that is larger the more a cluster needs attention.
 *
 * @param {Cluster} one
 */
function trouble(one) {
  const shares = (one.workloads?.bad ?? 0) + 3 * (one.nodes?.bad ?? 0);
  return (TROUBLE[one.state] ?? 0) * 1e9 + shares * 1e4 + Math.min(9999, one.problems ?? 0);
}

/** @param {Cluster} one */
const healthLink = (one) => (/** @type {string} */ health) =>
  clusterAddress(one.name, "workloads", { q: `health=${health.includes(" ") ? `"${health}"` : health}` });

/**
 * @param {import("../lib/health.js").Shares | null} shares
 */
function countText(shares) {
  if (!shares) return "";
  return shares.bad ? `${shares.total - shares.bad}/${shares.total}` : `${shares.total}`;
}

/**
 * Return the class of a number: those of a cluster that is away are old, and call for nothing.
 *
 * @param {Cluster} one
 * @param {boolean} isBad
 */
function numberClass(one, isBad) {
  if (one.state !== "live") return "number muted";
  return isBad ? "number number--bad" : "number";
}

/**
 * @param {Cluster} one
 * @param {number} tab
 */
function problemsCell(one, tab) {
  if (one.problems === null) return html`<span class="muted">–</span>`;
  if (!one.problems) return html`<span class="muted">0</span>`;
  return html`<a class=${numberClass(one, Boolean(one.workloads?.bad || one.nodes?.bad))} tabindex=${tab}
    href=${clusterAddress(one.name, "problems")}>${one.problems}</a>`;
}

/** @type {Column} */
export const WORST = { id: "worst", title: "", width: "0", text: () => "", value: trouble };

/** @type {readonly Column[]} */
export const CLUSTER_COLUMNS = [
  {
    id: "state", title: "State", width: "6.5rem", text: (one) => one.state, value: (one) => TROUBLE[one.state],
    cell: (one) => ClusterBadge({ state: one.state }), largestFirst: true,
  },
  {
    id: "name", title: "Name", width: "minmax(9rem, 1.6fr)", text: (one) => one.name, value: (one) => one.name,
    isMain: true, cell: (one) => Name({ text: one.name }),
  },
  {
    id: "health", title: "Health", width: "9rem", least: 760, noFilter: true,
    text: (one) => (one.workloads ? `${one.workloads.ok}/${one.workloads.total}` : ""),
    value: (one) => (one.workloads?.total ? one.workloads.bad / one.workloads.total : null), largestFirst: true,
    cell: (one, tab) => HealthBar({
      shares: one.workloads, name: `workloads of ${one.name}`, isOld: one.state !== "live", tab, linkTo: healthLink(one),
    }),
  },
  {
    id: "nodes", title: "Nodes", width: "5rem", align: "end", noFilter: true, text: (one) => countText(one.nodes),
    value: (one) => one.nodes?.total, largestFirst: true,
    cell: (one, tab) => countCell(one, one.nodes, clusterAddress(one.name, "nodes"), tab),
  },
  {
    id: "workloads", title: "Workloads", width: "6.5rem", align: "end", noFilter: true,
    text: (one) => countText(one.workloads), value: (one) => one.workloads?.total, largestFirst: true,
    cell: (one, tab) => countCell(one, one.workloads, clusterAddress(one.name, "workloads"), tab),
  },
  {
    id: "problems", title: "Problems", width: "5.75rem", align: "end", noFilter: true,
    text: (one) => (one.problems === null ? "" : `${one.problems}`), value: (one) => one.problems, largestFirst: true,
    cell: problemsCell,
  },
  {
    id: "kubernetes", title: "Kubernetes", width: "6.5rem", least: 900, text: (one) => one.kubernetesVersion,
    value: (one) => one.kubernetesVersion,
  },
  {
    id: "agentk", title: "agentk", width: "6rem", least: 1240, text: (one) => one.agentkVersion,
    value: (one) => one.agentkVersion,
  },
  {
    id: "labels", title: "Labels", width: "minmax(8rem, 1.4fr)", least: 1000, noFilter: true,
    text: (one) => Object.entries(one.labels).map(([key, value]) => `${key}=${value}`).join(" "),
    value: (one) => Object.keys(one.labels).length,
    cell: (one, tab) => Labels({ labels: one.labels, most: 3, tab }),
  },
  {
    id: "age", title: "Data", width: "5.5rem", align: "end", noFilter: true, largestFirst: true,
    text: (one) => (one.state === "live" ? "now" : one.lastSeen ? `${one.lastSeen}` : ""),
    value: (one) => (one.state === "live" ? 0 : one.lastSeen ? now() - one.lastSeen : null), cell: dataAge,
  },
  // For links from totals.
  {
    id: "nodes-bad", title: "Broken nodes", width: "0", isHidden: true, noFilter: true,
    text: (one) => `${one.nodes?.bad ?? 0}`, value: (one) => one.nodes?.bad ?? 0,
  },
  {
    id: "workloads-bad", title: "Failed workloads", width: "0", isHidden: true, noFilter: true,
    text: (one) => `${one.workloads?.bad ?? 0}`, value: (one) => one.workloads?.bad ?? 0,
  },
];

/**
 * @param {Cluster} one
 * @param {import("../lib/health.js").Shares | null} shares
 * @param {string} href
 * @param {number} tab
 */
function countCell(one, shares, href, tab) {
  if (!shares) return html`<span class="muted" title="you may not list these in all namespaces">–</span>`;
  return html`<a class=${numberClass(one, shares.bad > 0)} href=${href} tabindex=${tab}>${countText(shares)}</a>`;
}

/** @param {Cluster} one */
function dataAge(one) {
  if (one.state === "live") return html`<span class="muted">now</span>`;
  return one.lastSeen ? html`<${Age} at=${one.lastSeen} />` : html`<span class="muted">–</span>`;
}

/**
 * Return a row for a narrow screen.
 *
 * @param {Cluster} one
 * @param {number} tab
 * @param {string} href
 */
export function narrowCluster(one, tab, href) {
  const age = one.lastSeen ? duration(now() - one.lastSeen) : "";
  const facts = [
    one.nodes && `${countText(one.nodes)} nodes`, one.workloads && `${countText(one.workloads)} workloads`,
    one.state !== "live" && age && `data ${age} old`,
  ].filter(Boolean);
  return html`
    <span class="narrow__main">
      <a class="row-link" href=${href} tabindex="-1">${Name({ text: one.name })}</a>
      ${ClusterBadge({ state: one.state })}
    </span>
    <span class="narrow__more">
      <span class="muted">${facts.join(" · ") || "no data"}</span>
      ${one.problems !== null && one.problems > 0 && html`<a class=${numberClass(one, true)} tabindex=${tab}
        href=${clusterAddress(one.name, "problems")}>${one.problems} ${one.problems === 1 ? "problem" : "problems"}</a>`}
    </span>`;
}
