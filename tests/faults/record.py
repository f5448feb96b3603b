"""What the experiments measured: a table for people, and a file for programs."""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from tests.integration.processes import ROOT

RESULTS = ROOT / "build" / "faults.json"


@attrs.define
class Figure:
    """One figure of one experiment, and where it has to lie."""

    experiment: str
    figure: str
    pass_line: str
    ok: bool


@attrs.define
class Record:
    """All figures of a run, in the order in which they came."""

    figures: list[Figure] = attrs.Factory(list)

    def note(self, experiment: str, figure: str, pass_line: str, ok: bool) -> None:
        """
        Keep a figure.

        :raises AssertionError: it is not where it has to be.
        """
        self.figures.append(Figure(experiment, figure, pass_line, ok))
        assert ok, f"{experiment}: {figure}; it has to be: {pass_line}"

    def write(self, path: Path = RESULTS) -> None:
        """Keep them for programs, beside those of experiments that did not run now."""
        path.parent.mkdir(parents=True, exist_ok=True)
        ran = {one.experiment for one in self.figures}
        kept = []
        if path.exists():
            kept = [
                one
                for one in json.loads(path.read_text())
                if one["experiment"] not in ran
            ]
        content = [*kept, *(attrs.asdict(one) for one in self.figures)]
        path.write_text(json.dumps(content, indent=1) + "\n")

    def table(self) -> str:
        """For people."""
        return "\n".join(
            f"{'ok  ' if one.ok else 'FAIL'}  {one.experiment:<7} "
            f"{one.figure}  [{one.pass_line}]"
            for one in self.figures
        )
