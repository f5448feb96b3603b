"""Requests and their answers: which token, which resource, what is done."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import attrs

from demo.sandbox.channels import ChannelSocket, accept
from demo.sandbox.execution import Executions, read_request
from demo.sandbox.feeds import PodLog, watch
from demo.sandbox.store import KINDS, ApiError, Kind, Store, failure, selects
from tunnel.http1 import Exchange, RequestParser, RequestReceiver

__all__ = ["DOCUMENTS", "MAX_BODY", "VERSION", "Api", "make_parser"]

#: The API that this resembles, and that it is another one.
VERSION = "v1.36.0+kas.demo.sandbox"

#: As the real one has it.
MAX_BODY = 3 * 1024 * 1024

_TAKEN = (
    b"authorization",
    b"content-type",
    b"sec-websocket-key",
    b"sec-websocket-protocol",
)


def _resource(name: str, kind: str, *verbs: str, short: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "singularName": "" if "/" in name else kind.lower(),
        "namespaced": name != "namespaces",
        "kind": kind,
        "verbs": list(verbs),
        "shortNames": [short] if short else [],
    }


#: What is answered by path: the discovery API.
DOCUMENTS: dict[str, Any] = {
    "/version": {
        "major": VERSION[1:].split(".")[0],
        "minor": VERSION[1:].split(".")[1],
        "gitVersion": VERSION,
        "platform": "a stand-in in Python, no Kubernetes",
    },
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "v1",
        "resources": [
            *(
                _resource(one.plural, one.kind, *one.verbs, short=one.short)
                for one in KINDS.values()
            ),
            _resource("pods/log", "Pod", "get"),
            _resource("pods/exec", "PodExecOptions", "create", "get"),
        ],
    },
}


def make_parser() -> RequestParser:
    """Reads the heads for `Api`."""
    return RequestParser(taken=_TAKEN)


@attrs.define(eq=False)
class Call:
    """One request, taken apart."""

    exchange: Exchange
    method: str
    path: str
    #: Of a parameter that comes several times the last one; of ``command`` all.
    query: dict[str, str]
    command: list[str]

    @classmethod
    def of(cls, exchange: Exchange) -> Call:
        """Read the head of *exchange*."""
        parts = urlsplit(exchange.head.target.decode("ascii"))
        query = parse_qs(parts.query, keep_blank_values=True)
        return cls(
            exchange,
            exchange.head.method.decode("ascii"),
            parts.path.rstrip("/"),
            {name: values[-1] for name, values in query.items()},
            query.get("command", []),
        )

    def header(self, name: bytes) -> bytes:
        """The value of one of the headers that are looked at here."""
        return b",".join(self.exchange.head.taken.get(name, ()))

    def answer(self, code: int, content: Any) -> None:
        """A whole answer."""
        fields = b"\r\nContent-Type: application/json\r\nCache-Control: no-store"
        self.exchange.respond(code, fields, json.dumps(content).encode() + b"\n")


class Api:
    """
    Handles the requests of a `tunnel.http1.HttpServerFactory`.

    :param token: what a client has to know.
    :param logs: of every pod, by namespace and name.
    :param now: the time, in UTC.
    """

    def __init__(
        self,
        token: bytes,
        store: Store,
        logs: dict[tuple[str, str], PodLog],
        executions: Executions,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._authorization = b"Bearer " + token
        self.store = store
        self.logs = logs
        self.executions = executions
        self.now = now

    def request_received(self, exchange: Exchange) -> RequestReceiver | None:
        """See `tunnel.http1.RequestHandler`."""
        call = Call.of(exchange)
        if exchange.head.length == 0:
            return self.attempt(call, b"")
        if exchange.head.expect_continue:
            exchange.informational(b"HTTP/1.1 100 Continue\r\n")
        return _Body(call, self)

    def attempt(self, call: Call, body: bytes | None) -> RequestReceiver | None:
        """Do what is asked, or say why not; a body of None was too large."""
        given = call.header(b"authorization")
        try:
            if not hmac.compare_digest(given, self._authorization):
                raise ApiError(401, "the sandbox knows one token, and it is not this")
            if body is None:
                raise ApiError(413, "the body is too large")
            if own := self.logs.get(("kube-system", "sandbox")):
                own.write(f"{call.method} {call.path}")
            return self._dispatch(call, body)
        except ApiError as error:
            call.answer(error.code, failure(error.code, str(error)))
            return None

    def _dispatch(self, call: Call, body: bytes) -> RequestReceiver | None:
        path = call.path
        if path in ("/healthz", "/livez", "/readyz"):
            call.exchange.respond(200, b"\r\nContent-Type: text/plain", b"ok")
            return None
        if path in DOCUMENTS:
            call.answer(200, DOCUMENTS[path])
            return None
        parts = [unquote(part) for part in path.removeprefix("/api/v1/").split("/")]
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2 and parts[2] in KINDS:
            namespace, parts = parts[1], parts[2:]
        kind = KINDS.get(parts[0])
        if not path.startswith("/api/v1/") or kind is None or len(parts) > 3:
            raise ApiError(404, "the server could not find the requested resource")
        name, sub = (*parts[1:], "", "")[:2]
        if sub:
            return self._subresource(call, kind, namespace, name, sub)
        return self._resource(call, kind, namespace, name, body)

    def _resource(
        self, call: Call, kind: Kind, namespace: str, name: str, body: bytes
    ) -> RequestReceiver | None:
        store, query = self.store, call.query
        verb = _verb(call, name)
        if verb not in kind.verbs:
            raise ApiError(405, f"the sandbox does not {verb} {kind.plural}")
        if verb == "watch":
            if name:
                query["fieldSelector"] = f"metadata.name={name}"
            clock = self.executions.reactor
            return watch(call.exchange, store, kind, namespace, query, clock)
        if verb == "list":
            found = [o for o in store.select(kind, namespace) if selects(query, o)]
            metadata = {"metadata": {"resourceVersion": str(store.version)}}
            head = {"kind": f"{kind.kind}List", "apiVersion": "v1"}
            call.answer(200, {**head, **metadata, "items": found})
        elif verb == "get":
            call.answer(200, store.get(kind, namespace, name))
        elif verb == "create":
            call.answer(201, store.create(kind, namespace, _content(call, body)))
        else:
            gone = store.delete(kind, namespace, name)
            details = {"name": name, "uid": gone["metadata"]["uid"]}
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
            call.answer(200, status | {"status": "Success", "details": details})
        return None

    def _subresource(
        self, call: Call, kind: Kind, namespace: str, name: str, sub: str
    ) -> RequestReceiver | None:
        if kind.plural != "pods" or sub not in ("log", "exec"):
            raise ApiError(404, f"the sandbox has no {kind.plural}/{sub}")
        pod = self.store.get(kind, namespace, name)
        container = call.query.get("container", "")
        if container not in ("", pod["spec"]["containers"][0]["name"]):
            raise ApiError(400, f"container {container} is not valid for pod {name}")
        if sub == "log":
            return self.logs[namespace, name].answer(call.exchange, call.query)
        head = call.exchange.head
        request = read_request(call.command, call.query)
        if head.upgrade.lower() != b"websocket":
            raise ApiError(400, "exec needs an upgrade to WebSocket")
        # The fields that name the protocol are hop by hop: they are in the block.
        call.exchange.upgrade(accept(head.taken))
        socket = ChannelSocket(call.exchange, self.executions.reactor)
        self.executions.start(name, request, socket)
        return socket


class _Body:
    """Keeps a body until it is complete, or too large."""

    def __init__(self, call: Call, api: Api) -> None:
        self._call = call
        self._api = api
        self._body = bytearray()
        self._refused = False

    def body_received(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > MAX_BODY and not self._refused:
            self._refused = True
            self._body.clear()
            self._api.attempt(self._call, None)

    def body_finished(self, trailers: bytes) -> None:
        if not self._refused:
            receiver = self._api.attempt(self._call, bytes(self._body))
            self._call.exchange.receiver = receiver

    def client_gone(self, reason: Exception) -> None:
        self._body.clear()


def _verb(call: Call, name: str) -> str:
    if call.method == "GET":
        if call.query.get("watch") in ("1", "true"):
            return "watch"
        return "get" if name else "list"
    if bool(name) == (call.method == "POST"):
        raise ApiError(405, f"{call.method} is not possible here")
    return {"POST": "create"}.get(call.method, call.method.lower())


def _content(call: Call, body: bytes) -> dict[str, Any]:
    given = call.header(b"content-type").partition(b";")[0].strip().decode("latin-1")
    if given not in ("", "application/json"):
        raise ApiError(415, f"the sandbox takes JSON, and no {given!r}")
    try:
        content = json.loads(body)
        if not isinstance(content, dict):
            raise ValueError("no object")
        if not isinstance(content.get("metadata") or {}, dict):
            raise ValueError("metadata is no object")
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not what it should be: {error}") from None
    if content.get("metadata") is None:
        content.pop("metadata", None)
    return content
