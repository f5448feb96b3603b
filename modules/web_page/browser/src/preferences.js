/** Choices of the user, kept in this browser. */

import { effect, signal } from "@preact/signals";

/** @typedef {{name: string, at: number}} Visit */

/**
 * @template T
 * @param {string} name
 * @param {T} fallback
 */
function kept(name, fallback) {
  let value = fallback;
  try {
    const text = localStorage.getItem(`kas-${name}`);
    if (text !== null) value = JSON.parse(text);
  } catch {
    // The browser keeps nothing, or something else wrote the entry.
  }
  if (Array.isArray(fallback) !== Array.isArray(value) || typeof value !== typeof fallback) value = fallback;
  const found = signal(value);
  effect(() => {
    const text = JSON.stringify(found.value);
    try {
      localStorage.setItem(`kas-${name}`, text);
    } catch {
      // The choice lasts until the page is closed.
    }
  });
  return found;
}

/** The theme is a cookie, so that kas writes it into the first byte of the page. */
export const theme = signal(document.documentElement.dataset.theme || "system");
effect(() => {
  document.documentElement.dataset.theme = theme.value;
  document.cookie = `kas-theme=${theme.value}; Path=/; SameSite=Lax; Secure; Max-Age=31536000`;
});

/** `comfortable` or `compact`. */
export const density = kept("density", "comfortable");
effect(() => {
  document.documentElement.dataset.density = density.value;
});

/** `UTC`, or empty for the zone of the browser. */
export const zone = kept("zone", "");

/** Whether keys without Ctrl are shortcuts. */
export const shortcuts = kept("shortcuts", true);

/** Names of clusters that the user pinned. */
export const pinned = kept("pinned", /** @type {string[]} */ ([]));

/** Names of clusters that the user opened, the newest first. */
export const recent = kept("recent", /** @type {string[]} */ ([]));

/** @param {string} name */
export function noteVisit(name) {
  if (recent.peek()[0] !== name) recent.value = [name, ...recent.peek().filter((one) => one !== name)].slice(0, 8);
}

/** @param {string} name */
export function togglePin(name) {
  const found = pinned.peek();
  pinned.value = found.includes(name) ? found.filter((one) => one !== name) : [...found, name];
}
