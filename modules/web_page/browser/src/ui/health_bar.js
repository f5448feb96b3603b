/** Health of many objects as a bar of shares; each share is a link to its rows. */

import { html } from "./html.js";

/** The worst first. @type {[import("../lib/health.js").Level, string][]} */
const SHARES = [["bad", "failed"], ["progress", "in progress"], ["ok", "current"]];

/**
 * @param {{shares: import("../lib/health.js").Shares | null, name: string, isOld?: boolean, tab?: number,
 *   linkTo: (health: string) => string}} props
 */
export function HealthBar({ shares, name, isOld = false, tab, linkTo }) {
  if (!shares) return html`<span class="muted">–</span>`;
  if (!shares.total) return html`<span class="bar bar--empty" title="no workloads"></span>`;
  const present = SHARES.filter(([level]) => shares[level]);
  // A link is larger than a small share, because it must be large enough for a finger.
  return html`
    <span class=${`bar ${isOld ? "bar--old" : ""}`}>
      ${present.map(([level]) => html`<span class=${`bar__share bar__share--${level}`} key=${level}
        style=${{ flexGrow: shares[level] }}></span>`)}
      <span class="bar__links">${present.map(([level, health]) => html`
        <a class="bar__link" key=${level} href=${linkTo(health)} tabindex=${tab} style=${{ flexGrow: shares[level] }}
          aria-label=${`${name}: ${shares[level]} of ${shares.total} ${health}`}
          title=${`${shares[level]} of ${shares.total} ${health}`}></a>`)}</span>
    </span>`;
}
