/** Messages for screen readers: at most one in five seconds, the latest. */

import { signal } from "@preact/signals";

import { html } from "./html.js";

const PAUSE = 5000;

const message = signal("");
let waiting = "";
let timer = 0;

/** @param {string} text */
export function announce(text) {
  waiting = text;
  if (!timer) speak();
}

function speak() {
  message.value = waiting;
  waiting = "";
  timer = setTimeout(() => {
    timer = 0;
    if (waiting) speak();
  }, PAUSE);
}

export function Announcer() {
  return html`<div class="unseen" role="status">${message}</div>`;
}
