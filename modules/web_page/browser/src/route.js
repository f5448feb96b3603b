/** The address of the page, which is its state. */

import { signal } from "@preact/signals";

/** @typedef {{path: string, params: URLSearchParams}} Place */

export const BASE = "/ui";

/** @returns {Place} */
function read() {
  return { path: location.pathname.replace(/\/+$/, "") || BASE, params: new URLSearchParams(location.search) };
}

export const here = signal(read());

/**
 * Open an address of the page.
 *
 * @param {string} address
 * @param {{replace?: boolean}} [options] replace: Back skips the former address
 */
export function go(address, { replace = false } = {}) {
  if (address === location.pathname + location.search) return;
  const before = here.peek().path;
  if (replace) {
    history.replaceState(history.state, "", address);
  } else {
    history.replaceState({ scroll: scrollY }, "");
    history.pushState(null, "", address);
  }
  here.value = read();
  if (here.peek().path !== before) arrive();
}

/** Show the top of a new page, and move the focus to its heading. */
function arrive() {
  scrollTo(0, 0);
  requestAnimationFrame(() => {
    document.querySelector("h1")?.focus({ preventScroll: true });
  });
}

/**
 * Return the address of this page with other parameters.
 *
 * @param {Record<string, string | null>} changes null and empty remove a parameter
 * @param {string} [path]
 */
export function withParams(changes, path = here.value.path) {
  const params = new URLSearchParams(here.value.params);
  for (const [name, value] of Object.entries(changes)) {
    if (value) params.set(name, value);
    else params.delete(name);
  }
  return address(path, params);
}

/**
 * Return an address below the base path.
 *
 * @param {string} path
 * @param {URLSearchParams | Record<string, string>} [params]
 */
export function address(path, params = {}) {
  // Slashes, commas and equals signs need no escape in a query, and stay readable without one.
  const query = new URLSearchParams(params).toString().replaceAll(/%(?:2F|2C|3D|7E|3A)/g, decodeURIComponent);
  return query ? `${path}?${query}` : path;
}

/**
 * Return the address of a page of a cluster.
 *
 * @param {string} name
 * @param {string} [tab]
 * @param {Record<string, string>} [params]
 */
export function clusterAddress(name, tab = "", params = {}) {
  return address(`${BASE}/clusters/${encodeURIComponent(name)}${tab && `/${tab}`}`, params);
}

addEventListener("popstate", (event) => {
  here.value = read();
  const scroll = event.state?.scroll ?? 0;
  requestAnimationFrame(() => requestAnimationFrame(() => scrollTo(0, scroll)));
});
history.scrollRestoration = "manual";

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
  if (link.origin !== location.origin || !isOurs(link.pathname)) return;
  event.preventDefault();
  go(link.pathname + link.search, { replace: link.dataset.replace !== undefined });
});

/** @param {string} path */
function isOurs(path) {
  return (path === BASE || path.startsWith(`${BASE}/`)) && !/^\/ui\/(?:static\/|api\/|sign-)/.test(path);
}
