/** The filter of a list: chips for finished terms, and a field with completion for the next one. */

import { complete, parseFilter } from "../lib/filter.js";
import { go, here, withParams } from "../route.js";
import { classes, html, useEffect, useRef, useState } from "./html.js";
import { Icon } from "./icon.js";

/** Milliseconds after a key until the rows change, so that fast typing draws them once. */
const PAUSE = 60;

/**
 * @typedef {{query: string, sources: string[], draft: string}} FilterState the whole filter, its finished terms, and the
 *   term that the user types
 */

/**
 * @param {{columns: readonly import("./table.js").Column[], rows: readonly any[], hits: number, total: number,
 *   noun: string, example: string, children?: any}} props noun: plural of the rows
 */
export function FilterBar({ columns, rows, hits, total, noun, example, children }) {
  const query = here.value.params.get("q") ?? "";
  const [isOpen, setOpen] = useState(false);
  const [chosen, setChosen] = useState(-1);
  const [, draw] = useState(0);
  const input = /** @type {{current: HTMLInputElement | null}} */ (useRef(null));
  const timer = useRef(0);
  const state = useRef(/** @type {FilterState | null} */ (null));
  // Whether the next address is a step of its own for Back: a term is one step from its first character on.
  const isStep = useRef(false);
  // Another filter in the address is that of a link, or of Back.
  if (!state.current || (!timer.current && state.current.query !== query)) {
    state.current = { query, sources: parseFilter(query).map((one) => one.source), draft: "" };
  }
  const { sources, draft: own } = state.current;
  useEffect(() => () => clearTimeout(timer.current), []);

  /**
   * @param {string[]} finished
   * @param {string} draft
   */
  function write(finished, draft) {
    clearTimeout(timer.current);
    isStep.current ||= !own;
    const text = [...finished, draft].filter(Boolean).join(" ");
    state.current = { query: text, sources: finished, draft };
    function show() {
      timer.current = 0;
      go(withParams({ q: text || null, open: null }), { replace: !isStep.current });
      isStep.current = false;
      draw((count) => count + 1);
    }
    if (draft) {
      // The field shows each key at once, and the rows follow.
      timer.current = setTimeout(show, PAUSE);
      draw((count) => count + 1);
    } else {
      show();
    }
  }

  /** @param {string} term */
  function finish(term) {
    setChosen(-1);
    if (/(?:!=|!~|>=|<=|=|~|>|<)$/.test(term)) write(sources, term);
    else write([...sources, term], "");
  }

  const offers = isOpen ? complete(own, columns, rows) : [];

  /** @param {KeyboardEvent} event */
  function onKeyDown(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      const step = event.key === "ArrowDown" ? 1 : -1;
      setChosen((before) => (offers.length ? (before + step + offers.length + (before < 0 && step < 0 ? 1 : 0)) % offers.length : -1));
    } else if (event.key === "Tab" && isOpen && own && offers.length && chosen >= 0) {
      event.preventDefault();
      finish(offers[chosen].text);
    } else if (event.key === "Enter") {
      if (chosen >= 0 && offers[chosen]) {
        finish(offers[chosen].text);
      } else if (own.trim()) {
        finish(own.trim());
        setOpen(false);
      }
    } else if (event.key === " " && isFinished(own)) {
      event.preventDefault();
      finish(own);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      setOpen(false);
      if (chosen >= 0) setChosen(-1);
      else input.current?.blur();
    } else if (event.key === "Backspace" && !own && sources.length) {
      event.preventDefault();
      write(sources.slice(0, -1), sources[sources.length - 1]);
    }
  }

  return html`
    <div class="toolbar">
      <div class="filter">
        <${Icon} name="search" class="filter__icon" />
        <div class="filter__terms">
          ${sources.map((one, index) => html`
            <span class="chip chip--term" key=${`${one}${index}`}>${one}<button type="button"
              aria-label=${`remove filter ${one}`} onClick=${() => {
    write(sources.filter((_, place) => place !== index), own);
    input.current?.focus();
  }}><${Icon} name="x" size=${12} /></button></span>`)}
          <input ref=${input} id="filter" type="text" role="combobox" aria-label=${`filter ${noun}`} spellcheck="false"
            autocomplete="off" autocapitalize="off" placeholder=${sources.length ? "" : `Filter, such as ${example}`}
            aria-expanded=${offers.length > 0} aria-controls="filter-offers" aria-autocomplete="list"
            aria-activedescendant=${chosen >= 0 && offers.length ? `filter-offer-${chosen}` : null} value=${own}
            onInput=${(/** @type {any} */ event) => {
    setOpen(true);
    setChosen(-1);
    write(sources, event.target.value.replace(/^\s+/, ""));
  }}
            onKeyDown=${onKeyDown} onFocus=${() => setOpen(Boolean(own))} onBlur=${() => setOpen(false)} />
        </div>
        ${state.current.query && html`
          <button type="button" class="icon-button" aria-label="clear filter" title="clear filter"
            onClick=${() => {
    write([], "");
    input.current?.focus();
  }}><${Icon} name="x" /></button>`}
        <ul class=${classes("offers", offers.length > 0 && "is-open")} id="filter-offers" role="listbox"
          aria-label="completions">
          ${offers.map((one, index) => html`
            <li key=${one.text} id=${`filter-offer-${index}`} role="option" aria-selected=${index === chosen}
              class=${classes("offer", index === chosen && "is-chosen")}
              onPointerDown=${(/** @type {Event} */ event) => {
    event.preventDefault();
    finish(one.text);
  }}>
              <span class="offer__text">${one.label}</span>${one.count > 0 && html`<span class="muted">${one.count}</span>`}
            </li>`)}
        </ul>
      </div>
      <span class="hits" aria-live="off">${query ? `${hits.toLocaleString("en")} of ` : ""}${total.toLocaleString("en")} ${
        total === 1 ? noun.replace(/s$/, "") : noun}</span>
      ${children}
    </div>`;
}

/** @param {string} term */
function isFinished(term) {
  const [one] = parseFilter(term);
  return Boolean(one) && (one.operator !== "text" || term.length > 1) && (term.match(/"/g) ?? []).length % 2 === 0;
}
