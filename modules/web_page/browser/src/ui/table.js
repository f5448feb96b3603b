/**
 * Tables of any length, which change in place.
 *
 * Only visible rows are elements.  All rows have the same height.  While the pointer or the focus is in the table, the
 * rows keep their order, and a button offers the newer ones.
 */

import { density, shortcuts } from "../preferences.js";
import { go, here, withParams } from "../route.js";
import { currentList } from "./current_list.js";
import { classes, Component, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./html.js";
import { Icon } from "./icon.js";

/**
 * @typedef {object} Column
 * @property {string} id as in the URL and in filters
 * @property {string} title
 * @property {string} width a track of a CSS grid
 * @property {(row: any) => string} text for filters, exports, and to find changed cells
 * @property {(row: any) => string | number | null | undefined} value for sorting
 * @property {(row: any, tab: number) => any} [cell] the content; the text by default
 * @property {"end"} [align]
 * @property {number} [least] width of the table in pixels below which the column is hidden
 * @property {boolean} [largestFirst] whether the first click sorts the largest value first
 * @property {boolean} [noFilter] whether filters without a key ignore the column
 * @property {boolean} [isMain] whether the cell has the link of the row
 * @property {boolean} [isHidden] whether the column is only for filters and sorting
 *
 * @typedef {{key: string, row: any, isGone?: boolean}} RowItem
 * @typedef {{key: string, title: string, count: number, detail?: any}} GroupItem
 * @typedef {RowItem | GroupItem} Item
 *
 * @typedef {object} TableProps
 * @property {string} label
 * @property {readonly Column[]} columns
 * @property {readonly Item[]} items
 * @property {{column: Column, direction: number} | null} sort
 * @property {(row: any) => string} link
 * @property {(row: any) => any} rowTitle the words that name a row
 * @property {(row: any, tab: number, href: string) => any} narrow the row on a narrow screen, in two lines
 * @property {string} openKey key of the row in the side panel
 * @property {string} query everything that the user chose: a change ends the held order
 */

/** Width in pixels below which a row has two lines. */
const NARROW = 640;
/** Number of rows that need no virtual list. */
const FEW = 100;
/** Rows above and below the visible ones. */
const MARGIN = 6;

const HEIGHTS = { comfortable: 40, compact: 32, narrow: 64 };

/** @param {TableProps} props */
export function Table({ label, columns, items, sort, link, rowTitle, narrow, openKey, query }) {
  const body = /** @type {{current: HTMLDivElement | null}} */ (useRef(null));
  const width = useWidth(body);
  const isNarrow = width < NARROW;
  const height = isNarrow ? HEIGHTS.narrow : HEIGHTS[/** @type {"comfortable"} */ (density.value)] ?? 40;
  const [shown, newer, holding] = useHeldOrder(items, query);
  const [first, last] = useVisibleRange(body, shown.length, height);
  const [activeKey, setActiveKey] = useState("");
  const wanted = useRef(-1);
  const visible = useMemo(() => columns.filter((one) => !one.isHidden && (one.least ?? 0) <= width), [columns, width]);
  const tracks = visible.map((one) => one.width).join(" ");

  // A row that leaves the screen gives its element to one that enters it.
  const slots = Math.ceil((last - first) / 16) * 16;
  const activeIndex = Math.max(0, shown.findIndex((one) => one.key === (openKey || activeKey)));

  /** @param {number} index */
  function focusRow(index) {
    const found = shown[index];
    if (!found) return;
    reveal(body.current, index, height);
    wanted.current = index;
    setActiveKey(found.key);
    setWanted((count) => count + 1);
  }
  const [, setWanted] = useState(0);

  // The row may not be an element before the list has scrolled.
  useLayoutEffect(() => {
    if (wanted.current < 0) return;
    const row = body.current?.querySelector(`[data-index="${wanted.current}"]`);
    if (row instanceof HTMLElement) {
      wanted.current = -1;
      row.focus({ preventScroll: true });
    }
  });

  /** @param {number} step */
  function move(step) {
    if (openKey) {
      const place = shown.findIndex((one) => one.key === openKey);
      let next = place + step;
      while (shown[next] && !("row" in shown[next])) next += step;
      const found = shown[next];
      if (!found || !("row" in found)) return;
      reveal(body.current, next, height);
      go(link(found.row), { replace: true });
    } else {
      const hasFocus = body.current?.contains(document.activeElement);
      focusRow(hasFocus ? Math.min(shown.length - 1, Math.max(0, activeIndex + step)) : activeIndex);
    }
  }

  useEffect(() => {
    const list = {
      move,
      objects: () => items.flatMap((one) => "row" in one
        ? [{ ...rowTitle(one.row), href: link(one.row) }] : []),
    };
    currentList.value = list;
    return () => {
      if (currentList.peek() === list) currentList.value = null;
    };
  });

  /** @param {KeyboardEvent} event */
  function onKeyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(innerHeight / height) - 3);
    /** @type {Record<string, number>} */
    const steps = {
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -shown.length, End: shown.length,
    };
    const step = steps[event.key] ?? (shortcuts.value ? { j: 1, k: -1 }[event.key] : 0);
    if (step) {
      event.preventDefault();
      event.stopPropagation();
      if (openKey) move(step);
      else focusRow(Math.min(shown.length - 1, Math.max(0, activeIndex + step)));
    } else if (event.key === "Enter" && event.target instanceof HTMLElement && event.target.role === "row") {
      event.target.querySelector("a")?.click();
    }
  }

  return html`
    <div class="table-frame" ...${holding.events}>
      ${newer > 0 && html`
        <button type="button" class="newer" onClick=${holding.release}>${newer} newer, show</button>`}
      <div class=${classes("table", isNarrow && "table--narrow")} role="grid" aria-label=${label}
        aria-rowcount=${shown.length + 1} aria-colcount=${isNarrow ? 1 : visible.length}
        style=${{ "--columns": isNarrow ? "1fr" : tracks, "--row": `${height}px` }}>
        <div class="table__head" role="rowgroup">
          <div class="table__row table__row--head" role="row" aria-rowindex="1">
            ${isNarrow
    ? html`<div role="columnheader" class="cell"><${SortMenu} columns=${columns} sort=${sort} /></div>`
    : visible.map((one) => html`<${Heading} key=${one.id} column=${one} sort=${sort} />`)}
          </div>
        </div>
        <div class="table__body" role="rowgroup" ref=${body} onKeyDown=${onKeyDown}
          style=${{ height: `${shown.length * height}px`, paddingTop: `${first * height}px` }}>
          ${shown.slice(first, last).map((one, offset) => {
    const index = first + offset;
    const isActive = index === activeIndex;
    return "row" in one
      ? html`<${Row} key=${index % slots} item=${one} row=${one.row} isGone=${one.isGone} index=${index} columns=${visible}
          tracks=${tracks} isNarrow=${isNarrow} narrow=${narrow} isActive=${isActive} isOpen=${one.key === openKey}
          href=${link(one.row)} onFocus=${setActiveKey} />`
      : html`<${GroupRow} key=${index % slots} item=${one} index=${index} span=${visible.length} isActive=${isActive}
          onFocus=${setActiveKey} />`;
  })}
        </div>
      </div>
    </div>`;
}

