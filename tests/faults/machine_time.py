"""
Whose the time of this machine was while an experiment ran.

What is measured in milliseconds says nothing of the programs under test where they
waited for a core that others had: guests of the same host, or programs that these tests
did not start.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.integration.processes import ROOT

__all__ = ["OTHERS", "STOLEN", "MachineTime"]

#: Share of the machine's time that its host may give to others before what is late says
#: nothing of the programs: with a fifth gone, a request in twenty waits for 100 ms.
STOLEN = 0.05

#: The same of other programs on the machine.  Cores are shared by slices of a few
#: milliseconds, so programs that work now and then do no harm; one that never rests
#: takes half of a core from one that works as much.
OTHERS = 0.2


class MachineTime:
    """
    What this machine did since this was made.

    :param home: what runs in this folder, such as another part of the tests, and all
        that it started, are no others.
    """

    def __init__(self, home: Path = ROOT, folder: Path = Path("/proc")) -> None:
        self._home = home
        self._folder = folder
        self._begun = self._read()

    def taken(self) -> str:
        """Who had too much of it for times to tell anything, in words; or nothing."""
        stolen, busy, ours, every = (
            now - then for now, then in zip(self._read(), self._begun, strict=True)
        )
        every = max(1, every)
        for share, most, who in (
            (stolen / every, STOLEN, "the host"),
            ((busy - ours) / every, OTHERS, "other programs"),
        ):
            if share > most:
                return f"{who} took {share:.0%} of this machine meanwhile"
        return ""

    def _read(self) -> tuple[int, int, int, int]:
        """Stolen, busy, ours, and all, in ticks; see proc(5)."""
        line, _, _ = (self._folder / "stat").read_text().partition("\n")
        fields = [int(one) for one in line.split()[1:9]]
        idle, waiting, stolen = fields[3], fields[4], fields[7]
        every = sum(fields)
        return stolen, every - idle - waiting - stolen, self._ours(), every

    def _ours(self) -> int:
        """Ticks of all that runs at home, of what it started, and waited for."""
        children: dict[int, list[int]] = defaultdict(list)
        used: dict[int, int] = {}
        left = []
        for file in self._folder.glob("[0-9]*/stat"):
            try:
                text = file.read_text()
            except OSError:
                continue  # it ended meanwhile
            try:
                home = (file.parent / "cwd").readlink()
            except OSError:
                # The kernel's; or one that ended, and has its time until its parent
                # waits for it.
                home = None
            fields = text.rpartition(")")[2].split()
            pid = int(file.parent.name)
            children[int(fields[1])].append(pid)
            used[pid] = sum(map(int, fields[11:15]))
            if home == self._home:
                left.append(pid)
        found = 0
        while left:
            pid = left.pop()
            found += used.pop(pid, 0)
            left += children.pop(pid, ())
        return found
