/** Applications by cluster, with versions that differ from those of most clusters. */

import { BASE, address } from "../route.js";
import { StateBadge } from "../ui/badge.js";
import { ExportButton } from "../ui/export_button.js";
import { FilterBar } from "../ui/filter_bar.js";
import { html, useMemo, useState } from "../ui/html.js";
import { NoHits } from "../ui/states.js";
import { useRows } from "../ui/rows.js";

/** Applications and clusters that are shown before the user asks for more. */
const ROWS = 100;
const CLUSTERS = 25;

/**
 * @param {{rows: readonly any[], columns: readonly import("../ui/table.js").Column[], tools: any, empty: any}} props
 */
export function ApplicationMatrix({ rows, columns, tools, empty }) {
  const { found, terms } = useRows(rows, columns, "name");
  const [most, setMost] = useState(ROWS);
  const { clusters, lines } = useMemo(() => matrixOf(found), [found]);
  const shown = clusters.slice(0, CLUSTERS);
  return html`
    <section class="list" aria-label="applications by cluster">
      <${FilterBar} columns=${columns} rows=${rows} hits=${found.length} total=${rows.length} noun="applications"
        example="name~api cluster=berlin,paris">
        ${tools}<${ExportButton} name="applications" columns=${columns} rows=${found} />
      <//>
      ${found.length === 0 && (terms.length
    ? html`<${NoHits} terms=${terms} columns=${columns} rows=${rows} noun="applications" />` : empty)}
      ${found.length > 0 && html`
        ${clusters.length > CLUSTERS && html`
          <p class="matrix-note muted">The first ${CLUSTERS} of ${clusters.length} clusters; others: <code>cluster=</code>.</p>`}
        <div class="matrix-frame" role="region" aria-label="versions by cluster" tabindex="0">
          <table class="matrix">
            <thead><tr><th scope="col">Application</th>${shown.map((one) => html`<th key=${one} scope="col">${one}</th>`)}</tr></thead>
            <tbody>
              ${lines.slice(0, most).map((line) => html`
                <tr key=${line.key}><th scope="row" title=${line.key}>${line.name} <span class="muted">${line.namespace}</span></th>
                  ${shown.map((cluster) => html`<${Cell} key=${cluster} row=${line.cells.get(cluster)} counts=${line.counts} />`)}</tr>`)}
            </tbody>
          </table>
        </div>
        ${lines.length > most && html`<p class="matrix-note"><button type="button" class="button"
          onClick=${() => setMost(most + ROWS)}>${Math.min(ROWS, lines.length - most)} more of ${lines.length}</button></p>`}`}
    </section>`;
}

/** @param {{row: any, counts: Map<string, number>}} props */
function Cell({ row, counts }) {
  if (!row) return html`<td><span class="muted" aria-label="not there">–</span></td>`;
  const most = Math.max(...counts.values());
  const usual = [...counts].filter(([, count]) => count === most);
  const isDifferent = counts.size > 1 && (usual.length > 1 || row.version !== usual[0][0]);
  const href = address(`${BASE}/applications`, { open: [row.cluster, row.namespace, row.name].join("/") });
  return html`
    <td class=${isDifferent ? "differs" : ""}>
      <a class="cell-link" href=${href}>${row.version || "no version"}
        ${row.health && row.health !== "current" && html`<${StateBadge} state=${row.health} />`}
        ${isDifferent && html`<span class="muted">differs</span>`}</a>
    </td>`;
}

/** @param {readonly any[]} rows */
function matrixOf(rows) {
  const clusters = [...new Set(rows.map((one) => one.cluster))].sort();
  /** @type {Map<string, {key: string, name: string, namespace: string, cells: Map<string, any>, counts: Map<string, number>}>} */
  const lines = new Map();
  for (const row of rows) {
    const key = `${row.name} in ${row.namespace}`;
    let line = lines.get(key);
    if (!line) {
      line = { key, name: row.name, namespace: row.namespace, cells: new Map(), counts: new Map() };
      lines.set(key, line);
    }
    line.cells.set(row.cluster, row);
    line.counts.set(row.version, (line.counts.get(row.version) ?? 0) + 1);
  }
  return { clusters, lines: [...lines.values()] };
}
