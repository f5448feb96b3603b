/** Whether kas serves other files than those of this page. */

import { effect, signal } from "@preact/signals";

import { boot } from "./boot.js";
import { connection } from "./live/cable.js";

export const newBuild = signal(false);

let wasOpen = false;

// kas restarts for an upgrade, so the page looks once after each reconnection.
effect(() => {
  const isOpen = connection.value.state === "open";
  if (isOpen && wasOpen) return;
  if (isOpen && connection.peek().since > boot.now + 30) look();
  wasOpen = isOpen;
});

async function look() {
  try {
    const response = await fetch(location.pathname, { credentials: "same-origin", headers: { Accept: "text/html" } });
    const build = /"build":\s*"([^"]*)"/.exec(await response.text());
    if (build && build[1] !== boot.build) newBuild.value = true;
  } catch {
    // The next reconnection looks again.
  }
}
