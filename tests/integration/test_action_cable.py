"""ActionCable on a real kas, with the client of Rails in a real browser."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect, unix_connect
from websockets.typing import Origin

from tests.integration import chromium, needs
from tests.integration.cable_module import DROPIN
from tests.integration.module_kas import ModuleKas
from tests.integration.page_reports import Reports, rails_scripts
from tests.integration.processes import PATIENCE, Process, eventually, kasctl_here
from tests.integration.stack import fetch
from tools.ports import free_port

_MORE = """\
  cable_test: {{folder: "{folder}"}}
web:
  listen:
    address: "127.0.0.1:{port}"
    development_certificate: true
    listen_grace_period: 0s
    shutdown_grace_period: 2s
"""


def _post(kas: ModuleKas, port: int, path: str) -> tuple[int, int]:
    context = ssl.create_default_context(cafile=kas.state / "ca.crt")
    request = urllib.request.Request(
        f"https://localhost:{port}/cable-test/{path}", method="POST"
    )
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        position, subscriptions = json.loads(answer.read())
        return position, subscriptions


def _metric(kas: ModuleKas, name: str) -> float:
    _, text = fetch(kas.port("health and metrics"), "/metrics")
    for line in text.decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[-1])
    return 0.0


class CableStand:
    """kas, the page, and the browser."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.browser = chromium.found()
        scripts = rails_scripts("page.js")
        self.reports = Reports(scripts, "page.js")
        self.port = free_port()
        more = _MORE.format(folder=scripts, port=self.port)
        self.kas = ModuleKas(folder, "action_cable", DROPIN, more)
        self.kas.start()
        state = self.kas.state
        for name in ("main", "other"):
            token = folder / f"agent-{name}"
            kasctl_here("agent", "add", name, "--token-file", token, state=state)
        token = folder / "user"
        kasctl_here(
            *("user", "add", "alice", "--agent", "main", "--as-agent"),
            *("--token-file", token),
            state=state,
        )
        self.token = token.read_text().strip()

    def page(
        self, name: str = "page", at: str = "", **query: str
    ) -> AbstractContextManager[None]:
        """
        Have the page open; its query says what it does.

        :param at: where it is, if not at kas.
        """
        origin = f"https://127.0.0.1:{self.port}"
        words = {
            "cable": origin.replace("https", "wss") + "/-/cable",
            "report": self.reports.url,
            "token": f"user:main:{self.token}",
            "agent": "main",
            "how": "subprotocol",
        }
        url = f"{at or origin + '/cable-test/'}page?{urlencode({**words, **query})}"
        return chromium.browsing(self.browser, url, self.folder, name)

    def post(self, path: str) -> int:
        """Tell the module something; the number of its subscriptions."""
        return self.position_after(path)[1]

    def position_after(self, path: str) -> tuple[int, int]:
        """The same, with the position of the message before it."""
        return _post(self.kas, self.port, path)

    def metric(self, name: str) -> float:
        """A metric of kas."""
        return _metric(self.kas, name)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[CableStand]:
    one = CableStand(tmp_path)
    yield one
    one.kas.process.kill()
    one.reports.server.shutdown()


def _received(position: int, name: str = "first", **more: Any) -> dict[str, Any]:
    return {"name": name, "message": {"s": position, **more}}


