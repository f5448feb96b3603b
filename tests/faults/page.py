"""The page of what goes wrong elsewhere, as it names tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import attrs

from tests.faults.record import Figure

__all__ = ["PAGE", "Fault", "faults", "figures"]

PAGE = Path(__file__).parents[2] / "docs" / "faults.rst"

_LINE = re.compile(r"   \* - (?P<name>[A-Z]\d\d)|[ |]*``(?P<test>tests/[^`]+)``|.*")


@attrs.define
class Fault:
    """One line of the page: its name, and the tests that it names."""

    name: str
    tests: list[str] = attrs.field(factory=list)


def faults() -> list[Fault]:
    """All lines of the page."""
    found: list[Fault] = []
    for line in PAGE.read_text().splitlines():
        match = _LINE.fullmatch(line.replace("     - |", "      |"))
        assert match is not None
        if match["name"]:
            found.append(Fault(match["name"]))
        elif match["test"]:
            found[-1].tests.append(match["test"])
    return found


def figures(ran: Iterable[tuple[str, bool, float]]) -> list[Figure]:
    """
    A figure for each name on the page of which tests ran.

    :param ran: name of each test, whether it passed, and how many seconds it took.
    """
    tests = list(ran)
    said = []
    for fault in faults():
        for name in fault.tests:
            mine = [one for one in tests if _is(one[0], name)]
            if mine:
                failed = [test for test, passed, _ in mine if not passed]
                seconds = sum(took for _, _, took in mine)
                text = (
                    f"{len(mine) - len(failed)} of {len(mine)} passed, {seconds:.1f} s"
                )
                if failed:
                    text += f"; failed: {', '.join(failed)}"
                said.append(
                    Figure(f"{fault.name}: {name}", text, "all", not failed, True)
                )
    return said


def _is(test: str, name: str) -> bool:
    """Whether *test* is one of *name*, all of its parameters included."""
    return test == name or test.startswith((f"{name}::", f"{name}["))
