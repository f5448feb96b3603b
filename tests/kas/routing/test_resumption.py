"""Streams that survive their path find another one."""

from __future__ import annotations

from typing import Any

from zope.interface import implementer

from tests.kas.many import GRACE, Agentk, Kas, ManyCase
from tunnel.api import IPathReceiver, IStreamReceiver
from tunnel.errors import ErrorCode, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.resume import ResumeLimits
from tunnel.testing import RecordingReceiver

LIMITS = ResumeLimits()


@implementer(IPathReceiver)
class Watch(RecordingReceiver):
    """Counts how often it is told that the agent may not come back."""

    def __init__(self) -> None:
        super().__init__()
        self.missing = 0

    def path_in_doubt(self) -> None:
        """Of no interest."""

    def path_missing(self) -> None:
        self.missing += 1


class ResumeTests(ManyCase):
    """Streams that survive their path."""

    def begin(self, at: Kas, pod: str = "") -> tuple[Agentk, RecordingReceiver]:
        agent = self.many.agent(at, pod=pod)
        self.stream = self.one.open(self.client, resumable=True)
        self.many.settle()
        answer, request = agent.streams[0]
        self.answer_stream = answer
        answer.send_headers(b"head")
        answer.write(b"one ")
        self.stream.write(b"eins ")
        self.many.settle()
        self.assertEqual((self.client.data, request.data), (b"one ", b"eins "))
        return agent, request

    def test_gateway_dies(self) -> None:
        """Both ends go on where they were, though the path is another."""
        agent, request = self.begin(self.two)
        agent.at = self.three
        self.answer_stream.write(b"two ")
        self.stream.write(b"zwei ")
        self.two.kill()
        self.answer_stream.write(b"three ")
        self.stream.write(b"drei ")
        self.many.later(3)
        self.assertEqual(self.client.data, b"one two three ")
        self.assertEqual(request.data, b"eins zwei drei ")
        self.answer_stream.finish()
        self.stream.finish()
        self.many.settle()
        self.assertEqual((self.client.closed, request.closed), ([None], [None]))
        self.assertEqual(len(agent.streams), 1)

    def test_agent_roams_away_from_us(self) -> None:
        """It was here, and comes back through another kas."""
        agent, request = self.begin(self.one)
        agent.at = self.three
        self.many.network.cut(self.one.agents_url)
        self.stream.write(b"zwei ")
        self.answer_stream.write(b"two ")
        self.many.later(3)
        self.assertEqual(self.client.data, b"one two ")
        self.assertEqual(request.data, b"eins zwei ")

    def test_agent_comes_back_here(self) -> None:
        """The connection was cut, and made anew."""
        agent, request = self.begin(self.one)
        self.many.network.cut(self.one.agents_url)
        self.stream.write(b"zwei ")
        self.many.later(3)
        self.assertEqual(request.data, b"eins zwei ")
        self.assertEqual(self.one.router.keeper.resumed, 1)
        self.assertEqual(agent.dialer.keeper.resumed, 1)

    def test_nobody_comes_back(self) -> None:
        """When the grace is over both ends are told, and nothing is kept."""
        agent, request = self.begin(self.two)
        agent.dialer._running = False
        self.many.network.cut(self.two.agents_url)
        self.many.later(GRACE + 3)
        self.assertEqual((len(self.client.closed), len(request.closed)), (1, 1))
        self.assertEqual(
            (self.one.router.keeper.held, agent.dialer.keeper.held), (0, 0)
        )
        self.assertEqual(len(agent.dialer.keeper), 0)

    def test_new_run_of_agentk(self) -> None:
        """Another run knows nothing of the stream: it fails, and is not done again."""
        agent, _ = self.begin(self.two)
        agent.dialer._running = False
        self.many.network.cut(self.two.agents_url)
        other = self.many.agent(self.three, instance=b"j" * 16)
        self.many.later(GRACE + 3)
        self.assertEqual((len(other.streams), len(self.client.closed)), (0, 1))

    def crash(self, agent: Agentk, at: Kas) -> None:
        """Its process dies: its system closes the connection, and nobody dials."""
        agent.dialer._running = False
        self.many.network.cut(at.agents_url)

    def test_crash_here(self) -> None:
        """Who may begin again is told soon; the rest ends long before the grace."""
        self.client = Watch()
        agent, _ = self.begin(self.one)
        self.crash(agent, self.one)
        self.many.later(LIMITS.closed_notice - 0.25)
        self.assertEqual((self.client.missing, self.client.closed), (0, []))
        self.many.later(0.25)
        self.assertEqual((self.client.missing, self.client.closed), (1, []))
        self.many.later(LIMITS.closed_grace - LIMITS.closed_notice)
        self.assertEqual((self.client.missing, len(self.client.closed)), (1, 1))
        self.assertEqual(self.one.router.keeper.held, 0)

    def test_crash_elsewhere(self) -> None:
        """The same where another kas has the agent: it says that it was closed."""
        self.client = Watch()
        agent, _ = self.begin(self.two)
        self.crash(agent, self.two)
        self.many.later(LIMITS.closed_notice)
        self.assertEqual((self.client.missing, self.client.closed), (1, []))
        self.many.later(LIMITS.closed_grace - LIMITS.closed_notice)
        self.assertEqual(len(self.client.closed), 1)

    def test_crash_elsewhere_before_others_know(self) -> None:
        """Its kas resets the streams at once, and removes its record a moment later."""
        self.client = Watch()
        agent, _ = self.begin(self.two)
        self.many.hub.late = []
        self.crash(agent, self.two)
        self.assertGreater(self.two.gateway.refused, 0)
        self.many.hub.publish()
        self.many.later(LIMITS.closed_notice)
        self.assertEqual((self.client.missing, self.client.closed), (1, []))
        self.many.later(LIMITS.closed_grace - LIMITS.closed_notice)
        self.assertEqual(len(self.client.closed), 1)

    def test_seen_since(self) -> None:
        """Its agent connected again, and does not answer: it has the whole grace."""
        self.client = Watch()
        agent, _ = self.begin(self.two)
        agent.dialer.stream_resumed = (  # type: ignore[method-assign]
            lambda stream, resume: RecordingReceiver()
        )
        self.many.network.cut(self.two.agents_url)
        self.many.later(GRACE - 1)
        self.assertEqual((self.client.missing, self.client.closed), (0, []))
        self.many.later(5)
        self.assertEqual(len(self.client.closed), 1)

    def test_away_for_a_while(self) -> None:
        """Who was told that it may not come back gets what comes all the same."""
        self.client = Watch()
        agent, request = self.begin(self.two)
        self.crash(agent, self.two)
        self.many.later(LIMITS.closed_grace - 3)
        agent.at = self.three
        agent.dialer.start()
        self.stream.write(b"zwei ")
        self.many.later(GRACE)
        self.assertEqual((self.client.missing, self.client.closed), (1, []))
        self.assertEqual(request.data, b"eins zwei ")

    def test_a_kas_that_dies_is_no_agent_that_does(self) -> None:
        """Its agents live, and may need longer to find another one."""
        self.client = Watch()
        agent, _ = self.begin(self.two)
        agent.dialer._running = False
        self.two.kill()
        self.many.later(GRACE - 1)
        self.assertEqual((self.client.missing, self.client.closed), (0, []))

    def test_silence_is_no_crash(self) -> None:
        """A path that ends after silence may be dead, with an agent that lives."""
        self.client = Watch()
        agent, _ = self.begin(self.one)
        (connection,) = self.one.registry
        connection.tunnel.liveness.silence = (
            2 * connection.tunnel.liveness.timing.ping_interval
        )
        self.crash(agent, self.one)
        self.many.later(GRACE - 1)
        self.assertEqual((self.client.missing, self.client.closed), (0, []))

    def test_restarted_in_its_pod(self) -> None:
        """A new run of agentk in the same pod: the old one is dead, with all it had."""
        for here in (False, True):
            self.setUp()
            at = self.one if here else self.two
            agent, _ = self.begin(at, pod="agentk-0")
            self.crash(agent, at)
            self.many.later(1)
            self.many.agent(self.three, instance=b"k" * 16, pod="agentk-1")
            self.many.later(1)
            self.assertEqual(self.client.closed, [])
            self.many.agent(self.three, instance=b"j" * 16, pod="agentk-0")
            self.many.later(1)
            (reason,) = self.client.closed
            self.assertIn("agentk was restarted", str(reason))

    def test_revoked(self) -> None:
        """A credential that is revoked ends the stream at once, not after a grace."""
        _, request = self.begin(self.two)
        self.two.registry.revoke("agent:7:t")
        self.many.later(1)
        (reason,) = self.client.closed
        assert isinstance(reason, StreamReset)
        self.assertEqual(reason.code, ErrorCode.UNAUTHENTICATED)
        self.assertEqual(len(request.closed), 1)

    def test_finished_and_not_read(self) -> None:
        """The end that was on its way when the path broke arrives by the next one."""
        agent, request = self.begin(self.two)
        self.stream.finish()
        self.many.settle()
        agent.at = self.three
        self.answer_stream.write(b"last")
        self.answer_stream.finish()
        # It left agentk, and not the gateway.
        self.two.kill()
        self.assertEqual(request.closed, [None])
        self.many.later(3)
        self.assertEqual((self.client.data, self.client.closed), (b"one last", [None]))

    def test_client_leaves_meanwhile(self) -> None:
        """Without a path, too; agentk keeps nothing beyond the grace."""
        agent, request = self.begin(self.two)
        agent.at = self.three
        self.two.kill()
        self.stream.reset()
        self.assertEqual(len(self.client.closed), 1)
        self.many.later(GRACE + 5)
        self.assertEqual(len(request.closed), 1)
        self.assertEqual(len(agent.dialer.keeper), 0)

    def test_acknowledged_again_and_again(self) -> None:
        """A gateway passes only what says something new."""
        agent, _ = self.begin(self.two)
        self.many.later(2)
        (stream,) = agent.tunnel._streams.values()
        received = stream.resumable.received  # type: ignore[union-attr]
        session = next(iter(self.two.gateway.tunnels)).session
        before = len(session._outbox.control)
        for _ in range(1000):
            stream.ack(received)
        for _, pipe in self.many.network.pipes:
            if pipe.protocols[0] is agent.tunnel:
                pipe.flush()
        self.assertEqual(len(session._outbox.control), before)

    def test_revoked_without_a_path(self) -> None:
        """Nobody waits for the return of an agent that may not."""
        agent, _ = self.begin(self.two)
        agent.dialer._running = False
        self.many.network.cut(self.two.agents_url)
        self.many.later(2)
        self.assertEqual(self.client.closed, [])
        self.one.router.may_connect = lambda agent_id: False
        self.many.later(2)
        self.assertEqual(len(self.client.closed), 1)

    def test_resume_is_never_answered(self) -> None:
        """Attempts end, and leave nothing behind in any session."""
        agent, _ = self.begin(self.two)
        agent.dialer.stream_resumed = (  # type: ignore[method-assign]
            lambda stream, resume: RecordingReceiver()
        )
        self.many.network.cut(self.two.agents_url)
        self.many.later(GRACE + 20)
        self.assertEqual(len(self.client.closed), 1)
        (peer,) = self.one.peers._peers.values()
        assert peer.tunnel is not None
        self.assertEqual((peer.tunnel.load, self.two.gateway.load), (0, 0))

    def test_resumed_with_an_impossible_count(self) -> None:
        """It is refused, and counted nowhere as a stream that is there."""
        agent, _ = self.begin(self.two)

        def resumed(stream: Any, resume: pb.Resume) -> IStreamReceiver:
            stream.accept_resume(10**9)
            return RecordingReceiver()

        agent.dialer.stream_resumed = resumed  # type: ignore[method-assign]
        self.many.network.cut(self.two.agents_url)
        self.many.later(GRACE + 20)
        self.assertEqual(len(self.client.closed), 1)
        self.assertEqual((self.one.router.remote, self.two.gateway.load), (0, 0))

    def test_acknowledged(self) -> None:
        """What arrived is kept no longer than a moment."""
        agent, _ = self.begin(self.two)
        self.many.later(3)
        self.assertEqual(
            (self.one.router.keeper.held, agent.dialer.keeper.held), (0, 0)
        )
