"""Programs as trees of parts."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.logger import Logger, formatEvent

from tunnel.program.parts import Part, PartTree, Phase, Steps


class _Noted(Part):
    """Notes its calls; each phase takes the given seconds."""

    def __init__(
        self, name: str, notes: list[str], clock: Clock, **seconds: float
    ) -> None:
        self.name = name
        self._notes = notes
        self._clock = clock
        self._seconds = seconds

    async def start(self) -> None:
        self._notes.append(f"start {self.name}")

    async def drain(self, phase: Phase) -> None:
        if seconds := self._seconds.get(phase.name):
            self._notes.append(f"{phase.name} {self.name} begins")
            await deferLater(self._clock, seconds)
            self._notes.append(f"{phase.name} {self.name} ends")

    async def stop(self) -> None:
        self._notes.append(f"stop {self.name}")


def _run(coroutine: Any) -> Deferred[None]:
    return Deferred.fromCoroutine(coroutine)


def test_start_drain_stop() -> None:
    """Parts start in order, drain by phases together, and stop in reverse."""
    notes: list[str] = []
    clock = Clock()
    tree = PartTree(
        [
            _Noted("a", notes, clock, AGENTS=2, SESSIONS=1),
            _Noted("b", notes, clock, AGENTS=1, READINESS=1),
        ]
    )
    assert _run(tree.start()).called
    assert notes == ["start a", "start b"]
    notes.clear()
    ended = _run(tree.end())
    seen = []
    for _ in range(5):
        seen.append([*notes])
        notes.clear()
        clock.advance(1)
    assert ended.called
    assert seen == [
        ["READINESS b begins"],
        ["READINESS b ends", "AGENTS a begins", "AGENTS b begins"],
        ["AGENTS b ends"],
        ["AGENTS a ends", "SESSIONS a begins"],
        ["SESSIONS a ends", "stop b", "stop a"],
    ]


def test_order_of_phases() -> None:
    assert [one.name for one in Phase] == [
        "READINESS",
        "LISTENERS",
        "AGENTS",
        "REQUESTS",
        "MODULES",
        "STORES",
        "SESSIONS",
    ]


def test_a_part_that_fails_to_start() -> None:
    """The parts that run stop, the failed part included; no further part starts."""
    notes: list[str] = []
    clock = Clock()

    def fail() -> object:
        raise ZeroDivisionError

    def stop() -> None:
        notes.append("stop b")

    tree = PartTree(
        [
            _Noted("a", notes, clock),
            Steps("b", start=fail, stop=stop),
            _Noted("c", notes, clock),
        ]
    )
    started = _run(tree.start())
    failures: list[Any] = []
    started.addErrback(failures.append)
    assert [one.type for one in failures] == [ZeroDivisionError]
    assert notes == ["start a", "stop b", "stop a"]
    assert _run(tree.end()).called
    assert notes == ["start a", "stop b", "stop a"]


def test_an_end_while_parts_start() -> None:
    """A program that ends while a part starts does not start further parts."""
    notes: list[str] = []
    clock = Clock()
    waits: Deferred[None] = Deferred()
    tree = PartTree([Steps("slow", start=lambda: waits), _Noted("b", notes, clock)])
    started = _run(tree.start())
    assert _run(tree.end()).called
    waits.callback(None)
    assert started.called
    assert notes == []


@pytest.mark.parametrize("when", ["drain", "stop"])
def test_a_failure_at_the_end(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged, and the other parts end."""
    notes: list[str] = []
    said: list[str] = []
    observer: Any = lambda event: said.append(formatEvent(event))  # noqa: E731
    monkeypatch.setattr(PartTree, "_log", Logger(observer=observer))

    def fail() -> object:
        raise ZeroDivisionError

    drain = {Phase.STORES: fail} if when == "drain" else None
    stop = fail if when == "stop" else None
    failing = Steps("b", drain=drain, stop=stop)
    tree = PartTree([_Noted("a", notes, Clock()), failing])
    assert _run(tree.start()).called
    assert _run(tree.end()).called
    assert notes == ["start a", "stop a"]
    (text,) = said
    assert ("draining b failed" if when == "drain" else "stopping b failed") in text


def test_steps_may_be_asynchronous() -> None:
    waits: Deferred[None] = Deferred()
    part = Steps("a", stop=lambda: waits)
    done: list[None] = []
    _run(part.stop()).addCallback(done.append)
    assert done == []
    waits.callback(None)
    assert done == [None]
    assert _run(part.start()).called
    assert _run(part.drain(Phase.AGENTS)).called


def test_an_end_that_cancels_a_start() -> None:
    """The start returns without an error, and the end stops the part once."""
    notes: list[str] = []
    waits: Deferred[None] = Deferred()

    async def stop() -> None:
        notes.append("stop slow")
        waits.cancel()

    tree = PartTree([Steps("slow", start=lambda: waits, stop=stop)])
    started = _run(tree.start())
    ended = _run(tree.end())
    assert started.called
    assert ended.called
    assert notes == ["stop slow"]


class _Plain(Part):
    """A part without asynchronous methods."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def start(self) -> None:
        self.notes.append("start")

    def drain(self, phase: Phase) -> None:
        self.notes.append(phase.name)

    def stop(self) -> None:
        self.notes.append("stop")


def test_methods_need_not_be_asynchronous() -> None:
    part = _Plain()
    tree = PartTree([part, Part()])
    assert _run(tree.start()).called
    assert _run(tree.end()).called
    assert part.notes == ["start", *(phase.name for phase in Phase), "stop"]
