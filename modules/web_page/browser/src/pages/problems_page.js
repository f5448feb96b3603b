/** The problems of all clusters, the newest of the worst first. */

import { loadProblems, useProblems } from "../live/problems.js";
import { objectRow } from "../live/object_rows.js";
import { BASE } from "../route.js";
import { Heading } from "../ui/heading.js";
import { html, useMemo } from "../ui/html.js";
import { Empty, Failed, Incomplete, Loading } from "../ui/states.js";
import { ObjectList } from "./object_list.js";
import { ObjectPanel } from "./object_panel.js";
import { CLUSTER, TROUBLE, VIEW_COLUMNS } from "./view_columns.js";

const [STATE, NAME, ...OTHERS] = VIEW_COLUMNS.problems;
const COLUMNS = [STATE, NAME, CLUSTER, ...OTHERS];
const HIDDEN = [TROUBLE];

export function ProblemsPage() {
  const { rows: found, incomplete, missingKas, isCut, error, since, retryAt } = useProblems();
  const rows = useMemo(() => (found ?? []).map((one) => objectRow(one)), [found]);
  return html`
    <${Heading} title="Problems"><p class="muted">Objects that have not reached the state of their specification.</p><//>
    ${!found && error && html`<${Failed} what="problems" status=${error.status} message=${error.message} since=${since}
      retryAt=${retryAt} retry=${loadProblems} />`}
    ${!found && !error && html`<${Loading} label="loading problems" />`}
    ${found && html`
      ${error && html`<div class="notice notice--warning">The rows are old: ${error.message}</div>`}
      <${Incomplete} incomplete=${incomplete} missingKas=${missingKas} isCut=${isCut} />
      <${ObjectList} noun="problems" example="kind!=Pod cluster~eu" columns=${COLUMNS} rows=${rows}
        order="-trouble" hidden=${HIDDEN} hasCluster=${true}
        panel=${(/** @type {any} */ row) => html`<${ObjectPanel} row=${row} tab="" />`}
        empty=${html`<${Empty} title="No problems"><p>Each object that you may see has reached the state of its
          specification.</p><p><a href=${`${BASE}/fleet`}>All clusters</a></p><//>`} />`}`;
}
