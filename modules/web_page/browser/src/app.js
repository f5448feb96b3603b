/** The page of kas. */

import { boot } from "./boot.js";
import { loadAgents } from "./live/fleet.js";
import { ApplicationsPage } from "./pages/applications_page.js";
import { ClusterPage } from "./pages/cluster_page.js";
import { EventsPage } from "./pages/events_page.js";
import { FleetPage } from "./pages/fleet_page.js";
import { PartPage } from "./pages/part_page.js";
import { ProblemsPage } from "./pages/problems_page.js";
import { BASE, here } from "./route.js";
import { Boundary } from "./ui/boundary.js";
import { Heading } from "./ui/heading.js";
import { Help } from "./ui/help.js";
import { html, render } from "./ui/html.js";
import { Palette } from "./ui/palette.js";
import { Shell } from "./ui/shell.js";
import { dialog } from "./ui/shortcuts.js";
import { Empty } from "./ui/states.js";

function Page() {
  const { path } = here.value;
  const part = boot.parts.find((one) => one.path === path);
  if (part) return html`<${PartPage} key=${path} part=${part} />`;
  const [page, name, tab = ""] = path.slice(BASE.length + 1).split("/").map(decoded);
  switch (page) {
    case "": case "fleet": return html`<${FleetPage} />`;
    case "problems": return html`<${ProblemsPage} />`;
    case "events": return html`<${EventsPage} />`;
    case "applications": return html`<${ApplicationsPage} />`;
    case "clusters": if (name) return html`<${ClusterPage} key=${name} name=${name} tab=${tab} />`;
    // falls through
    default: return html`
      <${Heading} title="Not found" />
      <${Empty} icon="search" title="This page does not exist"><p><a href=${`${BASE}/fleet`}>All clusters</a></p><//>`;
  }
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function App() {
  return html`
    <${Boundary}><${Shell}><${Boundary} key=${here.value.path.split("/").slice(0, 4).join("/")}><${Page} /><//><//><//>
    ${dialog.value === "palette" && html`<${Palette} />`}
    ${dialog.value === "help" && html`<${Help} />`}`;
}

loadAgents();
const root = document.getElementById("app");
if (root) {
  // kas has written the first content.
  root.replaceChildren();
  render(html`<${App} />`, root);
}
