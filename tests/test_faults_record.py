"""What the experiments note: when it fails, and when it is only late."""

from __future__ import annotations

import pytest

from tests.faults.record import Late, Record, noted

TAKEN = "the host took 27% of this machine meanwhile"


def test_late() -> None:
    """It fails, in the last attempt as well."""
    properties: list[tuple[str, object]] = []
    for last in (False, True):
        with pytest.raises(Late):
            Record(properties, lambda: "", last).note(
                "F00", "5 s", "1 s", in_time=False
            )
    assert [one.verdict for one in noted(properties)] == ["LATE", "LATE"]


def test_late_on_a_machine_that_is_taken_away() -> None:
    """The last attempt is not judged, and its figure says why; what is wrong fails."""
    record = Record([], lambda: TAKEN, last=True)
    record.note("F00", "5 s", "1 s", in_time=False)
    (found,) = noted(record.properties)
    assert found.verdict == "BUSY"
    assert found.figure == f"5 s; {TAKEN}"
    with pytest.raises(AssertionError, match="it has to be"):
        record.note("F00", "3 failed", "0 failed", ok=False)
    with pytest.raises(Late):
        Record([], lambda: TAKEN).note("F00", "5 s", "1 s", in_time=False)
