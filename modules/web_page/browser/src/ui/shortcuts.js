/** Keys that work on the whole page, except while the user types. */

import { signal } from "@preact/signals";

import { shortcuts } from "../preferences.js";
import { BASE, go, here, withParams } from "../route.js";
import { currentList } from "./current_list.js";

/** Which dialog is open. */
export const dialog = signal(/** @type {"" | "palette" | "help"} */ (""));

/** Keys after `g`, and where they lead. */
export const PLACES = /** @type {const} */ ([
  ["f", "Fleet", `${BASE}/fleet`], ["p", "Problems", `${BASE}/problems`], ["e", "Events", `${BASE}/events`],
  ["a", "Applications", `${BASE}/applications`],
]);

/** Milliseconds in which the second key of two must follow. */
const SECOND_KEY = 1500;
let sawG = 0;

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    dialog.value = dialog.value === "palette" ? "" : "palette";
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape") {
    if (!dialog.value && here.value.params.get("open") && !isTyping(event.target)) closePanel();
    return;
  }
  if (!shortcuts.value || dialog.value || isTyping(event.target)) return;
  const place = event.timeStamp - sawG < SECOND_KEY && PLACES.find(([key]) => key === event.key);
  sawG = event.key === "g" ? event.timeStamp : -SECOND_KEY;
  if (place) {
    event.preventDefault();
    go(place[2]);
    return;
  }
  switch (event.key) {
    case "/": document.getElementById("filter")?.focus(); break;
    case "?": dialog.value = "help"; break;
    case "j": currentList.peek()?.move(1); break;
    case "k": currentList.peek()?.move(-1); break;
    default: return;
  }
  event.preventDefault();
});

/** Close the side panel, and give its row the focus. */
export function closePanel() {
  const address = withParams({ open: null });
  const open = document.querySelector(".table__row.is-open");
  go(address);
  if (open instanceof HTMLElement) requestAnimationFrame(() => open.focus({ preventScroll: true }));
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement
    && (target.isContentEditable || /^(?:TEXTAREA|SELECT)$/.test(target.tagName)
      || (target instanceof HTMLInputElement && !/^(?:checkbox|radio|button)$/.test(target.type)));
}
