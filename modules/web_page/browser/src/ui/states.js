/** Everything that a list can say instead of rows: loading, empty, partial, denied, and errors. */

import { now, second } from "../clock.js";
import { blame } from "../lib/filter.js";
import { duration } from "../lib/times.js";
import { getJson } from "../live/rest.js";
import { go, withParams } from "../route.js";
import { Age } from "./age.js";
import { Command } from "./copy.js";
import { html, useEffect, useState } from "./html.js";
import { Icon } from "./icon.js";

/** Rows without content, which appear only if loading takes longer than most answers. */
export function Loading({ label = "loading", rows = 8 }) {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 200);
    return () => clearTimeout(timer);
  }, []);
  return html`
    <div class="skeleton" role="status" aria-label=${label}>
      ${isLate && Array.from({ length: rows }, (_, index) => html`<div class="skeleton__row" key=${index}></div>`)}
    </div>`;
}

/**
 * @param {{icon?: import("./icon.js").IconName, title: string, children?: any}} props
 */
export function Empty({ icon = "circleCheck", title, children }) {
  return html`
    <div class="empty">
      <${Icon} name=${icon} size=${28} class="empty__icon" />
      <h2 class="empty__title">${title}</h2>
      ${children}
    </div>`;
}

/**
 * Nothing matches the filter: say which term hides the rows.
 *
 * @param {{terms: readonly import("../lib/filter.js").Term[], columns: readonly any[], rows: readonly any[], noun: string}}
 *   props
 */
export function NoHits({ terms, columns, rows, noun }) {
  const hiding = blame(terms, columns, rows);
  const sources = terms.map((one) => one.source);
  return html`
    <${Empty} icon="search" title=${`No ${noun} match this filter`}>
      ${hiding.slice(0, 3).map(({ term, hidden }) => html`
        <p key=${term.source}>${hidden} hidden by <span class="chip">${term.source}</span>${" "}
          <a href=${withParams({ q: sources.filter((one) => one !== term.source).join(" ") })}>remove</a></p>`)}
      <p><button type="button" class="button" onClick=${() => go(withParams({ q: null }))}>Clear filter</button></p>
    <//>`;
}

/**
 * Nothing is visible because the user has no right to list it.
 *
 * @param {{cluster: string, resources: readonly string[]}} props
 */
export function Denied({ cluster, resources }) {
  const [why, setWhy] = useState("");
  useEffect(() => {
    getJson("/api/v1/clusters", { clusters: cluster }).then((found) => setWhy(found.clusters[0]?.reason ?? ""),
      () => undefined);
  }, [cluster]);
  if (why) return html`<${Empty} icon="triangleAlert" title=${`kas cannot check your rights in ${cluster}`}><p>${why}</p><//>`;
  return html`
    <${Empty} icon="ban" title=${`You may not list ${resources.join(", ")} in all namespaces of ${cluster}`}>
      <p>Objects of namespaces where you may list them appear here. To check a right in this cluster:</p>
      ${resources.slice(0, 3).map((one) => html`
        <${Command} key=${one} text=${`kubectl auth can-i list ${one} --all-namespaces`} />`)}
    <//>`;
}

/**
 * A request or a subscription failed.
 *
 * @param {{what: string, status: number, message: string, since: number, retryAt?: number, retry: () => void}} props
 */
export function Failed({ what, status, message, since, retryAt = 0, retry }) {
  void second.value;
  const left = retryAt - now();
  const sides = /** @type {Record<number, string>} */ (
    { [-1]: "error in this browser", 0: "no response from kas", 403: "refused by kas" });
  const side = sides[status] ?? `error of kas (${status})`;
  return html`
    <${Empty} icon=${status === 403 ? "ban" : "triangleAlert"} title=${`${what}: ${side}`}>
      <p>${message}</p>
      <p class="muted">for <${Age} at=${since} />${left > 0 && `, next attempt in ${duration(left)}`}</p>
      <p><button type="button" class="button" onClick=${retry}>Retry now</button></p>
    <//>`;
}

/** Reasons for rows that are missing, if kas gives none. @type {Record<string, string>} */
const WHY = { live: "its rows are not available", never: "it has never sent data", denied: "you have no access to it" };

/**
 * Clusters whose rows are missing or old, in one line that opens.
 *
 * @param {{incomplete: readonly {name: string, state: string, reason?: string, lastSeen?: number | null}[],
 *   missingKas?: number, isCut?: boolean}} props
 */
export function Incomplete({ incomplete, missingKas = 0, isCut = false }) {
  if (!incomplete.length && !missingKas && !isCut) return null;
  /** @type {string[]} */
  const parts = [];
  if (incomplete.length) {
    parts.push(incomplete.length === 1 ? `${incomplete[0].name}: ${incomplete[0].reason || WHY[incomplete[0].state] || incomplete[0].state}`
      : `${incomplete.length} clusters are incomplete`);
  }
  if (missingKas) parts.push(`${missingKas} kas did not respond`);
  if (isCut) parts.push("there are more rows than this list can have: filter by namespace");
  return html`
    <details class="notice notice--warning">
      <summary><${Icon} name="triangleAlert" /> <span>${parts.join("; ")}</span></summary>
      <ul class="incomplete">
        ${incomplete.slice(0, 100).map((one) => html`
          <li key=${one.name}><strong>${one.name}</strong> ${one.state}${one.reason ? `: ${one.reason}` : ""}
            ${one.lastSeen ? html`, last data <${Age} at=${one.lastSeen} suffix=" ago" />` : ""}</li>`)}
        ${incomplete.length > 100 && html`<li>and ${incomplete.length - 100} more</li>`}
      </ul>
    </details>`;
}
