/** Whether kas serves other files than those of this page. */

import { effect, signal } from "@preact/signals";

import { boot } from "./boot.js";
import { connection } from "./live/cable.js";
import { getJson } from "./live/rest.js";

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
    const { build } = await getJson("/ui/api/session");
    newBuild.value = build !== boot.build;
  } catch {
    // The next reconnection looks again.
  }
}
