/** Refuse constructs that the Content Security Policy forbids, or that could run text of a cluster. */

import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));

/** Each expression, and the reason. */
const FORBIDDEN = [
  [/innerHTML|outerHTML|insertAdjacentHTML|srcdoc|document\.write/i, "parses text as HTML"],
  [/DOMParser|createContextualFragment|setHTMLUnsafe/, "parses text as HTML"],
  [/\beval\s*\(|new Function|setTimeout\(\s*["'`]/, "runs text as a program"],
  [/javascript:/i, "runs text as a program"],
  [/\son[a-z]+="/, "is an inline handler, which the policy forbids; write onClick=${...}"],
  [/\sstyle="/, "is an inline style, which the policy forbids; write a class"],
  [/target="?_blank(?![^>]*noopener)/, "needs rel=\"noopener noreferrer\""],
];

let faults = 0;
for (const entry of await readdir(join(HERE, "src"), { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !entry.name.endsWith(".js")) continue;
  const path = join(entry.parentPath ?? entry.path, entry.name);
  const lines = (await readFile(path, "utf8")).split("\n");
  lines.forEach((line, index) => {
    if (line.length > 140) fault(path, index, "is longer than 140 characters");
    for (const [expression, reason] of FORBIDDEN) {
      if (expression.test(line)) fault(path, index, reason);
    }
  });
}
process.exitCode = faults ? 1 : 0;

function fault(path, index, reason) {
  faults += 1;
  console.error(`${path}:${index + 1}: ${reason}`);
}
