"""Malformed input at every listener of both programs: no error, nothing unhandled."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.fuzzing import Generator, send, trusting
from tests.integration.processes import Process
from tests.integration.stack import Agentk, Kas, fetch

#: Connections of each kind to each listener.
_CASES = 250

_MORE = """\
api:
  listen: {address: "127.0.0.1:0", authentication_secret_file: secret}
private_api:
  listen: {address: "127.0.0.1:0", authentication_secret_file: secret}
"""

#: What failed once, and has to be answered.
_KNOWN = [
    [b"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n"],
    [b"GET /status HTTP/1.1\r\nHost: \xff\r\n\r\n"],
    [b"POST /a.B/C HTTP/1.1\r\nHost: \xff\r\nContent-Length: 0\r\n\r\n"],
    [b"POST /%ff/%ff HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"],
]


@pytest.fixture
def fuzzed(lone_kas: Kas, lone_agentk: Agentk) -> Iterator[tuple[Kas, Agentk]]:
    """Both programs with all their listeners."""
    (lone_kas.folder / "secret").write_bytes(base64.b64encode(bytes(32)))
    lone_kas.settings = _MORE
    lone_kas.start()
    lone_agentk.start()
    yield lone_kas, lone_agentk


def problems(process: Process) -> list[dict[str, Any]]:
    """The lines of a log that say that the program itself failed."""
    found = []
    for line in process.said().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            found.append({"message": line})
            continue
        if event["level"] in ("error", "critical") or "traceback" in event:
            found.append(event)
    return found


def port(process: Process, what: str) -> int:
    """Where a program listens for something."""
    return int(process.wait_for(rf"listening for {what} on 127\.0\.0\.1:(\d+)")[1])


def test_fuzz(fuzzed: tuple[Kas, Agentk], tmp_path: Path) -> None:
    """Both log no error, go on serving, and stop in good order."""
    kas, agentk = fuzzed
    assert kas.process is not None and agentk.process is not None
    tls = trusting()
    listeners = {
        "agents": (kas.agents, True),
        "health": (kas.observability, False),
        "the external API": (port(kas.process, "the external API"), False),
        "the API proxy": (kas.proxy, True),
        "other kas": (port(kas.process, "other kas"), False),
        "agentk's health": (agentk.observability, False),
    }
    for seed, (number, encrypted) in enumerate(listeners.values()):
        generator = Generator(seed)
        for case in (*_KNOWN, *generator.cases(_CASES)):
            send(number, case, tls if encrypted else None)
        if encrypted:
            for case in generator.cases(_CASES // 5):
                send(number, case)
    for one in kas, agentk:
        assert fetch(one.observability, "/readiness") == (200, b"ready\n")
        assert fetch(one.observability, "/metrics")[0] == 200
    assert agentk.stop()
    assert kas.stop()
    for process in kas.process, agentk.process:
        assert problems(process) == []
