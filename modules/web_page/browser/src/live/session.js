/** The session of the user. */

import { signal } from "@preact/signals";

import { boot } from "../boot.js";

/** Whether kas refused the session: the page says so, and does not retry. */
export const signedOut = signal(false);

/** Return the address of the page for signing in, which leads back here. */
export function signInAddress() {
  return `/ui/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`;
}

/** Milliseconds between two requests that keep the session alive. */
const ACTIVITY = 300_000;
let lastActivity = performance.now();

// Only clicks and keys of the user extend a session, and not the requests of an open page.
for (const name of ["pointerdown", "keydown"]) {
  document.addEventListener(name, () => {
    if (signedOut.peek() || performance.now() - lastActivity < ACTIVITY) return;
    lastActivity = performance.now();
    fetch("/ui/api/session", { credentials: "same-origin" }).then((response) => {
      if (response.status === 401) signedOut.value = true;
    }, () => undefined);
  }, { capture: true, passive: true });
}

/**
 * End the session here, and at the identity provider if there is one.
 *
 * @returns {Promise<string>} the reason why it has not ended; empty if it has
 */
export async function signOut() {
  try {
    const response = await fetch("/ui/sign-out", {
      method: "POST", headers: { "X-Kas-Csrf": boot.csrf }, credentials: "same-origin",
    });
    const found = await response.json();
    if (response.ok || response.status === 401) {
      location.assign(typeof found.next === "string" ? found.next : "/ui/sign-in");
      return "";
    }
    return `${found.message ?? response.status}`;
  } catch {
    return "kas does not respond";
  }
}
