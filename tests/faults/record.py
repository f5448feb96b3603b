"""What the experiments measured: a table for people, and a file for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from tests.integration.processes import ROOT

RESULTS = ROOT / "build" / "faults.json"

_PROPERTY = "figure"


@attrs.define
class Figure:
    """One figure of one experiment, and where it has to lie."""

    experiment: str
    figure: str
    pass_line: str
    ok: bool


@attrs.define
class Record:
    """
    The figures of one test, which its report takes to the process that ends the run.

    :param properties: of the report.
    """

    properties: list[tuple[str, object]]

    def note(self, experiment: str, figure: str, pass_line: str, ok: bool) -> None:
        """
        Keep a figure.

        :raises AssertionError: it is not where it has to be.
        """
        found = Figure(experiment, figure, pass_line, ok)
        self.properties.append((_PROPERTY, attrs.asdict(found)))
        assert ok, f"{experiment}: {figure}; it has to be: {pass_line}"


def noted(properties: Iterable[tuple[str, object]]) -> list[Figure]:
    """The figures in a report of a test."""
    return [Figure(**value) for name, value in properties if name == _PROPERTY]  # type: ignore[arg-type]


def write(figures: Sequence[Figure], path: Path = RESULTS) -> None:
    """Keep them for programs, beside those of experiments that did not run now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ran = {one.experiment for one in figures}
    kept = []
    if path.exists():
        kept = [
            one for one in json.loads(path.read_text()) if one["experiment"] not in ran
        ]
    content = [*kept, *(attrs.asdict(one) for one in figures)]
    path.write_text(json.dumps(content, indent=1) + "\n")


def table(figures: Iterable[Figure]) -> str:
    """For people."""
    return "\n".join(
        f"{'ok  ' if one.ok else 'FAIL'}  {one.experiment:<7} "
        f"{one.figure}  [{one.pass_line}]"
        for one in figures
    )
