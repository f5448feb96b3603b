/** Addresses in texts of clusters. */

// The rules of kas, applied again: a scheme that runs no code, and then no character that browsers remove or that
// begins another address.
const SAFE = /^(?:https?:\/\/|mailto:)[^\s\u0000-\u0020\u007f-\u009f|<>"'\\^`{}]+$/i;
const IMAGE = /^data:image\/(?:png|jpeg|gif|webp|svg\+xml)[;,]/i;

/**
 * Return an address that a page may offer as a link; empty if it is not safe.
 *
 * @param {unknown} address
 */
export function safeLink(address) {
  return typeof address === "string" && address.length <= 512 && SAFE.test(address) ? address : "";
}

/**
 * Return an address of an image that contains the image itself; empty for all others.
 *
 * @param {unknown} address
 */
export function safeImage(address) {
  return typeof address === "string" && address.length <= 65536 && IMAGE.test(address) ? address : "";
}
