"""What is said of a certificate that has expired, or is about to."""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.transport.certificates import authority
from tunnel.config.certificates import EXPIRY_NOTICE, expiry_problem, validity
from tunnel.errors import ConfigurationError

_END = datetime(2031, 5, 6, 7, 8, tzinfo=UTC)


class ExpiryTests(SynchronousTestCase):
    def setUp(self) -> None:
        directory = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, directory)
        certificate, _ = authority().issue("localhost", end=_END).write(directory, "s")
        self.file = Path(certificate)
        self.begin = validity(self.file)[0]

    def problem(self, when: datetime) -> str:
        return expiry_problem(self.file, when.timestamp())

    def test_in_time(self) -> None:
        """Nothing is said while there is time."""
        self.assertEqual(self.problem(_END - EXPIRY_NOTICE - timedelta(seconds=1)), "")

    def test_soon(self) -> None:
        """It is said on which day, and what to do."""
        self.assertEqual(
            self.problem(_END - timedelta(days=1, hours=3)),
            (
                f"{self.file}: the certificate expires on 2031-05-06 07:08 UTC, in 1 "
                "day; replace it and its key (no restart is needed)"
            ),
        )
        self.assertIn("in 13 days", self.problem(_END - EXPIRY_NOTICE / 14 * 13.5))

    def test_expired(self) -> None:
        """What expired, and when."""
        self.assertIn("expired on 2031-05-06 07:08 UTC; replace it", self.problem(_END))

    def test_too_early(self) -> None:
        """The clock may be wrong, and not the certificate."""
        problem = self.problem(self.begin - timedelta(seconds=1))
        self.assertIn("is not valid before", problem)
        self.assertIn("correct the clock", problem)

    def test_no_certificate(self) -> None:
        """A file without one is named."""
        missing = self.file.with_name("missing")
        junk = self.file.with_name("junk")
        junk.write_text("-----BEGIN CERTIFICATE-----\n====\n-----END CERTIFICATE-----")
        for file in (missing, junk):
            error = self.assertRaises(ConfigurationError, validity, file)
            self.assertIn(str(file), str(error))
