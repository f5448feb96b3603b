"""What the experiments note: when it fails, and when it is only late."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.record import STOLEN, HostTime, Late, Record, noted


def test_late() -> None:
    """It fails, in the last attempt as well."""
    properties: list[tuple[str, object]] = []
    for last in (False, True):
        with pytest.raises(Late):
            Record(properties, lambda: STOLEN, last).note(
                "F00", "5 s", "1 s", in_time=False
            )
    assert [one.verdict for one in noted(properties)] == ["LATE", "LATE"]


def test_late_on_a_machine_that_is_taken_away() -> None:
    """The last attempt is not judged, and its figure says why; what is wrong fails."""
    record = Record([], lambda: 0.27, last=True)
    record.note("F00", "5 s", "1 s", in_time=False)
    (found,) = noted(record.properties)
    assert found.verdict == "BUSY"
    assert found.figure == "5 s; the host took 27% of this machine meanwhile"
    with pytest.raises(AssertionError, match="it has to be"):
        record.note("F00", "3 failed", "0 failed", ok=False)
    with pytest.raises(Late):
        Record([], lambda: 0.27).note("F00", "5 s", "1 s", in_time=False)


def test_host_time(tmp_path: Path) -> None:
    """The eighth number of the first line, of all of them."""
    file = tmp_path / "stat"
    file.write_text("cpu  100 0 100 800 0 0 0 10 5 5\ncpu0 1 1 1 1 1 1 1 1\n")
    time = HostTime(file)
    assert time.stolen() == 0
    file.write_text("cpu  130 0 120 830 0 0 0 30 9 9\n")
    assert time.stolen() == pytest.approx(0.2)
