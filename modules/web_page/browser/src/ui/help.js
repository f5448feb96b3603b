/** All keys. */

import { Dialog } from "./dialog.js";
import { html } from "./html.js";
import { dialog, PLACES } from "./shortcuts.js";

/** @type {[string, string[][]][]} */
const KEYS = [
  ["Anywhere", [["Ctrl K", "commands, clusters and objects"], ["?", "this list"],
    ...PLACES.map(([key, title]) => [`g ${key}`, title.toLowerCase()])]],
  ["In a list", [["/", "filter"], ["j k", "next and previous row"], ["↓ ↑", "the same, in the table"],
    ["Enter", "open the row"], ["Home End", "first and last row"]]],
  ["In the filter", [["Space", "finish a term"], ["↓ Enter", "take a completion"],
    ["Backspace", "edit the last term"], ["Esc", "leave"]]],
  ["In the side panel", [["j k", "next and previous object"], ["Esc", "close"]]],
];

export function Help() {
  return html`
    <${Dialog} label="Keys" class="help" onClose=${() => { dialog.value = ""; }}>
      <h2>Keys</h2>
      <div class="help__groups" tabindex="0" role="group" aria-label="keys">
        ${KEYS.map(([title, keys]) => html`
          <section key=${title}>
            <h3>${title}</h3>
            <dl class="keys">${keys.map(([key, meaning]) => html`
              <div key=${meaning}><dt>${key.split(" ").map((one) => html`<kbd>${one}</kbd>`)}</dt><dd>${meaning}</dd></div>`)}
            </dl>
          </section>`)}
      </div>
      <h3>Filters</h3>
      <p>All terms must match. Keys are columns and labels.</p>
      <dl class="keys">
        <div><dt><code>env=prod,test</code></dt><dd>one of these values</dd></div>
        <div><dt><code>state!=live</code></dt><dd>another value</dd></div>
        <div><dt><code>name~api</code> <code>name!~api</code></dt><dd>contains, does not contain</dd></div>
        <div><dt><code>nodes>3</code></dt><dd>a larger number</dd></div>
        <div><dt><code>web</code> <code>-web</code></dt><dd>any column contains, none contains</dd></div>
      </dl>
    <//>`;
}
