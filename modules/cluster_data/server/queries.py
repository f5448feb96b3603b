"""Queries of the row store: rows, clusters, and the lists that need rights."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from modules.cluster_data.server.label_selector import label_conditions
from modules.cluster_data.server.row_store import VIEWS
from tunnel.errors import CallError, Status

__all__ = [
    "DEFAULT_LIMIT",
    "MAX_LIMIT",
    "FoundRow",
    "KnownCluster",
    "ListScope",
    "RowQuery",
    "find_clusters",
    "find_rows",
    "find_scopes",
    "find_summaries",
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
}

#: The views with one row for each object of their kinds.
_VIEWS_OF_KINDS = ("workloads", "nodes", "events")

_ORDER = "agent_id, api_group, kind, namespace, name, part"


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


@attrs.frozen
class KnownCluster:
    """
    What the store knows about a cluster.

    :ivar last_seen: seconds since 1970.
    :ivar is_publishing: whether a call of its agentk publishes rows.
    """

    agent_id: str
    agent_name: str
    cluster_uid: str
    is_publishing: bool
    last_seen: float


@attrs.frozen(kw_only=True)
class RowQuery:
    """
    Rows of one view that fulfil all conditions; empty conditions are fulfilled.

    :ivar view: empty for the view that has the objects of *kind*.
    :ivar agents: ids of agents; None for all.
    :ivar kind: a kind, a plural or a short name, with or without ``.group``.
    :ivar image: text that an image contains.
    :ivar page: position of the page, from `FoundPage.next_page`.
    :raises CallError: INVALID_ARGUMENT for an unknown view or an invalid selector.
    """

    view: str
    agents: Collection[str] | None = None
    kind: str = ""
    namespace: str = ""
    name: str = ""
    label_selector: str = ""
    image: str = ""
    limit: int = DEFAULT_LIMIT
    page: str = ""

    def __attrs_post_init__(self) -> None:
        if not self.view and not self.kind:
            raise CallError(Status.INVALID_ARGUMENT, "name a view or a kind")
        if self.view and self.view not in VIEWS:
            known = ", ".join(VIEWS)
            raise CallError(
                Status.INVALID_ARGUMENT, f"there is no view {self.view!r}: {known}"
            )
        self.where()

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition of SQLite, and its parameters."""
        terms: list[str] = ["view IN (SELECT value FROM json_each(?))"]
        values: list[Any] = [json.dumps([self.view] if self.view else _VIEWS_OF_KINDS)]
        if self.agents is not None:
            terms.append("agent_id IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(sorted(self.agents)))
        if self.kind:
            name, _, group = self.kind.lower().partition(".")
            name = _SHORT.get(name, name)
            terms.append("(lower(kind) = ? OR resource = ?)")
            values += [name, name]
            if group:
                terms.append("api_group = ?")
                values.append(group)
        for column in ("namespace", "name"):
            if value := getattr(self, column):
                terms.append(f"{column} = ?")
                values.append(value)
        if self.image:
            terms.append(
                "EXISTS (SELECT 1 FROM json_each(columns, '$.images')"
                " WHERE instr(value, ?))"
            )
            values.append(self.image)
        try:
            for term, more in label_conditions(self.label_selector):
                terms.append(term)
                values += more
        except ValueError as error:
            raise CallError(Status.INVALID_ARGUMENT, str(error)) from None
        return " AND ".join(terms), values


def find_scopes(database: sqlite3.Connection, query: RowQuery) -> set[ListScope]:
    """Return the scopes of all rows that a query finds, on all pages."""
    where, values = query.where()
    found = database.execute(
        f"SELECT DISTINCT agent_id, api_group, resource, namespace FROM rows"
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
    where, values = query.where()
    if query.page:
        where += f" AND ({_ORDER}) > (?, ?, ?, ?, ?, ?)"
        values += _position(query.page)
    if scopes is not None:
        where += (
            " AND json_array(agent_id, api_group, resource, namespace)"
            " IN (SELECT value FROM json_each(?))"
        )
        texts = [
            json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in scopes
        ]
        values.append(json.dumps(texts))
    limit = min(query.limit or DEFAULT_LIMIT, MAX_LIMIT)
    found = database.execute(
        f"SELECT {_ORDER}, resource, columns FROM rows WHERE {where}"
        f" ORDER BY {_ORDER} LIMIT ?",
        [*values, limit + 1],
    ).fetchall()
    rows = [FoundRow(*one) for one in found[:limit]]
    return rows, _page_after(rows[-1]) if len(found) > limit else ""


def find_clusters(
    database: sqlite3.Connection, names: Sequence[str] = ()
) -> list[KnownCluster]:
    """
    Return clusters by name.

    :param names: names or ids of agents; empty for all clusters.
    :raises CallError: INVALID_ARGUMENT for too many names.
    """
    if len(names) > MAX_CLUSTERS:
        raise CallError(
            Status.INVALID_ARGUMENT, f"a query may name at most {MAX_CLUSTERS} clusters"
        )
    where, values = "", []
    if names:
        where = (
            " WHERE agent_id IN (SELECT value FROM json_each(?1))"
            " OR agent_name IN (SELECT value FROM json_each(?1))"
        )
        values = [json.dumps(list(names))]
    found = database.execute(
        "SELECT agent_id, agent_name, cluster_uid, publisher <> x'', last_seen"
        f" FROM clusters{where} ORDER BY agent_name, agent_id",
        values,
    )
    return [KnownCluster(*one) for one in found]


def find_summaries(
    database: sqlite3.Connection, agents: Collection[str]
) -> Mapping[str, list[FoundRow]]:
    """Return the rows of the view ``summary``, by agent."""
    found = database.execute(
        f"SELECT {_ORDER}, resource, columns FROM rows WHERE view = 'summary'"
        " AND agent_id IN (SELECT value FROM json_each(?))",
        [json.dumps(sorted(agents))],
    )
    summaries: dict[str, list[FoundRow]] = {}
    for one in found:
        row = FoundRow(*one)
        summaries.setdefault(row.agent_id, []).append(row)
    return summaries


def _page_after(row: FoundRow) -> str:
    return base64.urlsafe_b64encode(json.dumps(row[:6]).encode()).decode()


def _position(page: str) -> list[str]:
    try:
        found = json.loads(base64.urlsafe_b64decode(page))
    except ValueError:
        found = None
    if (
        not isinstance(found, list)
        or len(found) != 6
        or not all(isinstance(one, str) for one in found)
    ):
        raise CallError(Status.INVALID_ARGUMENT, "the page is not from a response")
    return found
