"""The first bytes of a connection, and clients that say none."""

from __future__ import annotations

import attrs

from kas.api.limits import DEFAULT_LIMITS
from tests.kas.api.clients import ExternalCase, SilentClient


class GreetingTests(ExternalCase):
    """The first bytes."""

    limits = attrs.evolve(DEFAULT_LIMITS, greeting=5.0)

    def test_silence(self) -> None:
        """Nothing, or a preface that never ends."""
        for said in (b"", b"P", b"PRI * HTTP/2.0\r"):
            client = SilentClient()
            pipe = self.connect(client)
            pipe.transports[0].write(said)
            pipe.flush()
            self.clock.advance(5)
            pipe.flush()
            self.assertTrue(client.lost)

    def test_half_a_preface(self) -> None:
        """What begins as HTTP/2 and never speaks it is bounded by the next limit."""
        client = SilentClient()
        pipe = self.connect(client)
        pipe.transports[0].write(b"PRI * HTTP/2.0\r\n\r\nS")
        pipe.flush()
        self.clock.advance(self.limits.unproven)
        pipe.flush()
        self.assertTrue(client.lost)