def _both(read: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((read(), read()), key=lambda one: str(one["name"]))


def test_life_of_a_page(stand: CableStand) -> None:
    """Messages, a second subscription, a lost connection, a restart, a revocation."""
    reports = stand.reports
    with stand.page():
        assert reports.next("connected") == {"name": "first", "reconnected": False}
        assert reports.next("received") == _received(0, snapshot=True)
        # Two messages on request of the page.
        assert stand.post("act/bump") == 1
        assert reports.next("received") == _received(1, act="bump")
        assert reports.next("received") == _received(2)
        assert reports.next("received") == _received(3)
        # A second subscription with the same parameters is confirmed, too, and both
        # get each message once.
        stand.post("act/again")
        assert reports.next("received") == _received(4, act="again")
        names = [one["name"] for one in _both(lambda: reports.next("connected"))]
        assert names == ["first", "second"]
        assert _both(lambda: reports.next("received")) == [
            _received(4, snapshot=True),
            _received(4, "second", snapshot=True),
        ]
        assert stand.post("quietly") == 1
        assert _both(lambda: reports.next("received")) == [
            _received(5),
            _received(5, "second"),
        ]
        stand.post("act/unsubscribe")
        assert _both(lambda: reports.next("received")) == [
            _received(6, act="unsubscribe"),
            _received(6, "second", act="unsubscribe"),
        ]
        # One of two that leaves does not end the other.
        assert stand.post("quietly") == 1
        assert reports.next("received") == _received(7)
        # A lost connection: the page resumes, nothing is missing, nothing is doubled.
        stand.post("act/break")
        assert reports.next("received") == _received(8, act="break")
        gone = {"name": "first", "willAttemptReconnect": True}
        assert reports.next("disconnected") == gone
        eventually(lambda: stand.post("quietly") == 0, what="kas knows that it is gone")
        eventually(lambda: stand.post("quietly") == 1, what="the page is back")
        back = reports.next("connected")
        assert back == {"name": "first", "reconnected": True}
        last, _ = stand.position_after("quietly")
        positions = [8]
        while positions[-1] < last:
            positions.append(reports.next("received")["message"]["s"])
        assert positions == list(range(8, last + 1))
        # A restart of kas, which says so first.
        assert stand.kas.process.stops_cleanly()
        assert reports.next("disconnected") == gone
        stand.kas.start()
        assert reports.next("connected") == {"name": "first", "reconnected": True}
        assert reports.next("received") == _received(0, snapshot=True)
        assert stand.post("quietly") == 1
        assert reports.next("received") == _received(1)
        # A revoked user.
        kasctl_here("user", "revoke", "alice", state=stand.kas.state)
        gone = {"name": "first", "willAttemptReconnect": False}
        assert reports.next("disconnected") == gone
        eventually(
            lambda: stand.metric("kas_action_cable_connections") == 0,
            what="the connection is gone",
        )


def test_first_message(stand: CableStand) -> None:
    """A token that is sent when the WebSocket is open."""
    with stand.page(how="message"):
        stand.reports.next("connected")
        assert stand.reports.next("received") == _received(0, snapshot=True)


def test_unauthorized(stand: CableStand) -> None:
    """A wrong token is final; another agent rejects the subscription."""
    with stand.page(token="user:main:wrong"):
        gone = {"name": "first", "willAttemptReconnect": False}
        assert stand.reports.next("disconnected") == gone
    with stand.page("other", agent="other"):
        assert stand.reports.next("rejected") == {"name": "first"}


def test_another_origin(stand: CableStand) -> None:
    """A page of another origin gets no connection, whatever it knows."""
    refused = 'kas_web_requests_total{code="4xx",module="action_cable"}'
    with stand.page(at=stand.reports.url):
        eventually(lambda: stand.metric(refused) > 0, what="kas has refused the page")
    assert stand.metric("kas_action_cable_connections") == 0


# Without a browser, for connections at several processes and on a Unix socket.

_SUBSCRIBE = json.dumps(
    {
        "command": "subscribe",
        "identifier": json.dumps({"channel": "TestChannel", "agent": "main"}),
    }
)


class PlainStand:
    """kas, and clients that only have the ``websockets`` package."""

    def __init__(self, folder: Path, more: str) -> None:
        self.folder = folder
        self.kas = ModuleKas(folder, "action_cable", DROPIN, more)
        self.kas.start()
        token = folder / "agent"
        kasctl_here("agent", "add", "main", "--token-file", token, state=self.kas.state)
        token = folder / "user"
        kasctl_here(
            *("user", "add", "alice", "--agent", "main", "--as-agent"),
            *("--token-file", token),
            state=self.kas.state,
        )
        self.options: dict[str, Any] = {
            "additional_headers": {
                "Authorization": f"Bearer user:main:{token.read_text().strip()}"
            },
            "open_timeout": PATIENCE,
        }

    def subscribe(self, connection: ClientConnection) -> None:
        """Subscribe, and wait for the snapshot."""
        assert _next(connection) == {"type": "welcome"}
        connection.send(_SUBSCRIBE)
        assert _next(connection)["type"] == "confirm_subscription"
        assert _next(connection)["message"] == {"s": 0, "snapshot": True}


def _next(connection: ClientConnection) -> dict[str, Any]:
    """The next message, except pings."""
    while True:
        found: dict[str, Any] = json.loads(connection.recv(PATIENCE))
        if found.get("type") != "ping":
            return found


def _last(connection: ClientConnection) -> tuple[str, int]:
    """Why the connection ended, and the code."""
    reason = str(_next(connection)["reason"])
    with pytest.raises(ConnectionClosed):
        connection.recv(PATIENCE)
    assert connection.close_code is not None
    return reason, connection.close_code


def test_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Connections at all workers, over TLS: a revoked user loses all, within 5 s."""
    folder = tmp_path_factory.mktemp("k")
    port = free_port()
    stand = PlainStand(folder, _MORE.format(folder=folder, port=port) + "workers: 2\n")
    context = ssl.create_default_context(cafile=stand.kas.state / "ca.crt")
    url = f"wss://localhost:{port}/-/cable"
    try:
        with ExitStack() as several:
            sockets = [
                several.enter_context(connect(url, ssl=context, **stand.options))
                for _ in range(12)
            ]
            for one in sockets:
                stand.subscribe(one)
            _, metrics = fetch(stand.kas.port("health and metrics"), "/metrics")
            assert b'kas_web_sockets{module="action_cable"} 12.0' in metrics
            kasctl_here("user", "revoke", "alice", state=stand.kas.state)
            began = time.monotonic()
            ends = [_last(one) for one in sockets]
            assert time.monotonic() - began < 5
            assert ends == [("unauthorized", 1000)] * 12
    finally:
        stand.kas.process.kill()


def test_unix_socket(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same on a Unix socket; a kas that stops says goodbye to each client."""
    folder = tmp_path_factory.mktemp("k")
    path = folder / "web.sock"
    more = f"""\
  cable_test: {{folder: "{folder}"}}
web:
  listen:
    network: unix
    address: "{path}"
    listen_grace_period: 0s
    shutdown_grace_period: 3s
"""
    stand = PlainStand(folder, more)
    try:
        with ExitStack() as several:
            sockets = [
                several.enter_context(
                    unix_connect(str(path), "ws://kas/-/cable", **stand.options)
                )
                for _ in range(5)
            ]
            for one in sockets:
                stand.subscribe(one)
            assert stand.kas.process.stops_cleanly()
            assert [_last(one) for one in sockets] == [("server_restart", 1000)] * 5
    finally:
        stand.kas.process.kill()


def test_a_client_that_does_not_read(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """It costs kas little memory, gets the latest state later, or is cut."""
    folder = tmp_path_factory.mktemp("k")
    port = free_port()
    stand = PlainStand(folder, _MORE.format(folder=folder, port=port))
    context = ssl.create_default_context(cafile=stand.kas.state / "ca.crt")
    url = f"wss://localhost:{port}/-/cable"
    # The library reads this much ahead, and then leaves the rest in the socket.
    options = {**stand.options, "max_queue": 1, "max_size": None}
    try:
        with ExitStack() as several:
            later, never = (
                several.enter_context(connect(url, ssl=context, **options))
                for _ in range(2)
            )
            for one in (later, never):
                stand.subscribe(one)
            before = stand.kas.process.resident()
            for _ in range(10):
                # 128 MiB for each.
                assert _post(stand.kas, port, "flood/200")[1] == 2
            position, _ = _post(stand.kas, port, "quietly")
            assert _metric(stand.kas, "kas_action_cable_behind_total") == 2
            assert stand.kas.process.resident() - before < 32 * 1024 * 1024
            while (message := _next(later)["message"])["s"] < position:
                pass
            assert message == {"s": position, "snapshot": True}
            eventually(
                lambda: _metric(stand.kas, "kas_action_cable_connections") == 1,
                what="the client that does not read is cut",
            )
    finally:
        stand.kas.process.kill()


_NGINX = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection upgrade;
      proxy_set_header X-Forwarded-Proto https;
      proxy_set_header X-Forwarded-Host public.example.com;
      proxy_pass http://127.0.0.1:{web};
    }}
  }}
}}
"""


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_behind_a_proxy(tmp_path: Path) -> None:
    """kas compares the origin of a page with the address that a trusted proxy names."""
    nginx = needs.program("nginx", "apt-get install nginx")
    web, port = free_port(), free_port()
    more = f"""\
  cable_test: {{folder: "{tmp_path}"}}
web:
  listen: {{address: "127.0.0.1:{web}", development_certificate: false}}
  trusted_proxies: [127.0.0.1]
"""
    stand = PlainStand(tmp_path, more)
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(_NGINX.format(folder=tmp_path, port=port, web=web))
    arguments: list[str | Path] = [nginx, "-p", tmp_path, "-c", configuration]
    front = Process("nginx", arguments, tmp_path / "nginx.log")
    try:
        eventually(lambda: _answers(port), what="nginx listens")
        url = f"ws://127.0.0.1:{port}/-/cable"
        page = Origin("https://public.example.com")
        with connect(url, origin=page, **stand.options) as page_socket:
            stand.subscribe(page_socket)
        with pytest.raises(InvalidStatus, match="404"):
            connect(url, origin=Origin(f"http://127.0.0.1:{port}"), **stand.options)
    finally:
        front.kill()
        stand.kas.process.kill()
