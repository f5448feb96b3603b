/** The applications of all clusters. */

import { clusterNames } from "../live/fleet.js";
import { Heading } from "../ui/heading.js";
import { html } from "../ui/html.js";
import { ApplicationList } from "./application_list.js";

export function ApplicationsPage() {
  return html`
    <${Heading} title="Applications"><p class="muted">Workloads that belong together, and the version of each.</p><//>
    <${ApplicationList} clusters=${clusterNames()} />`;
}
