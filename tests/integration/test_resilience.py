"""kas and agentk go away and come back; clients leave at every moment."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, Kas

#: As many as in a bad day of a load balancer's health checks.
ABORTED = 10_000
TOGETHER = 500


@pytest.fixture(scope="module")
def pair(
    folder: Path, control_plane: ControlPlane
) -> Iterator[tuple[Kas, Agentk, Way]]:
    """A kas and an agentk that tests here may kill, and the way through them."""
    kas = Kas(folder / "restarted")
    kas.start()
    agentk = Agentk(kas, kas.add_agent("main"), control_plane.agent, "restarted agentk")
    agentk.start()
    kas.add_user("user")
    yield kas, agentk, kas.way("user")
    agentk.stop()
    kas.stop()


Pair = tuple[Kas, Agentk, Way]


def test_agentk_killed(pair: Pair) -> None:
    """While there is no agent requests wait; they succeed once there is one."""
    kas, agentk, way = pair
    assert agentk.process is not None
    agentk.process.child.kill()
    agentk.process.kill()
    eventually(lambda: not kas.status()["agents"], what="kas sees that agentk is gone")
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(way.ask, "GET", "/readyz") for _ in range(5)]
        eventually(lambda: kas.status()["waiting_requests"] == 5)
        agentk.start()
        assert [one.result(30).body for one in waiting] == [b"ok"] * 5
    assert kas.status()["waiting_requests"] == 0


def test_agentk_stopped(pair: Pair) -> None:
    """Told to stop, it finishes what runs."""
    _, agentk, way = pair
    with way.connect() as connection:
        connection.send(way.head("GET", "/api/v1/namespaces?watch=1&timeoutSeconds=3"))
        assert connection.head()[1] == 200
        while connection.chunk():
            if agentk.process is not None and agentk.process.child.poll() is None:
                agentk.process.child.send_signal(signal.SIGTERM)
    assert agentk.stop()
    agentk.start()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_kas_restarted(how: signal.Signals, pair: Pair) -> None:
    """agentk comes back by itself, whatever ended kas."""
    kas, agentk, way = pair
    assert kas.process is not None
    if how == signal.SIGKILL:
        assert kas.process.stop(how) == -how
    else:
        assert kas.process.stops_cleanly(how)
    eventually(lambda: not agentk.ready(), what="agentk sees that kas is gone")
    kas.process.kill()
    kas.start()
    agentk.wait_until_ready(40)
    assert way.ask("GET", "/readyz").body == b"ok"


def test_kas_drains(pair: Pair) -> None:
    """Told to stop, kas lets short requests finish and ends long ones in time."""
    kas, agentk, way = pair
    assert kas.process is not None
    with way.connect() as connection:
        connection.send(way.head("GET", "/api/v1/namespaces?watch=1"))
        assert connection.head()[1] == 200
        assert kas.process.stops_cleanly()
        connection.rest()
    kas.process.kill()
    kas.start()
    agentk.wait_until_ready(40)


# Clients that leave.


def _tcp(way: Way) -> socket.socket:
    return socket.create_connection(("127.0.0.1", way.port), 30)


def _connected(way: Way) -> None:
    _tcp(way).close()


def _half_a_handshake(way: Way) -> None:
    with _tcp(way) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40))


def _greeted(way: Way) -> None:
    way.connect().sock.close()


def _half_a_head(way: Way) -> None:
    with way.connect() as connection:
        connection.send(way.head("GET", "/readyz")[:-20])


def _before_the_answer(way: Way) -> None:
    with way.connect() as connection:
        connection.send(way.head("GET", "/api/v1/namespaces"))


def _in_a_body(way: Way) -> None:
    with way.connect() as connection:
        head = way.head("POST", "/api/v1/namespaces", "Content-Length: 1000")
        connection.send(head + b"{")


def _in_a_watch(way: Way) -> None:
    with way.connect() as connection:
        connection.send(way.head("GET", "/api/v1/namespaces?watch=1"))
        assert connection.head()[1] == 200


def _in_an_answer(way: Way) -> None:
    with way.connect() as connection:
        connection.send(way.head("GET", "/openapi/v2"))
        assert connection.head()[1] == 200
        reset = struct.pack("ii", 1, 0)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)


def _in_an_upgrade(way: Way) -> None:
    with way.connect() as connection:
        upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Origin: http://here")
        key = (
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        )
        target = "/api/v1/namespaces?watch=1"
        connection.send(way.head("GET", target, *upgrade, *key))
        assert connection.head()[1] == 101


# How many of each: what costs TLS and an answer of the API server comes more rarely.
LEAVING: tuple[tuple[Callable[[Way], None], int], ...] = (
    (_connected, 35),
    (_half_a_handshake, 30),
    (_greeted, 8),
    (_half_a_head, 8),
    (_before_the_answer, 8),
    (_in_a_body, 4),
    (_in_a_watch, 4),
    (_in_an_answer, 1),
    (_in_an_upgrade, 2),
)


def test_clients_that_leave(pair: Pair) -> None:
    """Ten thousand of them, at every moment there is, leave nothing behind."""
    kas, agentk, way = pair
    assert kas.process is not None and agentk.process is not None
    assert sum(count for _, count in LEAVING) == 100
    plan = [leave for leave, count in LEAVING for _ in range(count)]
    processes = kas.process, agentk.process

    def numbers() -> tuple[int, ...]:
        return (*(len(one.descriptors()) for one in processes), kas.streams())

    # One round first: what is kept for the next request is not a leak.
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda leave: leave(way), plan))
        eventually(lambda: kas.streams() == 0, what="streams end")
        allowed = [len(one.descriptors()) + 70 for one in processes]
        memory = sum(one.resident() for one in processes)
        for _ in range(ABORTED // TOGETHER):
            list(pool.map(lambda leave: leave(way), plan * (TOGETHER // len(plan))))
            # They are answered one and all while the others leave.
            assert way.ask("GET", "/readyz").body == b"ok"
    eventually(lambda: kas.streams() == 0, what="streams end")

    def settled() -> bool:
        return all(
            len(one.descriptors()) <= most
            for one, most in zip(processes, allowed, strict=True)
        )

    eventually(settled, what=f"descriptors: {numbers()}, allowed {allowed}")
    eventually(lambda: kas.metric("kas_kubernetes_api_requests_in_flight") == 0)
    grown = sum(one.resident() for one in processes) - memory
    assert grown < 40 * 1024 * 1024, f"{grown} bytes more"
    for one in processes:
        assert "Traceback" not in one.said()
    assert way.ask("GET", "/readyz").body == b"ok"
