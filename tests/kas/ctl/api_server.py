"""An API server, as far as kasctl agent install sees it."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_KINDS = {
    "/api/v1": {
        "Namespace": "namespaces",
        "Secret": "secrets",
        "ConfigMap": "configmaps",
        "ServiceAccount": "serviceaccounts",
        "Pod": "pods",
    },
    "/apis/apps/v1": {"Deployment": "deployments", "ReplicaSet": "replicasets"},
    _RBAC: {
        "Role": "roles",
        "RoleBinding": "rolebindings",
        "ClusterRole": "clusterroles",
        "ClusterRoleBinding": "clusterrolebindings",
    },
}
_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding"}
_OBJECT = re.compile(
    r"(?:/api/v1|/apis/[^/]+/v1)(?:/namespaces/[^/]+)?/([a-z]+)(?:/([^/]+))?"
)


class ApiServer:
    """
    Objects in memory, by path.

    :ivar asked: ``METHOD path`` of each request, with ``dry-run`` and ``force``.
    :ivar refusals: status and message, by a part of ``asked``; ``$`` is its end.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.refusals: dict[str, tuple[int, str]] = {}
        self.authorization: set[str | None] = set()
        self.port = 0
        self._version = 0

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, Any]:
        dry, force = "dryRun" in query, "true" in str(query.get("force")).lower()
        asked = f"{method} {path}" + " dry-run" * dry + " force" * force
        self.asked.append(asked)
        for part, (status, message) in self.refusals.items():
            if part in f"{asked}$":
                message = message.format(body=body.decode())
                return status, {"kind": "Status", "message": message}
        if (found := _discovery(path)) is not None:
            return 200, found
        matched = _OBJECT.fullmatch(path)
        if matched is None:
            return 404, {"kind": "Status", "message": f"no {path}"}
        if matched[2] is None or (matched[1] == "namespaces" and path.count("/") == 5):
            items = [one for key, one in self.objects.items() if key.startswith(path)]
            return 200, {"kind": "List", "items": items}
        if method == "GET":
            if path in self.objects:
                return 200, self.objects[path]
            return 404, {"kind": "Status", "message": f"no {path}"}
        assert method == "PATCH"
        new = json.loads(body)
        old = self.objects.get(path)
        if dry:
            return 200, new
        if old is None or {**old, "metadata": new["metadata"]} != new:
            self._version += 1
            meta = {**new["metadata"], "resourceVersion": str(self._version)}
            self.objects[path] = {**new, "metadata": meta}
        else:
            return 200, old
        return 200, self.objects[path]

    def changes(self) -> list[str]:
        """The requests that changed objects."""
        found = (one for one in self.asked if one.startswith("PATCH"))
        return [one for one in found if "dry-run" not in one]


def _discovery(path: str) -> dict[str, Any] | None:
    if path == "/version":
        return {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
    if path == "/apis":
        groups = []
        for name in list(_KINDS)[1:]:
            group = name.split("/")[2]
            version = {"groupVersion": f"{group}/v1", "version": "v1"}
            groups.append(
                {"name": group, "versions": [version], "preferredVersion": version}
            )
        return {"kind": "APIGroupList", "groups": groups}
    if path in _KINDS:
        resources = [
            {
                "name": name,
                "kind": kind,
                "singularName": kind.lower(),
                "namespaced": kind not in _WIDE,
                "verbs": ["get", "list", "patch"],
            }
            for kind, name in _KINDS[path].items()
        ]
        return {"kind": "APIResourceList", "resources": resources}
    return None


@contextmanager
def api_server() -> Iterator[ApiServer]:
    """One that runs, without TLS."""
    state = ApiServer()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            state.authorization.add(self.headers["Authorization"])
            code, found = state.answer(
                self.command, url.path, parse_qs(url.query), body
            )
            content = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_PATCH = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join(10)


def kubeconfig(path: Path, port: int, **user: Any) -> Path:
    """A kubeconfig whose only context is ``edge``."""
    content = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": user or {"token": "of-the-user"}}],
        "contexts": [{"name": "edge", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "edge",
    }
    path.write_text(json.dumps(content))
    return path