/**
 * A row is drawn again only if its own values change, so that a change of one costs nothing for the others.
 *
 * @extends {Component<any>}
 */
class Row extends Component {
  /** The texts of the cells of a row, and how often each has changed. */
  _drawn = { key: "", texts: /** @type {string[]} */ ([]), tints: /** @type {number[]} */ ([]), columns: null };

  /** @param {any} next */
  shouldComponentUpdate(next) {
    const before = /** @type {any} */ (this.props);
    return next.row !== before.row || next.isActive !== before.isActive || next.isOpen !== before.isOpen
      || next.index !== before.index || next.tracks !== before.tracks || next.isNarrow !== before.isNarrow
      || next.isGone !== before.isGone || next.href !== before.href;
  }

  /** @param {any} props */
  render({ item, row, index, columns, isNarrow, narrow, isActive, isOpen, isGone, href, onFocus }) {
    const tab = isActive ? 0 : -1;
    // Elements are for places of the list, because new ones for each row would be slow.
    if (this._drawn.key !== row.key || this._drawn.columns !== columns) {
      this._drawn = { key: row.key, texts: [], tints: [], columns };
    }
    return html`
      <div class=${classes("table__row", isOpen && "is-open", isGone && "is-gone")} role="row" tabindex=${tab}
        aria-rowindex=${index + 2} aria-selected=${isOpen} data-index=${index} onFocusIn=${() => onFocus(item.key)}>
        ${isNarrow
    ? html`<div class="cell cell--narrow" role="gridcell">${narrow(row, tab, href)}</div>`
    : columns.map((/** @type {Column} */ one, /** @type {number} */ place) => this._cell(one, place, row, tab, href))}
      </div>`;
  }

