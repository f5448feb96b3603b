"""
What the experiments measured: a table for people, and a file for programs.

How long something took tells of the machine, too, which may do other things at that
moment: an experiment that was right, and too late, runs again (`AGAIN`).  A fault that
delays requests does so each time; another process does not.  What is wrong fails at
once, and the figures of each attempt are kept.  Where others had much of the machine's
time (`tests.faults.machine_time`), the last attempt is not judged by time either: its
figure says so.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.integration.processes import ROOT

RESULTS = ROOT / "build" / "faults.json"

_PROPERTY = "figure"


class Late(AssertionError):
    """All was right, and took too long."""


#: For pytest-rerunfailures: how often an experiment runs again, and after what.
AGAIN: dict[str, Any] = {"reruns": 2, "only_rerun": [Late.__name__]}


@attrs.define
class Figure:
    """One figure of one experiment, and where it has to lie."""

    experiment: str
    figure: str
    pass_line: str
    #: Whether what happened was right.
    ok: bool
    #: Whether it was in time.
    in_time: bool
    #: False: others had so much of the machine that being late says nothing.
    judged: bool = True

    @property
    def verdict(self) -> str:
        """In a word."""
        if not self.ok:
            return "FAIL"
        return "ok" if self.in_time else "LATE" if self.judged else "BUSY"


@attrs.define
class Record:
    """
    The figures of one test, which its report takes to the process that ends the run.

    :param properties: of the report.
    :param taken: see `MachineTime.taken`.
    :param last: the test does not run again.
    """

    properties: list[tuple[str, object]]
    taken: Callable[[], str] = lambda: ""
    last: bool = False
    _held: list[Figure] | None = attrs.field(default=None, init=False)

    def note(
        self,
        experiment: str,
        figure: str,
        pass_line: str,
        ok: bool = True,
        *,
        in_time: bool = True,
    ) -> None:
        """
        Keep a figure.

        :param ok: what happened is right, however busy the machine is.
        :param in_time: it took no longer than it may.
        :raises AssertionError: it is not right.
        :raises Late: it is right, and not in time.
        """
        judged = True
        if not in_time and self.last and (reason := self.taken()):
            judged = False
            figure += f"; {reason}"
        found = Figure(experiment, figure, pass_line, ok, in_time, judged)
        self.properties.append((_PROPERTY, attrs.asdict(found)))
        if self._held is None:
            _judge([found])
        else:
            self._held.append(found)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Judge what is noted within at its end, so that no figure is missing."""
        held = self._held = []
        try:
            yield
        finally:
            self._held = None
        _judge(held)


def _judge(figures: Sequence[Figure]) -> None:
    for bad, error in (
        ([one for one in figures if not one.ok], AssertionError),
        ([one for one in figures if not one.in_time and one.judged], Late),
    ):
        if bad:
            raise error("\n".join(map(_missed, bad)))


def _missed(one: Figure) -> str:
    return f"{one.experiment}: {one.figure}; it has to be: {one.pass_line}"


def noted(properties: Iterable[tuple[str, object]]) -> list[Figure]:
    """The figures in a report of a test."""
    return [Figure(**value) for name, value in properties if name == _PROPERTY]  # type: ignore[arg-type]


def write(figures: Sequence[Figure], path: Path = RESULTS) -> None:
    """Keep them for programs, beside those of experiments that did not run now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ran = {one.experiment for one in figures}
    # Two parts of the tests may end at the same time.
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        before = json.loads(file.read() or "[]")
        kept = [one for one in before if one["experiment"] not in ran]
        content = [*kept, *(attrs.asdict(one) for one in figures)]
        file.truncate(0)
        file.write(json.dumps(content, indent=1) + "\n")


def table(figures: Iterable[Figure]) -> str:
    """For people."""
    return "\n".join(
        f"{one.verdict:<4}  {one.experiment:<7} {one.figure}  [{one.pass_line}]"
        for one in figures
    )
