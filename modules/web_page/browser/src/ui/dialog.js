/** Dialogs over the page; the browser keeps the focus inside, and closes them with Esc. */

import { html, useEffect, useRef } from "./html.js";

/**
 * @param {{label: string, class?: string, onClose: () => void, children?: any}} props
 */
export function Dialog({ label, class: className = "", onClose, children }) {
  const element = /** @type {{current: HTMLDialogElement | null}} */ (useRef(null));
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
  /** @param {MouseEvent} event */
  function onClick(event) {
    if (event.target === element.current) onClose();
  }
  return html`
    <dialog ref=${element} class=${`dialog ${className}`} aria-label=${label} onClose=${onClose} onClick=${onClick}>
      <div class="dialog__inner" tabindex="-1">${children}</div>
    </dialog>`;
}
