/** The warnings of all clusters: one row for each object and reason. */

import { useFeed } from "../live/cable.js";
import { clusterNames } from "../live/fleet.js";
import { groupEvents, objectsOf } from "../live/object_rows.js";
import { Heading } from "../ui/heading.js";
import { html, useMemo } from "../ui/html.js";
import { Empty, Failed, Incomplete, Loading } from "../ui/states.js";
import { ObjectList } from "./object_list.js";
import { ObjectPanel } from "./object_panel.js";
import { CLUSTER, VIEW_COLUMNS } from "./view_columns.js";

const [LAST, REASON, OBJECT, ...OTHERS] = VIEW_COLUMNS.events;
const COLUMNS = [LAST, REASON, OBJECT, CLUSTER, ...OTHERS];

export function EventsPage() {
  const feed = useFeed({ channel: "EventsChannel", clusters: clusterNames() });
  const version = feed.version.value;
  const { rows, incomplete, isCut } = useMemo(() => {
    const found = objectsOf(feed.rows);
    return { ...found, rows: groupEvents(found.objects) };
  }, [feed, version]);
  const state = feed.state.value;
  return html`
    <${Heading} title="Events"><p class="muted">Warnings of all clusters, one row for each object and reason.</p><//>
    ${state === "loading" && !rows.length && html`<${Loading} label="loading events" />`}
    ${state === "refused" && !rows.length && html`<${Failed} what="events" status=${feed.status.value}
      message=${feed.reason.value} since=${feed.since.value} retryAt=${feed.retryAt.value} retry=${() => feed.retry()} />`}
    ${(state === "live" || rows.length > 0) && html`
      <${Incomplete} incomplete=${incomplete} isCut=${isCut} />
      <${ObjectList} noun="events" example="reason=BackOff" columns=${COLUMNS} rows=${rows} order="last" hasCluster=${true}
        panel=${(/** @type {any} */ row) => html`<${ObjectPanel} row=${row} tab="" />`}
        empty=${html`<${Empty} title="No warnings"><p>No cluster has written a warning within the last hour.</p><//>`} />`}`;
}
