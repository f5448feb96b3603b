"""Verification of logs of machines whose clock was set back or forward."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kas.audit.chain import Chain
from kas.audit.files import in_order, lines_of
from kas.audit.verify import LogReport, Verdict, Verifier
from tests.kas.audit.test_chain import SIGNER
from tests.kas.audit.test_verify import WrittenLog

#: Seconds by which the clock jumps in each file of the log.
JUMPS = [
    (0, 0, 0),
    (0, -1e6, 0),
    (0, 1e6, -1e6),
    (1e6, -2e6, 5e5),
    (-1.5e6, 2e6, -1e6),
]


class JumpingLog(WrittenLog):
    """A log, rotated after each jump of the clock."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.time = 2e6

    def end(self, chain: Chain) -> None:
        chain.end()
        self.stamp()

    def stamp(self) -> None:
        """Give new files of the state directory the time of the jumping clock."""
        for path in self.last.folder.iterdir():
            if path.stat().st_mtime > 1e8:
                os.utime(path, (self.time, self.time))

    def rotated(self, number: int) -> Path:
        moved = self.path.with_name(f"audit.jsonl.{9 - number}")
        self.path.rename(moved)
        return moved

    def restarts(self, jumps: Sequence[float]) -> None:
        """Begin a new chain for each file."""
        for number, jump in enumerate(jumps):
            chain = self.chain(f"a{number}")
            self.write(chain, 3)
            self.time += jump
            self.write(chain, 3)
            self.end(chain)
            self.rotated(number)
        last = self.chain("b0")
        self.write(last, 3)
        self.end(last)

    def rotations(self, jumps: Sequence[float]) -> None:
        """Continue one chain in each file, after a chain that ends in the first one."""
        chain, ended = self.chain("a0"), self.chain("e0")
        self.write(ended, 2)
        self.end(ended)
        for number, jump in enumerate(jumps):
            self.write(chain, 3)
            self.time += jump
            self.write(chain, 3)
            self.rotated(number)
            chain.reopen()
            self.stamp()
        self.write(chain, 2)
        self.end(chain)

    def verify(self, partial: bool = False) -> LogReport:
        notes = [note for _, note in self.last.read()]
        verifier = Verifier(SIGNER.key, (), notes, partial, notes)
        with in_order(sorted(self.folder.glob("audit.jsonl*"))) as files:
            names = [one.path.name for one in files]
            assert names == [*sorted(names[:-1], reverse=True), "audit.jsonl"]
            for one in files:
                verifier.read(str(one.path), lines_of(one.file))
        return verifier.finish()


@pytest.fixture
def log(tmp_path: Path) -> JumpingLog:
    return JumpingLog(tmp_path)


@pytest.mark.parametrize("way", ["restarts", "rotations"])
@pytest.mark.parametrize("jumps", JUMPS, ids=str)
def test_a_whole_log(log: JumpingLog, way: str, jumps: tuple[float, ...]) -> None:
    """It is good, and its files are in the order in which they were written."""
    getattr(log, way)(jumps)
    report = log.verify()
    assert report.verdict is Verdict.GOOD, report.findings
    assert log.verify(partial=True).verdict is Verdict.GOOD


@pytest.mark.parametrize("way", ["restarts", "rotations"])
@pytest.mark.parametrize("jumps", JUMPS, ids=str)
def test_files_that_retention_removed(
    log: JumpingLog, way: str, jumps: tuple[float, ...]
) -> None:
    """The other files are good with ``--partial``, and incomplete without."""
    getattr(log, way)(jumps)
    for number in range(3):
        (log.folder / f"audit.jsonl.{9 - number}").unlink()
        report = log.verify(partial=True)
        assert report.verdict is Verdict.GOOD, report.findings
        assert log.verify().verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("jumps", JUMPS, ids=str)
def test_a_file_in_the_middle_that_was_removed(
    log: JumpingLog, jumps: tuple[float, ...]
) -> None:
    """Whatever the times say; the first file that is left names no such chain."""
    log.restarts(jumps)
    (log.folder / "audit.jsonl.8").unlink()
    report = log.verify(partial=True)
    assert report.verdict is Verdict.INCOMPLETE
    assert any("txkas-audit/a1 are missing" in one.text for one in report.findings)


@pytest.mark.parametrize("jumps", JUMPS, ids=str)
def test_a_file_in_the_middle_of_a_chain_that_was_removed(
    log: JumpingLog, jumps: tuple[float, ...]
) -> None:
    log.rotations(jumps)
    (log.folder / "audit.jsonl.8").unlink()
    assert log.verify(partial=True).verdict is Verdict.TAMPERED


@pytest.mark.parametrize("jumps", JUMPS, ids=str)
def test_a_chain_that_ran_after_the_removed_files(
    log: JumpingLog, jumps: tuple[float, ...]
) -> None:
    """A worker's lines in the files that are left cannot be removed unnoticed."""
    chain, other = log.chain("a0"), log.chain("d0")
    for number, jump in enumerate(jumps):
        for one in (chain, other):
            log.write(one, 3)
        log.time += jump
        log.rotated(number)
        for one in (chain, other):
            one.reopen()
        log.stamp()
    for one in (other, chain):
        log.write(one, 2)
        log.end(one)
    (log.folder / "audit.jsonl.9").unlink()
    assert log.verify(partial=True).verdict is Verdict.GOOD
    for path in log.folder.glob("audit.jsonl*"):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(one for one in lines if b'"kas":"d0"' not in one))
    report = log.verify(partial=True)
    assert report.verdict is Verdict.INCOMPLETE
    assert any("txkas-audit/d0 are missing" in one.text for one in report.findings)
