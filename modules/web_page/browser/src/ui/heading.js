/** The heading of a page, which also is the title of the document. */

import { html, useEffect } from "./html.js";

/** @param {{title: string, above?: any, actions?: any, children?: any}} props */
export function Heading({ title, above, actions, children }) {
  useEffect(() => {
    document.title = `${title} · kas`;
  }, [title]);
  return html`
    <header class="heading">
      ${above}
      <div class="heading__line"><h1 tabindex="-1">${title}</h1>${actions}</div>
      ${children}
    </header>`;
}
