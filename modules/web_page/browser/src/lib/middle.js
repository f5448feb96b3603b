/** Long names, shortened in the middle: the end of a name of Kubernetes tells objects apart. */

/**
 * Return the two parts of a name, of which only the first may be shortened.
 *
 * @param {string} text
 * @returns {[string, string]}
 */
export function halves(text) {
  const cut = text.length > 24 ? text.length - 10 : text.length;
  return [text.slice(0, cut), text.slice(cut)];
}
