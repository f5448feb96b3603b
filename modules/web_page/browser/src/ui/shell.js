/** The frame of all pages: navigation, banners and the footer. */

import { boot } from "../boot.js";
import { now, second } from "../clock.js";
import { duration } from "../lib/times.js";
import { connection, heard } from "../live/cable.js";
import { totals } from "../live/fleet.js";
import { signedOut, signInAddress } from "../live/session.js";
import { pinned, recent, zone } from "../preferences.js";
import { BASE, clusterAddress, here } from "../route.js";
import { newBuild } from "../upgrade.js";
import { Announcer } from "./announce.js";
import { html } from "./html.js";
import { Icon } from "./icon.js";
import { dialog } from "./shortcuts.js";
import { UserMenu } from "./user_menu.js";

/** Seconds without a connection after which the page says so. */
const LOST = 5;

/** Seconds without a change after which the footer says so. */
const QUIET = 120;

/** @type {[string, string, import("./icon.js").IconName][]} */
const PAGES = [
  ["fleet", "Fleet", "server"], ["problems", "Problems", "triangleAlert"], ["events", "Events", "bell"],
  ["applications", "Applications", "boxes"],
];

function Navigation() {
  const { path } = here.value;
  const section = path === BASE ? "fleet" : path.slice(BASE.length + 1);
  const { problems } = totals.value;
  const known = [...new Set([...pinned.value, ...recent.value])].slice(0, 10);
  return html`
    <nav class="nav" aria-label="pages">
      <a class="nav__brand" href=${`${BASE}/fleet`}><${Logo} /><span>kas</span></a>
      <button type="button" class="nav__search" onClick=${() => { dialog.value = "palette"; }}>
        <${Icon} name="search" /><span class="nav__text">Go to…</span><kbd>Ctrl K</kbd>
      </button>
      <ul class="nav__list">
        ${PAGES.map(([id, title, icon]) => html`
          <li key=${id}><a class="nav__item" href=${`${BASE}/${id}`} aria-current=${section === id ? "page" : null}>
            <${Icon} name=${icon} /><span class="nav__text">${title}</span>
            ${id === "problems" && problems > 0 && html`<span class="nav__count">${problems > 999 ? "999+" : problems}</span>`}
          </a></li>`)}
        ${boot.parts.map((one) => html`
          <li key=${one.name}><a class="nav__item" href=${one.path} aria-current=${path === one.path ? "page" : null}>
            <${Icon} name="layers" /><span class="nav__text">${one.title}</span></a></li>`)}
      </ul>
      ${known.length > 0 && html`
        <div class="nav__known">
          <h2>${pinned.value.length ? "Pinned and recent" : "Recent"}</h2>
          <ul class="nav__list">${known.map((name) => html`
            <li key=${name}><a class="nav__item nav__item--small" href=${clusterAddress(name)} title=${name}
              aria-current=${path.startsWith(clusterAddress(name)) ? "true" : null}>
              <${Icon} name=${pinned.value.includes(name) ? "pin" : "clock"} size=${14} /><span class="nav__text">${name}</span>
            </a></li>`)}
          </ul>
        </div>`}
      <div class="nav__end"><${UserMenu} /></div>
    </nav>`;
}

function Logo() {
  return html`
    <svg class="logo" width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
      <path d="M4 2v16M4 11.5 14.5 2M8.5 8 16 18" />
    </svg>`;
}

/** One banner for each cause; the page below goes on. */
function Banners() {
  if (signedOut.value) {
    return html`<div class="banner" role="alert"><span>You are signed out. The rows below do not change any more.</span>
      <a class="button" href=${signInAddress()}>Sign in</a></div>`;
  }
  return null;
}

function Footer() {
  void second.value;
  const { state, since } = connection.value;
  const away = now() - since;
  const isLost = !signedOut.value && state !== "open" && away > LOST;
  const age = now() - heard.value;
  const rows = heard.value ? `data of ${duration(age)} ago` : "no data yet";
  return html`
    <footer class="footer">
      <span>kas ${boot.version}</span>
      <span class=${isLost ? "footer__lost" : ""}>${isLost
    ? `no connection to kas for ${duration(away)}, reconnecting; ${rows}`
    : state === "open" ? `live${heard.value && age > QUIET ? `, last change ${duration(age)} ago` : ""}` : "connecting"}</span>
      <span>${zone.value || Intl.DateTimeFormat().resolvedOptions().timeZone}</span>
      ${newBuild.value && html`<button type="button" class="button button--quiet" onClick=${() => location.reload()}>
        kas was upgraded: reload</button>`}
    </footer>`;
}

/** @param {{children?: any}} props */
export function Shell({ children }) {
  return html`
    <a class="skip" href="#main">Skip to content</a>
    <div class="shell">
      <${Navigation} />
      <div class="shell__page">
        <${Banners} />
        <main id="main" class="main" tabindex="-1">${children}</main>
        <${Footer} />
      </div>
    </div>
    <${Announcer} />`;
}
