"""The files of a source, and how much work kas has with them."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from modules.gitops.server import files
from modules.gitops.server.config import GitopsSettings
from modules.gitops.server.files import FoundFiles, SourceRequest, source_files
from modules.gitops.server.globs import SKIPPING, Glob
from modules.gitops.server.step_scheduler import (
    COMPILING,
    LISTING,
    SLICE,
    StepScheduler,
    Work,
)
from tunnel.api import TreeEntry, TreeEntryKind
from tunnel.errors import CallError, Status

COMMIT = "c" * 40


class ListedRepository:
    """Has empty files alone, and counts how often kas asked for their names."""

    def __init__(self, *names: str) -> None:
        self.asked = self.listed = 0
        self._entries = [TreeEntry(name, TreeEntryKind.FILE, "1") for name in names]

    async def tree(
        self,
        commit: str,
        path: str = "",
        *,
        recursive: bool = False,
        most: int | None = None,
    ) -> list[TreeEntry]:
        self.asked += 1
        entries = self._entries if most is None else self._entries[: most + 1]
        self.listed += len(entries)
        return entries

    async def read_files(
        self, commit: str, entries: list[TreeEntry], *, limit: int, total: int
    ) -> list[bytes]:
        return [b""] * len(entries)


class Reader:
    """Reads sources as one agent."""

    def __init__(self, *names: str) -> None:
        self.repository = ListedRepository(*names)
        self.clock = Clock()
        self.scheduler = StepScheduler(self.clock)
        self.found = FoundFiles()

    def begin(self, source: SourceRequest) -> tuple[Work, Deferred[list[str]]]:
        work = Work(self.scheduler, "1")

        async def read() -> list[str]:
            given = source_files(
                self.repository,  # type: ignore[arg-type]
                source,
                GitopsSettings(),
                work,
                self.found,
            )
            return [path async for path, _ in given]

        return work, Deferred.fromCoroutine(read())

    def read(self, source: SourceRequest) -> tuple[Work, list[str] | CallError]:
        work, reading = self.begin(source)
        ended: list[list[str] | CallError] = []
        reading.addCallbacks(ended.append, lambda failure: ended.append(failure.value))
        for _ in range(10_000):
            if ended:
                return work, ended[0]
            self.clock.advance(1)
        raise AssertionError


def source(*globs: str, commit: str = COMMIT, repository: str = "r") -> SourceRequest:
    return SourceRequest(repository, commit, [Glob(one) for one in globs])


def many(number: int) -> list[str]:
    return [f"{n}/{'x' * 100}.yaml" for n in range(number)]


def test_many_paths_are_compared_in_turns() -> None:
    """No turn of the reactor has more work than a slice."""
    reader = Reader(*many(900))
    work, reading = reader.begin(source("**/*[a-z]*[a-z]*.yaml"))
    turns = 0
    while not reading.called:
        assert len(reader.scheduler) == 1
        before = work.total
        reader.clock.advance(1)
        assert work.total - before <= 2 * SLICE
        turns += 1
    assert turns >= work.total // SLICE - 1 > 1


def test_globs_are_compiled_in_turns() -> None:
    """One glob at a time, and only if there is a path for it."""
    reader = Reader("a")
    long = "?" * (SLICE // COMPILING)
    work, reading = reader.begin(source(long, f"{long}a", f"b/{long}"))
    assert COMPILING * len(long) < work.total < COMPILING * len(long) * 3
    for _ in range(9):
        reader.clock.advance(1)
    assert reading.called
    assert work.total < COMPILING * len(long) * 3


def test_the_outcome_is_known_for_the_next_request() -> None:
    """The same files, without any work."""
    reader = Reader(*many(900))
    globs = ("**/*[a-z]*[a-z]*.yaml", "*.json")
    first, names = reader.read(source(*globs))
    assert names == sorted(many(900))
    assert first.total > SLICE
    second, again = reader.read(source(*globs))
    assert (second.total, again, reader.repository.asked) == (0, names, 1)
    for other in (
        source(*globs, commit="d" * 40),
        source(*globs, repository="s"),
        source(globs[0]),
        SourceRequest("r", COMMIT, source(*globs).globs, hidden_folders=True),
    ):
        assert reader.read(other)[0].total > 0


def test_a_refusal_is_known_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same message, without any work."""
    monkeypatch.setattr(files, "MAX_STEPS", 2 * SLICE)
    reader = Reader(*many(900))
    _, refusal = reader.read(source("**/*[a-z]*[a-z]*.yaml"))
    assert isinstance(refusal, CallError)
    assert refusal.status is Status.FAILED_PRECONDITION
    second, again = reader.read(source("**/*[a-z]*[a-z]*.yaml"))
    assert isinstance(again, CallError)
    assert (again.status, again.message) == (refusal.status, refusal.message)
    assert (second.total, reader.repository.asked) == (0, 1)


