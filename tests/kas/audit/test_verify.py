"""Verification of audit logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from kas.audit import verify
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
) -> LogReport:
    verifier = Verifier(SIGNER.key, checkpoints, known, partial)
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
    """A later chain names it, unless its file is older than the log."""
    log.chain("a1").end()
    ((_, note),) = log.last.read()
    log.path.unlink()
    chain = log.chain("b2")
    chain.end()
    report = checked(log.lines())
    assert report.verdict is Verdict.INCOMPLETE
    assert why(report) == ["file0:1: all 2 lines of txkas-audit/a1 are missing"]
    lines = log.lines()
    assert len(checked(lines, checkpoints=[note]).findings) == 2
    # The note of a chain that may be in another log.
    assert len(checked(lines, known=[note]).findings) == 1


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
    assert checked([*log.lines(), old]).verdict is Verdict.TAMPERED


def test_limits(log: WrittenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "MAX_FRAGMENTS", 10)
    report = checked([b"x\n"] * 1000)
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
