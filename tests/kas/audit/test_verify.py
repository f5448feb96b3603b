"""Verification of audit logs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from kas.audit import fragments, verify
from kas.audit.chain import MAX_UNSIGNED, Chain, rfc3339
from kas.audit.last import LastCheckpoints
from kas.audit.notes import Checkpoint, NoteError, NoteSigner
from kas.audit.verify import LogReport, Verdict, Verifier
from kas.state.directory import StateDirectory
from tests.kas.audit.test_chain import SIGNER, FullDisk, full
from tunnel.program.log_writer import FileSink

__all__ = ["full"]

OTHER = NoteSigner("txkas-audit", Ed25519PrivateKey.from_private_bytes(b"o" * 32))


class WrittenLog:
    """A log with chains of several processes."""

    def __init__(self, folder: Path) -> None:
        self.state = StateDirectory.open(folder / "state")
        self.path = folder / "audit.jsonl"
        self.last = LastCheckpoints(self.state, self.path)
        self.signer = SIGNER
        self.time = 0.0
        self._ids = 0

    def chain(self, kas: str, signer: NoteSigner | None = None) -> Chain:
        return Chain(
            FileSink(self.path),
            kas,
            signer or self.signer,
            self.last,
            self.line,
            {},
            lambda: self.time,
        )

    def line(
        self, action: str, fields: object = None, stage: str = "changed", name: str = ""
    ) -> str:
        self.time += 1.0
        self._ids += 1
        event = {
            "stage": stage,
            "id": name or f"00000000-0000-7000-8000-{self._ids:012x}",
            "time": rfc3339(self.time),
            "action": action,
        }
        found = {**event, **(fields if isinstance(fields, dict) else {})}
        return json.dumps(found, separators=(",", ":")) + "\n"

    def write(
        self, chain: Chain, count: int = 1, stage: str = "answered", name: str = ""
    ) -> None:
        for _ in range(count):
            chain.write(
                self.line("kubernetes.request", {"path": "/x"}, stage, name).encode()
            )

    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path)


def checked(
    *files: Sequence[bytes],
    checkpoints: Sequence[str] = (),
    known: Sequence[str] = (),
    partial: bool = False,
    own: Sequence[str] = (),
) -> LogReport:
    verifier = Verifier(SIGNER.key, checkpoints, known, partial, own)
    for number, lines in enumerate(files):
        verifier.read(f"file{number}", lines)
    return verifier.finish()


def why(report: LogReport) -> list[str]:
    return [str(one) for one in report.findings]


def test_a_good_log(log: WrittenLog) -> None:
    for kas in ("a1", "b2"):
        chain = log.chain(kas)
        log.write(chain, 2 * MAX_UNSIGNED)
        chain.end()
    report = checked(log.lines())
    assert (report.verdict, why(report)) == (Verdict.GOOD, [])
    assert [(one.kas, one.state) for one in report.chains] == [
        ("a1", "ended"),
        ("b2", "ended"),
    ]
    assert report.lines == len(log.lines())


def test_several_workers_in_one_file(log: WrittenLog) -> None:
    chains = [log.chain(f"a{number}") for number in range(4)]
    for _ in range(10):
        for one in chains:
            log.write(one)
        for one in chains[:2]:
            one.sign()
    for one in chains:
        one.end()
    assert checked(log.lines()).verdict is Verdict.GOOD


def sample(folder: Path) -> list[bytes]:
    """A log of one process, whose lines are all signed."""
    log = WrittenLog(folder)
    chain = log.chain("a1")
    log.write(chain, 5)
    chain.sign()
    log.write(chain, 1, "begun", "0" * 36)
    log.write(chain, 1, "ended", "0" * 36)
    log.path.rename(folder / "old")
    chain.reopen()
    log.write(chain, 5)
    chain.end()
    both = (folder / "old").read_bytes() + log.path.read_bytes()
    return both.splitlines(keepends=True)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    lines = sample(tmp_path_factory.mktemp("good"))
    assert checked(lines).verdict is Verdict.GOOD
    return lines


def found(lines: list[bytes], good: list[bytes]) -> None:
    if b"".join(lines) == b"".join(good):
        return
    # Also with a copy of the last checkpoint.
    note = json.loads(good[-1])["note"]
    # The file as a program would read it, which ignores how the list was made.
    again = b"".join(lines).splitlines(keepends=True)
    for checkpoints in ((), [note]):
        report = checked(again, checkpoints=checkpoints)
        assert report.verdict is not Verdict.GOOD
        assert report.findings


positions = st.integers(0, 19)


@given(positions, st.integers(0, 2000), st.binary(min_size=1, max_size=3))
def test_any_edit_is_found(good: list[bytes], at: int, place: int, new: bytes) -> None:
    line = good[at % len(good)]
    place %= len(line)
    edited = line[:place] + new + line[place + len(new) :]
    lines = [*good]
    lines[at % len(good)] = edited
    found(lines, good)


@given(positions, st.integers(0, 7))
def test_any_flipped_bit_is_found(good: list[bytes], at: int, bit: int) -> None:
    for place in range(0, len(good[at % len(good)]), 37):
        line = bytearray(good[at % len(good)])
        line[place] ^= 1 << bit
        lines = [*good]
        lines[at % len(good)] = bytes(line)
        found(lines, good)


@given(positions, st.integers(1, 20))
def test_any_deletion_is_found(good: list[bytes], at: int, count: int) -> None:
    lines = [*good]
    del lines[at : at + count]
    found(lines, good)


@given(
    positions,
    st.one_of(positions, st.binary(max_size=50).map(lambda one: one + b"\n")),
)
def test_any_insertion_is_found(good: list[bytes], at: int, new: int | bytes) -> None:
    line = good[new % len(good)] if isinstance(new, int) else new
    found([*good[:at], line, *good[at:]], good)


@given(positions, positions)
def test_any_swap_is_found(good: list[bytes], one: int, other: int) -> None:
    lines = [*good]
    one, other = one % len(good), other % len(good)
    lines[one], lines[other] = lines[other], lines[one]
    found(lines, good)


@given(st.integers(0, 10**5))
def test_any_truncation_is_found(good: list[bytes], size: int) -> None:
    whole = b"".join(good)
    found(whole[: size % len(whole)].splitlines(keepends=True), good)


@given(st.permutations(range(6)))
def test_any_order_is_found(good: list[bytes], order: list[int]) -> None:
    found([*(good[one] for one in order), *good[6:]], good)


# What is found.


def test_the_first_wrong_line_of_each_chain(log: WrittenLog) -> None:
    chains = [log.chain(kas) for kas in ("a1", "b2")]
    for _ in range(5):
        for one in chains:
            log.write(one)
    for one in chains:
        one.end()
    lines = log.lines()
    lines[4] = lines[4].replace(b"/x", b"/y")
    del lines[9]
    report = checked(lines)
    assert report.verdict is Verdict.TAMPERED
    first, second = sorted(why(report))
    assert first.startswith("file0:11: chain b2: lines 4 to 4 are missing")
    assert second.startswith(
        "file0:7: chain a1: line 2, or the hash of it in line 3, was"
    )


def test_a_suffix_with_other_hashes(log: WrittenLog) -> None:
    """The numbers and hashes are right, but kas has not signed them."""
    log.write(log.chain("a1"), 2)
    genuine = log.lines()
    forger = log.chain("a1", OTHER)
    log.path.unlink()
    forger = log.chain("a1", OTHER)
    log.write(forger, 2)
    forger.end()
    report = checked(log.lines())
    assert report.verdict is Verdict.TAMPERED
    assert "the signature of" in why(report)[0] or "has not signed" in why(report)[0]
    assert genuine != log.lines()[:2]


def test_a_missing_end(log: WrittenLog) -> None:
    chain = log.chain("a1")
    log.write(chain, 2)
    chain.sign()
    cut = len(log.lines())
    log.write(chain, 2)
    chain.sign()
    note = json.loads(log.lines()[-1])["note"]
    report = checked(log.lines()[:cut])
    assert report.verdict is Verdict.INCOMPLETE
    assert "has no end" in why(report)[0]
    report = checked(log.lines()[:cut], checkpoints=[note])
    assert report.verdict is Verdict.TAMPERED
    assert why(report) == [
        "chain a1: lines 4 to 5 are missing; a checkpoint proves them"
    ]
    assert checked(log.lines(), checkpoints=[note]).verdict is Verdict.GOOD


def test_an_older_checkpoint_of_another_history(log: WrittenLog) -> None:
    chain = log.chain("a1")
    log.write(chain, 5)
    chain.end()
    note = SIGNER.sign(str(Checkpoint("txkas-audit/a1", 3, b"r" * 32)))
    report = checked(log.lines(), checkpoints=[note])
    assert report.verdict is Verdict.TAMPERED
    assert "a checkpoint from elsewhere has other lines" in why(report)[0]


def test_a_checkpoint_of_another_key() -> None:
    note = OTHER.sign(str(Checkpoint("txkas-audit/a1", 3, b"r" * 32)))
    with pytest.raises(NoteError):
        checked([], checkpoints=[note])


def test_a_running_kas(log: WrittenLog) -> None:
    """Its newest lines are not signed, and its requests have no end yet."""
    chain = log.chain("a1")
    log.write(chain, 1, "begun", "0" * 36)
    chain.sign()
    log.write(chain)
    ((_, note),) = log.last.read()
    report = checked(log.lines(), known=[note])
    assert report.verdict is Verdict.GOOD
    assert why(report) == ["chain a1: the last 1 lines are not signed yet"]
    assert [one.unfinished for one in report.chains] == [["file0:2"]]


def test_a_killed_kas(log: WrittenLog) -> None:
    """The chain of the next process names the last checkpoint."""
    chain = log.chain("a1")
    log.write(chain, 1, "begun", "0" * 36)
    chain.sign()
    log.write(chain)
    log.chain("b2").end()
    report = checked(log.lines())
    assert report.verdict is Verdict.INCOMPLETE
    assert report.chains[0].unfinished == ["file0:2"]
    # Without the end of the first chain.
    lines = [*log.lines()[:1], *log.lines()[4:]]
    report = checked(lines)
    assert report.verdict is Verdict.TAMPERED
    assert why(report) == [
        "file0:2: chain a1: lines 1 to 1 are missing; a checkpoint proves them"
    ]


def test_a_request_without_an_end(log: WrittenLog) -> None:
    chain = log.chain("a1")
    log.write(chain, 1, "begun", "0" * 36)
    chain.end()
    report = checked(log.lines())
    assert (report.verdict, report.chains[0].unfinished) == (
        Verdict.INCOMPLETE,
        ["file0:2"],
    )


def test_files_that_were_deleted(log: WrittenLog, tmp_path: Path) -> None:
    """The rest of a chain is verified without them."""
    chain = log.chain("a1")
    log.write(chain, 5)
    log.path.rename(tmp_path / "old")
    chain.reopen()
    log.write(chain, 5)
    chain.end()
    lines = log.lines()
    report = checked(lines)
    assert report.verdict is Verdict.INCOMPLETE
    assert why(report) == ["file0:1: lines 0 to 6 of chain a1 are in no file here"]
    report = checked(lines, partial=True)
    assert report.verdict is Verdict.GOOD
    assert len(report.findings) == 1
    hashes = lines[0].partition(b'"hashes":["')[2][:8]
    lines[0] = lines[0].replace(hashes, b"00000000")
    assert checked(lines, partial=True).verdict is Verdict.TAMPERED
    report = checked(log.lines()[1:], partial=True)
    assert report.verdict is Verdict.INCOMPLETE
    assert "lines 0 to 7 of chain a1 are missing" in why(report)[0]


def test_a_file_in_between_that_was_deleted(log: WrittenLog, tmp_path: Path) -> None:
    chain = log.chain("a1")
    files = []
    for number in range(3):
        log.write(chain, 2)
        if number == 2:
            chain.end()
        else:
            log.path.rename(tmp_path / f"old{number}")
            chain.reopen()
        files.append(log.lines())
    old = [
        (tmp_path / f"old{n}").read_bytes().splitlines(keepends=True) for n in (0, 1)
    ]
    assert checked(*old, log.lines()).verdict is Verdict.GOOD
    report = checked(old[0], log.lines())
    assert report.verdict is Verdict.TAMPERED
    assert "lines 4 to 7 are missing" in why(report)[0]


def test_a_chain_that_was_deleted(log: WrittenLog) -> None:
    """A later chain names it."""
    log.chain("a1").end()
    ((_, note),) = log.last.read()
    log.path.unlink()
    chain = log.chain("b2")
    chain.end()
    report = checked(log.lines())
    assert report.verdict is Verdict.INCOMPLETE
    assert why(report) == ["file0:1: all 2 lines of txkas-audit/a1 are missing"]
    lines = log.lines()
    assert len(checked(lines, checkpoints=[note]).findings) == 1
    # The note of a chain that may be in another log.
    assert len(checked(lines, known=[note]).findings) == 1


# Whole chains.


def whole(log: WrittenLog, kas: str) -> None:
    chain = log.chain(kas)
    log.write(chain, 3)
    chain.end()
    for _, path in log.last._newest(""):
        # Files have the times of the log.
        if path.name.endswith(f"-{kas}.checkpoint"):
            os.utime(path, (log.time, log.time))


def of(lines: Sequence[bytes], *chains: str) -> list[bytes]:
    return [one for one in lines if json.loads(one)["kas"] in chains]


@pytest.fixture
def restarted(log: WrittenLog) -> WrittenLog:
    """The log of a kas that was restarted three times."""
    for kas in ("aa", "bb", "cc", "dd"):
        whole(log, kas)
    assert checked(log.lines()).verdict is Verdict.GOOD
    return log


@pytest.mark.parametrize(
    ("chains", "partial"),
    [
        ("cc dd", Verdict.GOOD),
        ("aa cc dd", Verdict.INCOMPLETE),
        ("dd aa cc", Verdict.INCOMPLETE),
        ("dd", Verdict.GOOD),
    ],
)
def test_chains_that_were_removed(
    restarted: WrittenLog, chains: str, partial: Verdict
) -> None:
    """Wherever the other chains were moved."""
    lines = [one for kas in chains.split() for one in of(restarted.lines(), kas)]
    report = checked(lines)
    assert report.verdict is Verdict.INCOMPLETE
    removed = {"aa", "bb", "cc", "dd"} - {*chains.split()}
    assert sorted(one.partition(": ")[2] for one in why(report)) == [
        f"all 5 lines of txkas-audit/{one} are missing" for one in sorted(removed)
    ]
    assert checked(lines, partial=True).verdict is partial


def test_a_log_that_was_rolled_back(restarted: WrittenLog) -> None:
    """The state directory knows the chains that are missing."""
    own = [note for _, note in restarted.last.read()]
    assert checked(restarted.lines(), own=own).verdict is Verdict.GOOD
    for partial in (False, True):
        lines = of(restarted.lines(), "aa")
        report = checked(lines, own=own, partial=partial)
        assert report.verdict is Verdict.INCOMPLETE
        assert len(report.findings) == 3
        assert all("is newer than the log" in one for one in why(report))
    # Retention.
    lines = of(restarted.lines(), "dd")
    assert checked(lines, own=own).verdict is Verdict.INCOMPLETE
    assert checked(lines, own=own, partial=True).verdict is Verdict.GOOD


@pytest.mark.parametrize("removed", ["aa", "bb"])
@pytest.mark.parametrize("partial", [False, True], ids=["all", "partial"])
def test_a_worker_that_was_removed(
    log: WrittenLog, removed: str, partial: bool
) -> None:
    """Another worker that began at the same time names it."""
    workers = {kas: log.chain(kas) for kas in ("aa", "bb")}
    for one in workers.values():
        one.begin()
    for one in (*workers.values(), *workers.values()):
        log.write(one, 3)
    for one in workers.values():
        one.end()
    other = "bb" if removed == "aa" else "aa"
    note = json.loads(of(log.lines(), other)[-1])["note"]
    assert checked(log.lines(), checkpoints=[note]).verdict is Verdict.GOOD
    lines = of(log.lines(), other)
    # The checkpoint of one worker does not hide the loss of another.
    for checkpoints in ((), (note,)):
        report = checked(lines, checkpoints=checkpoints, partial=partial)
        assert report.verdict is Verdict.INCOMPLETE
        assert f"lines of txkas-audit/{removed} are missing" in why(report)[0]


def test_lines_of_a_worker_that_were_removed_before_a_rotation(
    log: WrittenLog, tmp_path: Path
) -> None:
    """Retention removes the lines of all workers."""
    workers = [log.chain(kas) for kas in ("aa", "bb")]
    for one in workers:
        log.write(one, 3)
    old = tmp_path / "old"
    log.path.rename(old)
    for one in workers:
        one.reopen()
        log.write(one)
    for one in workers:
        one.end()
    files = [old.read_bytes().splitlines(keepends=True), log.lines()]
    assert checked(*files).verdict is Verdict.GOOD
    assert checked(files[1], partial=True).verdict is Verdict.GOOD
    assert checked([], files[1], partial=True).verdict is Verdict.GOOD
    report = checked(of(files[0], "aa"), files[1], partial=True)
    assert report.verdict is Verdict.INCOMPLETE
    assert "of chain bb are missing, although an earlier file" in why(report)[0]


def test_lines_after_the_end_of_a_killed_chain(log: WrittenLog) -> None:
    """A process that still runs would have signed them."""
    chain = log.chain("aa")
    log.write(chain, 3)
    chain.sign()
    ((_, note),) = log.last.read()
    whole(log, "bb")
    assert checked(log.lines(), known=[note]).verdict is Verdict.GOOD
    log.write(chain)
    report = checked(log.lines(), known=[note])
    assert report.verdict is Verdict.INCOMPLETE
    assert "its last 1 lines are not signed, and a later chain" in why(report)[0]
    # It still runs.
    chain.sign()
    log.write(chain)
    note = json.loads(log.lines()[-2])["note"]
    assert checked(log.lines(), known=[note]).verdict is Verdict.GOOD


def test_a_chain_without_its_first_line(log: WrittenLog, tmp_path: Path) -> None:
    """Its checkpoints prove nothing until the next file."""
    chain = log.chain("aa")
    log.write(chain, 3)
    log.path.rename(tmp_path / "old")
    chain.reopen()
    chain.end()
    old = (tmp_path / "old").read_bytes().splitlines(keepends=True)[1:]
    report = checked(old, partial=True)
    assert report.verdict is Verdict.INCOMPLETE
    assert "nothing proves the lines" in why(report)[0]
    assert report.chains[0].signed == 0
    report = checked(old, log.lines(), partial=True)
    assert report.verdict is Verdict.INCOMPLETE
    assert report.chains[0].signed == 8


# Incomplete lines.


def test_a_disk_that_was_full(log: WrittenLog, full: FullDisk) -> None:
    chain = log.chain("a1")
    log.write(chain)
    for room in (200, 5, 0):
        full.room = room
        with pytest.raises(OSError, match="No space"):
            log.write(chain)
    full.room = 10**6
    log.write(chain)
    chain.end()
    lines = log.lines()
    assert checked(lines).verdict is Verdict.GOOD
    # A fragment that no line names.
    for piece in (lines[2], lines[3], b"{}\n", b"\n"):
        assert checked([*lines, piece[:-2] + b"x\n"]).verdict is not Verdict.GOOD


def test_a_line_after_the_fragment_of_another_worker(
    log: WrittenLog, full: FullDisk
) -> None:
    first, second = log.chain("a1"), log.chain("b2")
    log.write(first)
    log.write(second)
    full.room = 300
    with pytest.raises(OSError, match="No space"):
        log.write(first, 2)
    full.room = 10**6
    log.write(second)
    log.write(first)
    first.end()
    second.end()
    report = checked(log.lines())
    assert all("incomplete line" in one for one in why(report))


def torn(log: WrittenLog, full: FullDisk, chain: Chain, room: int) -> None:
    full.room = room
    with pytest.raises(OSError, match="No space"):
        log.write(chain)
    full.room = 10**6


def test_a_fragment_is_excused_once(log: WrittenLog, full: FullDisk) -> None:
    """In its place."""
    chain = log.chain("aa")
    log.write(chain)
    torn(log, full, chain, 150)
    log.write(chain, 3)
    chain.end()
    lines = log.lines()
    fragment = lines[2]
    assert checked(lines).verdict is Verdict.GOOD
    for change in (
        [*lines, fragment],
        [*lines[:2], *lines[3:5], fragment, *lines[5:]],
        [fragment, *lines[:2], *lines[3:]],
    ):
        assert checked(change).verdict is not Verdict.GOOD


def test_a_line_without_a_signature_excuses_nothing(
    log: WrittenLog, full: FullDisk
) -> None:
    chain = log.chain("aa")
    log.write(chain)
    torn(log, full, chain, 150)
    log.write(chain)
    report = checked(log.lines())
    assert "file0:3: an incomplete line" in why(report)
    chain.sign()
    note = json.loads(log.lines()[-1])["note"]
    assert checked(log.lines(), checkpoints=[note]).verdict is Verdict.GOOD


def test_an_insertion_that_a_forged_line_excuses(log: WrittenLog) -> None:
    """Anyone can add a line to a chain, but only kas can sign it."""
    chain = log.chain("aa")
    log.write(chain, 3)
    chain.sign()
    inserted = b' {"stage":"answered"}\n'
    chain._torn.append(sha256(inserted[:-1]).hexdigest())
    log.write(chain)
    forged = log.lines()
    for lines in ([*forged, inserted], [*forged[:-1], inserted, forged[-1]]):
        assert checked(lines).verdict is Verdict.TAMPERED


@pytest.mark.parametrize(
    ("first", "rest"), [(50, ()), (5, (3, 3)), (1, (1, 2, 7)), (150, (5, 9))], ids=str
)
def test_a_disk_that_was_full_for_two_workers(
    log: WrittenLog, full: FullDisk, first: int, rest: Sequence[int]
) -> None:
    """Nothing looks like an insertion."""
    chains = [log.chain("aa"), log.chain("bb")]
    for one in chains:
        log.write(one)
    torn(log, full, chains[0], first)
    for number, room in enumerate(rest):
        torn(log, full, chains[(number + 1) % 2], room)
    for one in (chains[1], chains[0]):
        log.write(one)
    for one in chains:
        one.end()
    wanted = Verdict.INCOMPLETE if rest else Verdict.GOOD
    assert checked(log.lines()).verdict is wanted


@pytest.mark.parametrize("other", [False, True], ids=["alone", "workers"])
def test_a_disk_without_room_for_a_line_feed(
    log: WrittenLog, full: FullDisk, other: bool
) -> None:
    chain, second = log.chain("aa"), log.chain("bb")
    log.write(chain, 2)
    log.write(second)
    full.room = len(log.lines()[1]) - 1
    log.write(chain)
    full.room = 10**6
    if other:
        log.write(second)
    log.write(chain)
    chain.end()
    second.end()
    report = checked(log.lines())
    assert report.verdict is (Verdict.INCOMPLETE if other else Verdict.GOOD)


def test_a_line_that_was_cut_by_a_power_failure(log: WrittenLog) -> None:
    chain = log.chain("a1")
    log.write(chain, 3)
    chain.sign()
    log.write(chain)
    ((_, note),) = log.last.read()
    lines = log.lines()
    lines[-1] = lines[-1][:-20]
    report = checked(lines, checkpoints=[note])
    assert report.verdict is Verdict.INCOMPLETE
    assert why(report) == ["file0:6: an incomplete line"]


def test_lines_of_an_earlier_version(log: WrittenLog) -> None:
    chain = log.chain("a1")
    chain.end()
    old = b'{"time": "2026-01-01T00:00:00+00:00", "kas": "00"}\n'
    report = checked([old, old, *log.lines()])
    assert report.verdict is Verdict.INCOMPLETE
    assert "2 lines of an earlier version" in why(report)[0]
    # An older kas writes to the file until its clients have left.
    report = checked([*log.lines(), old])
    assert report.verdict is Verdict.INCOMPLETE
    assert why(report)[0].startswith("file0:4: 1 lines of an earlier version")
    assert checked([*log.lines(), old[:-3] + b"\n"]).verdict is Verdict.TAMPERED


def test_limits(log: WrittenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "MAX_FRAGMENTS", 10)
    report = checked([b"x\n"] * 1000)
    # The first ten, the limit, and that no line is in a chain.
    assert len(report.findings) == 12
    assert report.verdict is Verdict.TAMPERED


def test_a_limited_number_of_chains(
    log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "MAX_CHAINS", 2)
    for kas in ("a1", "b2", "c3"):
        log.chain(kas).end()
    report = checked(log.lines())
    assert report.verdict is not Verdict.GOOD
    assert len(report.chains) == 2


def test_nothing() -> None:
    assert checked([]).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("change", [lambda one: one * 2, lambda one: [*one, *one[1:]]])
def test_a_fork(log: WrittenLog, change: Callable[[list[bytes]], list[bytes]]) -> None:
    chain = log.chain("a1")
    log.write(chain, 3)
    chain.end()
    report = checked(change(log.lines()))
    assert report.verdict is Verdict.TAMPERED
    assert "is repeated or inserted" in why(report)[0]
