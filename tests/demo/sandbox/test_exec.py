"""``exec``: its channels with a process that the test plays, and with real ones."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest_twisted
from twisted.internet import reactor
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from demo.sandbox.execution import CLOSE_TIMEOUT, MAX_MESSAGE, SIZE_WAIT
from tests.demo.sandbox.memory import POD, FakeProcess, Memory, Terminal
from tests.demo.sandbox.test_api import ApiCase


class ExecCase(ApiCase):
    """A process that the test plays."""

    def setUp(self) -> None:
        super().setUp()
        self.killed: list[int] = []
        self.patch(os, "killpg", lambda group, number: self.killed.append(group))

    def start(self, **flags: str) -> Terminal:
        return Terminal(self.memory, ["sh"], flags)

    @property
    def spawned(self) -> tuple[Any, FakeProcess]:
        return self.memory.reactor.spawned[-1][:2]

    def exit(self, reason: BaseException, terminal: Terminal) -> None:
        protocol, _ = self.spawned
        protocol.processExited(Failure(reason))
        protocol.processEnded(Failure(reason))


class RequestTests(ExecCase):
    def test_requests_that_cannot_be(self) -> None:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        key = {"Sec_WebSocket_Key": "x"}
        v5 = {"Sec_WebSocket_Protocol": "v5.channel.k8s.io"}
        other = {"Sec_WebSocket_Protocol": "v1.channel.k8s.io"}
        for query, headers in (
            ("command=id", {}),
            ("command=id", upgrade | v5),
            ("command=id", upgrade | key),
            ("command=id", upgrade | key | other),
            ("", upgrade | key | v5),
            ("command=a%00b", upgrade | key | v5),
        ):
            answer = self.ask("GET", f"{POD}/exec?{query}", **headers)
            self.assertEqual(answer.status, 400, (query, headers))
        self.assertEqual(self.memory.reactor.spawned, [])

    def test_no_such_program(self) -> None:
        terminal = Terminal(self.memory, ["there-is-no-such-program"])
        self.assertIn("executable file not found", terminal.status["message"])
        self.assertTrue(terminal.closed)


class ChannelTests(ExecCase):
    def test_no_input_was_asked_for(self) -> None:
        terminal = self.start()
        terminal.send(0, b"abc")
        process = self.spawned[1]
        self.assertEqual((process.input, process.calls), (b"", ["closeStdin"]))

    def test_end_of_input_of_a_terminal_is_a_character(self) -> None:
        terminal = self.start(stdin="true", tty="true")
        self.memory.reactor.advance(SIZE_WAIT)
        terminal.send(255, b"\x00")
        self.assertEqual(self.spawned[1].input, b"\x04")

    def test_message_beyond_the_limit(self) -> None:
        terminal = self.start(stdin="true")
        terminal.send(0, bytes(MAX_MESSAGE - 1))
        self.assertEqual(len(self.spawned[1].input), MAX_MESSAGE - 1)
        self.assertFalse(terminal.closed)
        terminal.send(0, bytes(MAX_MESSAGE))
        self.assertTrue(terminal.closed)
        self.assertEqual(self.killed, [FakeProcess.pid])


class EndTests(ExecCase):
    def test_exit_status(self) -> None:
        for reason, code in (
            (ProcessTerminated(7), "7"),
            (ProcessTerminated(signal=signal.SIGKILL), "137"),
        ):
            terminal = self.start()
            self.exit(reason, terminal)
            self.assertEqual(terminal.status["reason"], "NonZeroExitCode")
            cause = {"reason": "ExitCode", "message": code}
            self.assertEqual(terminal.status["details"]["causes"], [cause])

    def test_client_that_never_says_goodbye(self) -> None:
        terminal = self.start()
        self.exit(ProcessDone(0), terminal)
        self.memory.reactor.advance(CLOSE_TIMEOUT - 0.1)
        self.assertFalse(terminal.connection.wire.aborted)
        self.memory.reactor.advance(0.2)
        self.assertTrue(terminal.connection.wire.aborted)

    def test_client_that_leaves_before_its_terminal_is_there(self) -> None:
        terminal = self.start(tty="true")
        terminal.connection.wire.lose()
        self.memory.reactor.advance(SIZE_WAIT)
        self.assertEqual(self.memory.reactor.spawned, [])

    def test_all_that_run_can_be_ended(self) -> None:
        self.start()
        self.start()
        self.memory.executions.end_all()
        self.assertEqual(self.killed, [FakeProcess.pid] * 2)


class BackPressureTests(ExecCase):
    def test_client_that_does_not_read_stops_the_process(self) -> None:
        terminal = self.start(stdin="true")
        producer = terminal.connection.wire.producer
        assert producer is not None
        producer.pauseProducing()
        producer.resumeProducing()
        self.assertEqual(self.spawned[1].calls, ["pauseProducing", "resumeProducing"])

    def test_process_that_does_not_read_stops_the_client(self) -> None:
        terminal = self.start(stdin="true")
        process = self.spawned[1]
        process.producer.pauseProducing()
        terminal.send(0, b"abc")
        self.assertEqual(process.input, b"")
        process.producer.resumeProducing()
        self.assertEqual(process.input, b"abc")

    def test_input_that_ends_early_does_not_end_the_connection(self) -> None:
        terminal = self.start(stdin="true")
        producer = self.spawned[1].producer
        producer.pauseProducing()
        producer.stopProducing()
        self.assertFalse(terminal.connection.wire.aborted)
        self.assertEqual(terminal.connection.wire.producerState, "producing")


class TerminalTests(ExecCase):
    def test_waits_a_moment_for_its_size(self) -> None:
        self.start(tty="true")
        self.memory.reactor.advance(SIZE_WAIT / 2)
        self.assertEqual(self.memory.reactor.spawned, [])
        self.memory.reactor.advance(SIZE_WAIT / 2)
        self.assertEqual(os.get_terminal_size(self.master), (80, 24))

    def test_sizes_that_are_none(self) -> None:
        terminal = self.start(tty="true")
        self.resize(terminal, 30, 100)
        self.assertEqual(len(self.memory.reactor.spawned), 1)
        for data in (b"", b"[]", b"{}", b'{"Height": 0, "Width": 1}', b"\xff"):
            terminal.send(4, data)
        self.resize(terminal, 70_000, 1)
        self.assertEqual(os.get_terminal_size(self.master), (100, 30))

    @property
    def master(self) -> int:
        master, slave, _ = self.memory.reactor.spawned[0][3]
        self.addCleanup(_close, master)
        self.addCleanup(_close, slave)
        return int(master)

    def resize(self, terminal: Terminal, rows: int, columns: int) -> None:
        terminal.send(4, json.dumps({"Height": rows, "Width": columns}).encode())


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        pass


# Real processes of this machine.


def run(folder: Path, *command: str, **flags: str) -> Terminal:
    return Terminal(Memory(folder, reactor), command, flags)


async def until(look: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not look():
        assert time.monotonic() < deadline
        await deferLater(cast(IReactorTime, reactor), 0.01)


async def end(terminal: Terminal) -> str:
    """Wait until it says how it ended; its exit status."""
    await until(lambda: terminal.closed)
    terminal.flush()
    terminal.connection.wire.lose()
    if terminal.status["status"] == "Success":
        return "0"
    return str(terminal.status["details"]["causes"][0]["message"])


def lives(terminal: Terminal) -> bool:
    """Whether the process whose number was written is there."""
    pid = int(terminal.output)
    try:
        os.kill(pid, 0)
        # what an init of a container did not collect is dead all the same
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest_twisted.ensureDeferred
async def test_streams_and_status(tmp_path: Path) -> None:
    terminal = run(tmp_path, "sh", "-c", "cat; echo err >&2; exit 7", stdin="true")
    terminal.send(0, b"abc")
    terminal.send(255, b"\x00")
    assert await end(terminal) == "7"
    assert terminal.output == b"abc"
    assert terminal.errors == b"err\n"


@pytest_twisted.ensureDeferred
async def test_all_of_a_large_output(tmp_path: Path) -> None:
    terminal = run(tmp_path, "head", "-c", "3000000", "/dev/zero")
    assert await end(terminal) == "0"
    assert len(terminal.output) == 3_000_000


@pytest_twisted.ensureDeferred
async def test_terminal_of_its_own(tmp_path: Path) -> None:
    script = "tty; echo $TERM; read x; stty size; exit 3"
    terminal = run(tmp_path, "sh", "-c", script, stdin="true", tty="true")
    terminal.send(4, json.dumps({"Height": 30, "Width": 100}).encode())
    await until(lambda: b"xterm\r\n" in terminal.output)
    terminal.send(4, json.dumps({"Height": 40, "Width": 132}).encode())
    terminal.send(0, b"\n")
    assert await end(terminal) == "3"
    assert b"/dev/pts/" in terminal.output
    assert b"40 132\r\n" in terminal.output


@pytest_twisted.ensureDeferred
async def test_ctrl_c_reaches_the_process(tmp_path: Path) -> None:
    script = "trap 'echo trapped; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    terminal = run(tmp_path, "sh", "-c", script, stdin="true", tty="true")
    await until(lambda: b"ready\r\n" in terminal.output)
    terminal.send(0, b"\x03")
    assert await end(terminal) == "5"
    assert b"trapped" in terminal.output


@pytest_twisted.ensureDeferred
async def test_nothing_is_left_in_the_background(tmp_path: Path) -> None:
    for flags in ({}, {"tty": "true"}):
        terminal = run(tmp_path, "sh", "-c", "sleep 1000 & echo $!", **flags)
        await end(terminal)
        await until(lambda of=terminal: not lives(of))  # type: ignore[misc]


@pytest_twisted.ensureDeferred
async def test_client_that_leaves_ends_all_of_it(tmp_path: Path) -> None:
    terminal = run(tmp_path, "sh", "-c", "sleep 1000 & echo $!; wait")
    await until(lambda: b"\n" in terminal.output)
    terminal.connection.wire.lose()
    await until(lambda: not lives(terminal))
    await until(lambda: not terminal.memory.executions.running)
