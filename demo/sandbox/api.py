"""Requests and their responses: tokens, objects and actions."""

from __future__ import annotations

import hmac
import json
import re
from typing import Any
from urllib.parse import parse_qs, unquote

from demo.sandbox.execution import Executions
from demo.sandbox.feeds import MAX_LINES, Feed, PodLog
from tunnel.http1 import Exchange, RequestParser, RequestReceiver
from tunnel.testing.objects import FakeObjects, Refusal, Watcher

__all__ = ["MAX_BODY", "Api", "make_parser"]

#: Version of the imitated API, with a suffix that identifies the sandbox.
VERSION = "v1.36.0+kas.demo.sandbox"

#: Maximum number of bytes of a body, as in a real API server.
MAX_BODY = 3 * 1024 * 1024

#: Maximum number of seconds of a watch, as in a real API server.
MAX_WATCH = 3600

#: Namespace, name and purpose of each pod.
PODS = (
    ("default", "shell", "exec: a shell of this machine"),
    ("default", "ticker", "logs: writes a line twice a second"),
    ("kube-system", "sandbox", "logs: the requests to this server"),
)

_VERSION = {
    "major": VERSION[1:].split(".")[0],
    "minor": VERSION[1:].split(".")[1],
    "gitVersion": VERSION,
    "platform": "a stand-in in Python, no Kubernetes",
}

_TAKEN = (
    b"authorization",
    b"content-type",
    b"sec-websocket-key",
    b"sec-websocket-protocol",
)

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

_PODS = re.compile(r"/api/v1/(?:namespaces/([^/]+)/)?pods(?:/([^/]+)(?:/(.+))?)?")


def make_parser() -> RequestParser:
    """Return the parser of heads for `Api`."""
    return RequestParser(taken=_TAKEN)