  /**
   * @param {Column} column
   * @param {number} place
   * @param {any} row
   * @param {number} tab
   * @param {string} href
   */
  _cell(column, place, row, tab, href) {
    const { texts, tints } = this._drawn;
    const text = column.text(row);
    // Two names, so that a second change begins the animation again.
    if (texts[place] && texts[place] !== text) tints[place] = tints[place] === 1 ? 2 : 1;
    texts[place] = text;
    const content = column.cell ? column.cell(row, tab) : text;
    return html`
      <div class=${column.align === "end" ? "cell cell--end" : "cell"} role="gridcell"
        title=${column.cell || text.length < 9 ? null : text} data-tint=${tints[place] || null}>
        ${column.isMain ? html`<a class="row-link" href=${href} tabindex="-1">${content}</a>` : content}
      </div>`;
  }
}

/** @param {{item: GroupItem, index: number, span: number, isActive: boolean, onFocus: (key: string) => void}} props */
function GroupRow({ item, index, span, isActive, onFocus }) {
  return html`
    <div class="table__row table__row--group" role="row" aria-rowindex=${index + 2} tabindex=${isActive ? 0 : -1}
      data-index=${index} onFocusIn=${() => onFocus(item.key)}>
      <div class="cell" role="gridcell" aria-colspan=${span}>
        <strong>${item.title}</strong> <span class="muted">${item.count}</span>${item.detail}
      </div>
    </div>`;
}

/** @param {{column: Column, sort: {column: Column, direction: number} | null}} props */
function Heading({ column, sort }) {
  const direction = sort?.column.id === column.id ? sort.direction : 0;
  const order = direction === 1 ? "ascending" : direction === -1 ? "descending" : null;
  return html`
    <div class=${classes("cell", column.align === "end" && "cell--end")} role="columnheader" aria-sort=${order}>
      <button type="button" class="sort-button" onClick=${() => go(withParams({ sort: nextSort(column, direction) }))}>
        ${column.title}${direction !== 0 && html`<${Icon} name=${direction === 1 ? "arrowUp" : "arrowDown"} size=${12} />`}
      </button>
    </div>`;
}

/**
 * @param {Column} column
 * @param {number} direction
 */
function nextSort(column, direction) {
  const begin = column.largestFirst ? -1 : 1;
  const next = direction === 0 ? begin : direction === begin ? -begin : 0;
  return next === 0 ? null : `${next < 0 ? "-" : ""}${column.id}`;
}

