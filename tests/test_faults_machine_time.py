"""Who had the time of a machine, by what its kernel says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.machine_time import MachineTime

HOME = Path("/home/txkas")

#: Of a program that does nothing else.
SPIN = (
    "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: 0"
)


class Proc:
    """A folder like ``/proc``, of a machine with a thousand ticks so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.idle, self.user, self.stolen = 900, 100, 0
        self.processes = {1: (0, 50), 10: (1, 10), 11: (10, 10), 12: (11, 0)}
        self.processes |= {13: (11, 0)}
        self.write()

    def write(self) -> None:
        """What it is now."""
        (self.folder / "stat").write_text(
            f"cpu  {self.user} 0 0 {self.idle} 0 0 0 {self.stolen} 0 0\n"
            "cpu0 1 1 1 1 1 1 1 1 1 1\n"
        )
        for pid, (parent, ticks) in self.processes.items():
            process = self.folder / str(pid)
            if not process.exists():
                process.mkdir()
                (process / "cwd").symlink_to(HOME if pid in (10, 13) else "/")
            (process / "stat").write_text(
                f"{pid} (a (name) x) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0\n"
            )


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """10 and 13 are at home there; 11 and 12 were started by them."""
    return Proc(tmp_path)


def test_the_host(proc: Proc) -> None:
    """The eighth number of the first line, of all of them."""
    time = MachineTime(HOME, proc.folder)
    assert time.taken() == ""
    proc.stolen, proc.idle = 20, 980
    proc.write()
    assert time.taken() == "the host took 20% of this machine meanwhile"


def test_other_programs(proc: Proc) -> None:
    """What was busy, without what is at home and all below it."""
    time = MachineTime(HOME, proc.folder)
    proc.user += 60
    proc.idle += 40
    proc.processes |= {11: (10, 30), 12: (11, 30)}
    proc.write()
    assert time.taken() == "", "10 of 100"
    proc.user += 100
    proc.processes[1] = (0, 150)
    proc.write()
    assert time.taken() == "other programs took 55% of this machine meanwhile"


def test_what_ended(proc: Proc) -> None:
    """A parent has the time of those that it waited for."""
    proc.processes[10] = (1, 0)
    proc.write()
    time = MachineTime(HOME, proc.folder)
    proc.user += 100
    stat = proc.folder / "10" / "stat"
    stat.write_text("10 (x) S 1 1 1 0 -1 0 0 0 0 0 5 5 60 25 20 0\n")
    (proc.folder / "stat").write_text("cpu  200 0 0 900 0 0 0 0 0 0\n")
    assert time.taken() == ""


def test_ended_and_not_waited_for() -> None:
    """What a child used is ours, too, while its parent does not ask how it ended."""
    time = MachineTime(Path.cwd())
    before = time._ours()
    child = subprocess.Popen([sys.executable, "-c", SPIN])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert time._ours() - before >= 0.15 * os.sysconf("SC_CLK_TCK")
    finally:
        child.wait()


def test_this_machine() -> None:
    """What a child used, and was waited for, is ours."""
    time = MachineTime(Path.cwd())
    before = time._ours()
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    # Its kernel counts in hundredths.
    assert time._ours() - before >= 0.15 * os.sysconf("SC_CLK_TCK")
