"""Queries of the row store: rows, clusters, and the lists that need rights."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from modules.cluster_data.server.store.label_selector import label_conditions
from modules.cluster_data.server.store.terms import image_range, name_term
from modules.cluster_data.wire.view_names import SUMMARY, is_view_name
from tunnel.errors import CallError, Status

__all__ = [
    "DEFAULT_LIMIT",
    "LISTS_OF_VIEWS",
    "MAX_CLUSTERS",
    "MAX_LIMIT",
    "VIEWS_OF_KINDS",
    "FoundRow",
    "KnownCluster",
    "ListScope",
    "RowQuery",
    "cluster_identity",
    "count_clusters",
    "find_clusters",
    "find_rows",
    "find_scopes",
    "find_store_id",
    "find_summaries",
    "has_view",
    "lists_in_namespaces",
    "lists_of_view",
    "page_after",
]

#: Number of rows of a page: by default, and at most.
DEFAULT_LIMIT, MAX_LIMIT = 500, 5000

#: Maximum number of named clusters of a query.
MAX_CLUSTERS = 1000

#: Short names of kinds, as kubectl has them.
_SHORT = {
    "cj": "cronjobs",
    "deploy": "deployments",
    "ds": "daemonsets",
    "ev": "events",
    "no": "nodes",
    "ns": "namespaces",
    "po": "pods",
    "sts": "statefulsets",
    "svc": "services",
}

#: The views with one row for each object of their kinds.
VIEWS_OF_KINDS = ("workloads", "nodes", "events", "applications", "services")

_WORKLOADS = ("cronjobs", "daemonsets", "deployments", "jobs", "statefulsets")

#: Plural names of the kinds of each view that every cluster has.  The lists that are
#: reviewed for a user come from here, because reviews of lists with rows would tell a
#: user without rights that there are rows.
LISTS_OF_VIEWS = {
    "workloads": _WORKLOADS,
    "nodes": ("nodes",),
    "problems": (*_WORKLOADS, "namespaces", "nodes", "pods"),
    "events": ("events",),
    "applications": ("applications", "helmreleases", "kustomizations"),
    "services": ("services",),
}

#: Kinds of `LISTS_OF_VIEWS` whose objects have no namespace.
_WITHOUT_NAMESPACE = ("namespaces", "nodes")

#: Expression that identifies the cluster that the rows of an agent are from.  Without a
#: known uid, it is the cache that has published them, because two unknown clusters are
#: not the same one.
_IDENTITY = "CASE cluster_uid WHEN '' THEN 'epoch ' || hex(epoch) ELSE cluster_uid END"

_ORDER = "agent_id, api_group, kind, namespace, name, part"

#: The columns of a `FoundRow`.
_COLUMNS = f"{_ORDER}, resource, columns, agent_name"


class ListScope(NamedTuple):
    """Objects that one access review decides on; all namespaces if it is empty."""

    agent_id: str
    group: str
    resource: str
    namespace: str


class FoundRow(NamedTuple):
    """
    A row of the store.

    :ivar columns: a JSON object.
    """

    agent_id: str
    group: str
    kind: str
    namespace: str
    name: str
    part: str
    resource: str
    columns: str
    agent_name: str


@attrs.frozen
class KnownCluster:
    """
    What the store knows about a cluster.

    :ivar last_seen: seconds since 1970.
    :ivar is_publishing: whether a call of its agentk publishes rows.
    :ivar identity: identifies the cluster that the rows are from, also if its uid is
        unknown; see `cluster_identity`.
    :ivar is_outdated: whether kas could not store its newest rows.
    """

    agent_id: str
    agent_name: str
    cluster_uid: str
    is_publishing: bool
    last_seen: float
    identity: str = ""
    is_outdated: bool = False


def cluster_identity(uid: str, epoch: bytes) -> str:
    """
    Return the identity of a cluster, as `KnownCluster` has it.

    :param uid: the uid of the cluster; empty if it is unknown.
    :param epoch: the epoch of the cache of its agentk; empty if it has none.
    :return: an empty text, which no stored cluster has, if both are unknown.
    """
    return uid or (f"epoch {epoch.hex().upper()}" if epoch else "")


@attrs.frozen(kw_only=True)
class RowQuery:
    """
    Rows of one view that fulfil all conditions; empty conditions are fulfilled.

    :ivar view: empty for the view that has the objects of *kind*.
    :ivar agents: ids of agents; None for all.
    :ivar excluded: ids of agents whose rows are not wanted.
    :ivar kind: a kind, a plural or a short name, with or without ``.group``.
    :ivar image: text that an image contains.
    :ivar page: position of the page, from `FoundPage.next_page`.
    :ivar reader: identifies the reader, for a fair share of the store's time.
    :ivar identities: identities of clusters by id of the agent: only rows from these
        clusters, and not from another cluster that the agent has moved to; None for
        all.
    :raises CallError: INVALID_ARGUMENT for an unknown view or an invalid selector.
    """

    view: str
    agents: Collection[str] | None = None
    excluded: Collection[str] = ()
    kind: str = ""
    namespace: str = ""
    name: str = ""
    label_selector: str = ""
    image: str = ""
    limit: int = DEFAULT_LIMIT
    page: str = ""
    reader: str = ""
    identities: Mapping[str, str] | None = None

    def __attrs_post_init__(self) -> None:
        if not self.view and not self.kind:
            raise CallError(Status.INVALID_ARGUMENT, "name a view or a kind")
        if self.view and not is_view_name(self.view):
            text = f"{self.view[:100]!r} is no name of a view"
            raise CallError(Status.INVALID_ARGUMENT, text)
        if self.page:
            _position(self.page)
        self.filters(by_term=True)

    def scope(self) -> tuple[str, list[Any]]:
        """Return the condition for the lists of the query, and its parameters."""
        terms = ["staged = 0", "view IN (SELECT value FROM json_each(?))"]
        values: list[Any] = [json.dumps([self.view] if self.view else VIEWS_OF_KINDS)]
        if self.agents is not None:
            terms.append("agent_id IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(sorted(self.agents)))
        if self.identities is not None:
            terms.append(_FROM_CLUSTERS)
            values.append(json.dumps(dict(self.identities)))
        if self.excluded:
            terms.append("agent_id NOT IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(sorted(self.excluded)))
        if self.kind:
            name, _, group = self.kind.lower().partition(".")
            name = _SHORT.get(name, name)
            terms.append("(lower(kind) = ? OR resource = ?)")
            values += [name, name]
            if group:
                terms.append("api_group = ?")
                values.append(group)
        if self.namespace:
            terms.append("namespace = ?")
            values.append(self.namespace)
        return " AND ".join(terms), values

    def filters(self, by_term: bool) -> tuple[str, list[Any]]:
        """
        Return the condition for single rows, and its parameters.

        :param by_term: find the rows by their terms, of all clusters; otherwise examine
            each row, so that the time depends on these rows alone.
        """
        terms = ["1"]
        values: list[Any] = []
        if self.name:
            terms.append(_NAME_BY_TERM if by_term else "name = ?")
            values.append(name_term(self.name) if by_term else self.name)
        if self.image and by_term:
            first, end = image_range()
            terms.append(
                "id IN (SELECT id FROM terms WHERE term >= ? AND term < ?"
                " AND instr(substr(term, ?), ?))"
            )
            values += [first, end, len(first) + 1, self.image]
        elif self.image:
            terms.append(
                "EXISTS (SELECT 1 FROM json_each(columns, '$.images')"
                " WHERE instr(value, ?))"
            )
            values.append(self.image)
        try:
            for term, more in label_conditions(self.label_selector, by_term):
                terms.append(term)
                values += more
        except ValueError as error:
            raise CallError(Status.INVALID_ARGUMENT, str(error)) from None
        return " AND ".join(terms), values


#: Condition for rows from the clusters in an object: identities by id of the agent.
_FROM_CLUSTERS = (
    "agent_id IN (SELECT agent_id FROM clusters JOIN json_each(?) AS expected"
    f" ON expected.key = agent_id AND expected.value = {_IDENTITY})"
)

#: Condition for rows with a name.
_NAME_BY_TERM = "id IN (SELECT id FROM terms WHERE term = ?)"


def find_scopes(database: sqlite3.Connection, query: RowQuery) -> set[ListScope]:
    """
    Return lists that are reviewed for a user's query: those with rows, and whether they
    have rows or not, those of the kinds of the view, in all namespaces and in the
    namespace of the query.
    """
    found = _scopes(database, query)
    names = lists_of_view(query.view)
    if not names:
        return found
    # The counts have a row for each kind that agentk reads, also without objects.
    counts = attrs.evolve(query, view=SUMMARY, namespace="")
    kinds = {one for one in _scopes(database, counts) if one.resource in names}
    found |= kinds
    if query.namespace:
        found |= lists_in_namespaces(kinds, [query.namespace])
    return found


def lists_of_view(view: str) -> set[str]:
    """
    Return the plural names of the kinds of a view that every cluster has; none for
    other views.

    :param view: as in `RowQuery`.
    """
    views = (view,) if view else VIEWS_OF_KINDS
    return {name for one in views for name in LISTS_OF_VIEWS.get(one, ())}


def lists_in_namespaces(
    kinds: Iterable[ListScope], namespaces: Collection[str]
) -> set[ListScope]:
    """Return the lists of kinds in each namespace, for kinds that have namespaces."""
    return {
        kind._replace(namespace=namespace)
        for kind in kinds
        if kind.resource not in _WITHOUT_NAMESPACE
        for namespace in namespaces
    }


def _scopes(database: sqlite3.Connection, query: RowQuery) -> set[ListScope]:
    """Return the lists with rows that a query finds."""
    where, values = query.scope()
    found = database.execute(
        "SELECT DISTINCT agent_id, api_group, resource, namespace FROM rows"
        f" WHERE {where}",
        values,
    )
    return {ListScope(*one) for one in found}


def find_rows(
    database: sqlite3.Connection,
    query: RowQuery,
    scopes: Collection[ListScope] | None,
) -> tuple[list[FoundRow], str]:
    """
    Return one page of rows, and the position of the next page; empty if there is none.

    :param scopes: the scopes whose rows the reader may see; None for all.
    """
    if scopes is not None and not scopes:
        return [], ""
    where, values = query.scope()
    first, source = "", "rows"
    if scopes is not None:
        # The time of the query must not depend on rows that the reader may not see.
        texts = [
            json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in scopes
        ]
        first = (
            f"WITH permitted AS MATERIALIZED (SELECT id FROM rows WHERE {where}"
            " AND json_array(agent_id, api_group, resource, namespace)"
            " IN (SELECT value FROM json_each(?))) "
        )
        values.append(json.dumps(texts))
        source = "permitted JOIN rows USING (id)"
        where = "1"
    more, others = query.filters(by_term=scopes is None)
    where += f" AND {more}"
    values += others
    if query.page:
        where += f" AND ({_ORDER}) > (?, ?, ?, ?, ?, ?)"
        values += _position(query.page)
    limit = min(query.limit or DEFAULT_LIMIT, MAX_LIMIT)
    found = database.execute(
        f"{first}SELECT {_COLUMNS} FROM {source} JOIN clusters USING (agent_id)"
        f" WHERE {where} ORDER BY {_ORDER} LIMIT ?",
        [*values, limit + 1],
    ).fetchall()
    rows = [FoundRow(*one) for one in found[:limit]]
    return rows, page_after(rows[-1]) if len(found) > limit else ""


def find_clusters(
    database: sqlite3.Connection,
    names: Sequence[str] = (),
    not_live_since: float | None = None,
) -> list[KnownCluster]:
    """
    Return clusters, sorted by name.

    :param names: names or ids of agents; empty for all clusters.
    :param not_live_since: return only clusters whose agent does not publish, or whose
        last message is older than this time.
    :raises CallError: INVALID_ARGUMENT for too many names.
    """
    where, values = _cluster_condition(names)
    if not_live_since is not None:
        where += " AND (publisher = x'' OR last_seen < ?)"
        values.append(not_live_since)
    found = database.execute(
        "SELECT agent_id, agent_name, cluster_uid, publisher <> x'', last_seen,"
        f" {_IDENTITY} FROM clusters WHERE {where} ORDER BY agent_name, agent_id",
        values,
    )
    return [KnownCluster(*one) for one in found]


def find_store_id(database: sqlite3.Connection) -> str:
    """Return the random id of the store."""
    (found,) = database.execute("SELECT id FROM stores").fetchone()
    return str(found)


def has_view(
    database: sqlite3.Connection, view: str, agents: Collection[str] | None = None
) -> bool:
    """
    Return whether an agent has a view.

    :param agents: ids of the agents; None for all.
    """
    where, values = "view = ?", [view]
    if agents is not None:
        where += " AND agent_id IN (SELECT value FROM json_each(?))"
        values.append(json.dumps(sorted(agents)))
    found = database.execute(f"SELECT 1 FROM views WHERE {where} LIMIT 1", values)
    return found.fetchone() is not None


def count_clusters(database: sqlite3.Connection, names: Sequence[str] = ()) -> int:
    """Return the number of clusters with these names; of all if *names* is empty."""
    where, values = _cluster_condition(names)
    (count,) = database.execute(
        f"SELECT COUNT(*) FROM clusters WHERE {where}", values
    ).fetchone()
    return int(count)


def _cluster_condition(names: Sequence[str]) -> tuple[str, list[Any]]:
    if len(names) > MAX_CLUSTERS:
        raise CallError(
            Status.INVALID_ARGUMENT, f"a query may name at most {MAX_CLUSTERS} clusters"
        )
    if not names:
        return "1", []
    text = json.dumps(list(names))
    return (
        "(agent_id IN (SELECT value FROM json_each(?))"
        " OR agent_name IN (SELECT value FROM json_each(?)))"
    ), [text, text]


def find_summaries(
    database: sqlite3.Connection,
    agents: Collection[str],
    identities: Mapping[str, str] | None = None,
) -> Mapping[str, list[FoundRow]]:
    """
    Return the rows of the view ``summary``, by agent.

    :param identities: as in `RowQuery`.
    """
    query = RowQuery(view="summary", agents=agents, identities=identities)
    where, values = query.scope()
    found = database.execute(
        f"SELECT {_COLUMNS} FROM rows JOIN clusters USING (agent_id) WHERE {where}",
        values,
    )
    summaries: dict[str, list[FoundRow]] = {}
    for one in found:
        row = FoundRow(*one)
        summaries.setdefault(row.agent_id, []).append(row)
    return summaries


def page_after(row: FoundRow) -> str:
    """Return the position of the page that begins after a row."""
    return base64.urlsafe_b64encode(json.dumps(row[:6]).encode()).decode()


def _position(page: str) -> list[str]:
    try:
        found = json.loads(base64.urlsafe_b64decode(page))
        # Half of a character is no text.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        found = None
    if (
        not isinstance(found, list)
        or len(found) != 6
        or not all(isinstance(one, str) for one in found)
    ):
        raise CallError(Status.INVALID_ARGUMENT, "the page is not from a response")
    return found
