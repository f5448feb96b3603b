"""The client of agent halves, with a real API server."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.integration.cluster import ControlPlane
from tests.integration.processes import ROOT


def test_objects(control_plane: ControlPlane, namespace: str) -> None:
    """Kinds, pages, apply with conflicts, patch, delete, and a watch of all that."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.integration.kubernetes_program",
            str(control_plane.agent),
            namespace,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said: dict[str, Any] = dict(json.loads(line) for line in done.stdout.splitlines())
    assert said["kind"] == ["v1", "configmaps", True, True]
    assert said["no kind"][0] == "NOT_FOUND"
    assert said["applied"] == {"one": "1"}
    status, message = said["conflict"]
    assert status == "ABORTED" and "first" in message and ".data.one" in message
    assert said["dry"] == "b" and said["not made"][0] == "NOT_FOUND"
    assert said["pages"] == [["a", "c"], ["d", "e"], ["f", "g"]]
    assert said["patched"] == {"one": "1", "two": "2"}
    assert said["another one"][0] == "ABORTED"
    there = said["there"]
    assert [name for _, name in there[1:-1]] == ["a", "c", "d", "e", "f", "g"]
    assert [what for what, _ in there] == ["RESET", *["ADDED"] * 6, "SYNCED"]
    assert said["changes"] == [["MODIFIED", "a"], ["DELETED", "c"]]
