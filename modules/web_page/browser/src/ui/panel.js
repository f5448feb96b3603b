/** The side panel of a list. */

import { here } from "../route.js";
import { CopyButton } from "./copy.js";
import { currentList } from "./current_list.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { Icon } from "./icon.js";
import { closePanel } from "./shortcuts.js";

/** @param {{title: string, kind: string, link?: string, children?: any}} props */
export function Panel({ title, kind, children }) {
  const heading = /** @type {{current: HTMLElement | null}} */ (useRef(null));
  const open = here.value.params.get("open");
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
  }, [open]);
  useCoveredPage();
  return html`
    <aside class="panel" aria-label=${`${kind} ${title}`}>
      <header class="panel__head">
        <div class="panel__title"><span class="muted">${kind}</span><h2 tabindex="-1" ref=${heading}>${title}</h2></div>
        <${CopyButton} text=${title} label="name" />
        <button type="button" class="icon-button" aria-label="previous (k)" title="previous (k)"
          onClick=${() => currentList.peek()?.move(-1)}><${Icon} name="arrowUp" /></button>
        <button type="button" class="icon-button" aria-label="next (j)" title="next (j)"
          onClick=${() => currentList.peek()?.move(1)}><${Icon} name="arrowDown" /></button>
        <button type="button" class="icon-button" aria-label="close (Esc)" title="close (Esc)"
          onClick=${closePanel}><${Icon} name="x" /></button>
      </header>
      ${children}
    </aside>`;
}

/** On a narrow screen the panel covers the page, which then must not take the focus. */
function useCoveredPage() {
  const [isCovering, setCovering] = useState(false);
  useEffect(() => {
    const query = matchMedia("(max-width: 52rem)");
    const update = () => setCovering(query.matches);
    update();
    query.addEventListener("change", update);
    return () => query.removeEventListener("change", update);
  }, []);
  useEffect(() => {
    if (!isCovering) return undefined;
    const covered = document.querySelectorAll(".nav, .footer, .with-panel > :not(.panel), .heading, .tabs");
    for (const one of covered) one.setAttribute("inert", "");
    return () => {
      for (const one of covered) one.removeAttribute("inert");
    };
  }, [isCovering]);
}
