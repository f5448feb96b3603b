/** The columns of the views of clusters. */

import { levelOfObject } from "../lib/health.js";
import { duration, isoTime } from "../lib/times.js";
import { clusterAddress } from "../route.js";
import { Age } from "../ui/age.js";
import { StateBadge } from "../ui/badge.js";
import { html } from "../ui/html.js";
import { Name } from "../ui/name.js";

/** @typedef {import("../ui/table.js").Column} Column */

/** @type {Record<string, number>} */
const RANKS = { bad: 2, progress: 1, ok: 0 };

/** @param {any} row */
const stateOf = (row) => row.state || row.health || "";

/** @type {Column} */
const STATE = {
  id: "state", title: "State", width: "minmax(7.5rem, 11.5rem)", text: stateOf, largestFirst: true,
  value: (row) => RANKS[levelOfObject(row)],
  cell: (row) => StateBadge({ state: stateOf(row), health: row.health }),
};
/** @type {Column} */
const NAME = {
  id: "name", title: "Name", width: "minmax(9rem, 2fr)", text: (row) => row.name, value: (row) => row.name, isMain: true,
  cell: (row) => Name({ text: row.name }),
};
/** @type {Column} */
const KIND = { id: "kind", title: "Kind", width: "7rem", least: 820, text: (row) => row.kind, value: (row) => row.kind };
/** @type {Column} */
const NAMESPACE = {
  id: "namespace", title: "Namespace", width: "minmax(6rem, 1fr)", text: (row) => row.namespace, value: (row) => row.namespace,
};
/** @type {Column} */
const REASON = {
  id: "reason", title: "Reason", width: "minmax(8rem, 2fr)", least: 980, text: (row) => row.reason ?? "",
  value: (row) => row.reason,
  cell: (row) => html`<span class="muted" title=${row.reason ?? ""}>${row.reason ?? ""}</span>`,
};
/** @type {Column} */
const AGE = {
  id: "age", title: "Age", width: "5rem", align: "end", least: 700, noFilter: true, text: (row) => row.created ?? "",
  value: (row) => -row.createdAt, cell: (row) => html`<${Age} at=${row.createdAt} />`,
};
/** @type {Column} */
const HEALTH = {
  id: "health", title: "Health", width: "0", isHidden: true, noFilter: true, text: (row) => row.health ?? "",
  value: (row) => row.health,
};

/** @type {Column} */
export const CLUSTER = {
  id: "cluster", title: "Cluster", width: "minmax(7rem, 1fr)", text: (row) => row.cluster, value: (row) => row.cluster,
  cell: (row, tab) => html`<a tabindex=${tab} href=${clusterAddress(row.cluster)}>${row.cluster}</a>`,
};

/** The worst first, and then the newest. @type {Column} */
export const TROUBLE = {
  id: "trouble", title: "", width: "0", text: () => "", isHidden: true,
  value: (row) => RANKS[levelOfObject(row)] * 1e12 + (row.sinceAt || row.createdAt || 0),
};

/** @param {any} row */
export function readyText(row) {
  return row.wanted === undefined ? "" : `${row.ready}/${row.wanted}`;
}

/** @param {any} row */
function versionOf(row) {
  const image = row.images?.[row.images.length - 1] ?? "";
  const name = image.split("@")[0].split("/").pop() ?? "";
  return name.includes(":") ? name.slice(name.indexOf(":") + 1) : "";
}

/** @param {number | undefined} value @param {string} suffix */
const measured = (value, suffix) => (value ? `${value}${suffix}` : "");

/** @param {unknown} text of a quantity of Kubernetes */
function quantity(text) {
  const found = /^(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti|k|M|G|T)?$/.exec(String(text ?? ""));
  const units = /** @type {Record<string, number>} */ (
    { m: 1e-3, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, k: 1e3, M: 1e6, G: 1e9, T: 1e12 });
  return found ? Number(found[1]) * (units[found[2]] ?? 1) : null;
}

/** @param {unknown} text */
function memoryText(text) {
  const bytes = quantity(text);
  return bytes === null ? "" : `${(bytes / 2 ** 30).toLocaleString("en", { maximumFractionDigits: 1 })} GiB`;
}

