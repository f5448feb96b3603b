"""Without the store: kas that are asked themselves, and how long they are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from kas.directory import known_kas as peers
from kas.directory.cache import LOOK_INTERVAL, REACHED_INTERVAL
from kas.directory.directory import SWEEP_INTERVAL
from kas.directory.known_kas import (
    LAPSED_SECONDS,
    LEASE_GRACE,
    PEER_SECONDS,
    KnownPeers,
)
from kas.directory.records import AgentRecord, KasRecord
from tests.kas.directory.memory import kas, record
from tests.kas.directory.several import POLL, Fleet, now, passes
from tunnel.errors import CallError, Status

ME, TWO, THREE = kas(1), kas(2), kas(3)


class DownTests(SynchronousTestCase):
    """The store does not answer."""

    def setUp(self) -> None:
        self.fleet = Fleet()
        self.one, self.two = self.fleet.all
        self.clock = self.fleet.clock

    def test_what_is_known_goes_on(self) -> None:
        self.two.connected(record())
        self.one.routes("agent")
        self.fleet.hub.fail()
        for _ in range(10):
            self.assertEqual(list(self.one.routes("agent")), [record()])
            passes(self.clock, 60)

    def test_the_peers_are_asked_once_per_interval(self) -> None:
        self.fleet.hub.fail()
        self.fleet.held["agent"] = [record()]
        for _ in range(100):
            self.one.routes("agent")
        self.assertEqual(self.fleet.asked, ["agent"])
        self.assertEqual(list(self.one.routes("agent")), [record()])

    def test_peers_are_seldom_asked_for_agents_that_are_reached(self) -> None:
        """Thousands of busy agents would keep all kas busy with each other."""
        self.one.connected(record("here", at=1))
        self.two.connected(record())
        self.one.routes("agent")
        passes(self.clock, 100)
        self.fleet.hub.fail()
        for _ in range(100):
            self.one.routes("agent")
            self.one.routes("here")
            passes(self.clock, LOOK_INTERVAL)
        asked = [self.fleet.asked.count(one) for one in ("agent", "here")]
        self.assertEqual(asked, [99 // REACHED_INTERVAL] * 2)
        self.one.disconnected(record("here", at=1))
        self.fleet.asked.clear()
        for _ in range(10):
            self.one.routes("here")
            passes(self.clock, LOOK_INTERVAL)
        self.assertEqual(len(self.fleet.asked), 10)

    def test_peers_are_asked_at_once_where_somebody_waits(self) -> None:
        """What is believed may be half dead: the agent moved, and nobody says so."""
        self.one.seen(kas(3))
        self.two.connected(record())
        self.one.routes("agent")
        self.fleet.hub.fail()
        self.fleet.held["agent"] = [record(generation=2, at=3)]
        told: list[bool] = []
        self.one.wait("agent", lambda: told.append(True))
        passes(self.clock, POLL)
        self.assertEqual(told, [True])

    def test_who_waits_is_told_what_the_peers_say(self) -> None:
        self.fleet.hub.fail()
        told: list[bool] = []
        self.one.wait("agent", lambda: told.append(True))
        passes(self.clock, POLL)
        self.assertEqual(told, [])
        self.fleet.held["agent"] = [record()]
        passes(self.clock, POLL)
        self.assertEqual(told, [True])
        asked = len(self.fleet.asked)
        passes(self.clock, 10 * POLL)
        self.assertEqual(len(self.fleet.asked), asked)

    def test_peers_that_fail_are_not_the_end(self) -> None:
        self.fleet.hub.fail()
        self.fleet.broken = CallError(Status.UNAVAILABLE, "no")
        self.assertEqual(list(self.one.routes("agent")), [])
        with self.assertRaises(CallError):
            now(self.one.agents(agent_id="agent"))

    def test_listings(self) -> None:
        ours, theirs = record("a", at=1, project_id=7), record("a", 2, project_id=7)
        self.one.connected(ours)
        self.two.connected(theirs)
        self.assertEqual(now(self.one.agents(agent_id="a")), [ours, theirs])
        self.assertEqual(now(self.one.agents(project_id=7)), [ours, theirs])
        self.assertEqual(now(self.one.agents()), [ours, theirs])
        self.fleet.hub.fail()
        self.fleet.held["a"] = [theirs]
        self.assertEqual(now(self.one.agents(agent_id="a")), [ours, theirs])
        for wanted in ({"project_id": 7}, {}):
            with self.assertRaises(CallError) as caught:
                now(self.one.agents(**wanted))  # type: ignore[arg-type]
            self.assertEqual(caught.exception.status, Status.UNAVAILABLE)

    def test_peers_are_remembered_for_a_while(self) -> None:
        self.fleet.hub.fail()
        passes(self.clock, PEER_SECONDS / 2, 30)
        self.assertEqual(list(self.one.peers()), [kas(2)])
        self.one.seen(kas(2))
        passes(self.clock, PEER_SECONDS - SWEEP_INTERVAL, 30)
        self.assertEqual(list(self.one.peers()), [kas(2)])
        passes(self.clock, 2 * SWEEP_INTERVAL, 30)
        self.assertEqual(list(self.one.peers()), [])


class PeerTests(SynchronousTestCase):
    """The other kas."""

    def setUp(self) -> None:
        self.fleet = Fleet()
        self.one, self.two = self.fleet.all

    def test_a_lease_that_ends(self) -> None:
        self.two.connected(record())
        self.one.routes("agent")
        clock = self.fleet.clock
        self.one.leases([])
        clock.advance(LEASE_GRACE - 1)
        # It may only be that somebody flushed the store.
        self.assertEqual(list(self.one.routes("agent")), [record()])
        clock.advance(1)
        self.one.leases([])
        self.assertEqual(list(self.one.routes("agent")), [])
        self.assertEqual(list(self.one.peers()), [kas(2)])
        clock.advance(LAPSED_SECONDS)
        self.one.leases([])
        self.assertEqual(list(self.one.peers()), [])
        # What it had does not come back with the memory of it.
        self.assertEqual(list(self.one.routes("agent")), [])

    def test_news_are_a_sign_of_life(self) -> None:
        self.two.connected(record())
        self.one.routes("agent")
        self.one.leases([])
        self.fleet.clock.advance(LEASE_GRACE)
        self.assertEqual(list(self.one.routes("agent")), [])
        self.two.connected(record("other"))
        self.assertEqual(list(self.one.routes("agent")), [record()])
        stranger = record(at=9)
        self.one.events([stranger], [])
        self.assertIn(
            KasRecord(stranger.kas_id, stranger.kas_url), list(self.one.peers())
        )

    def test_they_are_bounded(self) -> None:
        self.patch(peers, "MAX_PEERS", 5)
        for number in range(3, 20):
            self.fleet.clock.advance(1)
            self.one.seen(kas(number))
        self.assertEqual(list(self.one.peers()), [kas(one) for one in range(15, 20)])

    def test_our_own_record(self) -> None:
        draining = KasRecord(kas(1).kas_id, kas(1).url, agents=3, draining=True)
        self.one.update(draining)
        self.assertEqual(self.fleet.stores[0].me, draining)
        self.assertEqual(self.one.me, draining)


class CutOffTests(SynchronousTestCase):
    """A kas that lost its way to the store, and can still be asked itself."""

    def setUp(self) -> None:
        self.fleet = Fleet(3)
        self.one, self.two, self.three = self.fleet.all
        self.clock, self.hub = self.fleet.clock, self.fleet.hub
        self.held = record(at=2)

    def cut_off(self) -> None:
        """The second, which is reached directly; what it has it says itself."""
        self.hub.cut_off(self.fleet.stores[1])
        self.fleet.held["agent"] = [self.held]

    def up(self) -> None:
        """Everybody who dialled it has a session now."""
        self.fleet.sessions.append(kas(2))
        dialling, self.fleet.dialling = self.fleet.dialling, []
        for told in dialling:
            told()

    def routes(self) -> list[AgentRecord]:
        return list(self.one.routes("agent"))

    def test_what_is_known_goes_on(self) -> None:
        """For as long as its session answers, and without being asked for it."""
        self.two.connected(self.held)
        self.routes()
        self.cut_off()
        self.up()
        for _ in range(10):
            passes(self.clock, LEASE_GRACE)
            self.hub.tell_leases()
            self.assertEqual(self.routes(), [self.held])
        self.assertEqual(self.fleet.asked, [])
        self.one.look_again("agent")
        passes(self.clock, POLL)
        self.assertEqual(self.routes(), [self.held])

    def test_it_is_asked_for_what_nobody_knows(self) -> None:
        self.cut_off()
        self.up()
        for _ in range(100):
            self.routes()
        self.assertEqual(self.routes(), [self.held])
        self.assertEqual(self.fleet.asked, ["agent"])
        self.assertEqual(now(self.one.agents(agent_id="agent")), [self.held])

    def test_who_waits_is_told_once_it_is_reached(self) -> None:
        self.cut_off()
        told: list[bool] = []
        self.routes()
        self.one.wait("agent", lambda: told.append(True))
        passes(self.clock, 3 * POLL)
        self.assertEqual((told, self.fleet.asked), ([], []))
        self.up()
        passes(self.clock, POLL)
        self.assertEqual(told, [True])

    def test_who_waits_is_told_of_what_is_believed_again(self) -> None:
        self.two.connected(self.held)
        self.routes()
        self.cut_off()
        passes(self.clock, LEASE_GRACE)
        self.assertEqual(self.routes(), [])
        told: list[bool] = []
        self.one.wait("agent", lambda: told.append(True))
        self.up()
        self.assertEqual(told, [True])
        self.assertEqual(self.routes(), [self.held])

    def test_an_agent_that_connects_there_meanwhile(self) -> None:
        self.cut_off()
        self.up()
        self.fleet.held.clear()
        told: list[bool] = []
        self.routes()
        self.one.wait("agent", lambda: told.append(True))
        passes(self.clock, 3 * POLL)
        self.fleet.held["agent"] = [self.held]
        passes(self.clock, POLL)
        self.assertEqual(told, [True])
        asked = len(self.fleet.asked)
        passes(self.clock, 10 * POLL)
        self.assertEqual(len(self.fleet.asked), asked)

    def test_it_is_not_asked_for_agents_that_are_here(self) -> None:
        """Thousands that are busy would keep it busy, too."""
        self.one.connected(record(at=1, instance=2))
        self.cut_off()
        self.up()
        for _ in range(100):
            self.routes()
            passes(self.clock, LOOK_INTERVAL)
        self.assertEqual(self.fleet.asked, [])
        self.assertLessEqual(len(self.hub.finds), 5)

    def test_a_newer_connection_wins(self) -> None:
        self.cut_off()
        self.up()
        self.routes()
        moved = record(at=3, generation=2)
        self.three.connected(moved)
        self.assertEqual(self.routes(), [moved])
        self.one.look_again("agent")
        passes(self.clock, POLL)
        self.assertEqual(self.routes(), [moved])

    def test_it_comes_back(self) -> None:
        self.two.connected(self.held)
        self.routes()
        self.cut_off()
        self.up()
        self.assertEqual(list(self.one.living()), [kas(3)])
        self.hub.let_in(self.fleet.stores[1])
        self.assertEqual(len(self.one.living()), 2)
        self.assertEqual(self.routes(), [self.held])
        self.assertEqual(self.fleet.asked, [])

    def test_what_it_lost_meanwhile(self) -> None:
        """Nobody said so, so it is looked up once all is written again."""
        self.two.connected(self.held)
        other = record(at=2, instance=2)
        self.two.connected(other)
        self.routes()
        self.cut_off()
        self.up()
        self.two.disconnected(other)
        self.hub.let_in(self.fleet.stores[1])
        # It writes much: what is not there yet may still come.
        self.hub.records.clear()
        self.one.look_again("agent")
        passes(self.clock, POLL)
        self.assertEqual(len(self.routes()), 2)
        self.fleet.stores[1].put(self.held)
        passes(self.clock, LEASE_GRACE)
        self.hub.tell_leases()
        self.routes()
        self.assertEqual(self.routes(), [self.held])

    def test_a_dead_one_is_dialled_for_a_while(self) -> None:
        self.two.connected(self.held)
        self.routes()
        self.hub.cut_off(self.fleet.stores[1])
        for _ in range(60):
            passes(self.clock, 10.0, 10.0)
            self.hub.tell_leases()
            self.routes()
        dialled = self.fleet.dialled.count(kas(2))
        self.assertLessEqual(dialled, 2 * (LAPSED_SECONDS / 10 + 1))
        self.assertGreater(dialled, LAPSED_SECONDS / 10)
        self.assertEqual(list(self.one.peers()), [kas(3)])
        self.assertEqual(self.fleet.asked, [])

    def test_goodbye(self) -> None:
        self.two.connected(self.held)
        self.routes()
        now(self.two.stop())
        self.hub.tell_leases()
        self.assertEqual(list(self.one.peers()), [kas(3)])
        self.assertEqual((self.routes(), self.fleet.dialled), ([], []))

    def test_its_address_is_anothers(self) -> None:
        """It started anew: the earlier process is dead, though its address answers."""
        self.two.connected(self.held)
        self.routes()
        self.cut_off()
        self.up()
        again = KasRecord(b"again" * 4, kas(2).url)
        self.one.leases([again, kas(3)])
        self.assertEqual(list(self.one.peers()), [kas(3), again])
        self.assertEqual(self.routes(), [])

    def test_our_own_address_is_not_dialled(self) -> None:
        self.one.seen(KasRecord(b"before", kas(1).url))
        self.hub.tell_leases()
        self.assertEqual((len(self.one.peers()), self.fleet.dialled), (2, []))

    def test_nothing_is_asked_while_all_have_their_leases(self) -> None:
        self.fleet.sessions.append(kas(2))
        self.routes()
        self.one.wait("agent", lambda: None)
        passes(self.clock, 100)
        self.hub.tell_leases()
        self.assertEqual((self.fleet.asked, self.fleet.dialled), ([], []))
        self.assertLessEqual(len(self.hub.finds), 4)


@attrs.define(eq=False)
class Sessions:
    """Which kas answer when they are asked directly."""

    answering: set[bytes] = attrs.Factory(set)
    dialled: list[tuple[KasRecord, Callable[[], None]]] = attrs.Factory(list)

    def answers(self, kas: KasRecord) -> bool:
        return kas.kas_id in self.answering

    def dial(self, kas: KasRecord, callback: Callable[[], None]) -> None:
        self.dialled.append((kas, callback))

    async def ask(self, agent_id: str, peers: Sequence[KasRecord]) -> list[AgentRecord]:
        raise AssertionError("only the directory asks")


class KnownPeersTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        # Zero would not show which way times are compared.
        self.clock.advance(10 * PEER_SECONDS)
        self.sessions = Sessions()
        self.gone: list[bytes] = []
        self.told: list[str] = []
        self.peers = KnownPeers(
            ME,
            self.clock,
            self.sessions,
            lambda: self.told.append("reached"),
            self.gone.append,
            lambda: self.told.append("settled"),
        )
        self.observer = EventLoggingObserver()
        globalLogPublisher.addObserver(self.observer)
        self.addCleanup(globalLogPublisher.removeObserver, self.observer)

    def warnings(self) -> int:
        return sum("has our address" in one["log_format"] for one in self.observer)

    def test_lease_over(self) -> None:
        """Believed for the grace, and incomplete from the first moment."""
        self.peers.leases([TWO, THREE])
        self.assertFalse(self.peers.is_incomplete(TWO.kas_id))
        self.peers.leases([THREE])
        self.assertEqual(self.peers.living(), [THREE])
        self.assertEqual(self.peers.all(), [TWO, THREE])
        self.assertTrue(self.peers.is_incomplete(TWO.kas_id))
        self.clock.advance(LEASE_GRACE - 0.1)
        self.assertTrue(self.peers.is_believed(TWO.kas_id))
        self.clock.advance(0.1)
        self.assertFalse(self.peers.is_believed(TWO.kas_id))
        self.assertTrue(self.peers.is_believed(THREE.kas_id))
        self.sessions.answering.add(TWO.kas_id)
        self.assertTrue(self.peers.is_believed(TWO.kas_id))
        self.assertEqual(self.peers.answering(), [TWO])

    def test_nobody_is_asked_while_all_have_leases(self) -> None:
        self.peers.leases([TWO])
        self.sessions.answering.add(TWO.kas_id)
        self.assertEqual(self.peers.answering(), [])
        self.assertEqual(self.sessions.dialled, [])

    def test_returned(self) -> None:
        """One with a lease again has written all that it has only after the grace."""
        self.peers.leases([TWO])
        self.peers.leases([])
        self.peers.wrote(TWO.kas_id, TWO.url)
        self.assertEqual(self.peers.living(), [TWO])
        self.assertTrue(self.peers.is_incomplete(TWO.kas_id))
        self.clock.advance(LEASE_GRACE - 0.1)
        self.peers.leases([TWO])
        self.assertEqual(self.told, [])
        self.clock.advance(0.1)
        self.peers.leases([TWO])
        self.assertEqual(self.told, ["settled"])
        self.assertFalse(self.peers.is_incomplete(TWO.kas_id))

    def test_returned_and_gone_again(self) -> None:
        """What it had to write it has still to write."""
        self.peers.leases([TWO])
        self.peers.leases([])
        self.peers.leases([TWO])
        self.peers.leases([])
        self.clock.advance(LEASE_GRACE)
        self.sessions.answering.add(TWO.kas_id)
        self.peers.leases([])
        self.assertEqual(self.told, [])
        self.assertTrue(self.peers.is_incomplete(TWO.kas_id))

    def test_returned_and_left(self) -> None:
        """Nothing is to be awaited of one that said goodbye."""
        self.peers.leases([TWO])
        self.peers.leases([])
        self.peers.leases([TWO])
        self.peers.left(TWO.kas_id)
        self.assertFalse(self.peers.is_incomplete(TWO.kas_id))
        self.clock.advance(LEASE_GRACE)
        self.peers.leases([])
        self.assertEqual(self.told, [])

    def test_wrote(self) -> None:
        """Writing is a sign of life, of one that was not known, too."""
        self.peers.wrote(TWO.kas_id, TWO.url)
        self.assertEqual([one.url for one in self.peers.all()], [TWO.url])
        self.clock.advance(PEER_SECONDS - 1)
        self.peers.wrote(TWO.kas_id, TWO.url)
        self.clock.advance(PEER_SECONDS - 1)
        self.peers.sweep()
        self.assertEqual(self.gone, [])
        self.clock.advance(1)
        self.peers.sweep()
        self.assertEqual(self.gone, [TWO.kas_id])
        self.assertEqual(self.peers.all(), [])

    def test_pursued(self) -> None:
        """One without a lease is dialled; that it answers is told, and keeps it."""
        self.peers.leases([TWO])
        self.clock.advance(LAPSED_SECONDS - 1)
        self.peers.leases([])
        ((dialled, done),) = self.sessions.dialled
        self.assertEqual(dialled, TWO)
        done()
        self.assertEqual(self.told, [])
        self.sessions.answering.add(TWO.kas_id)
        done()
        self.assertEqual(self.told, ["reached"])
        self.clock.advance(LAPSED_SECONDS - 1)
        self.sessions.answering.clear()
        self.peers.leases([])
        self.assertEqual(self.gone, [])
        self.clock.advance(1)
        self.peers.leases([])
        self.assertEqual(self.gone, [TWO.kas_id])

    def test_restarted(self) -> None:
        """A kas with a lease at the address of one without has taken its place."""
        self.peers.leases([TWO])
        again = attrs.evolve(TWO, kas_id=b"n" * 16)
        self.peers.leases([again])
        self.assertEqual(self.gone, [TWO.kas_id])
        self.assertEqual(self.peers.all(), [again])

    def test_ourselves_before_the_restart(self) -> None:
        """Nobody dials the address that is ours."""
        before = attrs.evolve(ME, kas_id=b"o" * 16)
        self.peers.leases([before])
        self.peers.leases([])
        self.assertEqual((self.gone, self.sessions.dialled), ([before.kas_id], []))

    def test_namesake(self) -> None:
        """Another kas at our address is said once, when it is none that died."""
        other = attrs.evolve(ME, kas_id=b"o" * 16)
        for _ in range(2):
            self.peers.lease(other)
            self.peers.lease(ME)
            self.peers.lease(TWO)
            self.clock.advance(LEASE_GRACE - 0.1)
            self.peers.lease(other)
            self.assertEqual(self.warnings(), 0)
            self.clock.advance(0.1)
        self.peers.lease(other)
        self.assertEqual(self.warnings(), 1)
        self.clock.advance(10 * LEASE_GRACE)
        self.peers.lease(other)
        self.peers.lease(TWO)
        self.peers.lease(ME)
        self.assertEqual(self.warnings(), 1)
        self.assertNotIn(ME, self.peers.all())

    def test_bounds(self) -> None:
        """The one that was silent for longest goes, and that is not its end."""
        self.patch(peers, "MAX_PEERS", 2)
        for one in (TWO, THREE):
            self.peers.seen(one)
            self.clock.advance(1)
        self.peers.heard(TWO.kas_id)
        self.peers.seen(kas(4))
        self.assertEqual(self.peers.all(), [TWO, kas(4)])
        self.assertEqual(self.gone, [])
        # Those at our address: beyond the bound they are counted from now on again.
        for letter in (b"a", b"b", b"c"):
            self.peers.lease(attrs.evolve(ME, kas_id=letter * 16))
        self.clock.advance(2 * LEASE_GRACE)
        self.peers.lease(attrs.evolve(ME, kas_id=b"a" * 16))
        self.assertEqual(self.warnings(), 0)
        self.peers.lease(attrs.evolve(ME, kas_id=b"c" * 16))
        self.assertEqual(self.warnings(), 1)

    def test_left(self) -> None:
        self.peers.left(TWO.kas_id)
        self.assertEqual(self.gone, [])
        self.peers.leases([TWO])
        self.peers.left(TWO.kas_id)
        self.assertEqual(self.gone, [TWO.kas_id])
