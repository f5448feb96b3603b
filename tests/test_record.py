"""The record of the experiments' figures, and which experiments run again."""

from __future__ import annotations

import pytest

from tests.faults.record import Late, Record, noted, table
from tests.integration.processes import ROOT

pytest_plugins = ["pytester"]

EXPERIMENT = """
import pytest

from tests.faults.record import AGAIN, Late, Record

runs = []


@pytest.mark.flaky(**AGAIN)
@pytest.mark.parametrize(("wrong", "late"), [{case}])
def test_it(request, wrong, late):
    runs.append(1)
    Record(request.node.user_properties).note(
        "F00", f"run {{len(runs)}}", "quick", not wrong, in_time=len(runs) > late
    )
"""


@pytest.mark.parametrize(
    ("case", "outcomes"),
    [
        ((False, 0), {"passed": 1}),
        ((False, 1), {"passed": 1, "rerun": 1}),
        ((False, 3), {"failed": 1, "rerun": 2}),
        ((True, 0), {"failed": 1}),
        ((True, 3), {"failed": 1}),
    ],
)
def test_again(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[bool, int],
    outcomes: dict[str, int],
) -> None:
    """Only one that was right, and late, runs again; twice at most."""
    pytester.makepyfile(EXPERIMENT.format(case=case))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = pytester.runpytest_subprocess()
    assert found.parseoutcomes() == outcomes


def test_verdicts() -> None:
    """What is wrong is that, in time or not; each figure is kept."""
    properties: list[tuple[str, object]] = []
    record = Record(properties)
    record.note("F00", "a", "line")
    with pytest.raises(Late, match="F00: b; it has to be: line"):
        record.note("F00", "b", "line", in_time=False)
    with pytest.raises(AssertionError, match="F00: c") as caught:
        record.note("F00", "c", "line", False, in_time=False)
    assert not isinstance(caught.value, Late)
    assert [one.verdict for one in noted(properties)] == ["ok", "LATE", "FAIL"]
    assert table(noted(properties)).splitlines()[1].startswith("LATE  F00")


def test_together() -> None:
    """All figures are noted before they are judged, and what is wrong comes first."""
    properties: list[tuple[str, object]] = []
    record = Record(properties)
    with (
        pytest.raises(AssertionError, match="F00: wrong") as caught,
        record.together(),
    ):
        record.note("F00", "late", "line", in_time=False)
        record.note("F00", "wrong", "line", False)
        record.note("F00", "fine", "line")
    assert not isinstance(caught.value, Late)
    assert len(noted(properties)) == 3
    with pytest.raises(Late), record.together():
        record.note("F00", "late", "line", in_time=False)
    record.note("F00", "judged at once again", "line")