def test_small_outcomes_are_not_kept() -> None:
    """They are as quickly found again."""
    reader = Reader("a.yaml")
    assert reader.read(source("*.yaml"))[1] == ["a.yaml"]
    assert len(reader.found) == 0


def test_the_outcomes_that_are_kept_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that were used last stay."""
    monkeypatch.setattr(files, "MAX_KEPT", 3 * (files._OUTCOME + files._FILE + 100))
    found = FoundFiles()
    entry = TreeEntry("a", TreeEntryKind.FILE, "1")
    for name in ("a", "b", "c"):
        found.put(source(name), (["a"], [entry]))
    assert found.get(source("a")) == (["a"], [entry])
    found.put(source("d"), CallError(Status.FAILED_PRECONDITION, "no"))
    assert len(found) == 3
    assert found.get(source("b")) is None
    with pytest.raises(CallError, match="no"):
        found.get(source("d"))
    found.put(source("e"), (["a" * 9999], [entry]))
    assert found.get(source("e")) is None
    # The same source has one outcome.
    for _ in range(5):
        found.put(source("a"), (["a"], [entry]))
    assert len(found) == 3


def test_a_path_that_takes_long_by_itself() -> None:
    """It is refused, unless the glob is for another folder."""
    reader = Reader("a/" + "x" * (files.MAX_STEPS_OF_PATH // 100), "b/y")
    _, refusal = reader.read(source("**/" + "[a-z]" * 50))
    assert isinstance(refusal, CallError)
    assert "too long, for its globs" in refusal.message
    assert reader.read(source("b/*" + "[a-z]" * 50 + "*"))[1] == []


@pytest.mark.parametrize("denied", ["", None])
def test_a_server_that_denies_a_commit(denied: str | None) -> None:
    """A commit without a root is not an empty source, and not an absent folder."""
    reader = Reader()

    async def tree(
        commit: str, path: str = "", *, recursive: bool = False, most: int | None = None
    ) -> list[TreeEntry]:
        if denied in (path, None):
            raise CallError(Status.NOT_FOUND, "no such tree")
        return []

    reader.repository.tree = tree  # type: ignore[method-assign]
    for globs in ("*.yaml", "apps/*.yaml"):
        _, refusal = reader.read(source(globs))
        assert isinstance(refusal, CallError)
        assert refusal.status is Status.UNAVAILABLE


def test_refusals_of_the_server_are_not_kept() -> None:
    """They may be transient, however long the search took."""
    reader = Reader(*many(900))
    tree = reader.repository.tree

    async def refuse(*given: object, **more: object) -> list[TreeEntry]:
        reader.repository.asked += 1
        raise CallError(Status.FAILED_PRECONDITION, "maintenance")

    glob = "**/*[a-z]*[a-z]*.yaml"
    reader.repository.tree = refuse  # type: ignore[method-assign]
    _, refusal = reader.read(source(glob, "?" * (SLICE // COMPILING)))
    assert isinstance(refusal, CallError)
    reader.repository.tree = tree  # type: ignore[method-assign]
    assert reader.read(source(glob))[1] == sorted(many(900))
    assert len(reader.found) == 1


def test_an_agent_with_many_small_searches_waits() -> None:
    """Its steps add up, whatever request they are for."""
    reader = Reader(*many(30))
    done = [reader.begin(source(f"**/*[a-z]*{n}.yaml"))[1].called for n in range(200)]
    assert done.count(False) > 100
    other = Work(reader.scheduler, "2")
    assert Deferred.fromCoroutine(other.take(SLICE)).called


def test_globs_of_other_folders_are_counted() -> None:
    """99 of them take 65 microseconds for each path, as many as a comparison."""
    reader = Reader(*many(100))
    work, done = reader.begin(source("**/none", *[f"elsewhere/{n}" for n in range(99)]))
    while not done.called:
        reader.clock.advance(1)
    assert work.total > 99 * 100 * SKIPPING


def test_a_folder_with_too_many_files_is_not_read_to_its_end() -> None:
    """kas remembers the refusal, and reads no more files than the limit and one."""
    most = GitopsSettings().max_number_of_files
    reader = Reader(*many(most + 500))
    first, refusal = reader.read(source("**/none"))
    assert isinstance(refusal, CallError)
    assert f"more than {most} files (max_number_of_files)" in refusal.message
    assert reader.repository.listed == most + 1
    assert first.total == LISTING * (most + 1)
    second, again = reader.read(source("**/none"))
    assert isinstance(again, CallError)
    assert again.message == refusal.message
    assert (second.total, reader.repository.asked) == (0, 1)
