"""Requests and their answers: who asks, for which resource, and what is to be done."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import attrs
from twisted.logger import Logger

from demo.sandbox.channels import ChannelSocket, accept
from demo.sandbox.discovery import DOCUMENTS
from demo.sandbox.execution import Executions, read_request
from demo.sandbox.podlogs import PodLog
from demo.sandbox.protobuf import CONTENT_TYPE, decode
from demo.sandbox.selectors import make_selector
from demo.sandbox.status import ApiError, failure
from demo.sandbox.store import KINDS, Kind, Store
from demo.sandbox.tables import is_table_wanted, make_table
from demo.sandbox.watching import watch
from tunnel.http1 import Exchange, RequestParser, RequestReceiver

__all__ = ["MAX_BODY", "Api", "Call", "make_parser"]

Object = dict[str, Any]

#: As the real one has it.
MAX_BODY = 3 * 1024 * 1024

_MERGE_PATCHES = (
    "application/merge-patch+json",
    # The same for objects without lists of objects, which is all one can change here.
    "application/strategic-merge-patch+json",
)
_TAKEN = (
    b"accept",
    b"authorization",
    b"content-type",
    b"impersonate-group",
    b"impersonate-user",
    b"sec-websocket-key",
    b"sec-websocket-protocol",
)


def make_parser() -> RequestParser:
    """Reads the heads for `Api`."""
    return RequestParser(taken=_TAKEN)


@attrs.define(eq=False)
class Call:
    """One request, taken apart."""

    exchange: Exchange
    method: str
    path: str
    query: dict[str, list[str]]
    namespace: str = ""
    name: str = ""
    sub: str = ""

    @classmethod
    def of(cls, exchange: Exchange) -> Call:
        """Read the head of *exchange*."""
        parts = urlsplit(exchange.head.target.decode("ascii"))
        query = parse_qs(parts.query, keep_blank_values=True)
        method = exchange.head.method.decode("ascii")
        return cls(exchange, method, parts.path.rstrip("/"), query)

    def header(self, name: bytes) -> bytes:
        """The value of one of the headers that are looked at here."""
        return b",".join(self.exchange.head.taken.get(name, ()))

    def one(self, name: str) -> str:
        """A parameter of the query, or nothing."""
        return self.query.get(name, [""])[0]

    def flag(self, name: str) -> bool:
        """A parameter that is true or not."""
        return self.one(name) in ("1", "true", "True")

    def answer(self, code: int, content: Any) -> None:
        """A whole answer."""
        fields = b"\r\nContent-Type: application/json\r\nCache-Control: no-store"
        self.exchange.respond(code, fields, json.dumps(content).encode() + b"\n")


class Api:
    """
    Handles the requests of a `tunnel.http1.FrontFactory`.

    :param token: what a client has to know.
    :param logs: of every pod, by namespace and name.
    :param now: the time, in UTC.
    """

    _log = Logger()

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
        """See `tunnel.http1.Handler`."""
        call = Call.of(exchange)
        if exchange.head.length == 0:
            return self._attempt(call, b"")
        if exchange.head.length > MAX_BODY:
            self._refuse(call, ApiError(413, "the body is too large"))
            return None
        if exchange.head.expect_continue:
            exchange.informational(b"HTTP/1.1 100 Continue\r\n")
        return _Body(call, self)

    def _attempt(self, call: Call, body: bytes) -> RequestReceiver | None:
        given = call.header(b"authorization")
        try:
            if not hmac.compare_digest(given, self._authorization):
                raise ApiError(401, "the sandbox knows one token, and it is not this")
            if own := self.logs.get(("kube-system", "sandbox")):
                own.write(f"{call.method} {call.path}")
            return self._dispatch(call, body)
        except ApiError as error:
            self._refuse(call, error)
            return None

    def _refuse(self, call: Call, error: ApiError) -> None:
        call.answer(error.code, failure(error.code, str(error), error.reason))

    def _dispatch(self, call: Call, body: bytes) -> RequestReceiver | None:
        path = call.path
        if path in ("/healthz", "/livez", "/readyz"):
            call.exchange.respond(200, b"\r\nContent-Type: text/plain", b"ok")
        elif path in DOCUMENTS:
            call.answer(200, DOCUMENTS[path])
        elif path.startswith("/api/v1/"):
            return self._resource(call, path.split("/")[3:], body)
        elif path.startswith("/apis/auth") and path.count("/") == 4:
            self._review(call, path.rpartition("/")[2], body)
        else:
            raise ApiError(404, "the server could not find the requested resource")
        return None

    def _resource(
        self, call: Call, parts: list[str], body: bytes
    ) -> RequestReceiver | None:
        parts = [unquote(part) for part in parts]
        if parts[0] == "namespaces" and len(parts) > 2 and parts[2] in KINDS:
            call.namespace = parts[1]
            parts = parts[2:]
        kind = KINDS.get(parts[0])
        if kind is None or len(parts) > 3:
            raise ApiError(404, "the server could not find the requested resource")
        call.name, call.sub = (*parts[1:], "", "")[:2]
        if call.sub:
            return self._subresource(call, kind)
        verb = _verb(call)
        if verb not in kind.verbs:
            message = f"the sandbox does not {verb} {kind.plural}"
            raise ApiError(405, message)
        if verb == "watch":
            return self._watch(call, kind)
        self._plain(call, kind, verb, body)
        return None

    def _plain(self, call: Call, kind: Kind, verb: str, body: bytes) -> None:
        store, where, name = self.store, call.namespace, call.name
        if verb == "list":
            self._show(call, kind, self._selected(call, kind))
        elif verb == "get":
            self._show(call, kind, store.get(kind, where, name))
        elif verb == "create":
            content = _content(call, body)
            self._show(call, kind, store.create(kind, where, content), 201)
        elif verb == "update":
            content = _content(call, body)
            self._show(call, kind, store.replace(kind, where, name, content))
        elif verb == "patch":
            content = _content(call, body, _MERGE_PATCHES)
            self._show(call, kind, store.merge(kind, where, name, content))
        else:
            gone = store.delete(kind, where, name)
            details = {
                "name": name,
                "kind": kind.plural,
                "uid": gone["metadata"]["uid"],
            }
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
            call.answer(200, status | {"status": "Success", "details": details})

    def _selected(self, call: Call, kind: Kind) -> list[dict[str, Any]]:
        selector = make_selector(call.one("fieldSelector"), call.one("labelSelector"))
        return [o for o in self.store.select(kind, call.namespace) if selector(o)]

    def _show(
        self, call: Call, kind: Kind, found: list[Any] | dict[str, Any], code: int = 200
    ) -> None:
        version = str(self.store.version)
        if is_table_wanted(call.header(b"accept")):
            rows = found if isinstance(found, list) else [found]
            call.answer(code, make_table(kind, rows, version, self.now()))
        elif isinstance(found, list):
            head = {"kind": f"{kind.kind}List", "apiVersion": "v1"}
            metadata = {"metadata": {"resourceVersion": version}}
            call.answer(code, {**head, **metadata, "items": found})
        else:
            call.answer(code, found)

    def _watch(self, call: Call, kind: Kind) -> RequestReceiver:
        fields = call.one("fieldSelector")
        if call.name:
            fields = f"metadata.name={call.name}"
        selector = make_selector(fields, call.one("labelSelector"))
        return watch(
            call.exchange,
            self.store,
            kind,
            call.namespace,
            selector,
            self._renderer(call, kind),
            version=call.one("resourceVersion"),
            initial=call.flag("sendInitialEvents"),
            seconds=call.one("timeoutSeconds"),
            clock=self.executions.reactor,
        )

    def _renderer(self, call: Call, kind: Kind) -> Callable[[Object], Object]:
        """What of an object is to be shown in an event."""

        def as_table(found: Object) -> Object:
            version = found["metadata"]["resourceVersion"]
            return make_table(kind, [found], version, self.now())

        if is_table_wanted(call.header(b"accept")):
            return as_table
        return lambda found: found

    def _subresource(self, call: Call, kind: Kind) -> RequestReceiver | None:
        if kind.plural != "pods" or call.sub not in ("log", "exec"):
            raise ApiError(404, f"the sandbox has no {kind.plural}/{call.sub}")
        pod = self.store.get(kind, call.namespace, call.name)
        container = pod["spec"]["containers"][0]["name"]
        if call.one("container") not in ("", container):
            message = (
                f"container {call.one('container')} is not valid for pod {call.name}"
            )
            raise ApiError(400, message)
        if call.sub == "log":
            query = {name: values[0] for name, values in call.query.items()}
            return self.logs[call.namespace, call.name].answer(call.exchange, query)
        return self._exec(call)

    def _exec(self, call: Call) -> RequestReceiver:
        head = call.exchange.head
        request = read_request(call.query)
        if head.upgrade.lower() != b"websocket":
            raise ApiError(400, "exec needs an upgrade to WebSocket")
        block, protocol = accept(head.taken)
        # The fields that name the protocol are hop by hop: they are in the block.
        call.exchange.upgrade(block)
        socket = ChannelSocket(call.exchange, protocol, self.executions.reactor)
        self.executions.start(call.name, request, socket)
        return socket

    def _review(self, call: Call, name: str, body: bytes) -> None:
        who = call.header(b"impersonate-user").decode("latin-1") or "kas-demo"
        groups = [
            *call.header(b"impersonate-group").decode("latin-1").split(","),
            "system:authenticated",
        ]
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        statuses: dict[str, Any] = {
            "selfsubjectaccessreviews": {"allowed": True},
            "selfsubjectrulesreviews": {
                "resourceRules": [everything],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": False,
            },
            "selfsubjectreviews": {
                "userInfo": {"username": who, "groups": [g for g in groups if g]}
            },
        }
        if name not in statuses:
            raise ApiError(404, "the server could not find the requested resource")
        if call.method != "POST":
            raise ApiError(405, f"{name}: only POST")
        call.answer(201, _content(call, body) | {"status": statuses[name]})


class _Body:
    """Keeps a body until it is complete."""

    def __init__(self, call: Call, api: Api) -> None:
        self._call = call
        self._api = api
        self._body = bytearray()

    def body_received(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > MAX_BODY:
            self._body.clear()
            self._api._refuse(self._call, ApiError(413, "the body is too large"))

    def body_finished(self, trailers: bytes) -> None:
        self._call.exchange.receiver = self._api._attempt(self._call, bytes(self._body))

    def client_gone(self, reason: Exception) -> None:
        self._body.clear()


def _verb(call: Call) -> str:
    if call.method in ("GET", "HEAD"):
        if call.flag("watch"):
            return "watch"
        return "get" if call.name else "list"
    if bool(call.name) == (call.method == "POST"):
        raise ApiError(405, f"{call.method} is not possible here")
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    return verbs.get(call.method, call.method.lower())


def _content(
    call: Call, body: bytes, types: tuple[str, ...] = ("application/json",)
) -> dict[str, Any]:
    given = call.header(b"content-type").partition(b";")[0].strip().decode("latin-1")
    if given == CONTENT_TYPE and call.method == "POST":
        return decode(body)
    if given not in types and (given or call.method == "PATCH"):
        raise ApiError(415, f"{given!r} is not {' or '.join(types)}")
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
