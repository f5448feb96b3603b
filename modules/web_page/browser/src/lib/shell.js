/** Texts for a terminal: a cluster must not choose the commands that users paste. */

// Names of objects, users and clusters; an option begins with a hyphen.
const WORD = /^[A-Za-z0-9][A-Za-z0-9._:@-]*$/;

/**
 * Return a command of which some words are texts of clusters; empty if one of them could be more than a name.
 *
 * @param {TemplateStringsArray} strings
 * @param {...string} words
 */
export function command(strings, ...words) {
  if (!words.every((one) => WORD.test(one))) return "";
  return strings.reduce((text, part, index) => text + (words[index - 1] ?? "") + part);
}

/**
 * Return a text without characters that a terminal or an editor obeys when it is pasted.
 *
 * @param {string} text
 */
export function pasteable(text) {
  return text.replaceAll(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "");
}
