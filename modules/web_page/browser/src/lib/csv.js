/** Tables as CSV files. */

/**
 * Return a CSV file.
 *
 * @param {readonly {title: string, text: (row: any) => string}[]} columns
 * @param {readonly unknown[]} rows
 */
export function csvText(columns, rows) {
  const lines = [columns.map((one) => cell(one.title))];
  for (const row of rows) lines.push(columns.map((one) => cell(one.text(row))));
  return lines.map((line) => `${line.join(",")}\r\n`).join("");
}

/** @param {string} text */
function cell(text) {
  // A spreadsheet would run such a text as a formula.
  const harmless = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll("\"", "\"\"")}"` : harmless;
}
