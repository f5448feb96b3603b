"""The demo's client: exceptions of the library become those that the steps know."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.client import Client, KubernetesError, errors
from tests.kas.ctl.listeners import free_address

EVENT = {
    "type": "ADDED",
    "object": {"metadata": {"name": "one", "resourceVersion": "5"}},
}


class _Api(http.server.BaseHTTPRequestHandler):
    """An API server that answers by path."""

    def do_GET(self) -> None:
        if "/slow/" in self.path:
            self.server.stop.wait(10)  # type: ignore[attr-defined]
            return
        refused = "/secret" in self.path
        content = json.dumps(EVENT).encode() + b"\n"
        if refused:
            content = json.dumps({"message": "not\n for you"}).encode()
        self.send_response(403 if refused else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def client(folder: Path, address: str) -> Client:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://{address}/k8s"}}],
        "users": [{"name": "u", "user": {"token": "abc"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(json.dumps(content))
    return Client(folder / "kubeconfig")


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Client]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        server.daemon_threads = True
        server.stop = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield client(tmp_path, f"127.0.0.1:{server.server_port}")
        finally:
            server.stop.set()  # type: ignore[attr-defined]
            server.shutdown()
            thread.join(10)


def test_what_the_kubeconfig_says(known: Client) -> None:
    assert known.server.startswith("http://127.0.0.1:")
    assert known.server.endswith("/k8s")
    assert known.token == "abc"


def test_a_request(known: Client) -> None:
    assert known.request("GET", "/version") == EVENT
    assert known.status("/version", 5) == 200
    assert known.status("/secret", 5) == 403
    with pytest.raises(KubernetesError, match="403: not for you") as caught:
        known.request("GET", "/secret")
    assert caught.value.status == 403


def test_no_answer(known: Client) -> None:
    began = time.monotonic()
    assert known.status("/slow/", 0.05) is None
    assert time.monotonic() - began < 5


def test_a_watch(known: Client) -> None:
    listing = known.core.list_namespaced_config_map
    with known.stream(listing, "default", timeout=5, watch=True) as events:
        found = list(events)
    assert [one["object"].metadata.name for one in found] == ["one"]
    with (
        pytest.raises(KubernetesError, match="403: not for you"),
        known.stream(listing, "secret", timeout=5, watch=True),
    ):
        raise AssertionError("it is refused before the first event")


def test_lines_of_a_log(known: Client) -> None:
    call = known.core.read_namespaced_pod_log
    with known.stream(call, "pod", "default", timeout=5, follow=True) as lines:
        assert [json.loads(one) for one in lines] == [EVENT]


def test_a_library_call(known: Client) -> None:
    with pytest.raises(KubernetesError, match="403: not for you"), errors():
        known.core.read_namespaced_config_map("name", "secret")


def test_exec_that_is_refused(known: Client) -> None:
    """The library drops the status; it decides what the demo says."""
    with (
        pytest.raises(KubernetesError, match="403: not for you") as caught,
        known.exec("pod", "secret", command=["sh"]),
    ):
        raise AssertionError("there is no WebSocket")
    assert caught.value.status == 403


def test_nobody_there(tmp_path: Path) -> None:
    known = client(tmp_path, free_address())
    with pytest.raises(ConnectionError):
        known.request("GET", "/version")
    with (
        pytest.raises(KubernetesError, match="no WebSocket"),
        known.exec("pod", "default", command=["sh"]),
    ):
        raise AssertionError("there is no WebSocket")
