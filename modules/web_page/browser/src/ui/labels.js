/** Labels of objects as chips, which filter by their value. */

import { quoted } from "../lib/filter.js";
import { withParams, here } from "../route.js";
import { html } from "./html.js";

/**
 * @param {{labels: Record<string, string>, most?: number, tab?: number}} props
 */
export function Labels({ labels, most = 99, tab }) {
  const all = Object.entries(labels);
  if (!all.length) return null;
  const shown = all.slice(0, most);
  const rest = all.length - shown.length;
  return html`
    <span class="labels">
      ${shown.map(([key, value]) => html`
        <a class="chip" key=${key} tabindex=${tab} href=${addTerm(`${key}=${quoted(value)}`)} title=${`${key}=${value}`}>
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
 */
export function addTerm(term) {
  const filter = here.value.params.get("q") ?? "";
  const terms = filter.split(" ").filter(Boolean);
  return withParams({ q: terms.includes(term) ? filter : [...terms, term].join(" "), open: null });
}

/** @param {string} key */
function shortKey(key) {
  return key.slice(key.lastIndexOf("/") + 1);
}
