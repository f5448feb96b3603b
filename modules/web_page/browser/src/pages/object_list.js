/** A table of objects with its filter, namespaces and side panel; the tabs of clusters and the pages of the fleet use it. */

import { go, here, withParams } from "../route.js";
import { ExportButton } from "../ui/export_button.js";
import { FilterBar } from "../ui/filter_bar.js";
import { html, useMemo } from "../ui/html.js";
import { Icon } from "../ui/icon.js";
import { Panel } from "../ui/panel.js";
import { NoHits } from "../ui/states.js";
import { useRows } from "../ui/rows.js";
import { Table } from "../ui/table.js";
import { narrowObject, openName } from "./view_columns.js";

/**
 * @param {{noun: string, columns: readonly import("../ui/table.js").Column[], rows: readonly any[], order: string,
 *   hidden?: readonly import("../ui/table.js").Column[], hasCluster?: boolean, panel: (row: any) => any, empty: any,
 *   example: string,
 *   nameOf?: (row: any) => string, narrow?: (row: any, tab: number, href: string) => any, tools?: any}} props
 */
export function ObjectList({
  noun, columns, rows, order, hidden, hasCluster = false, panel, empty, example, nameOf, narrow, tools,
}) {
  const { params } = here.value;
  const open = params.get("open") ?? "";
  const chosen = params.get("ns") ?? "";
  const named = nameOf ?? ((/** @type {any} */ row) => openName(row, hasCluster));
  const scoped = useMemo(() => {
    if (!chosen) return rows;
    const names = new Set(chosen.split(","));
    return rows.filter((one) => names.has(one.namespace));
  }, [rows, chosen]);
  const { found, items, sort, terms, query } = useRows(scoped, columns, order, hidden);
  const row = open ? rows.find((one) => named(one) === open) : null;

  const list = html`
    <section class="list" aria-label=${noun}>
      <${FilterBar} columns=${columns} rows=${scoped} hits=${found.length} total=${scoped.length} noun=${noun}
        example=${example}>
        ${tools}
        <${Namespaces} rows=${rows} chosen=${chosen} />
        <${ExportButton} name=${noun} columns=${columns} rows=${found} />
      <//>
      ${found.length > 0 && html`
        <${Table} label=${noun} columns=${columns} items=${items} sort=${sort} query=${query}
          link=${(/** @type {any} */ one) => withParams({ open: named(one) })} openKey=${row?.key ?? ""}
          rowTitle=${(/** @type {any} */ one) => ({
    title: one.name || one.object, detail: [one.kind, one.namespace, hasCluster && one.cluster].filter(Boolean).join(" "),
  })}
          narrow=${narrow ?? ((/** @type {any} */ one, /** @type {number} */ _, /** @type {string} */ href) =>
    narrowObject(one, href, hasCluster))} />`}
      ${!found.length && (terms.length || (chosen && rows.length)
    ? html`<${NoHits} terms=${terms} columns=${columns} rows=${scoped} noun=${noun} />` : empty)}
    </section>`;
  // The list stays the same element, so that its rows keep their focus and their order.
  return html`
    <div class=${open ? "with-panel" : "without-panel"}>
      ${list}
      ${open && (row ? panel(row) : html`
        <${Panel} title=${open.split("/").filter(Boolean).pop() ?? ""} kind="">
          <section class="panel__section"><p>This object is gone, or you may not see it.</p></section><//>`)}
    </div>`;
}

/** @param {{rows: readonly any[], chosen: string}} props */
function Namespaces({ rows, chosen }) {
  const names = useMemo(() => {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const one of rows) if (one.namespace) counts.set(one.namespace, (counts.get(one.namespace) ?? 0) + 1);
    return [...counts].sort(([left], [right]) => (left < right ? -1 : 1));
  }, [rows]);
  const set = new Set(chosen.split(",").filter(Boolean));
  if (names.length < 2 && !set.size) return null;
  /**
   * @param {string} name
   * @param {boolean} isChosen
   */
  function choose(name, isChosen) {
    const next = new Set(set);
    if (isChosen) next.add(name);
    else next.delete(name);
    go(withParams({ ns: [...next].sort().join(",") || null }));
  }
  const label = set.size === 0 ? "All namespaces" : set.size === 1 ? [...set][0] : `${set.size} namespaces`;
  return html`
    <details class="namespaces" onKeyDown=${(/** @type {any} */ event) => {
    if (event.key !== "Escape" || !event.currentTarget.open) return;
    event.stopPropagation();
    event.currentTarget.open = false;
    event.currentTarget.querySelector("summary").focus();
  }} onFocusOut=${(/** @type {any} */ event) => {
    if (event.relatedTarget && !event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false;
  }}>
      <summary class="button" aria-label=${`namespaces: ${label}`}>
        <span class="namespaces__label">${label}</span><${Icon} name="chevronDown" size=${14} /></summary>
      <div class="namespaces__list" role="group" aria-label="namespaces">
        ${set.size > 0 && html`<button type="button" class="button button--quiet" onClick=${() => go(withParams({ ns: null }))}>
          All namespaces</button>`}
        ${names.map(([name, count]) => html`
          <label key=${name}><input type="checkbox" checked=${set.has(name)}
            onChange=${(/** @type {any} */ event) => choose(name, event.target.checked)} />${name}
            <span class="muted">${count}</span></label>`)}
      </div>
    </details>`;
}