class Api:
    """
    Handler of requests for a `tunnel.http1.HttpServerFactory`.

    :param token: the token that clients must send.
    """

    def __init__(
        self, token: bytes, objects: FakeObjects, executions: Executions
    ) -> None:
        self._authorization = b"Bearer " + token
        self.objects = objects
        self.executions = executions
        #: Logs of pods, by namespace and name.
        self.logs = {(namespace, name): PodLog() for namespace, name, _ in PODS}
        for name in ("default", "kube-system"):
            objects.put(_object("Namespace", name))
        for namespace, name, purpose in PODS:
            objects.put(_pod(namespace, name, purpose))
        about = {"sandbox": "A stand-in for a Kubernetes API server, for the demo."}
        objects.put(_object("ConfigMap", "about", "default") | {"data": about})

    def request_received(self, exchange: Exchange) -> RequestReceiver | None:
        """See `tunnel.http1.RequestHandler`."""
        if exchange.head.length == 0:
            return self.attempt(exchange, b"")
        if exchange.head.expect_continue:
            exchange.informational(b"HTTP/1.1 100 Continue\r\n")
        return _Body(exchange, self)

    def attempt(self, exchange: Exchange, body: bytes | None) -> RequestReceiver | None:
        """
        Execute a request, or respond with the reason for a refusal.

        :param body: the body; None if it was too large.
        """
        try:
            return self._do(exchange, body)
        except Refusal as refusal:
            _answer(exchange, refusal.code, refusal.status)
            return None

    def _do(self, exchange: Exchange, body: bytes | None) -> RequestReceiver | None:
        head = exchange.head
        given = b",".join(head.taken.get(b"authorization", ()))
        if not hmac.compare_digest(given, self._authorization):
            message = "the sandbox knows one token, and it is not this"
            raise Refusal(401, "Unauthorized", message)
        if body is None:
            raise Refusal(413, "RequestEntityTooLarge", "the body is too large")
        method, target = head.method.decode("ascii"), head.target.decode("ascii")
        path, _, query = target.partition("?")
        self.logs["kube-system", "sandbox"].write(f"{method} {path}")
        if path in ("/healthz", "/livez", "/readyz"):
            exchange.respond(200, b"\r\nContent-Type: text/plain", b"ok")
            return None
        if path == "/version":
            _answer(exchange, 200, _VERSION)
            return None
        pods = _PODS.fullmatch(path)
        if pods is not None and pods[3]:
            namespace, name, sub = map(unquote, pods.groups(""))
            return self._within(exchange, namespace, name, sub, parse_qs(query))
        if pods is not None and method != "GET":
            raise Refusal(405, "MethodNotAllowed", "the pods of the sandbox stay")
        given = head.taken.get(b"content-type", [b""])[0].partition(b";")[0].strip()
        # As in an API server, the body is read as JSON if the client names no type.
        kind = given.decode("latin-1") or "application/json"
        if body and not kind.endswith(("json", "apply-patch+yaml")):
            message = f"the sandbox takes JSON, and no {kind!r}"
            raise Refusal(415, "UnsupportedMediaType", message)
        try:
            if (method, path) == ("POST", _REVIEWS):
                # Everyone who knows the token may do everything here.
                asked = dict(json.loads(body))
                _answer(exchange, 201, {**asked, "status": {"allowed": True}})
                return None
            found = self.objects.respond(method, target, kind, body)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as bad:
            # The demo and its tests send well-formed requests, so one message suffices
            # for all other requests.
            message = f"the request is not what it should be: {bad!r}"
            raise Refusal(400, "BadRequest", message[:200]) from None
        if isinstance(found, Watcher):
            return self._watch(exchange, found)
        if found is None:
            message = "the server could not find the requested resource"
            raise Refusal(404, "NotFound", message)
        _answer(exchange, *found)
        return None

    def _within(
        self,
        exchange: Exchange,
        namespace: str,
        name: str,
        sub: str,
        query: dict[str, list[str]],
    ) -> RequestReceiver | None:
        log = self.logs.get((namespace, name))
        if log is None or sub not in ("log", "exec"):
            raise Refusal(404, "NotFound", f'pods "{name}" has no {sub} here')
        container = query.get("container", [name])[-1]
        if container != name:
            message = f"container {container} is not valid for pod {name}"
            raise Refusal(400, "BadRequest", message)
        if sub == "exec":
            return self.executions.start(exchange, name, query)
        tail = query.get("tailLines", [str(MAX_LINES)])[-1]
        if not tail.isdecimal():
            raise Refusal(400, "BadRequest", f"tailLines: {tail!r} is not a number")
        return log.answer(exchange, query.get("follow") == ["true"], int(tail))

    def _watch(self, exchange: Exchange, watcher: Watcher) -> Feed:
        def ended() -> None:
            self.objects.watchers.discard(watcher)
            if timer.active():
                timer.cancel()

        feed = Feed(exchange, b"application/json", ended)
        seconds = min(max(watcher.seconds, 0), MAX_WATCH)
        timer = self.executions.reactor.callLater(seconds, feed.finish)
        self.objects.watchers.add(watcher)
        watcher.begin(feed.send)
        return feed


class _Body:
    """Collector of a body until it is complete or too large."""

    def __init__(self, exchange: Exchange, api: Api) -> None:
        self._exchange = exchange
        self._api = api
        self._body = bytearray()
        self._refused = False

    def body_received(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > MAX_BODY and not self._refused:
            self._refused = True
            self._body.clear()
            self._api.attempt(self._exchange, None)

    def body_finished(self, trailers: bytes) -> None:
        if not self._refused:
            receiver = self._api.attempt(self._exchange, bytes(self._body))
            self._exchange.receiver = receiver

    def client_gone(self, reason: Exception) -> None:
        self._body.clear()


def _answer(exchange: Exchange, code: int, content: dict[str, Any]) -> None:
    kind = "application/json"
    if content.get("kind") == "APIGroupDiscoveryList":
        kind += ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    fields = f"\r\nContent-Type: {kind}\r\nCache-Control: no-store".encode()
    exchange.respond(code, fields, json.dumps(content).encode() + b"\n")


def _object(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": {"app": name}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def _pod(namespace: str, name: str, purpose: str) -> dict[str, Any]:
    pod = _object("Pod", name, namespace)
    pod["metadata"]["annotations"] = {"purpose": purpose}
    image = {"name": name, "image": "none/of-any-kind"}
    status = {
        "phase": "Running",
        "podIP": "127.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            image | {"imageID": "", "ready": True, "restartCount": 0}
        ],
    }
    return pod | {
        "spec": {"nodeName": "sandbox", "containers": [image]},
        "status": status,
    }
