/** A button that saves the rows of a table as a file for spreadsheets. */

import { csvText } from "../lib/csv.js";
import { saveFile } from "./copy.js";
import { html } from "./html.js";
import { Icon } from "./icon.js";

/** @param {{name: string, columns: readonly import("./table.js").Column[], rows: readonly any[]}} props */
export function ExportButton({ name, columns, rows }) {
  const save = () => saveFile(`${name}.csv`, csvText(columns, rows), "text/csv");
  return html`
    <button type="button" class="icon-button" onClick=${save} aria-label="save as CSV" title="save as CSV"
      disabled=${!rows.length}><${Icon} name="download" /></button>`;
}
