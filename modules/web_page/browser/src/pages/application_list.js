/** Applications: a row for each, or a matrix with a column for each cluster. */

import { getJson } from "../live/rest.js";
import { useResource } from "../live/resource.js";
import { here, withParams } from "../route.js";
import { StateBadge } from "../ui/badge.js";
import { html, useMemo } from "../ui/html.js";
import { Icon } from "../ui/icon.js";
import { Name } from "../ui/name.js";
import { Empty, Failed, Incomplete, Loading } from "../ui/states.js";
import { ApplicationMatrix } from "./application_matrix.js";
import { ApplicationPanel } from "./application_panel.js";
import { ObjectList } from "./object_list.js";
import { CLUSTER } from "./view_columns.js";

/** @type {Record<string, number>} */
const RANKS = { failed: 3, "in progress": 2, terminating: 1, current: 0 };

/** @param {any} row */
const pods = (row) => row.workloads.reduce(
  (/** @type {number[]} */ sum, /** @type {any} */ one) => [sum[0] + one.ready, sum[1] + one.wanted], [0, 0]);

/** @type {readonly import("../ui/table.js").Column[]} */
const COLUMNS = [
  {
    id: "health", title: "Health", width: "7.5rem", text: (row) => row.health || "unknown", largestFirst: true,
    value: (row) => RANKS[row.health] ?? -1,
    cell: (row) => (row.health ? StateBadge({ state: row.health }) : html`<span class="muted">no workloads</span>`),
  },
  {
    id: "name", title: "Name", width: "minmax(9rem, 2fr)", text: (row) => row.name, value: (row) => row.name, isMain: true,
    cell: (row) => Name({ text: row.name }),
  },
  {
    id: "namespace", title: "Namespace", width: "minmax(6rem, 1fr)", text: (row) => row.namespace,
    value: (row) => row.namespace,
  },
  {
    id: "version", title: "Version", width: "minmax(5rem, 1fr)", text: (row) => row.version, value: (row) => row.version,
  },
  {
    id: "source", title: "Source", width: "6rem", least: 820, text: (row) => row.source, value: (row) => row.source,
  },
  {
    id: "pods", title: "Pods", width: "5rem", align: "end", noFilter: true, least: 700,
    text: (row) => pods(row).join("/"), value: (row) => pods(row)[1], largestFirst: true,
  },
  {
    id: "image", title: "Images", width: "minmax(8rem, 2fr)", least: 1100, text: (row) => row.images.join(" "),
    value: (row) => row.images[0],
    cell: (row) => html`<span class="muted" title=${row.images.join("\n")}>${row.images[0] ?? ""}</span>`,
  },
];
const WITH_CLUSTER = [COLUMNS[0], COLUMNS[1], CLUSTER, ...COLUMNS.slice(2)];

/** @param {{clusters: readonly string[]}} props */
export function ApplicationList({ clusters }) {
  const names = clusters.join(",");
  const isFleet = clusters.length !== 1 || names === "*";
  const resource = useResource(`applications ${names}`, (abort) => getJson("/api/v1/applications", { clusters: names }, abort));
  const { data, error, since, retryAt } = resource.state.value;
  const rows = useMemo(() => (data?.items ?? []).map((/** @type {any} */ one) => ({
    ...one, key: [one.cluster, one.namespace, one.name, one.declarations.length > 0].join("/"),
    // The labels of a filter: the owners of an application look for it by these words.
    labels: { source: one.source },
  })), [data]);
  const isMatrix = isFleet && here.value.params.get("view") === "matrix";
  const named = (/** @type {any} */ row) => [...(isFleet ? [row.cluster] : []), row.namespace, row.name].join("/");

  if (!data && error) {
    return html`<${Failed} what="applications" status=${error.status} message=${error.message} since=${since}
      retryAt=${retryAt} retry=${() => resource.reload()} />`;
  }
  if (!data) return html`<${Loading} label="loading applications" />`;
  const empty = html`
    <${Empty} icon="boxes" title="No applications">
      <p>Workloads with labels such as <code>app.kubernetes.io/name</code>, and objects of app.k8s.io, Argo CD and Flux,
      appear here.</p>
    <//>`;
  const tools = isFleet && html`
    <span class="segmented" role="group" aria-label="view">
      <a href=${withParams({ view: null })} aria-current=${isMatrix ? null : "true"} aria-label="list" title="list">
        <${Icon} name="list" /></a>
      <a href=${withParams({ view: "matrix", open: null })} aria-current=${isMatrix ? "true" : null} aria-label="matrix"
        title="matrix: a column for each cluster"><${Icon} name="table" /></a>
    </span>`;
  return html`
    <${Incomplete} incomplete=${data.clusters.incomplete} missingKas=${data.missingKas} isCut=${data.cut} />
    ${error && html`<div class="notice notice--warning">The rows are old: ${error.message}</div>`}
    ${isMatrix
    ? html`<${ApplicationMatrix} rows=${rows} columns=${WITH_CLUSTER} tools=${tools} empty=${empty} />`
    : html`<${ObjectList} noun="applications" example="health!=current" columns=${isFleet ? WITH_CLUSTER : COLUMNS} rows=${rows}
        order="-health" hasCluster=${isFleet} nameOf=${named} tools=${tools} empty=${empty} narrow=${narrow(isFleet)}
        panel=${(/** @type {any} */ row) => html`<${ApplicationPanel} row=${row} />`} />`}`;
}

/** @param {boolean} isFleet */
const narrow = (isFleet) => (/** @type {any} */ row, /** @type {number} */ _, /** @type {string} */ href) => html`
  <span class="narrow__main">
    <a class="row-link" href=${href} tabindex="-1">${Name({ text: row.name })}</a>
    ${row.health && StateBadge({ state: row.health })}
  </span>
  <span class="narrow__more"><span class="muted">${[isFleet && row.cluster, row.namespace, row.version].filter(Boolean)
    .join(" · ")}</span><span class="muted">${pods(row).join("/")}</span></span>`;
