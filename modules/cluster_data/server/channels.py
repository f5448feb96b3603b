"""
Channels of ActionCable with the rows of clusters.

A message has the epoch ``e`` and the sequence number ``s`` of the result, and either
all rows in ``snapshot``, or ``put`` and ``delete``.  Rows have keys, and the key
``cluster/<id>`` has the state of a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import msgspec
from zope.interface import implementer

from modules.cluster_data.server.live_queries import (
    LiveQueries,
    LiveQuery,
    QueryResult,
)
from modules.cluster_data.server.named_clusters import (
    check_names,
    named_clusters,
)
from modules.cluster_data.server.reader import (
    ClusterAnswer,
    FleetReader,
    item_of,
    key_of,
)
from modules.cluster_data.server.store.queries import (
    MAX_LIMIT,
    VIEWS_OF_KINDS,
    RowQuery,
)
from modules.cluster_data.server.work_budget import WorkBudget
from tunnel.api import Access, ICable, ICableSubscription, IChannel
from tunnel.errors import CallError, Status

__all__ = ["CHANNELS", "RowsChannel"]

#: Maximum number of characters of a parameter.
MAX_PARAMETER = 1000


@attrs.frozen
class _Question:
    """
    What a subscription asks.

    :ivar query: None for the clusters and their numbers of objects.
    """

    clusters: tuple[str, ...]
    query: RowQuery | None

    @property
    def views(self) -> frozenset[str]:
        """Return the names of the views that the answer is read from."""
        if self.query is None:
            return frozenset(["summary"])
        return frozenset([self.query.view] if self.query.view else VIEWS_OF_KINDS)


def _texts(params: Mapping[str, Any], *names: str) -> dict[str, str]:
    """Return parameters that are texts; a missing one is empty."""
    found = {name: params.get(name, "") for name in names}
    for name, value in found.items():
        if not isinstance(value, str) or len(value) > MAX_PARAMETER:
            raise CallError(
                Status.INVALID_ARGUMENT,
                f"{name} must be a text of at most {MAX_PARAMETER} characters",
            )
    return found


def _clusters(params: Mapping[str, Any]) -> tuple[str, ...]:
    found = params.get("clusters")
    if not isinstance(found, list) or not all(
        isinstance(one, str) and one.isprintable() and one for one in found
    ):
        raise CallError(Status.INVALID_ARGUMENT, "clusters must be a list of names")
    check_names(found)
    return tuple(sorted(set(found)))


def _fleet(params: Mapping[str, Any]) -> _Question:
    return _Question(_clusters(params), None)


def _cluster(params: Mapping[str, Any]) -> _Question:
    found = _texts(params, "cluster", "view")
    if not found["cluster"]:
        raise CallError(Status.INVALID_ARGUMENT, "cluster must name a cluster")
    query = RowQuery(view=found["view"] or "workloads", limit=MAX_LIMIT)
    return _Question((found["cluster"],), query)


def _objects(params: Mapping[str, Any]) -> _Question:
    found = _texts(params, "kind", "namespace", "name", "labelSelector", "image")
    query = RowQuery(
        view="",
        kind=found["kind"],
        namespace=found["namespace"],
        name=found["name"],
        label_selector=found["labelSelector"],
        image=found["image"],
        limit=MAX_LIMIT,
    )
    return _Question(_clusters(params), query)


def _events(params: Mapping[str, Any]) -> _Question:
    found = _texts(params, "namespace")
    query = RowQuery(view="events", namespace=found["namespace"], limit=MAX_LIMIT)
    return _Question(_clusters(params), query)


#: The channels, by name.
CHANNELS: Mapping[str, Callable[[Mapping[str, Any]], _Question]] = {
    "FleetChannel": _fleet,
    "ClusterChannel": _cluster,
    "ObjectsChannel": _objects,
    "EventsChannel": _events,
}


@attrs.define(eq=False)
class _Listener:
    """
    A subscription that follows a query.

    :ivar needs_snapshot: whether a snapshot waits for its turn, which will contain all
        changes until then.
    """

    subscription: ICableSubscription
    needs_snapshot: bool = False

    def changed(
        self, query: LiveQuery, put: Mapping[str, Any], deleted: list[str]
    ) -> None:
        """See `QueryListener`."""
        if self.needs_snapshot:
            return
        self.subscription.send(
            {"e": query.epoch, "s": query.sequence, "put": put, "delete": deleted}
        )

    def failed(self, error: CallError) -> None:
        """See `QueryListener`."""
        self.subscription.reject()


@implementer(IChannel)
class RowsChannel:
    """
    A channel with rows of clusters.

    :param ask: reads the question from the parameters of a subscription.
    :param budget: limits the work for each user.
    """

    def __init__(
        self,
        name: str,
        reader: FleetReader,
        queries: LiveQueries,
        ask: Callable[[Mapping[str, Any]], _Question],
        budget: WorkBudget,
    ) -> None:
        self.name = name
        self._budget = budget
        self._reader = reader
        self._queries = queries
        self._ask = ask
        self._followed: dict[ICableSubscription, tuple[LiveQuery, _Listener]] = {}

    def serve(self, cable: ICable) -> Callable[[], None]:
        """Let clients subscribe; return a function that ends that."""
        withdraw: Callable[[], None] = cable.serve(self.name, self)
        return withdraw

    async def subscribe(self, subscription: ICableSubscription) -> None:
        """See `IChannel`."""
        question = self._ask(subscription.params)
        accesses = await self._authorized(question, subscription)
        owner = next(iter(accesses.values())).budget_owner
        # A caller has one connection, so the query ends with it at the latest.
        key = (owner, (subscription.caller, self.name, _text(question)))
        listener = _Listener(subscription)
        query = await self._queries.follow(
            key,
            frozenset(accesses),
            question.views,
            lambda: self._answer(question, subscription),
            listener,
        )
        self._followed[subscription] = (query, listener)

    async def _authorized(
        self, question: _Question, subscription: ICableSubscription
    ) -> Mapping[str, Access]:
        """
        Return the rights of the client by id of the agent.

        :raises CallError: the client has no rights at any of the clusters.
        """
        caller = subscription.caller
        names = await named_clusters(question.clusters, caller.reach)
        accesses, denied = await self._reader.accesses(names, caller.authorize)
        if not accesses:
            raise CallError(Status.PERMISSION_DENIED, denied[0].reason)
        return accesses

    async def send_snapshot(self, subscription: ICableSubscription) -> None:
        """See `IChannel`."""
        query, listener = self._followed[subscription]
        listener.needs_snapshot = True
        await self._budget.admit(query.owner)
        listener.needs_snapshot = False
        self._budget.charge_rows(query.owner, len(query.rows), 1024 * query.kib)
        message = {"e": query.epoch, "s": query.sequence, "snapshot": query.rows}
        subscription.send_json(msgspec.json.encode(message).decode())

    async def resume(
        self, subscription: ICableSubscription, data: Mapping[str, Any]
    ) -> None:
        """See `IChannel`."""
        query, listener = self._followed[subscription]
        if (data.get("e"), data.get("s")) == (query.epoch, query.sequence):
            listener.changed(query, {}, [])
        else:
            await self.send_snapshot(subscription)

    def perform(
        self, subscription: ICableSubscription, action: str, data: Mapping[str, Any]
    ) -> None:
        """See `IChannel`; the channel has no actions."""
        raise CallError(Status.UNIMPLEMENTED, f"{self.name} has no action {action!r}")

    def unsubscribe(self, subscription: ICableSubscription) -> None:
        """See `IChannel`."""
        followed = self._followed.pop(subscription, None)
        if followed is not None:
            query, listener = followed
            query.leave(listener)

    async def _answer(
        self, question: _Question, subscription: ICableSubscription
    ) -> QueryResult:
        """Return the rows that the client may see now, by key."""
        caller = subscription.caller
        names = await named_clusters(question.clusters, caller.reach)
        access_of = caller.authorize
        if question.query is None:
            known = await self._reader.clusters(names, access_of)
            states = dict(_of_cluster(one) for one in known.clusters)
            return QueryResult(states, len(states), known.reached, known.as_of)
        found = await self._reader.rows(question.query, names, access_of)
        rows: dict[str, Any] = dict(_of_cluster(one) for one in found.incomplete)
        for row in found.rows:
            rows[key_of(row)] = item_of(row)
        if found.next_page:
            rows["more"] = True
        size = sum(len(row.columns) for row in found.rows)
        kib = len(rows) + size // 1024
        return QueryResult(rows, kib, found.reached, found.as_of)


def _of_cluster(one: ClusterAnswer) -> tuple[str, dict[str, Any]]:
    """Return the key and the state of a cluster, without an age that always grows."""
    state: dict[str, Any] = {"name": one.cluster.agent_name, "state": one.state}
    if one.state in ("late", "offline"):
        state["lastSeen"] = one.cluster.last_seen
    if one.summary:
        state["summary"] = {
            row.resource: json.loads(row.columns) for row in one.summary
        }
    return f"cluster/{one.cluster.agent_id or one.cluster.agent_name}", state


def _text(question: _Question) -> str:
    query = None if question.query is None else attrs.astuple(question.query)
    return json.dumps([question.clusters, query])
