/** The list that shortcuts and the command palette work with: that of the page. */

import { signal } from "@preact/signals";

/**
 * @typedef {object} CurrentList
 * @property {(step: number) => void} move select the next or previous row
 * @property {() => {title: string, detail: string, href: string}[]} objects rows for the command palette
 */

/** @type {import("@preact/signals").Signal<CurrentList | null>} */
export const currentList = signal(null);
