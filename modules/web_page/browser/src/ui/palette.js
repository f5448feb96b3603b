/** The command palette: pages, clusters, objects of the list, and actions. */

import { clusters } from "../live/fleet.js";
import { signOut } from "../live/session.js";
import { density, recent, shortcuts, theme, zone } from "../preferences.js";
import { clusterAddress, go } from "../route.js";
import { boot } from "../boot.js";
import { currentList } from "./current_list.js";
import { Dialog } from "./dialog.js";
import { classes, html, useMemo, useRef, useState } from "./html.js";
import { dialog, PLACES } from "./shortcuts.js";

/** @typedef {{kind: string, title: string, detail?: string, run: () => void}} Command */

/** Maximum number of commands that are shown. */
const MOST = 50;

/** @returns {Command[]} */
function actions() {
  const to = (/** @type {string} */ href) => () => go(href);
  return [
    ...PLACES.map(([key, title, href]) => ({ kind: "Page", title, detail: `g ${key}`, run: to(href) })),
    ...boot.parts.map((one) => ({ kind: "Page", title: one.title, run: to(one.path) })),
    ...["light", "dark", "system"].filter((one) => one !== theme.value).map((one) => ({
      kind: "Action", title: `Theme: ${one}`, run: () => { theme.value = one; },
    })),
    density.value === "compact"
      ? { kind: "Action", title: "Density: comfortable", run: () => { density.value = "comfortable"; } }
      : { kind: "Action", title: "Density: compact", run: () => { density.value = "compact"; } },
    zone.value
      ? { kind: "Action", title: "Times: local zone", run: () => { zone.value = ""; } }
      : { kind: "Action", title: "Times: UTC", run: () => { zone.value = "UTC"; } },
    { kind: "Action", title: shortcuts.value ? "Turn off single-key shortcuts" : "Turn on single-key shortcuts",
      run: () => { shortcuts.value = !shortcuts.value; } },
    { kind: "Action", title: "Show all keys", detail: "?", run: () => { dialog.value = "help"; } },
    { kind: "Action", title: "Sign out", run: () => { signOut(); } },
  ];
}

export function Palette() {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const list = /** @type {{current: HTMLElement | null}} */ (useRef(null));

  const all = useMemo(() => {
    const known = clusters.peek();
    const visited = recent.peek();
    const open = (/** @type {string} */ name) => () => go(clusterAddress(name));
    const others = known.filter((one) => !visited.includes(one.name));
    return [
      ...visited.map((name) => ({ kind: "Recent", title: name, detail: "cluster", run: open(name) })),
      ...actions(),
      ...others.map(({ name, state }) => ({ kind: "Cluster", title: name, detail: state, run: open(name) })),
      ...(currentList.peek()?.objects() ?? []).map(({ title, detail, href }) => (
        { kind: "Object", title, detail, run: () => go(href) })),
    ];
  }, []);

  const found = useMemo(() => search(all, text), [all, text]);

  /** @param {Command} one */
  function run(one) {
    dialog.value = "";
    one.run();
  }

  /** @param {KeyboardEvent} event */
  function onKeyDown(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      const next = found.length ? (chosen + step + found.length) % found.length : 0;
      setChosen(next);
      list.current?.children[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && found[chosen]) {
      event.preventDefault();
      run(found[chosen]);
    }
  }

  return html`
    <${Dialog} label="Commands" class="palette" onClose=${() => { if (dialog.peek() === "palette") dialog.value = ""; }}>
      <input class="palette__input" type="text" role="combobox" aria-label="command, cluster or object" autofocus
        aria-expanded="true" aria-controls="palette-list" aria-autocomplete="list" autocomplete="off" spellcheck="false"
        aria-activedescendant=${found.length ? `palette-${chosen}` : null} placeholder="Cluster, object, page or action"
        value=${text} onKeyDown=${onKeyDown} onInput=${(/** @type {any} */ event) => {
    setText(event.target.value);
    setChosen(0);
  }} />
      ${found.length
    ? html`<ul class="palette__list" id="palette-list" role="listbox" aria-label="results" ref=${list}>
        ${found.map((one, index) => html`
          <li key=${`${one.kind}${one.title}${one.detail}`} id=${`palette-${index}`} role="option"
            aria-selected=${index === chosen} class=${classes("palette__item", index === chosen && "is-chosen")}
            onPointerMove=${() => setChosen(index)} onClick=${() => run(one)}>
            <span class="palette__kind">${one.kind}</span>
            <span class="palette__title">${one.title}</span>
            <span class="muted">${one.detail}</span>
          </li>`)}
      </ul>`
    : html`<p class="palette__none" id="palette-list" role="status">Nothing is called “${text}”.</p>`}
    <//>`;
}

/**
 * @param {readonly Command[]} all
 * @param {string} text
 */
function search(all, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return all.filter((one) => one.kind !== "Object").slice(0, MOST);
  return all
    .map((one) => ({ one, rank: rankOf(one, words) }))
    .filter(({ rank }) => rank > 0)
    .sort((left, right) => right.rank - left.rank)
    .slice(0, MOST)
    .map(({ one }) => one);
}

/**
 * @param {Command} one
 * @param {readonly string[]} words
 */
function rankOf(one, words) {
  const title = one.title.toLowerCase();
  const whole = `${title} ${one.detail ?? ""} ${one.kind}`.toLowerCase();
  if (!words.every((word) => whole.includes(word))) return 0;
  if (title === words[0]) return 4;
  if (title.startsWith(words[0])) return 3;
  return title.includes(words[0]) ? 2 : 1;
}
