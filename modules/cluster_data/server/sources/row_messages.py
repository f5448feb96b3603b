"""Rows and queries as messages."""

from __future__ import annotations

from collections.abc import Iterable

from modules.cluster_data.server.store.queries import FoundRow, ListScope, RowQuery
from modules.cluster_data.wire import fleet_pb2, peers_pb2

__all__ = [
    "query_message",
    "read_query",
    "read_row",
    "read_scopes",
    "row_message",
    "scope_messages",
]


def row_message(row: FoundRow) -> fleet_pb2.FoundRow:
    """Return the message that contains a row."""
    return fleet_pb2.FoundRow(**row._asdict())


def read_row(message: fleet_pb2.FoundRow) -> FoundRow:
    """Return the row that a message contains."""
    return FoundRow(*(getattr(message, name) for name in FoundRow._fields))


def scope_messages(scopes: Iterable[ListScope]) -> list[peers_pb2.StoredScope]:
    """Return the messages that contain scopes."""
    return [peers_pb2.StoredScope(**one._asdict()) for one in scopes]


def read_scopes(messages: Iterable[peers_pb2.StoredScope]) -> set[ListScope]:
    """Return the scopes that messages contain."""
    return {
        ListScope(one.agent_id, one.group, one.resource, one.namespace)
        for one in messages
    }


def query_message(query: RowQuery) -> peers_pb2.StoredQuery:
    """Return the message that contains a query."""
    return peers_pb2.StoredQuery(
        view=query.view,
        agents=sorted(query.agents or ()),
        all_agents=query.agents is None,
        excluded=sorted(query.excluded),
        kind=query.kind,
        namespace=query.namespace,
        name=query.name,
        label_selector=query.label_selector,
        image=query.image,
        limit=query.limit,
        page=query.page,
        reader=query.reader,
        identities=query.identities,
    )


def read_query(message: peers_pb2.StoredQuery) -> RowQuery:
    """
    Return the query that a message contains.

    :raises CallError: INVALID_ARGUMENT, as of `RowQuery`.
    """
    return RowQuery(
        view=message.view,
        agents=None if message.all_agents else list(message.agents),
        excluded=list(message.excluded),
        kind=message.kind,
        namespace=message.namespace,
        name=message.name,
        label_selector=message.label_selector,
        image=message.image,
        limit=message.limit,
        page=message.page,
        reader=message.reader,
        identities=dict(message.identities) or None,
    )
