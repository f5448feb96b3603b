"""Two tunnels in memory know each other."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tunnel.errors import ErrorCode, StreamReset
from tunnel.testing import RecordingReceiver, connected


class ConnectedTests(SynchronousTestCase):
    """Two tunnels that know each other."""

    def test_ends(self) -> None:
        """Both are greeted, and both are told of the end."""
        clock = Clock()
        agent, kas, pipe = connected(clock)
        self.assertTrue(agent.tunnel.greeted and kas.tunnel.greeted)
        kas.tunnel.end(ErrorCode.SHUTDOWN, "bye")
        pipe.flush()
        self.assertEqual([e.code for e in agent.closed], [ErrorCode.SHUTDOWN])
        self.assertEqual([g.message for g in agent.going_away], ["bye"])
        self.assertEqual(len(kas.closed), 1)
        clock.advance(60)
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_unknown_method(self) -> None:
        """A stream that nobody answers is reset; the receiver records it."""
        agent, _, pipe = connected(Clock())
        receiver = RecordingReceiver()
        agent.open_stream("/no.Such/Method", receiver)
        pipe.flush()
        (reason,) = receiver.closed
        assert isinstance(reason, StreamReset)
        self.assertEqual(reason.code, ErrorCode.UNKNOWN_METHOD)
