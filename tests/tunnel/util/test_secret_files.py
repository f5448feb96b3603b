"""Files with secrets that every user can read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tunnel.util.file_version import look_again
from tunnel.util.secret_files import warn_if_public


class PublicTests(SynchronousTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "password"
        self.path.write_text("s3cret")
        case: Any = self
        self.log = EventLoggingObserver.createWithCleanup(case, globalLogPublisher)

    def told(self) -> list[str]:
        warn_if_public(self.path)
        return [event["log_format"].format(**event) for event in self.log]

    def test_private(self) -> None:
        """Its owner and group may read it; a file that is gone is told of elsewhere."""
        self.path.chmod(0o640)
        self.assertEqual(self.told(), [])
        self.path.unlink()
        self.assertEqual(self.told(), [])

    def test_public(self) -> None:
        """Once, with what to do; again after SIGHUP, or when it is so again."""
        self.path.chmod(0o644)
        self.assertEqual(
            self.told(),
            [
                f"every user of this machine can read the secret {self.path} (mode "
                f"644); chmod 600 {self.path}"
            ],
        )
        self.assertEqual(len(self.told()), 1)
        look_again()
        self.assertEqual(len(self.told()), 2)
        self.path.chmod(0o600)
        self.told()
        self.path.chmod(0o604)
        self.assertEqual(len(self.told()), 3)
