"""A worker, as its supervisor sees it; tests/integration has real ones."""

from __future__ import annotations

import errno
import json
from typing import Any

import attrs
from twisted.internet.error import ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from kas.workers.parent import REPORTS
from kas.workers.process import LOOK_INTERVAL, REPLACE_MOST, SILENCE, WorkerProcess
from kas.workers.worker import Worker
from tunnel.program.opened import Opened
from tunnel.program.runtime import Runtime

BEAT = {"draining": False}
READY = {**BEAT, "opened": [Opened("agents", "127.0.0.1:1").to_json()]}


@attrs.define(eq=False)
class Child:
    """A process that only counts the signals that it gets."""

    protocol: Any
    pid: int
    signals: list[str] = attrs.Factory(list)

    def signalProcess(self, number: Any) -> None:
        self.signals.append(number.name)

    def says(self, content: dict[str, Any]) -> None:
        self.protocol.childDataReceived(REPORTS, json.dumps(content).encode() + b"\n")

    def ends(self) -> None:
        self.protocol.processEnded(Failure(ProcessTerminated(1)))


class Machine(Clock):
    """Starts processes, as long as it has room for them."""

    def __init__(self) -> None:
        super().__init__()
        self.children: list[Child] = []
        self.full = False

    def spawnProcess(self, protocol: Any, *_: Any, **__: Any) -> Child:
        if self.full:
            raise OSError(errno.EMFILE, "Too many open files")
        self.children.append(Child(protocol, 100 + len(self.children)))
        return self.children[-1]


def _worker(machine: Machine, failed: list[str] | None = None) -> WorkerProcess:
    told: list[str] = [] if failed is None else failed
    return WorkerProcess(
        Worker(number=1),
        ["kas"],
        {},
        Runtime(reactor=machine, random=lambda: 0.5),
        None,
        lambda one: None,
        lambda one, draining: None,
        lambda one, how: told.append(how),
    )


def _passes(machine: Machine, seconds: float) -> None:
    machine.pump([LOOK_INTERVAL] * round(seconds / LOOK_INTERVAL))


def test_one_that_hangs_while_it_stops_is_killed() -> None:
    machine = Machine()
    worker = _worker(machine)
    worker.start()
    (child,) = machine.children
    child.says(READY)
    ended: list[None] = []
    worker.stop().addCallback(ended.append)
    for _ in range(3):
        _passes(machine, SILENCE - 1)
        child.says(BEAT)  # what runs takes its time
    assert child.signals == ["SIGTERM"]
    _passes(machine, SILENCE)
    assert child.signals == ["SIGTERM", "SIGKILL"]
    assert not ended
    child.ends()
    assert ended
    assert not machine.getDelayedCalls()


def test_a_machine_that_was_suspended() -> None:
    """Nobody could say anything, or hear it, while all of them stood still."""
    machine = Machine()
    worker = _worker(machine)
    worker.start()
    (child,) = machine.children
    child.says(READY)
    machine.advance(3600)
    _passes(machine, SILENCE - 2)
    assert child.signals == []
    _passes(machine, 1)
    assert child.signals == ["SIGKILL"]


def test_a_machine_without_room_for_the_next() -> None:
    machine = Machine()
    worker = _worker(machine)
    worker.start()
    machine.children[0].says(READY)
    machine.full = True
    machine.children[0].ends()
    machine.pump([REPLACE_MOST] * 3)
    assert worker.pid is None and len(machine.children) == 1
    machine.full = False
    machine.advance(REPLACE_MOST)
    machine.children[1].says(READY)
    assert worker.opened


def test_a_machine_without_room_for_the_first() -> None:
    machine = Machine()
    machine.full = True
    failed: list[str] = []
    _worker(machine, failed).start()
    assert failed == ["not started: Too many open files"]


def test_files_are_read_again_once_it_is_ready() -> None:
    """A process that has just begun would be ended by the signal."""
    machine = Machine()
    worker = _worker(machine)
    worker.start()
    (child,) = machine.children
    worker.reload()
    assert child.signals == []
    child.says(READY)
    assert child.signals == ["SIGHUP"]
    worker.reload()
    assert child.signals == ["SIGHUP", "SIGHUP"]