/** @param {{columns: readonly Column[], sort: {column: Column, direction: number} | null}} props */
function SortMenu({ columns, sort }) {
  const chosen = sort ? `${sort.direction < 0 ? "-" : ""}${sort.column.id}` : "";
  /** @param {Event} event */
  const choose = (event) => go(withParams({ sort: /** @type {HTMLSelectElement} */ (event.target).value }));
  return html`
    <label class="sort-menu">Sorted by${" "}
      <select value=${chosen} onChange=${choose}>
        <option value="">worst first</option>
        ${columns.flatMap((one) => [one.id, `-${one.id}`].map((id) => html`
          <option key=${id} value=${id}>${one.title.toLowerCase() || one.id} ${id[0] === "-" ? "↓" : "↑"}</option>`))}
      </select>
    </label>`;
}

/**
 * Return the items in the order that the user sees, the number of newer ones, and what holds the order.
 *
 * @param {readonly Item[]} items
 * @param {string} query
 * @returns {[readonly Item[], number, {events: object, release: () => void}]}
 */
function useHeldOrder(items, query) {
  const [isHolding, setHolding] = useState(false);
  const held = useRef({ query, items });
  const reasons = useRef({ pointer: false, focus: false });

  function update() {
    setHolding(reasons.current.pointer || reasons.current.focus);
  }
  const holding = {
    events: {
      onPointerEnter: (/** @type {PointerEvent} */ event) => {
        if (event.pointerType !== "mouse") return;
        reasons.current.pointer = true;
        update();
      },
      onPointerLeave: () => {
        reasons.current.pointer = false;
        update();
      },
      onFocusIn: (/** @type {FocusEvent} */ event) => {
        reasons.current.focus = event.target instanceof Element && event.target.matches(":focus-visible");
        update();
      },
      onFocusOut: (/** @type {FocusEvent} */ event) => {
        if (event.relatedTarget instanceof Node && /** @type {Node} */ (event.currentTarget).contains(event.relatedTarget)) return;
        reasons.current.focus = false;
        update();
      },
    },
    release: () => {
      held.current = { query, items };
      setHolding(false);
      setTimeout(update);
    },
  };
  if (!isHolding || held.current.query !== query || !held.current.items.length) {
    held.current = { query, items };
    return [items, 0, holding];
  }
  const latest = new Map(items.map((one) => [one.key, one]));
  const shown = held.current.items.map((one) => {
    const found = latest.get(one.key);
    if (found) {
      latest.delete(one.key);
      return found;
    }
    return "row" in one ? { ...one, isGone: true } : one;
  });
  return [shown, latest.size, holding];
}

/**
 * Return the first and the last row that are elements.
 *
 * @param {{current: HTMLElement | null}} body
 * @param {number} count
 * @param {number} height
 * @returns {[number, number]}
 */
function useVisibleRange(body, count, height) {
  const [range, setRange] = useState(/** @type {[number, number]} */ ([0, 40]));
  useLayoutEffect(() => {
    function look() {
      if (!body.current) return;
      const top = body.current.getBoundingClientRect().top;
      // In steps, so that not each scrolled pixel draws.
      const first = Math.max(0, Math.floor(-top / height / MARGIN) * MARGIN - MARGIN);
      const last = Math.ceil((innerHeight - top) / height / MARGIN) * MARGIN + MARGIN;
      setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]));
    }
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [height]);
  if (count <= FEW) return [0, count];
  const first = Math.min(range[0], Math.max(0, count - 1));
  return [first, Math.min(count, range[1])];
}

/** @param {{current: HTMLElement | null}} body */
function useWidth(body) {
  const [width, setWidth] = useState(() => Math.min(innerWidth, 4000));
  useLayoutEffect(() => {
    if (!body.current) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    observer.observe(body.current);
    setWidth(body.current.clientWidth);
    return () => observer.disconnect();
  }, []);
  return width;
}

/**
 * Scroll so that a row is visible below the sticky heads.
 *
 * @param {HTMLElement | null} body
 * @param {number} index
 * @param {number} height
 */
function reveal(body, index, height) {
  if (!body) return;
  const top = body.getBoundingClientRect().top + index * height;
  const above = 110;
  const below = innerHeight - height - 70;
  if (top < above) scrollBy(0, top - above);
  else if (top > below) scrollBy(0, top - below);
  void here.peek();
}
