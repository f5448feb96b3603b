"""The removal of old files of an audit log."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kas.audit import retention as retention_module
from kas.audit.exports.cursor import Cursor, CursorFile
from kas.audit.exports.reader import LogReader
from kas.audit.files import in_order, lines_of
from kas.audit.holds import FILE, MAX_HOLDS, Hold, Holds
from kas.audit.last import FOLDER
from kas.audit.notes import Checkpoint
from kas.audit.retention import DROPPED, Dropped, Retention
from kas.audit.verify import LogReport, Verdict, Verifier
from tests.kas.audit.test_chain import SIGNER
from tests.kas.audit.test_verify import WrittenLog
from tunnel.errors import ConfigurationError

DAY = 86400.0
NOW = "2026-06-01T00:00:00+00:00"


class OldLog(WrittenLog):
    """A log with three rotated files, each a day older than the next one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now = 100 * DAY
        self.folder = folder
        chain = self.running = self.chain("a1")
        for number in (3, 2, 1):
            fields = {"credential": f"user:u{number}", "agent": f"g{number}"}
            for _ in range(5):
                chain.write(
                    self.line("kubernetes.request", fields, "answered").encode()
                )
            moved = self.path.with_name(f"audit.jsonl.{number}")
            self.path.rename(moved)
            chain.reopen()
            age = self.now - number * DAY - 60
            os.utime(moved, (age, age))
        self.write(chain, 2)
        chain.sign()
        self.cursors: dict[str, CursorFile] = {}
        self.holds = Holds(self.state)

    def retention(
        self, days: float | None = None, size: int | None = None
    ) -> Retention:
        seconds = None if days is None else days * DAY
        return Retention(
            self.path, seconds, size, self.state, self.cursors, lambda: self.now
        )

    def names(self) -> set[str]:
        return {one.name for one in self.folder.glob("audit.jsonl*")}

    def verify(self) -> LogReport:
        notes = [note for _, note in self.last.read()]
        verifier = Verifier(SIGNER.key, (), notes, True, notes)
        with in_order(self.folder.glob("audit.jsonl*")) as files:
            for one in files:
                verifier.read(str(one.path), lines_of(one.file))
        return verifier.finish()

    def hold(self, user: str = "", agent: str = "", expires: str = "") -> Hold:
        hold = Hold(
            id="",
            reason="a lawsuit",
            operator="root",
            created=NOW,
            expires=expires,
            user=user,
            agent=agent,
        )
        return self.holds.add(hold, NOW)


@pytest.fixture
def log(tmp_path: Path) -> OldLog:
    return OldLog(tmp_path)


ALL = {"audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.3"}


def test_old_files(log: OldLog) -> None:
    """Whole files, the oldest first; the others can be verified."""
    before = log.path.with_name("audit.jsonl.3").read_bytes()
    (dropped,) = log.retention(days=3).prune()
    assert log.names() == ALL - {"audit.jsonl.3"}
    assert (dropped.name, dropped.why) == ("audit.jsonl.3", "older than 3 days")
    assert dropped.lines == len(before.splitlines())
    assert dropped.since < dropped.until
    assert log.verify().verdict is Verdict.GOOD
    assert not list(log.retention(days=3).prune())
    assert [one.name for one in log.retention(days=1).prune()] == [
        "audit.jsonl.2",
        "audit.jsonl.1",
    ]
    # The file that is open is never removed.
    log.now += 1000 * DAY
    assert not list(log.retention(days=1, size=1).prune())
    assert log.names() == {"audit.jsonl"}
    assert log.verify().verdict is Verdict.GOOD


def test_the_proof_of_a_removed_file(log: OldLog) -> None:
    """Its last checkpoint stays, and proves its lines."""
    file = log.path.with_name("audit.jsonl.3")
    copy = log.folder / "copy"
    copy.write_bytes(file.read_bytes())
    (dropped,) = log.retention(days=3).prune()
    (line,) = (log.state.file("audit") / DROPPED).read_text().splitlines()
    found = json.loads(line)
    assert (found["name"], found["digest"]) == ("audit.jsonl.3", dropped.digest)
    note = found["notes"]["a1"]
    assert Checkpoint.parse(SIGNER.key.read(note)).size == dropped.lines - 1
    verifier = Verifier(SIGNER.key, [note])
    verifier.read("copy", copy.read_bytes().splitlines(keepends=True))
    assert verifier.finish().verdict is Verdict.GOOD
    details = dropped.details()
    assert details["file"] == "audit.jsonl.3"
    assert details["lines"] == dropped.lines


def test_the_size_of_all_files(log: OldLog) -> None:
    size = sum(one.stat().st_size for one in log.folder.glob("audit.jsonl*"))
    assert not list(log.retention(size=size).prune())
    (dropped,) = log.retention(size=size - 1).prune()
    assert dropped.name == "audit.jsonl.3"
    assert "more than" in dropped.why


