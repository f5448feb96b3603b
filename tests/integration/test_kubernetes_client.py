"""The client of agent halves, with a real API server."""

from __future__ import annotations

import subprocess
import sys

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
