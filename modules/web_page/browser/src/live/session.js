/** The session of the user. */

import { signal } from "@preact/signals";

import { boot } from "../boot.js";

/** Whether kas refused the session: the page says so, and does not retry. */
export const signedOut = signal(false);

/** Return the address of the page for signing in, which leads back here. */
export function signInAddress() {
  return `/ui/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`;
}

/** End the session. */
export async function signOut() {
  try {
    await fetch("/ui/sign-out", {
      method: "POST", headers: { "X-Kas-Csrf": boot.csrf }, credentials: "same-origin",
    });
  } finally {
    location.assign("/ui/sign-in");
  }
}
