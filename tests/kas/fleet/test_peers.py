"""Sessions to other kas: when they are dialled, kept, given up and tried again."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from kas.agents.registry import Registry
from kas.fleet import peers as module
from kas.fleet.gateway import Gateway, GatewayFactory
from kas.fleet.peers import DIAL_TIMEOUT, PEER_TIMING, RETRY_FIRST, RETRY_MOST, Peers
from kas.fleet.tokens import PeerToken
from tests.kas.many import Network
from tunnel.errors import CallError, ErrorCode, Status, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import SWEEP
from tunnel.testing import RecordingReceiver

URL = "tcp://kas-2:8155"


class _Nowhere:
    """Neither connects nor fails."""

    def __init__(self) -> None:
        self.cancelled = 0

    def connect(self, factory: Any) -> Deferred[Any]:
        return Deferred(lambda _: setattr(self, "cancelled", self.cancelled + 1))


class PeersTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.network = Network(self.clock)
        self.token = PeerToken(b"secret", b"proof")
        self.random = 1.0
        self.endpoint: Any = self.network.door
        runtime = Runtime(
            reactor=self.clock, random=lambda: self.random, instance_id=b"k" * 16
        )
        self.peers = Peers(
            endpoint=lambda url: self.endpoint(url),
            sign=lambda url: self.token,
            runtime=runtime,
        )
        self.gateway = Gateway(self.verify, Registry(), Dispatcher(self.clock), runtime)
        self.told = 0

    @staticmethod
    def verify(credential: bytes) -> PeerToken:
        if credential != b"secret":
            raise CallError(Status.UNAUTHENTICATED, "not one of us")
        return PeerToken(credential, b"proof")

    def listen(self) -> None:
        """The other kas is there."""
        self.network.listeners[URL] = GatewayFactory(self.gateway)

    def tell(self) -> None:
        self.told += 1

    def connect(self, url: str = URL) -> module.Peer:
        peer = self.peers.at(url)
        peer.connect(self.tell)
        self.clock.advance(0)
        self.network.settle()
        return peer

    def later(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            self.clock.advance(0.5)
            self.network.settle()

    def test_connects(self) -> None:
        self.listen()
        peer = self.connect()
        self.assertEqual((self.told, peer.alive, self.peers.connected), (1, True, 1))
        self.assertIs(self.peers.at(URL), peer)
        self.assertEqual(len(self.gateway.tunnels), 1)

    def test_nobody_there(self) -> None:
        peer = self.connect()
        self.assertEqual((self.told, peer.alive, peer.worth_trying), (1, False, False))

    def test_name_of_a_worker(self) -> None:
        """The path of its socket tells people nothing."""
        case: Any = self
        log = EventLoggingObserver.createWithCleanup(case, globalLogPublisher)
        for url in ("unix:///var/lib/kas/workers-5bce-4711/2.peer", URL):
            self.connect(url)
        said = [one["log_format"].format(**one) for one in log]
        self.assertTrue(said[0].startswith("worker 2 of 4711 cannot be reached: "))
        self.assertTrue(said[1].startswith(f"kas at {URL} cannot be reached: "))

    def test_nobody_there_at_the_end(self) -> None:
        """It is a warning, but while this kas stops: others may stop as well."""
        for url, leaving, level in (
            (URL, False, LogLevel.warn),
            ("tcp://kas-3:8155", True, LogLevel.info),
        ):
            log = EventLoggingObserver()
            globalLogPublisher.addObserver(log)
            self.addCleanup(globalLogPublisher.removeObserver, log)
            self.peers.leaving = leaving
            self.connect(url)
            self.assertEqual([event["log_level"] for event in log], [level])

    def test_pauses_grow_to_a_limit(self) -> None:
        pauses = []
        for _ in range(12):
            peer = self.connect()
            pauses.append(peer._retry_at - self.clock.seconds())
            self.clock.advance(pauses[-1])
            self.assertTrue(peer.worth_trying)
        self.assertEqual(pauses[0], RETRY_FIRST)
        self.assertEqual(pauses, sorted(pauses))
        self.assertEqual(pauses[-1], RETRY_MOST)
        self.random = 0.0
        peer = self.connect()
        self.assertEqual(peer._retry_at - self.clock.seconds(), RETRY_MOST / 2)

    def test_back(self) -> None:
        peer = self.peers.at(URL)
        for _ in range(3):
            self.connect()
            self.clock.advance(RETRY_MOST)
        self.listen()
        self.connect()
        self.assertTrue(peer.alive)
        self.network.cut(URL)
        self.assertEqual((peer.alive, peer.worth_trying), (False, True))
        # The pauses begin small again.
        del self.network.listeners[URL]
        self.connect()
        pause = peer._retry_at - self.clock.seconds()
        self.assertAlmostEqual(pause, RETRY_FIRST)

    def test_an_address_that_is_none(self) -> None:
        def endpoint(url: str) -> Any:
            raise ValueError(f"{url!r} is no address between kas")

        self.endpoint = endpoint
        peer = self.connect("nonsense")
        self.assertEqual((self.told, peer.worth_trying), (1, False))

    def test_told_when_it_is_known_what_ends_the_wish(self) -> None:
        """An attempt may fail at once; who asked must be able to give it up before."""
        give_up = self.peers.at(URL).connect(self.tell)
        self.assertEqual(self.told, 0)
        give_up()
        self.clock.advance(0)
        self.assertEqual(self.told, 0)

    def test_who_does_not_answer(self) -> None:
        nowhere = _Nowhere()
        self.endpoint = lambda url: nowhere
        peer = self.connect()
        peer.connect(self.tell)()
        self.clock.advance(DIAL_TIMEOUT - 0.1)
        self.assertEqual(self.told, 0)
        self.clock.advance(0.1)
        self.clock.advance(0)
        self.assertEqual((self.told, nowhere.cancelled), (1, 1))
        self.assertFalse(peer.worth_trying)

    def test_given_up_twice(self) -> None:
        self.listen()
        peer = self.peers.at(URL)
        give_up = peer.connect(self.tell)
        give_up()
        give_up()
        self.network.settle()
        self.assertEqual((self.told, peer.alive), (0, True))

    def test_crowd_dials_once(self) -> None:
        self.listen()
        peer = self.peers.at(URL)
        for _ in range(10):
            peer.connect(self.tell)
        self.network.settle()
        self.assertEqual((self.told, len(self.network.pipes)), (10, 1))

    def test_prepare(self) -> None:
        """For those who come later: one attempt, and nothing for each who asks."""
        nowhere = _Nowhere()
        self.endpoint = lambda url: nowhere
        peer = self.peers.at(URL)
        for _ in range(10):
            peer.prepare()
        self.assertEqual(peer._waiting, {})
        self.later(DIAL_TIMEOUT)
        peer.prepare()
        self.assertEqual((nowhere.cancelled, self.peers.failures), (1, 1))
        self.endpoint = self.network.door
        self.listen()
        self.later(RETRY_MOST)
        peer.prepare()
        self.network.settle()
        self.assertTrue(peer.alive)
        peer.prepare()
        self.network.settle()
        self.assertEqual(len(self.network.pipes), 1)

    def test_one_of_the_crowd_fails(self) -> None:
        """Neither the others nor the session notice."""
        self.listen()
        peer = self.peers.at(URL)

        def fail() -> None:
            raise ZeroDivisionError

        peer.connect(fail)
        self.connect()
        self.assertEqual((self.told, peer.alive), (1, True))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_refused(self) -> None:
        self.token = PeerToken(b"guess", b"proof")
        self.listen()
        peer = self.connect()
        self.later(1)
        self.assertEqual((self.told, peer.alive), (1, False))
        self.assertEqual(len(self.gateway.tunnels), 0)

    def test_no_proof(self) -> None:
        """A kas that has not proved that it has the secret gets no stream."""
        self.listen()
        for proof in (b"", b"another", b"proof"):
            answer = PeerToken(b"secret", proof)
            self.gateway.verify = partial(lambda answer, token: answer, answer)
            peer = self.connect()
            self.later(1)
            self.assertEqual(peer.alive, proof == b"proof")
            self.assertEqual(len(self.gateway.tunnels), int(peer.alive))
            self.assertEqual("did not prove" in peer.problem, not peer.alive)
            self.clock.advance(RETRY_MOST)

    def test_silence(self) -> None:
        """A peer that stopped is known before its clients lose patience."""
        self.listen()
        peer = self.connect()
        for _, pipe in self.network.pipes:
            pipe.cut = True
        self.later(PEER_TIMING.dead_after + SWEEP)
        self.assertFalse(peer.alive)

    def test_goes_away(self) -> None:
        """What runs goes on; what is new needs a new session."""
        self.listen()
        peer = self.connect()
        (there,) = self.gateway.tunnels
        there.go_away(pb.GoAway(code=ErrorCode.SHUTDOWN, message="kas stops"))
        self.network.settle()
        self.assertEqual((peer.alive, peer.worth_trying), (False, True))
        self.connect()
        self.assertTrue(peer.alive)
        there.end(ErrorCode.SHUTDOWN, "the previous token")
        self.network.settle()
        self.assertTrue(peer.alive)

    def test_who_wants_something_dials(self) -> None:
        self.listen()
        self.connect()
        (there,) = self.gateway.tunnels
        receiver = RecordingReceiver()
        there.open_stream(pb.Open(method="/test"), receiver)
        self.network.settle()
        (reason,) = receiver.closed
        assert isinstance(reason, StreamReset)
        self.assertEqual(reason.code, ErrorCode.UNKNOWN_METHOD)

    def test_they_are_bounded(self) -> None:
        """The idle ones go first."""
        self.patch(module, "MAX_PEERS", 2)
        self.listen()
        peer = self.connect()
        for number in range(5):
            self.peers.at(f"tcp://nobody-{number}")
        self.assertEqual(len(self.peers._peers), 2)
        self.assertIs(self.peers.at(URL), peer)
        self.patch(module, "MAX_PEERS", 1)
        self.peers._forget_one()
        self.peers.at("tcp://another")
        self.network.settle()
        self.assertFalse(peer.alive)

    def test_stop(self) -> None:
        self.listen()
        peer = self.connect()
        nowhere = _Nowhere()
        self.endpoint = lambda url: nowhere
        self.connect("tcp://nowhere")
        self.endpoint = self.network.door
        self.network.listeners["tcp://slow"] = self.network.listeners[URL]
        self.peers.at("tcp://slow").connect(self.tell)
        self.peers.stop()
        self.network.settle()
        self.later(20)
        self.assertEqual((self.told, nowhere.cancelled), (1, 1))
        self.assertFalse(peer.alive)
        self.assertEqual(len(self.gateway.tunnels), 0)
