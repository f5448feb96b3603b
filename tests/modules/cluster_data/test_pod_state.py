"""The state of a pod in one word."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from modules.cluster_data.agent.pod_state import pod_state
from modules.cluster_data.agent.shapes import Pod

READY = [{"type": "Ready", "status": "True"}]


def container(name: str = "main", ready: bool = False, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": ready, "state": state}


RUNS = container(ready=True, running={})
COMPLETED = container(terminated={"exitCode": 0, "reason": "Completed"})
INITIALIZING = container(waiting={"reason": "PodInitializing"})


def pod(phase: str, *containers: Any, init: Any = (), ready: bool = False) -> Any:
    return {
        "phase": phase,
        "conditions": READY if ready else [],
        "containerStatuses": list(containers),
        "initContainerStatuses": list(init),
    }


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "Unknown"),
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (pod("Running", RUNS, ready=True), "Running"),
        (pod("Running", container(running={})), "NotReady"),
        (
            pod("Running", container(waiting={"reason": "CrashLoopBackOff"}), RUNS),
            "CrashLoopBackOff",
        ),
        (pod("Pending", INITIALIZING, init=[COMPLETED, INITIALIZING]), "Init:1/2"),
        (
            pod("Pending", init=[container(terminated={"exitCode": 3})]),
            "Init:ExitCode:3",
        ),
        (
            pod("Pending", init=[container(waiting={"reason": "ErrImagePull"})]),
            "Init:ErrImagePull",
        ),
        # An init container that restarts runs beside the others.
        (
            pod(
                "Running",
                RUNS,
                init=[container(running={}) | {"started": True}],
                ready=True,
            ),
            "Running",
        ),
        (pod("Failed", container(terminated={"exitCode": 2})), "ExitCode:2"),
        (
            pod("Failed", container(terminated={"exitCode": 137, "signal": 9})),
            "Signal:9",
        ),
        (pod("Succeeded", COMPLETED), "Completed"),
        (pod("Running", COMPLETED, RUNS, ready=True), "Running"),
        (pod("Running", COMPLETED, RUNS), "NotReady"),
    ],
)
def test_state(status: dict[str, Any], state: str) -> None:
    assert pod_state(msgspec.convert({"status": status}, Pod)) == state


def test_a_pod_that_is_being_deleted() -> None:
    metadata = {"deletionTimestamp": "2026-11-23T00:00:00Z"}
    running = {"phase": "Running", "conditions": READY}
    found = msgspec.convert({"metadata": metadata, "status": running}, Pod)
    assert pod_state(found) == "Terminating"
    lost = {"phase": "Running", "reason": "NodeLost"}
    found = msgspec.convert({"metadata": metadata, "status": lost}, Pod)
    assert pod_state(found) == "Unknown"
