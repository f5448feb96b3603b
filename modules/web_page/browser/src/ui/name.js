/** Names, shortened in the middle where the column is too narrow. */

import { halves } from "../lib/middle.js";
import { html } from "./html.js";

/** @param {{text: string}} props */
export function Name({ text }) {
  const [start, end] = halves(text);
  return html`<span class="name" title=${text}><span class="name__start">${start}</span>${
    end && html`<span class="name__end">${end}</span>`}</span>`;
}