/** @type {Record<string, readonly Column[]>} */
export const VIEW_COLUMNS = {
  workloads: [
    STATE, NAME, KIND, NAMESPACE,
    {
      id: "ready", title: "Ready", width: "4.5rem", align: "end", text: readyText, noFilter: true,
      value: (row) => (row.wanted ? row.ready / row.wanted : null),
    },
    {
      id: "version", title: "Version", width: "7rem", least: 820, text: versionOf, value: versionOf,
      cell: (row) => html`<span title=${(row.images ?? []).join("\n")}>${versionOf(row)}</span>`,
    },
    REASON, AGE, HEALTH,
    {
      id: "image", title: "Image", width: "0", isHidden: true, text: (row) => (row.images ?? []).join(" "),
      value: (row) => row.images?.[0],
    },
  ],
  nodes: [
    STATE, NAME,
    { id: "version", title: "Version", width: "7rem", text: (row) => row.version ?? "", value: (row) => row.version },
    {
      id: "cpu", title: "CPU", width: "4rem", align: "end", noFilter: true, text: (row) => row.capacity?.cpu ?? "",
      value: (row) => quantity(row.capacity?.cpu), largestFirst: true,
    },
    {
      id: "memory", title: "Memory", width: "6rem", align: "end", noFilter: true,
      text: (row) => memoryText(row.capacity?.memory), value: (row) => quantity(row.capacity?.memory), largestFirst: true,
    },
    {
      ...REASON, text: (row) => [row.reason, ...(row.pressures ?? [])].filter(Boolean).join(", "),
      cell: (row) => html`<span class="muted">${[row.reason, ...(row.pressures ?? [])].filter(Boolean).join(", ")}</span>`,
    },
    {
      id: "os", title: "System", width: "minmax(6rem, 1fr)", least: 1100, text: (row) => row.os ?? "", value: (row) => row.os,
    },
    AGE, HEALTH,
  ],
  services: [
    NAME, NAMESPACE,
    { id: "type", title: "Type", width: "8rem", text: (row) => row.type ?? "", value: (row) => row.type },
    {
      id: "ports", title: "Ports", width: "minmax(4rem, 8rem)", text: (row) => (row.ports ?? []).join(", "),
      value: (row) => row.ports?.[0], noFilter: true,
    },
    {
      id: "addresses", title: "Addresses", width: "minmax(8rem, 2fr)", least: 760,
      text: (row) => (row.addresses ?? []).join(", "), value: (row) => row.addresses?.[0],
    },
    AGE,
  ],
  problems: [
    STATE, NAME, KIND, NAMESPACE, REASON,
    {
      id: "restarts", title: "Restarts", width: "5.5rem", align: "end", least: 1100, noFilter: true, largestFirst: true,
      text: (row) => measured(row.restarts, ""), value: (row) => row.restarts,
    },
    {
      id: "since", title: "Since", width: "5rem", align: "end", noFilter: true, text: (row) => isoTime(row.sinceAt),
      value: (row) => -row.sinceAt, cell: (row) => html`<${Age} at=${row.sinceAt} />`,
    },
    HEALTH,
    { id: "node", title: "Node", width: "0", isHidden: true, text: (row) => row.node ?? "", value: (row) => row.node },
    { id: "owner", title: "Owner", width: "0", isHidden: true, text: (row) => row.owner ?? "", value: (row) => row.owner },
  ],
  events: [
    {
      id: "last", title: "Last", width: "4.75rem", noFilter: true, text: (row) => isoTime(row.lastAt),
      value: (row) => -row.lastAt, cell: (row) => html`<${Age} at=${row.lastAt} />`,
    },
    {
      id: "reason", title: "Reason", width: "minmax(8rem, 1fr)", text: (row) => row.reason ?? "", value: (row) => row.reason,
      isMain: true,
    },
    {
      id: "object", title: "Object", width: "minmax(9rem, 1.6fr)", text: (row) => row.object ?? "",
      value: (row) => row.object, cell: (row) => Name({ text: row.object ?? "" }),
    },
    NAMESPACE,
    {
      id: "count", title: "Count", width: "7.5rem", align: "end", noFilter: true, largestFirst: true,
      text: (row) => `${row.count}`, value: (row) => row.count,
      cell: (row) => html`${row.count}${row.lastAt - row.firstAt >= 60
        && html` <span class="muted">in ${duration(row.lastAt - row.firstAt)}</span>`}`,
    },
    {
      id: "message", title: "Message", width: "minmax(10rem, 2.6fr)", least: 900, text: (row) => row.message ?? "",
      value: (row) => row.message, cell: (row) => html`<span class="muted" title=${row.message}>${row.message}</span>`,
    },
  ],
};

/**
 * Return a row for a narrow screen.
 *
 * @param {any} row
 * @param {string} href
 * @param {boolean} [hasCluster] whether the list has several clusters
 */
export function narrowObject(row, href, hasCluster = false) {
  const where = [hasCluster && row.cluster, row.namespace, row.kind !== "Event" && row.kind].filter(Boolean).join(" · ");
  if (row.kind === "Event") {
    return html`
      <span class="narrow__main">
        <a class="row-link" href=${href} tabindex="-1">${Name({ text: row.object ?? "" })}</a>
        <span class="muted"><${Age} at=${row.lastAt} /></span>
      </span>
      <span class="narrow__more"><span class="muted">${row.reason} ×${row.count} · ${where}</span></span>`;
  }
  return html`
    <span class="narrow__main">
      <a class="row-link" href=${href} tabindex="-1">${Name({ text: row.name })}</a>
      <${StateBadge} state=${stateOf(row)} health=${row.health} />
    </span>
    <span class="narrow__more">
      <span class="muted">${where}${row.reason ? ` · ${row.reason}` : ""}</span>
      <span class="muted">${row.sinceAt ? html`<${Age} at=${row.sinceAt} />` : readyText(row)}</span>
    </span>`;
}

/**
 * Return the name of a row in the URL.
 *
 * @param {any} row
 * @param {boolean} [hasCluster]
 */
export function openName(row, hasCluster = false) {
  const path = row.kind === "Event"
    ? [row.objectKind, row.namespace, row.objectName, row.reason] : [row.kind, row.namespace, row.name];
  return [...(hasCluster ? [row.cluster] : []), ...path].join("/");
}
