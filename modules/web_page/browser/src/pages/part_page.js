/** A page of another module, which is loaded when it is opened. */

import { boot } from "../boot.js";
import { now } from "../clock.js";
import { getJson } from "../live/rest.js";
import { clusterAddress, go } from "../route.js";
import { Heading } from "../ui/heading.js";
import { html, useEffect, useRef, useState } from "../ui/html.js";
import { Failed } from "../ui/states.js";

/** @param {{part: import("../boot.js").Part}} props */
export function PartPage({ part }) {
  const element = /** @type {{current: HTMLElement | null}} */ (useRef(null));
  const [error, setError] = useState("");
  const [attempt, setAttempt] = useState(0);
  const [since] = useState(now());
  useEffect(() => {
    /** @type {unknown} */
    let unmount;
    let isOver = false;
    addStyle(part.style);
    import(part.script).then((module) => {
      if (isOver || !element.current) return;
      unmount = module.mount(element.current, { user: boot.user, csrf: boot.csrf, getJson, go, clusterAddress });
    }).catch((/** @type {unknown} */ failure) => setError(String(failure)));
    return () => {
      isOver = true;
      if (typeof unmount === "function") unmount();
    };
  }, [part, attempt]);
  return html`
    <${Heading} title=${part.title} />
    ${error && html`<${Failed} what=${part.title} status=${500} message=${error} since=${since} retry=${() => {
    setError("");
    setAttempt(attempt + 1);
  }} />`}
    <div ref=${element}></div>`;
}

/** @param {string | undefined} address */
function addStyle(address) {
  if (!address || document.querySelector(`link[href="${CSS.escape(address)}"]`)) return;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = address;
  document.head.append(link);
}
