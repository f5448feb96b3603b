/** The user, and the settings of this browser. */

import { signal } from "@preact/signals";

import { boot } from "../boot.js";
import { signOut } from "../live/session.js";
import { density, shortcuts, theme, zone } from "../preferences.js";
import { html } from "./html.js";
import { Icon } from "./icon.js";
import { dialog } from "./shortcuts.js";

/**
 * @param {{legend: string, name: string, options: [string, string][], chosen: {value: string}}} props
 */
function Choice({ legend, name, options, chosen }) {
  return html`
    <fieldset class="choice">
      <legend>${legend}</legend>
      <div class="choice__options">
        ${options.map(([value, title]) => html`
          <label key=${value}><input type="radio" name=${name} checked=${chosen.value === value}
            onChange=${() => { chosen.value = value; }} /><span>${title}</span></label>`)}
      </div>
    </fieldset>`;
}

/** Why kas has not ended the session. */
const refusal = signal("");

export function UserMenu() {
  return html`
    <button type="button" class="nav__item user-button" popovertarget="user-menu" title="settings and user">
      <${Icon} name="circleUser" /><span class="nav__text">${boot.user.name || "user"}</span>
    </button>
    <div id="user-menu" class="user-menu" popover="auto" role="dialog" aria-label="settings and user">
      <p class="user-menu__who"><strong>${boot.user.name}</strong><span class="muted">signed in with ${
        boot.user.method === "oidc" ? "single sign-on" : "a token"}</span></p>
      <${Choice} legend="Theme" name="theme" chosen=${theme}
        options=${[["system", "System"], ["light", "Light"], ["dark", "Dark"]]} />
      <${Choice} legend="Density" name="density" chosen=${density}
        options=${[["comfortable", "Comfortable"], ["compact", "Compact"]]} />
      <${Choice} legend="Times" name="zone" chosen=${zone} options=${[["", "Local"], ["UTC", "UTC"]]} />
      <label class="switch"><input type="checkbox" checked=${shortcuts.value}
        onChange=${(/** @type {any} */ event) => { shortcuts.value = event.target.checked; }} /> Single-key shortcuts</label>
      <div class="user-menu__buttons">
        <button type="button" class="button" popovertarget="user-menu" popovertargetaction="hide"
          onClick=${() => { dialog.value = "help"; }}>Keys</button>
        <button type="button" class="button" onClick=${async () => { refusal.value = await signOut(); }}>Sign out</button>
      </div>
      ${refusal.value && html`<p class="notice notice--error" role="alert">Not signed out: ${refusal.value}</p>`}
    </div>`;
}