def test_a_compressed_file(log: OldLog) -> None:
    file = log.path.with_name("audit.jsonl.3")
    data, when = file.read_bytes(), file.stat().st_mtime
    file.unlink()
    compressed = log.path.with_name("audit.jsonl.3.gz")
    with gzip.open(compressed, "wb") as stream:
        stream.write(data)
    os.utime(compressed, (when, when))
    (dropped,) = log.retention(days=3).prune()
    assert (dropped.name, dropped.lines) == (
        "audit.jsonl.3.gz",
        len(data.splitlines()),
    )
    assert log.verify().verdict is Verdict.GOOD


def test_a_file_that_was_not_sent(log: OldLog) -> None:
    """Nothing is removed before each export has sent it; the reason is known."""
    files = LogReader(log.path, lambda: log.now).files()
    first, second, *_ = files
    sent = CursorFile(log.state, log.path, "fast")
    sent.lock()
    sent.write(Cursor(second.first, 0))
    slow = CursorFile(log.state, log.path, "slow")
    log.cursors = {"fast": sent, "slow": slow}
    retention = log.retention(days=1)
    assert not list(retention.prune())
    assert retention.problem == "export slow has not sent audit.jsonl.3"
    # A place in the middle, then at the beginning of the next file.
    slow.write(Cursor(first.first, 10))
    assert not list(retention.prune())
    slow.write(Cursor(second.first, 0))
    (dropped,) = retention.prune()
    assert dropped.name == "audit.jsonl.3"
    assert retention.problem.endswith("has not sent audit.jsonl.2")
    sent.unlock()


@pytest.mark.parametrize(
    ("user", "agent", "kept"),
    [
        ("", "", 3),
        ("user:u3", "", 3),
        ("u2", "", 2),
        ("", "g1", 1),
        ("user:nobody", "", 0),
        ("u3", "g1", 0),
    ],
)
def test_holds(log: OldLog, user: str, agent: str, kept: int) -> None:
    """A file with an event that a hold keeps stays, and all newer ones."""
    hold = log.hold(user, agent)
    retention = log.retention(days=1)
    removed = list(retention.prune())
    assert len(removed) == 3 - kept
    assert retention.problem == (
        f"hold {hold.id} keeps audit.jsonl.{kept}" if kept else ""
    )
    assert log.verify().verdict is Verdict.GOOD
    assert log.holds.remove(hold.id) == hold
    assert len(list(retention.prune())) == kept


def test_a_hold_that_expires(log: OldLog) -> None:
    # The log's day 100 is in April of 1970.
    log.hold(expires="1970-04-12T00:00:00+00:00")
    retention = log.retention(days=1)
    assert not list(retention.prune())
    log.now += 2 * DAY
    assert len(list(retention.prune())) == 3


def test_a_period_is_held(log: OldLog) -> None:
    """As long as a file has events of it."""
    hold = Hold(
        id="",
        reason="an incident",
        operator="root",
        created=NOW,
        since="1970-01-01T00:00:08",
        until="1970-01-01T00:00:09",
    )
    log.holds.add(hold, NOW)
    assert [one.name for one in log.retention(days=1).prune()] == ["audit.jsonl.3"]


def test_holds_that_cannot_be_read(log: OldLog) -> None:
    """Then nothing is removed."""
    log.hold()
    path = log.state.file(FILE)
    for text in ("{", "[1]", '[{"id": "x"}]'):
        path.write_text(text)
        retention = log.retention(days=1)
        assert not list(retention.prune())
        assert "restore it from a backup" in retention.problem
        with pytest.raises(ConfigurationError):
            log.hold()
    assert log.names() == ALL


def test_the_number_of_holds(log: OldLog) -> None:
    """Holds that have expired do not count."""
    log.hold(expires="2026-01-01T00:00:00+00:00")
    for _ in range(MAX_HOLDS):
        log.hold(user="x")
    with pytest.raises(ConfigurationError):
        log.hold()
    assert log.holds.remove("none") is None


def test_a_file_that_logrotate_renames(
    log: OldLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed at the next look, under its new name."""
    retention = log.retention(days=3)
    store = retention._store

    def rename(dropped: Dropped) -> None:
        store(dropped)
        log.path.with_name("audit.jsonl.3").rename(log.folder / "audit.jsonl.4")
        log.path.with_name("audit.jsonl.2").rename(log.folder / "audit.jsonl.3")

    with monkeypatch.context() as patch:
        patch.setattr(retention, "_store", rename)
        assert not list(retention.prune())
    assert "audit.jsonl.4" in log.names()
    (dropped,) = retention.prune()
    assert dropped.name == "audit.jsonl.4"
    assert log.names() == ALL - {"audit.jsonl.2"}


def test_a_hold_while_the_file_is_read(
    log: OldLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hold keeps events as soon as it is stored."""
    added: list[Hold] = []

    def adding(file: Any) -> Any:
        if not added:
            added.append(log.hold(user="u3"))
        return lines_of(file)

    monkeypatch.setattr(retention_module, "lines_of", adding)
    retention = log.retention(days=2.5)
    assert list(retention.prune()) == []
    assert "audit.jsonl.3" in log.names()
    assert not log.state.file(FOLDER).joinpath(DROPPED).exists()
    # The next attempt asks the hold.
    assert list(retention.prune()) == []
    assert retention.problem == f"hold {added[0].id} keeps audit.jsonl.3"
