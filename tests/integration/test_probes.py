"""The observability listeners of both programs under clients that mean no good."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.integration.processes import Process, eventually
from tests.integration.stack import Agentk, Kas, fetch
from tunnel.program.site import MAX_CONNECTIONS, RESERVED

_GET = b"GET /liveness HTTP/1.1\r\nHost: a\r\n\r\n"
_BODY = b"POST /liveness HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000000\r\n\r\n"
_MEBIBYTE = b"x" * (1 << 20)


@pytest.fixture(params=["kas", "agentk"])
def probed(
    request: pytest.FixtureRequest, lone_kas: Kas, lone_agentk: Agentk
) -> Iterator[tuple[int, Process]]:
    """The port of each program, and its process."""
    lone_kas.start()
    program: Kas | Agentk = lone_kas
    if request.param == "agentk":
        lone_agentk.start()
        program = lone_agentk
    assert program.process is not None
    yield program.observability, program.process


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10)


def test_probe_is_answered(probed: tuple[int, Process]) -> None:
    """More idle connections than there may be, and a flood of bodies."""
    port, process = probed
    before, written = process.resident(), _written(process)
    kept = [_connect(port) for _ in range(MAX_CONNECTIONS + RESERVED)]
    for one in kept:
        try:
            one.sendall(_GET)
        except ConnectionError:
            pass  # gave way already
    flooding = [_connect(port) for _ in range(8)]
    for one in flooding:
        try:
            one.sendall(_BODY)
            for _ in range(64):
                one.sendall(_MEBIBYTE)
        except ConnectionError:
            continue
        raise AssertionError("64 MiB of a body were taken")
    assert fetch(port, "/liveness") == (200, b"alive\n")
    assert process.resident() - before < 32 << 20
    assert _written(process) - written < 1 << 20
    assert len(process.descriptors()) < MAX_CONNECTIONS + 64
    assert "Traceback" not in process.said()
    for one in kept + flooding:
        one.close()


def test_unread_answers(probed: tuple[int, Process]) -> None:
    """Who asks and does not read makes nobody keep the answers."""
    port, process = probed
    before = process.resident()
    with _connect(port) as one:
        one.settimeout(2)
        asked = 0
        try:
            while asked < 100_000:
                one.sendall(_GET.replace(b"/liveness", b"/metrics") * 100)
                asked += 100
        except TimeoutError:
            pass
        assert asked < 100_000
        assert fetch(port, "/liveness") == (200, b"alive\n")
        assert process.resident() - before < 32 << 20


def _written(process: Process) -> int:
    """Bytes that a process wrote to files; sockets are not counted."""
    with open(f"/proc/{process.pid}/io") as io:
        values = dict(line.strip().split(": ") for line in io)
    assert os.path.exists(f"/proc/{process.pid}")
    return int(values["write_bytes"])


def _profile(port: int, seen: str) -> list[str] | None:
    """One profile, made while another is refused; nothing where *seen* is not in it."""
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(fetch, port, "/debug/profile") for _ in range(2)]
        while not all(one.done() for one in both):
            # Something to be seen.
            fetch(port, "/metrics")
    found = dict(one.result() for one in both)
    assert set(found) == {200, 409}
    lines = found[200].decode().splitlines()
    return lines if any(seen in line for line in lines) else None


def test_profile(lone_kas: Kas, lone_agentk: Agentk, tmp_path: Path) -> None:
    """Where a program spends its time, one profile at a time; off at first."""
    lone_kas.start()
    assert fetch(lone_kas.observability, "/debug/profile")[0] == 404
    assert lone_kas.stop()
    profile = "profile: {enabled: true, duration: 1s}"
    lone_kas.observability_settings = (profile,)
    lone_kas.start()
    lone_agentk.start()
    assert fetch(lone_agentk.observability, "/debug/profile")[0] == 404
    assert lone_agentk.stop()
    options = tmp_path / "agentk.yaml"
    options.write_text(f"observability: {{{profile}}}\n")
    lone_agentk.start("--configuration-file", str(options))
    for program in lone_kas, lone_agentk:
        port = program.observability
        # On a busy machine it may use no CPU time in the second of one profile.
        lines = eventually(partial(_profile, port, "site.py:exposition"))
        assert all(int(line.rpartition(" ")[2]) > 0 for line in lines)
        assert program.stop()
