"""The exporter of an audit log to one receiver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from kas.audit.exports import dead as dead_module
from kas.audit.exports.cursor import CursorFile
from kas.audit.exports.dead import DeadLetters
from kas.audit.exports.exporter import (
    FIRST_PAUSE,
    LOCK_SECONDS,
    LONGEST_PAUSE,
    POLL_SECONDS,
    Exporter,
    NotAccepted,
    Unsent,
)
from kas.audit.exports.reader import Exported
from kas.state.directory import StateDirectory
from tests.kas.audit.exports.test_reader import ReadWorld, line
from tunnel.program.runtime import Runtime


class FakeReceiver:
    """A receiver that fails as the test says."""

    def __init__(self) -> None:
        self.confirm_seconds = 0.0
        self.dropped = 0
        self.batches: list[list[int]] = []
        self.error: Exception | None = None
        self.lost: Exception | None = None
        self.refuses: Callable[[Exported], NotAccepted | None] = lambda one: None
        self.closed = 0

    async def send(self, events: Sequence[Exported]) -> None:
        if self.error is not None:
            raise self.error
        for one in events:
            if (refusal := self.refuses(one)) is not None:
                raise refusal
        self.batches.append([one.event["seq"] for one in events])

    async def check(self) -> None:
        if self.lost is not None:
            raise self.lost

    def close(self) -> None:
        self.closed += 1

    @property
    def numbers(self) -> list[int]:
        return [one for batch in self.batches for one in batch]


class ExportWorld(ReadWorld):
    """A log, and an exporter."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.file.touch()
        self.state = StateDirectory.open(folder / "state")
        self.clock = Clock()
        self.receiver = FakeReceiver()
        self.dead = DeadLetters(self.state, "siem")
        self.exporter = self.another()
        self.running: Deferred[None] | None = None

    def another(self) -> Exporter:
        def in_thread(act: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
            try:
                return succeed(act(*arguments))
            except OSError as error:
                failed: Deferred[Any] = Deferred()
                failed.errback(error)
                return failed

        return Exporter(
            "siem",
            self.receiver,
            self.reader,
            CursorFile(self.state, self.file, "siem"),
            self.dead,
            Runtime(
                reactor=self.clock,
                random=lambda: 1.0,
                now=lambda: 1_777_593_600.0 + self.clock.seconds(),
            ),
            in_thread,
        )

    def start(self) -> None:
        self.running = Deferred.fromCoroutine(self.exporter.run())
        self.running.addErrback(Failure.trap, CancelledError)

    def stop(self) -> None:
        assert self.running is not None
        self.running.cancel()

    def restart(self) -> None:
        """As after a kill of kas."""
        self.stop()
        self.exporter = self.another()
        self.start()

    def poll(self, seconds: float = POLL_SECONDS) -> None:
        self.clock.advance(seconds)


@pytest.fixture
def world(tmp_path: Path) -> ExportWorld:
    return ExportWorld(tmp_path)


def test_events_in_order_and_once(world: ExportWorld) -> None:
    world.write(0, 1)
    world.start()
    assert world.receiver.batches == [[0, 1]]
    world.write(2)
    world.poll()
    world.restart()
    world.write(3)
    world.poll()
    assert world.receiver.batches == [[0, 1], [2], [3]]
    assert world.exporter.sent == 1
    assert (world.exporter.lag_seconds, world.exporter.lag_bytes) == (0, 0)
    world.stop()


def test_a_receiver_that_is_away(world: ExportWorld) -> None:
    """kas retries without end, with longer pauses, and the lag grows."""
    world.write(0)
    world.receiver.error = Unsent("connection refused")
    world.start()
    pauses, total = [], 0.0
    for _ in range(12):
        failures, pause = world.exporter.failures, 0.0
        while world.exporter.failures == failures:
            world.poll(0.5)
            pause += 0.5
        pauses.append(pause)
        total += pause
    assert pauses[0] == FIRST_PAUSE
    assert pauses[1] == 2 * FIRST_PAUSE
    assert pauses[-1] == LONGEST_PAUSE
    assert world.exporter.lag_seconds == pytest.approx(total)
    assert world.exporter.lag_bytes == len(line(0))
    world.receiver.error = None
    world.write(1)
    world.poll(LONGEST_PAUSE)
    assert world.receiver.numbers == [0, 1]
    world.poll()
    assert world.exporter.lag_bytes == 0
    # The next error begins with a short pause.
    world.receiver.error = Unsent("connection refused")
    world.write(2)
    world.poll()
    world.receiver.error = None
    world.poll(FIRST_PAUSE)
    assert world.receiver.numbers == [0, 1, 2]
    world.stop()


def test_an_event_that_is_too_large(world: ExportWorld) -> None:
    """It goes to a file of its own, and does not block the others."""
    world.write(*range(10))
    world.receiver.refuses = lambda one: (
        NotAccepted("413", True) if one.event["seq"] in (0, 6) else None
    )
    world.start()
    assert world.receiver.numbers == [1, 2, 3, 4, 5, 7, 8, 9]
    assert world.dead.path.read_bytes() == line(0) + line(6)
    assert world.exporter.rejected == 2
    world.restart()
    assert world.receiver.numbers == [1, 2, 3, 4, 5, 7, 8, 9]
    world.stop()


def test_an_event_that_is_invalid_for_the_receiver(world: ExportWorld) -> None:
    world.write(*range(4))
    world.receiver.refuses = lambda one: (
        NotAccepted("400", False) if one.event["seq"] == 3 else None
    )
    world.start()
    assert world.receiver.numbers == [0, 1, 2]
    assert world.dead.path.read_bytes() == line(3)
    world.stop()


def test_a_receiver_that_accepts_nothing(world: ExportWorld) -> None:
    """Its address may be wrong, so no event is given up."""
    world.write(*range(4))
    world.receiver.refuses = lambda one: NotAccepted("400", False)
    world.start()
    for _ in range(20):
        world.poll(LONGEST_PAUSE)
    assert not world.dead.path.exists()
    world.receiver.refuses = lambda one: None
    world.poll(LONGEST_PAUSE)
    assert world.receiver.numbers == [0, 1, 2, 3]
    world.stop()


def test_the_limit_of_rejected_events(
    world: ExportWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_module, "MAX_DEAD", 2 * len(line(0)))
    world.write(*range(10))
    world.receiver.refuses = lambda one: NotAccepted("413", True)
    world.start()
    assert world.exporter.rejected == 10
    assert world.dead.path.stat().st_size <= 2 * len(line(0))
    world.stop()


def test_a_connection_without_acknowledgements(world: ExportWorld) -> None:
    """Events are sent again if the connection ends soon after them."""
    world.receiver.confirm_seconds = 5.0
    world.write(0)
    world.start()
    world.poll(2.0)
    world.write(1)
    world.poll()
    world.receiver.lost = OSError("closed")
    world.poll()
    world.receiver.lost = None
    assert world.receiver.numbers == [0, 1]
    world.poll(FIRST_PAUSE)
    assert world.receiver.numbers == [0, 1, 0, 1]
    for _ in range(7):
        world.poll()
    world.receiver.lost = OSError("closed")
    world.poll()
    world.receiver.lost = None
    world.poll(2 * FIRST_PAUSE)
    world.restart()
    assert world.receiver.numbers == [0, 1, 0, 1]
    world.stop()


def test_a_bug_in_a_receiver(world: ExportWorld) -> None:
    """The exporter reports it, and goes on."""
    world.write(0)
    world.receiver.error = LookupError("a bug")
    with capturedLogs() as logs:
        world.start()
    assert any(one.get("log_failure") for one in logs)
    world.receiver.error = None
    world.poll(FIRST_PAUSE)
    assert world.receiver.numbers == [0]
    world.stop()


def test_one_process_exports(world: ExportWorld) -> None:
    """If it ends, another one continues."""
    world.start()
    second = world.another()
    running = Deferred.fromCoroutine(second.run())
    running.addErrback(Failure.trap, CancelledError)
    world.write(0)
    world.poll()
    assert (world.exporter.is_active, second.is_active) == (True, False)
    world.stop()
    world.write(1)
    world.poll(LOCK_SECONDS)
    assert second.is_active
    assert world.receiver.numbers == [0, 1]
    running.cancel()


def test_a_file_that_was_removed_too_early(world: ExportWorld) -> None:
    world.write(0)
    world.start()
    world.file.unlink()
    world.write(7)
    world.poll()
    assert world.receiver.numbers == [0, 7]
    assert world.exporter.losses == 1
    world.stop()
    assert world.receiver.closed == 1
