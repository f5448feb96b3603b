"""What tests of the identity file begin with."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from kas.identity.file import FILE_NAME
from kas.identity.store import IdentityError, IdentityStore
from kas.state.directory import StateDirectory
from tunnel.api import Impersonation

START = datetime(2026, 1, 1, tzinfo=UTC)
ALICE = Impersonation("alice", ("dev", "ops"))


def temporary(case: SynchronousTestCase) -> Path:
    """A folder for as long as the test runs."""
    folder = tempfile.TemporaryDirectory()
    case.addCleanup(folder.cleanup)
    return Path(folder.name)


class IdentityCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.state = StateDirectory.open(temporary(self))
        self.time = START
        self.store = IdentityStore(self.state, lambda: self.time)

    def content(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.state.file(FILE_NAME).read_bytes())
        return data

    def assertRefused(
        self, says: str, change: Callable[..., object], *arguments: object
    ) -> None:
        error = self.assertRaises(IdentityError, change, *arguments)
        self.assertIn(says, str(error))
