/** Health of many objects as a bar of shares; each share is a link to its rows. */

import { html } from "./html.js";

/** The worst first. @type {[import("../lib/health.js").Level, string][]} */
const SHARES = [["bad", "failed"], ["progress", "in progress"], ["ok", "current"]];

/** Permille that a share has at least, so that one broken object of ten thousand is visible. */
const LEAST = 40;

/**
 * @param {{shares: import("../lib/health.js").Shares | null, name: string, isOld?: boolean, tab?: number,
 *   linkTo: (health: string) => string}} props
 */
export function HealthBar({ shares, name, isOld = false, tab, linkTo }) {
  if (!shares) return html`<span class="muted">–</span>`;
  if (!shares.total) return html`<span class="bar bar--empty" title="no workloads"></span>`;
  return html`
    <span class=${`bar ${isOld ? "bar--old" : ""}`}>
      ${SHARES.filter(([level]) => shares[level]).map(([level, health]) => html`
        <a class=${`bar__share bar__share--${level}`} key=${level} href=${linkTo(health)} tabindex=${tab}
          style=${{ flexGrow: Math.max(LEAST, Math.round((1000 * shares[level]) / shares.total)) }}
          aria-label=${`${name}: ${shares[level]} of ${shares.total} ${health}`}
          title=${`${shares[level]} of ${shares.total} ${health}`}></a>`)}
    </span>`;
}
