/** Labels of objects as chips, which filter by their value. */

import { quoted } from "../lib/filter.js";
import { address, BASE, here, withParams } from "../route.js";
import { html } from "./html.js";

/**
 * @param {{labels: Record<string, string>, most?: number, tab?: number, inFleet?: boolean}} props inFleet: the links
 *   lead to the clusters with the label
 */
export function Labels({ labels, most = 99, tab, inFleet = false }) {
  const all = Object.entries(labels);
  if (!all.length) return null;
  const shown = all.slice(0, most);
  const rest = all.length - shown.length;
  return html`
    <span class="labels">
      ${shown.map(([key, value]) => html`
        <a class="chip" key=${key} tabindex=${tab}
          href=${addTerm(`${key}=${quoted(value)}`, inFleet)} title=${`${key}=${value}`}>
          <span class="chip__key">${shortKey(key)}</span>${value || "\"\""}
        </a>`)}
      ${rest > 0 && html`<span class="chip chip--more" title=${all.slice(most).map(([key, value]) => `${key}=${value}`)
    .join("\n")}>+${rest}</span>`}
    </span>`;
}

/**
 * Return the address of the same page with one more term in its filter.
 *
 * @param {string} term
 * @param {boolean} inFleet
 */
function addTerm(term, inFleet) {
  if (inFleet) return address(`${BASE}/fleet`, { q: term });
  const filter = here.value.params.get("q") ?? "";
  const terms = filter.split(" ").filter(Boolean);
  return withParams({ q: terms.includes(term) ? filter : [...terms, term].join(" "), open: null });
}

/** @param {string} key */
function shortKey(key) {
  return key.slice(key.lastIndexOf("/") + 1);
}
