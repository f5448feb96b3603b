"""``exec`` with real processes of this machine."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.demo.sandbox.memory import Memory, Terminal

_reactor: Any = reactor


class Running:
    """One ``exec``, to be awaited."""

    def __init__(self, folder: Path, *command: str, **flags: str) -> None:
        self._waiting: list[tuple[bytes, Deferred[None]]] = []
        self._closed: Deferred[None] = Deferred()
        self.memory = Memory(_reactor, folder)
        self.terminal = Terminal(
            self.memory, list(command), told=self._told, flags=flags
        )

    def _told(self, message: bytes | None) -> None:
        for text, waiting in tuple(self._waiting):
            if text in self.terminal.output:
                self._waiting.remove((text, waiting))
                waiting.callback(None)
        if message is None:
            _reactor.callLater(0, self._closed.callback, None)

    async def until(self, text: bytes) -> None:
        waiting: Deferred[None] = Deferred()
        self._waiting.append((text, waiting))
        self._told(b"")
        await waiting.addTimeout(10, _reactor)

    async def end(self) -> Any:
        await self._closed.addTimeout(10, _reactor)
        self.terminal.flush()
        self.terminal.connection.wire.lose()
        self.memory.factory.abort_all()
        return self.terminal.status


def _code(status: Any) -> str:
    return str(status["details"]["causes"][0]["message"])


@pytest_twisted.ensureDeferred
async def test_streams_and_status(tmp_path: Path) -> None:
    script = "cat; echo err >&2; exit 7"
    running = Running(tmp_path, "sh", "-c", script, stdin="true")
    running.terminal.send(0, b"abc")
    running.terminal.send(255, b"\x00")
    status = await running.end()
    assert running.terminal.output == b"abc"
    assert running.terminal.errors == b"err\n"
    assert _code(status) == "7"


@pytest_twisted.ensureDeferred
async def test_all_of_a_large_output(tmp_path: Path) -> None:
    size = 3_000_000
    running = Running(tmp_path, "head", "-c", str(size), "/dev/zero")
    status = await running.end()
    assert len(running.terminal.output) == size
    assert status["status"] == "Success"


@pytest_twisted.ensureDeferred
async def test_terminal_of_its_own(tmp_path: Path) -> None:
    script = "tty; echo $TERM; read x; stty size; exit 3"
    running = Running(tmp_path, "sh", "-c", script, stdin="true", tty="true")
    running.terminal.send(4, json.dumps({"Height": 30, "Width": 100}).encode())
    await running.until(b"xterm\r\n")
    running.terminal.send(4, json.dumps({"Height": 40, "Width": 132}).encode())
    running.terminal.send(0, b"\n")
    status = await running.end()
    assert b"/dev/pts/" in running.terminal.output
    assert b"40 132\r\n" in running.terminal.output
    assert _code(status) == "3"


@pytest_twisted.ensureDeferred
async def test_ctrl_c_reaches_the_process(tmp_path: Path) -> None:
    script = "trap 'echo trapped; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    running = Running(tmp_path, "sh", "-c", script, stdin="true", tty="true")
    await running.until(b"ready\r\n")
    running.terminal.send(0, b"\x03")
    status = await running.end()
    assert b"trapped" in running.terminal.output
    assert _code(status) == "5"


@pytest_twisted.ensureDeferred
async def test_nothing_is_left_in_the_background(tmp_path: Path) -> None:
    for flags in ({}, {"tty": "true"}):
        running = Running(tmp_path, "sh", "-c", "sleep 1000 & echo $!", **flags)
        await running.end()
        await _gone(int(running.terminal.output))


@pytest_twisted.ensureDeferred
async def test_client_that_leaves_ends_all_of_it(tmp_path: Path) -> None:
    running = Running(tmp_path, "sh", "-c", "sleep 1000 & echo $!; wait")
    await running.until(b"\n")
    running.terminal.connection.wire.lose()
    await _gone(int(running.terminal.output))
    while running.memory.executions.running:
        await _turn()


async def _gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while _lives(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        await _turn()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # what an init of a container did not collect is dead all the same
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def _turn() -> Deferred[None]:
    turn: Deferred[None] = Deferred()
    _reactor.callLater(0.01, turn.callback, None)
    return turn
