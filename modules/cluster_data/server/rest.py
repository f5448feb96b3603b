"""
The query API for users: ``/api/v1`` on the listener for pages.

A user's credential gives access to agents one by one, so a request names its clusters.
All rows of a response have passed an access review for the user.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import attrs
from klein import Klein
from twisted.internet.defer import CancelledError, Deferred
from twisted.web.iweb import IRequest

from modules.cluster_data.server.applications import (
    Application,
    Component,
    ReadPage,
    find_applications,
    find_components,
)
from modules.cluster_data.server.known_components import ComponentTable
from modules.cluster_data.server.named_clusters import check_names, named_clusters
from modules.cluster_data.server.reader import (
    ClusterAnswer,
    FleetReader,
    RowsAnswer,
    item_of,
)
from modules.cluster_data.server.store.queries import RowQuery
from tunnel.api import IServerModuleApi, PageCaller
from tunnel.errors import CallError, Status
from tunnel.toolkit.csv_text import csv_text
from tunnel.toolkit.peer_turns import PeerTurns, TooManyTurns

__all__ = ["PREFIX", "RestApi"]

#: Path of the API.
PREFIX = "/api/v1"

#: Number of requests of one token that run at the same time, and of all tokens.
REQUESTS_EACH, MAX_REQUESTS = 4, 64

#: Maximum number of requests of one token that wait, and the seconds that each waits.
MAX_WAITING, WAIT_SECONDS = 20, 20.0

#: Maximum number of characters of each parameter.
MAX_PARAMETER = 4000

#: HTTP status of each status of a call; 500 for others.
_CODES = {
    Status.INVALID_ARGUMENT: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.UNIMPLEMENTED: 501,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}

#: Parameters of `RowQuery`, by their names in the query of the URL.
_PARAMETERS = {
    "kind": "kind",
    "namespace": "namespace",
    "name": "name",
    "labelSelector": "label_selector",
    "image": "image",
    "continue": "page",
}


class RestApi:
    """Resources of the query API."""

    app: ClassVar[Klein] = Klein()

    def __init__(
        self, api: IServerModuleApi, reader: FleetReader, components: ComponentTable
    ) -> None:
        self._api = api
        self._reader = reader
        self._components = components
        self._turns: PeerTurns[bytes] = PeerTurns(
            api.clock,
            of_peer=REQUESTS_EACH,
            of_all=MAX_REQUESTS,
            most_waiting=MAX_WAITING,
            seconds=WAIT_SECONDS,
        )

    @app.route("/clusters", methods=["GET"])
    def clusters(self, request: IRequest) -> Deferred[bytes]:
        """Return clusters, with the age of their data and their numbers of objects."""
        return self._answer(request, self._clusters)

    @app.route("/objects", methods=["GET"])
    def objects(self, request: IRequest) -> Deferred[bytes]:
        """Return objects of one kind."""
        return self._answer(request, lambda one: self._rows(one, ""))

    @app.route("/views/<view>", methods=["GET"])
    def view(self, request: IRequest, view: str) -> Deferred[bytes]:
        """Return the rows of one view."""
        return self._answer(request, lambda one: self._rows(one, view))

    @app.route("/problems", methods=["GET"])
    def problems(self, request: IRequest) -> Deferred[bytes]:
        """Return objects that are not as specified."""
        return self._answer(request, lambda one: self._rows(one, "problems"))

    @app.route("/events", methods=["GET"])
    def events(self, request: IRequest) -> Deferred[bytes]:
        """Return warnings."""
        return self._answer(request, lambda one: self._rows(one, "events"))

    @app.route("/applications", methods=["GET"])
    def applications(self, request: IRequest) -> Deferred[bytes]:
        """Return the applications that the labels of workloads name."""
        return self._answer(request, self._applications)

    @app.route("/components", methods=["GET"])
    def components(self, request: IRequest) -> Deferred[bytes]:
        """Return well-known components, such as ingress controllers."""
        return self._answer(request, self._known_components)

    def _answer(self, request: Any, work: Any) -> Deferred[bytes]:
        """Return the body of a response, also for an error."""
        working = Deferred.fromCoroutine(self._answered(request, work))
        request.notifyFinish().addErrback(lambda failure: working.cancel())
        return working

    async def _answered(self, request: Any, work: Any) -> bytes:
        request.setHeader(b"cache-control", b"no-store")
        try:
            asked = self._asked(request)
            async with self._turns.turn(asked.reader.digest):
                clusters = await named_clusters(asked.clusters, asked.reader.reach)
                asked = attrs.evolve(asked, clusters=clusters)
                body: bytes = await work(asked)
        except TooManyTurns as error:
            request.setResponseCode(429, b"Too Many Requests")
            request.setHeader(b"retry-after", b"1")
            return _json(request, {"message": f"too many requests: {error}"})
        except CallError as error:
            request.setResponseCode(_CODES.get(error.status, 500))
            if error.status is Status.RESOURCE_EXHAUSTED:
                request.setHeader(b"retry-after", b"5")
            if error.status is Status.UNAUTHENTICATED:
                request.setHeader(b"www-authenticate", b"Bearer")
            return _json(request, {"message": error.message})
        except CancelledError:
            return b""
        return body

    def _asked(self, request: Any) -> _Asked:
        parameters: dict[str, str] = {}
        for name, values in request.args.items():
            text = values[0].decode("utf-8", "replace")
            if len(values) > 1 or len(text) > MAX_PARAMETER:
                raise CallError(
                    Status.INVALID_ARGUMENT,
                    "a parameter may be given once, and be at most "
                    f"{MAX_PARAMETER} characters long",
                )
            parameters[name.decode("utf-8", "replace")] = text
        names = [one for one in parameters.pop("clusters", "").split(",") if one]
        check_names(names)
        return _Asked(
            request, PageCaller.of(self._api.users, request), names, parameters
        )

    async def _clusters(self, asked: _Asked) -> bytes:
        asked.finish()
        found = await self._reader.clusters(asked.clusters, asked.reader.access_of)
        return _json(
            asked.request,
            {
                "asOf": found.as_of,
                "clusters": [_cluster(one) for one in found.clusters],
                # Addresses of kas are not for users.
                "missingKas": len(found.missing_kas),
            },
        )

    async def _applications(self, asked: _Asked) -> bytes:
        namespace = asked.parameters.pop("namespace", "")
        asked.finish()
        found = await find_applications(self._pages(asked), namespace)
        items = [_grouped(one) for one in found.applications]
        return _groups(asked.request, items, found.rows, found.is_cut)

    async def _known_components(self, asked: _Asked) -> bytes:
        namespace = asked.parameters.pop("namespace", "")
        asked.finish()
        found = await find_components(self._pages(asked), self._components, namespace)
        items = [_grouped(one) for one in found.components]
        return _groups(asked.request, items, found.rows, found.is_cut)

    def _pages(self, asked: _Asked) -> ReadPage:
        access_of = asked.reader.access_of
        return lambda query: self._reader.rows(query, asked.clusters, access_of)

    async def _rows(self, asked: _Asked, view: str) -> bytes:
        limit = asked.parameters.pop("limit", "0")
        if not limit.isdecimal() or len(limit) > 6:
            raise CallError(Status.INVALID_ARGUMENT, "limit is not a number")
        shape = asked.parameters.pop("format", "json")
        if shape not in ("json", "csv"):
            raise CallError(Status.INVALID_ARGUMENT, "format is json or csv")
        given: dict[str, Any] = {
            attribute: asked.parameters.pop(name, "")
            for name, attribute in _PARAMETERS.items()
        }
        query = RowQuery(view=view, limit=int(limit), **given)
        asked.finish()
        found = await self._reader.rows(query, asked.clusters, asked.reader.access_of)
        if shape == "csv":
            asked.request.setHeader(b"content-type", b"text/csv; charset=utf-8")
            _describe(asked.request, found)
            return _csv(found).encode()
        return _json(
            asked.request,
            {
                "asOf": found.as_of,
                "clusters": {
                    "asked": found.queried,
                    "incomplete": [_cluster(one) for one in found.incomplete],
                },
                "continue": found.next_page,
                "missingKas": len(found.missing_kas),
                "items": [item_of(one) for one in found.rows],
            },
        )


@attrs.frozen
class _Asked:
    """A request with its parameters."""

    request: Any
    reader: PageCaller
    clusters: Sequence[str]
    parameters: dict[str, str]

    def finish(self) -> None:
        """Refuse the rest, because a misspelled parameter must not widen a query."""
        if self.parameters:
            names = ", ".join(sorted(self.parameters))[:200]
            raise CallError(Status.INVALID_ARGUMENT, f"unknown parameters: {names}")


def _json(request: Any, content: object) -> bytes:
    request.setHeader(b"content-type", b"application/json")
    return json.dumps(content).encode() + b"\n"


def _grouped(one: Application | Component) -> dict[str, Any]:
    """Return an application or a component as users see it."""
    item = attrs.asdict(one)
    del item["agent_id"]
    item["cluster"] = item.pop("agent_name")
    if isinstance(one, Component):
        item["recognizedBy"] = item.pop("recognized_by")
    for declared in item.get("declarations", ()):
        declared["unknownComponents"] = declared.pop("unknown_components")
    return item


def _groups(
    request: Any, items: Sequence[dict[str, Any]], found: RowsAnswer, is_cut: bool
) -> bytes:
    return _json(
        request,
        {
            "asOf": found.as_of,
            "clusters": {
                "asked": found.queried,
                "incomplete": [_cluster(one) for one in found.incomplete],
            },
            "missingKas": len(found.missing_kas),
            "cut": is_cut,
            "items": items,
        },
    )


def _cluster(one: ClusterAnswer) -> dict[str, Any]:
    said: dict[str, Any] = {
        "id": one.cluster.agent_id,
        "name": one.cluster.agent_name,
        "state": one.state,
        "lastSeen": one.cluster.last_seen,
    }
    if one.reason:
        said["reason"] = one.reason
    if one.summary:
        said["summary"] = {row.resource: json.loads(row.columns) for row in one.summary}
    return said


def _describe(request: Any, found: RowsAnswer) -> None:
    """Say in header fields what JSON responses say beside their rows."""
    request.setHeader(b"txkas-as-of", b"%.3f" % found.as_of)
    names = [one.cluster.agent_name for one in found.incomplete]
    request.setHeader(b"txkas-incomplete", quote(",".join(names), safe=",").encode())
    request.setHeader(b"txkas-missing-kas", b"%d" % len(found.missing_kas))
    request.setHeader(b"txkas-continue", found.next_page.encode())


def _csv(found: RowsAnswer) -> str:
    """Return rows as CSV, with a column for each key of a row."""
    items = [item_of(one) for one in found.rows]
    keys = list(dict.fromkeys(key for one in items for key in one))
    return csv_text(keys, ([one.get(key, "") for key in keys] for one in items))
