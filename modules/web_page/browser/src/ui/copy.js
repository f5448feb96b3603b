/** Buttons that copy a text. */

import { pasteable } from "../lib/shell.js";
import { announce } from "./announce.js";
import { html, useState } from "./html.js";
import { Icon } from "./icon.js";

/**
 * @param {{text: string, label: string, children?: any}} props what the text is, such as "name"
 */
export function CopyButton({ text, label, children }) {
  const [isDone, setDone] = useState(false);
  async function copy() {
    await navigator.clipboard.writeText(pasteable(text));
    announce(`copied ${label}`);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  }
  return html`
    <button type="button" class=${children ? "button button--quiet" : "icon-button"} onClick=${copy}
      aria-label=${children ? null : `copy ${label}`} title=${`copy ${label}`}>
      <${Icon} name=${isDone ? "check" : "copy"} size=${14} />${children}
    </button>`;
}

/**
 * A command for a terminal, with a button that copies it.
 *
 * @param {{text: string}} props
 */
export function Command({ text }) {
  if (!text) return null;
  return html`
    <div class="command"><code>${text}</code><${CopyButton} text=${text} label="command" /></div>`;
}

/**
 * Save a text as a file.
 *
 * @param {string} name
 * @param {string} text
 * @param {string} type
 */
export function saveFile(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
