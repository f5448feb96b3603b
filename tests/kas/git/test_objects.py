"""Listings of git, read as they come."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock

from kas.git import pieces
from kas.git.limits import GitLimits
from kas.git.objects import Objects
from kas.git.pieces import in_pieces
from kas.git.program import GitProgram
from tunnel.errors import CallError, Status

COMMIT, OTHER = "a" * 40, "b" * 40


class GitProcess:
    """The transport of a child process, whose output the test writes."""

    pid = None

    def __init__(self, child: Any, command: list[str]) -> None:
        self.child = child
        self.command = command
        self.is_over = False
        child.makeConnection(self)

    def closeStdin(self) -> None:
        pass

    def signalProcess(self, name: str) -> None:
        self.is_over = True

    def loseConnection(self) -> None:
        self.is_over = True

    def says(self, *parts: bytes) -> int:
        """Write *parts*; return how many git wrote before it was killed."""
        for count, part in enumerate(parts):
            if self.is_over:
                return count
            self.child.outReceived(part)
        return len(parts)

    def ends(self) -> None:
        self.child.processEnded(ProcessEnd())


class ProcessEnd:
    """The reason of a process that ended."""

    value = type("Value", (), {"exitCode": 0})

    def check(self, *types: type[Exception]) -> None:
        return None


class ProcessClock(Clock):
    """A reactor that starts processes."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[GitProcess] = []
        self.turns = 0

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> IDelayedCall:
        self.turns += delay == 0
        return super().callLater(delay, callable, *args, **kw)

    def spawnProcess(self, child: Any, path: str, command: list[str], env: Any) -> None:
        self.processes.append(GitProcess(child, command))


class Reading:
    """One call of `Objects`."""

    def __init__(self, limits: GitLimits | None = None) -> None:
        self.clock = ProcessClock()
        self.program = GitProgram(self.clock, limits or GitLimits(), {})
        self.objects = Objects(self.program, "/repository")
        self.result: Any = None

    def begin(self, call: Coroutine[Any, Any, Any]) -> GitProcess:
        reading = Deferred.fromCoroutine(call)
        reading.addCallbacks(self._done, lambda failure: self._done(failure.value))
        return self.clock.processes[-1]

    def _done(self, result: Any) -> None:
        self.result = result


def line(path: str, mode: str = "100644 blob", object_id: str = "c" * 40) -> bytes:
    return f"{mode} {object_id}\t{path}\0".encode()


def test_lines_in_any_parts() -> None:
    whole = b"".join(line(f"a/{n}.yaml") for n in range(50)) + line("a", "040000 tree")
    for size in (1, 7, 60, 8192):
        reading = Reading()
        git = reading.begin(reading.objects.tree(COMMIT, "", True, None))
        git.says(*(whole[at : at + size] for at in range(0, len(whole), size)))
        # Nothing of the output stays in memory twice.
        assert git.child._out == b""
        git.ends()
        assert [one.path for one in reading.result] == [
            f"a/{n}.yaml" for n in range(50)
        ]


def test_no_more_than_the_caller_can_use() -> None:
    """git is killed, and the rest is not read."""
    reading = Reading()
    git = reading.begin(reading.objects.tree(COMMIT, "", True, 10))
    assert git.says(*(line(f"{n}") for n in range(1000))) == 11
    git.ends()
    assert len(reading.result) == 11
    assert reading.program.outcomes.counts == {("ls-tree", "ok"): 1}


def test_folders_do_not_count_for_the_caller() -> None:
    reading = Reading()
    git = reading.begin(reading.objects.tree(COMMIT, "", True, 10))
    git.says(*(line(f"{n}", "040000 tree") for n in range(1000)))
    git.says(*(line(f"{n}/f") for n in range(10)))
    git.ends()
    assert len(reading.result) == 10


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([line(f"{n}") for n in range(30)], Status.RESOURCE_EXHAUSTED),
        (
            [line(f"{n}", "040000 tree") for n in range(60)],
            Status.RESOURCE_EXHAUSTED,
        ),
        ([line("d/" * 70)], Status.RESOURCE_EXHAUSTED),
        ([b"nonsense\0"], Status.UNAVAILABLE),
    ],
)
def test_refused_while_git_writes(lines: list[bytes], status: Status) -> None:
    reading = Reading(GitLimits(entries=20, folders=30))
    git = reading.begin(reading.objects.tree(COMMIT, "", True, None))
    git.says(*lines)
    assert git.is_over
    git.ends()
    assert isinstance(reading.result, CallError)
    assert reading.result.status is status


def test_output_without_an_end_is_bounded() -> None:
    reading = Reading(GitLimits(listing=1000))
    git = reading.begin(reading.objects.tree(COMMIT, "", True, None))
    assert git.says(*[b"x" * 100] * 50) == 11
    git.ends()
    assert reading.result.status is Status.RESOURCE_EXHAUSTED


def test_changes_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line as git writes, and the rest in turns of the reactor."""
    monkeypatch.setattr(pieces, "PIECE", 10)
    reading = Reading()
    git = reading.begin(reading.objects.changed(COMMIT, OTHER, ""))
    git.says(*(line(f"{n:02}") for n in range(40)), line("d", "040000 tree"))
    git.ends()
    git = reading.clock.processes[-1]
    git.says(*(line(f"{n:02}") for n in range(20)))
    git.says(*(line(f"{n:02}", object_id="d" * 40) for n in range(20, 41)))
    git.ends()
    reading.clock.advance(0)
    assert reading.result == [f"{n:02}" for n in range(20, 41)]
    assert reading.clock.turns == 4


def test_pieces() -> None:
    clock, found = Clock(), []

    async def read() -> None:
        async for piece in in_pieces(clock, range(2 * pieces.PIECE)):
            found.append(len(piece))

    reading = Deferred.fromCoroutine(read())
    assert found == [pieces.PIECE]
    clock.advance(0)
    assert found == [pieces.PIECE] * 2
    assert reading.called
