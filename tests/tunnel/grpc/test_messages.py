"""Messages with a length before each, however they are cut."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tunnel.errors import CallError
from tunnel.grpc.messages import Envelopes, envelope


class EnvelopesTests(SynchronousTestCase):
    """Messages cut out of a body."""

    def test_any_cut(self) -> None:
        """Wherever the bytes are cut."""
        data = envelope(b"one") + envelope(b"") + envelope(b"three", 2)
        for step in range(1, len(data)):
            envelopes = Envelopes()
            found = []
            for start in range(0, len(data), step):
                found += list(envelopes.feed(data[start : start + step]))
            self.assertEqual(found, [(0, b"one"), (0, b""), (2, b"three")])
            self.assertEqual(envelopes.waiting, 0)

    def test_limit(self) -> None:
        """Said by the length alone."""
        envelopes = Envelopes(10)
        self.assertEqual(list(envelopes.feed(envelope(b"x" * 10))), [(0, b"x" * 10)])
        with self.assertRaises(CallError):
            list(envelopes.feed(b"\0\0\0\0\x0b"))
