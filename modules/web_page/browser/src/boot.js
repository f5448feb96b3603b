/** The facts that kas writes into the page. */

/**
 * @typedef {{name: string, title: string, path: string, script: string, style?: string}} Part a page of another module
 * @typedef {object} Boot
 * @property {string} version of kas
 * @property {string} build hash of the files that the browser loads
 * @property {number} now seconds since 1970
 * @property {{name: string, method: string}} user
 * @property {string} csrf
 * @property {Part[]} parts
 */

/** @returns {Boot} */
function read() {
  const found = document.getElementById("boot")?.textContent;
  const empty = { version: "", build: "", now: Date.now() / 1000, user: { name: "", method: "" }, csrf: "", parts: [] };
  return found ? { ...empty, ...JSON.parse(found) } : empty;
}

export const boot = read();
