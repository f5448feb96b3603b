"""Cells that depend on the time, and durations in the words of kubectl."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modules.cluster_data.agent.objects.time_cells import TimeCells, human_duration
from tunnel.api import KubernetesResource

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400

#: The time of the tests: 2026-11-28T10:00:00Z.
NOW = 1795860000.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 5, "2m5s"),
        (10 * MINUTE + 5, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY + HOUR, "8d"),
        (729 * DAY, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (9 * YEAR + DAY, "9y"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def cell(group: str, resource: str, column: str, before: Any, found: Any) -> Any:
    """Return a cell as it is read now."""
    columns = json.dumps([{"name": "Name"}, {"name": column}]).encode()
    cells = TimeCells(KubernetesResource(group, "v1", "X", resource, True), columns)
    text = json.dumps({"metadata": {}} | found).encode()
    return json.loads(cells.update(json.dumps(["x", before]).encode(), text, NOW))[1]


def ended(time: str) -> Any:
    return {"lastState": {"terminated": {"finishedAt": time}}}


@pytest.mark.parametrize(
    ("resource", "column", "before", "found", "after"),
    [
        (
            "/any",
            "Age",
            "0s",
            {"metadata": {"creationTimestamp": "2026-11-28T09:00:00Z"}},
            "60m",
        ),
        ("/any", "Age", "<unknown>", {}, "<unknown>"),
        (
            "/pods",
            "Restarts",
            "3 (1s ago)",
            {
                "status": {
                    "containerStatuses": [
                        ended("2026-11-28T09:00:00Z"),
                        ended("2026-11-28T09:59:00Z"),
                        {"lastState": {}},
                    ]
                }
            },
            "3 (60s ago)",
        ),
        ("/pods", "Restarts", "0", {"status": {}}, "0"),
        (
            "/events",
            "Last Seen",
            "0s",
            {"lastTimestamp": "2026-11-28T09:50:00Z", "firstTimestamp": None},
            "10m",
        ),
        (
            "events.k8s.io/events",
            "Last Seen",
            "0s",
            {"eventTime": "2026-11-28T09:50:00.5Z"},
            "9m59s",
        ),
        (
            "/events",
            "Last Seen",
            "0s",
            {"series": {"lastObservedTime": "2026-11-28T09:59:00.000000Z"}},
            "60s",
        ),
        (
            "batch/jobs",
            "Duration",
            "0s",
            {"status": {"startTime": "2026-11-28T09:59:00Z"}},
            "60s",
        ),
        (
            "batch/jobs",
            "Duration",
            "5s",
            {"status": {"startTime": "x", "completionTime": "x"}},
            "5s",
        ),
        ("batch/cronjobs", "Last Schedule", "<none>", {"status": {}}, "<none>"),
    ],
    ids=range(10),
)
def test_cells(resource: str, column: str, before: Any, found: Any, after: Any) -> None:
    group, _, name = resource.rpartition("/")
    assert cell(group, name, column, before, found) == after
