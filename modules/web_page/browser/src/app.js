/** The page of kas. */

import { boot } from "./boot.js";
import { loadAgents } from "./live/fleet.js";
import { FleetPage } from "./pages/fleet_page.js";
import { BASE, here } from "./route.js";
import { Help } from "./ui/help.js";
import { html, render } from "./ui/html.js";
import { Palette } from "./ui/palette.js";
import { Shell } from "./ui/shell.js";
import { dialog } from "./ui/shortcuts.js";
import { Empty } from "./ui/states.js";

function Page() {
  const { path } = here.value;
  const parts = path.slice(BASE.length + 1).split("/").map(decodeURIComponent);
  switch (parts[0]) {
    case "": case "fleet": return html`<${FleetPage} />`;
    default: return html`<${Empty} icon="search" title="This page does not exist"><p><a href=${`${BASE}/fleet`}>All clusters</a></p><//>`;
  }
}

function App() {
  return html`
    <${Shell}><${Page} key=${here.value.path} /><//>
    ${dialog.value === "palette" && html`<${Palette} />`}
    ${dialog.value === "help" && html`<${Help} />`}`;
}

loadAgents();
const root = document.getElementById("app");
if (root) {
  root.replaceChildren();
  render(html`<${App} />`, root);
}
void boot;
