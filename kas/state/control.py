"""
HTTP API of the control socket, for `kasctl`'s commands to a running kas.

See `kas.state.process_socket.ProcessSocket` for the socket.  A supervisor and a kas
without workers serve the same API.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from klein import Klein
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from twisted.web.server import Site

from tunnel.api import AuditEvent, AuditStage
from tunnel.errors import CallError

__all__ = ["MAX_BODY", "Controlled", "control_site", "parse_change"]

#: Maximum bytes of the body of a request.  A change names one agent or user, and at
#: most the agents that the user may access; the audit log truncates longer texts.
MAX_BODY = 64 * 1024


#: Fields of the audit log that a change must not have.
_RESERVED = frozenset(("agent_id", "credential", "kas", "module", "outcome", "time"))

#: Stages of a change, as `kasctl` names them.
_STAGES = {
    one.value: one for one in (AuditStage.BEGUN, AuditStage.CHANGED, AuditStage.ENDED)
}


class Controlled(Protocol):
    """Interface of a kas that `kasctl` commands; each result can be encoded as JSON."""

    async def drain(self) -> dict[str, Any]:
        """
        Move all agents to other kas, accept no new agents, and return the progress.
        """

    async def undrain(self) -> dict[str, Any]:
        """Accept agents again, and return the progress."""

    async def rebalance(self) -> dict[str, Any]:
        """
        Ask the agents above the average number to move, and return the progress.

        If any agents were asked, ``asked`` in the progress is their number.
        """

    async def agents(self) -> dict[str, Any]:
        """
        Return all agents, with their connections and the times of these connections.
        """

    async def peers(self) -> dict[str, Any]:
        """
        Return the state of the other kas, after an attempt to connect to each kas
        without a session.
        """

    async def progress(self) -> dict[str, Any]:
        """Return the numbers of agents and requests that are still at this kas."""

    async def record_change(self, body: bytes) -> dict[str, Any]:
        """
        Write a change that `kasctl` made, or begins, to the audit log.

        The event of a change that begins is on disk when the method returns, and the
        result contains its ``id``.

        :param body: see `parse_change`.
        :raises ValueError: if *body* is malformed.
        :raises CallError: if *body* begins a change and the log cannot be written.
        """


def parse_change(body: bytes) -> AuditEvent:
    """
    Parse a change: a JSON object of strings with at least ``action``.

    ``stage`` is ``begun`` or ``ended`` for the two events of an enforced change; the
    second one has the ``id`` of the first one, and ``failed`` if nothing was changed.

    :raises ValueError: if the body is not such an object.
    """
    try:
        found = json.loads(body)
    except RecursionError:
        raise ValueError("a change is not nested") from None
    if not isinstance(found, dict) or not found.get("action"):
        raise ValueError("a change is a JSON object with an action")
    for key, value in found.items():
        if not isinstance(value, str):
            raise ValueError(f"{key}: expected a string")
        if key in _RESERVED:
            raise ValueError(f"{key}: kas itself sets this field")
    stage = _STAGES.get(found.pop("stage", AuditStage.CHANGED.value))
    event_id = found.pop("id", "")
    if stage is None or bool(event_id) != (stage is AuditStage.ENDED):
        raise ValueError("stage is begun, changed, or ended with an id")
    outcome = "failed" if found.pop("failed", "") else "OK"
    return AuditEvent(
        found.pop("action"),
        None,
        "" if stage is AuditStage.BEGUN else outcome,
        found,
        id=event_id,
        stage=stage,
    )


class _ControlApi:
    """Routes of the HTTP API."""

    app = Klein()

    def __init__(self, kas: Controlled) -> None:
        self._kas = kas

    @app.handle_errors(CallError)
    def _unanswered(self, request: IRequest, failure: Failure) -> bytes:
        return _refuse(request, 503, str(failure.value))

    @app.route("/", methods=["GET"])
    async def _progress(self, request: IRequest) -> bytes:
        return _json(request, await self._kas.progress())

    @app.route("/agents", methods=["GET"])
    async def _agents(self, request: IRequest) -> bytes:
        return _json(request, await self._kas.agents())

    @app.route("/peers", methods=["GET"])
    async def _peers(self, request: IRequest) -> bytes:
        return _json(request, await self._kas.peers())

    @app.route("/drain", methods=["POST"])
    async def _drain(self, request: IRequest) -> bytes:
        return _json(request, await self._kas.drain())

    @app.route("/undrain", methods=["POST"])
    async def _undrain(self, request: IRequest) -> bytes:
        return _json(request, await self._kas.undrain())

    @app.route("/rebalance", methods=["POST"])
    async def _rebalance(self, request: IRequest) -> bytes:
        return _json(request, await self._kas.rebalance())

    @app.route("/changes", methods=["POST"])
    async def _changes(self, request: IRequest) -> bytes:
        body = request.content.read(MAX_BODY + 1)
        if len(body) > MAX_BODY:
            return _refuse(request, 413, f"a change may have at most {MAX_BODY} bytes")
        try:
            return _json(request, await self._kas.record_change(body))
        except ValueError as error:
            return _refuse(request, 400, str(error))


class _QuietSite(Site):
    """
    Site without an access log, because `kasctl` sends two requests per second while it
    waits.
    """

    noisy = False
    displayTracebacks = False

    def log(self, request: Any) -> None:
        """Do nothing instead of logging the request."""


def control_site(kas: Controlled) -> Site:
    """Return a factory of connections that serve the API."""
    resource = _ControlApi(kas).app.resource()
    return _QuietSite(resource)  # type: ignore[no-untyped-call]


def _json(request: IRequest, content: dict[str, Any]) -> bytes:
    request.setHeader(b"content-type", b"application/json")
    return json.dumps(content).encode() + b"\n"


def _refuse(request: IRequest, status: int, text: str) -> bytes:
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"text/plain; charset=utf-8")
    return f"{text}\n".encode()
