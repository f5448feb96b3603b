"""Header lines: which of them pass where there is no head."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tunnel.http1.fields import HeadError, clean_trailers


class TrailerTests(SynchronousTestCase):
    """`clean_trailers`."""

    def test_kept_and_dropped(self) -> None:
        """Nothing that would change the head survives in a trailer."""
        self.assertEqual(clean_trailers(b""), b"")
        self.assertEqual(
            clean_trailers(b"A: b\r\nContent-Length: 1\r\nImpersonate_User: x\r\n"),
            b"\r\nA: b",
        )

    def test_malformed(self) -> None:
        """As strict as a head."""
        for lines in (b"A: b", b"A b\r\n", b"A: \0\r\n", b" A: b\r\n"):
            self.assertRaises(HeadError, clean_trailers, lines)
