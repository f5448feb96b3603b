"""The directory of one kas among several: what it answers, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.directory import Directory, peers, shared
from kas.directory.answers import MAX_GONE, MAX_INSTANCES, Answer
from kas.directory.lookups import LOOK_INTERVAL, MAX_LOOKUPS
from kas.directory.peers import LAPSED_SECONDS, LEASE_GRACE, PEER_SECONDS
from kas.directory.records import AgentRecord, KasRecord
from kas.directory.shared import (
    ABSENT_INTERVAL,
    REACHED_INTERVAL,
    SWEEP_INTERVAL,
    UNUSED_SECONDS,
    SharedDirectory,
)
from tests.kas.directory.memory import Hub, MemoryStore, kas, record
from tunnel.errors import CallError, Status

_POLL = LOOK_INTERVAL * 1.2


class Fleet:
    """Some kas with one hub between them."""

    def __init__(self, size: int = 2) -> None:
        self.clock = Clock()
        self.hub = Hub()
        #: What peers hold, and answer when they are asked directly.
        self.held: dict[str, list[AgentRecord]] = {}
        self.asked: list[str] = []
        #: Whom a session exists to, and who was dialled.
        self.sessions: list[KasRecord] = []
        self.dialled: list[KasRecord] = []
        self.dialling: list[Callable[[], None]] = []
        self.broken: Exception | None = None
        self.superseded: list[AgentRecord] = []
        self.stores = [MemoryStore(self.hub, kas(one + 1)) for one in range(size)]
        self.all = [
            SharedDirectory(
                store.me,
                store,
                self.clock,
                lambda: 0.5,
                sessions=self,
                on_superseded=self.superseded.append,
            )
            for store in self.stores
        ]
        for one in self.all:
            now(one.start())

    # kas.directory.peers.Sessions

    def answers(self, kas: KasRecord) -> bool:
        return kas in self.sessions

    def dial(self, kas: KasRecord, told: Callable[[], None]) -> None:
        self.dialled.append(kas)
        self.dialling.append(told)

    async def ask(self, agent_id: str, peers: Sequence[KasRecord]) -> list[AgentRecord]:
        if self.broken is not None:
            raise self.broken
        self.asked.append(agent_id)
        ids = {peer.kas_id for peer in peers}
        return [one for one in self.held.get(agent_id, []) if one.kas_id in ids]


def now(coroutine: object) -> object:
    """The result of what does not wait."""
    got: list[object] = []
    Deferred.fromCoroutine(coroutine).addBoth(got.append)  # type: ignore[arg-type]
    assert got, "it waits"
    if hasattr(got[0], "raiseException"):
        got[0].raiseException()
    return got[0]


def passes(clock: Clock, seconds: float, step: float = 0.5) -> None:
    """Time, in steps, so that one timer can start another."""
    while seconds > 0:
        clock.advance(min(step, seconds))
        seconds -= step


class AloneTests(SynchronousTestCase):
    """Without a store: one kas."""

    def test_it_is_all_there_is(self) -> None:
        clock = Clock()
        directory = SharedDirectory(kas(1), None, clock, lambda: 0.5)
        checked: Directory = directory
        now(checked.start())
        one, other = record("a", at=1, project_id=7), record("b", at=1)
        directory.connected(one)
        directory.connected(other)
        self.assertEqual(list(directory.routes("a")), [])
        directory.look_again("a")
        directory.watch("a", lambda: self.fail("nobody comes"))()
        self.assertEqual(list(directory.peers()), [])
        self.assertEqual(now(directory.agents()), [one, other])
        self.assertEqual(now(directory.agents(agent_id="b")), [other])
        self.assertEqual(now(directory.agents(project_id=7)), [one])
        directory.disconnected(one)
        self.assertEqual(now(directory.agents()), [other])
        self.assertEqual(clock.getDelayedCalls(), [])
        now(directory.stop())

    def test_a_late_end_does_not_remove_what_is_newer(self) -> None:
        directory = SharedDirectory(kas(1), None, Clock(), lambda: 0.5)
        older, newer = record(generation=1, at=1), record(generation=2, at=1)
        directory.connected(older)
        directory.connected(newer)
        directory.disconnected(older)
        self.assertEqual(now(directory.agents()), [newer])


class RoutesTests(SynchronousTestCase):
    """Where an agent is."""

    def setUp(self) -> None:
        self.fleet = Fleet(3)
        self.one, self.two, self.three = self.fleet.all
        self.hub, self.clock = self.fleet.hub, self.fleet.clock

    def routes(self, agent_id: str = "agent") -> Sequence[AgentRecord]:
        return list(self.one.routes(agent_id))

    def test_found_by_one_look_up_and_kept(self) -> None:
        there = record(at=2)
        self.two.connected(there)
        self.assertEqual(self.routes(), [])
        for _ in range(100):
            self.assertEqual(self.routes(), [there])
            self.clock.advance(ABSENT_INTERVAL)
        self.assertEqual(self.hub.finds, ["agent"])

    def test_news_change_the_answer_without_a_look_up(self) -> None:
        self.routes()
        there = record(at=2)
        self.two.connected(there)
        self.assertEqual(self.routes(), [there])
        moved = record(at=3, generation=2)
        self.three.connected(moved)
        self.assertEqual(self.routes(), [moved])
        self.two.disconnected(there)
        self.assertEqual(self.routes(), [moved])
        self.three.disconnected(moved)
        self.assertEqual(self.routes(), [])
        self.assertEqual(self.hub.finds, ["agent"])

    def test_news_of_others_agents_are_not_kept(self) -> None:
        for number in range(100):
            self.two.connected(record(f"agent-{number}"))
        self.assertEqual(self.one.answers, 0)

    def test_a_crowd_costs_one_look_up(self) -> None:
        for _ in range(2000):
            self.routes("absent")
            self.one.look_again("absent")
        self.assertEqual(len(self.hub.finds), 1)
        self.clock.advance(LOOK_INTERVAL)
        self.assertEqual(len(self.hub.finds), 2)
        passes(self.clock, LOOK_INTERVAL * 10)
        self.assertEqual(len(self.hub.finds), 2)

    def test_absence_is_remembered(self) -> None:
        for _ in range(100):
            self.routes("absent")
            self.clock.advance(ABSENT_INTERVAL / 50)
        self.assertEqual(len(self.hub.finds), 2)

    def test_a_crowd_waits_for_the_same_look_up(self) -> None:
        self.hub.held = []
        for _ in range(10):
            self.routes()
            self.clock.advance(LOOK_INTERVAL)
        self.assertEqual(len(self.hub.finds), 1)
        self.hub.release()

    def test_a_wrong_answer_is_forgotten_and_looked_up(self) -> None:
        there = record(at=2)
        self.two.connected(there)
        self.routes()
        self.one.look_again("agent", there)
        self.assertEqual(self.routes(), [])
        told: list[bool] = []
        self.one.watch("agent", lambda: told.append(True))
        self.clock.advance(LOOK_INTERVAL)
        self.assertEqual(told, [True])
        self.assertEqual(self.routes(), [there])

    def test_a_wrong_answer_that_is_newer_by_now_stays(self) -> None:
        there = record(at=2)
        self.two.connected(there)
        self.routes()
        newer = record(at=3, generation=2)
        self.three.connected(newer)
        self.one.look_again("agent", there)
        self.assertEqual(self.routes(), [newer])

    def test_look_again_during_a_look_up_means_one_more(self) -> None:
        self.hub.held = []
        self.routes()
        self.one.look_again("agent")
        self.assertEqual(len(self.hub.finds), 1)
        self.hub.release()
        self.clock.advance(LOOK_INTERVAL)
        self.assertEqual(len(self.hub.finds), 2)

    def test_news_during_a_look_up_win(self) -> None:
        there = record(at=2)
        self.two.connected(there)
        self.hub.held = []
        self.routes()
        moved = record(at=3, generation=2)
        other = record(at=3, instance=2)
        self.three.connected(moved)
        self.three.connected(other)
        self.hub.release()
        self.assertEqual(self.routes(), [moved, other])

    def test_what_a_look_up_does_not_find_is_gone(self) -> None:
        there = record(at=2)
        self.two.connected(there)
        self.routes()
        self.hub.records.clear()
        self.clock.advance(LOOK_INTERVAL)
        self.one.look_again("agent")
        self.assertEqual(self.routes(), [])

    def test_our_own_are_no_routes(self) -> None:
        self.one.connected(record(at=1))
        self.two.connected(record(at=2, instance=2))
        self.routes()
        self.assertEqual(self.routes(), [record(at=2, instance=2)])

    def test_what_is_older_than_ours_is_no_route(self) -> None:
        self.two.connected(record(at=2))
        self.routes()
        self.one.connected(record(at=1, generation=2))
        self.assertEqual(self.routes(), [])

    def test_who_was_at_our_address_is_no_route(self) -> None:
        here = kas(1)
        before = record(at=9)
        before = AgentRecord(before.agent, before.kas_id, here.url)
        self.hub.records["agent", b"x", before.kas_id] = before
        self.routes()
        self.assertEqual(self.routes(), [])
        self.one.lease(KasRecord(before.kas_id, here.url))

    def test_a_gap_makes_answers_old_but_they_are_given(self) -> None:
        there = record(at=2)
        self.two.connected(there)
        self.routes()
        self.one.listening(False)
        self.assertEqual(self.routes(), [there])
        self.clock.advance(LOOK_INTERVAL)
        self.one.listening(True)
        del self.hub.finds[:]
        self.assertEqual(self.routes(), [there])
        self.clock.advance(LOOK_INTERVAL)
        self.assertEqual(self.routes(), [there])
        self.assertEqual(len(self.hub.finds), 1)

    def test_an_answer_that_began_before_a_gap_is_old(self) -> None:
        self.hub.held = []
        self.routes()
        self.one.listening(True)
        self.hub.release()
        self.clock.advance(LOOK_INTERVAL)
        self.routes()
        self.assertEqual(len(self.hub.finds), 2)

    def test_without_news_look_ups_are_more_frequent(self) -> None:
        self.one.listening(False)
        for _ in range(10):
            self.routes("absent")
            self.clock.advance(LOOK_INTERVAL)
        self.assertEqual(len(self.hub.finds), 10)

    def test_unused_answers_are_dropped(self) -> None:
        self.routes()
        self.routes("waited for")
        self.one.watch("waited for", lambda: None)
        passes(self.clock, UNUSED_SECONDS, 20)
        self.routes("used")
        passes(self.clock, 2 * SWEEP_INTERVAL, 20)
        self.assertEqual(self.one.answers, 2)

    def test_the_table_is_bounded(self) -> None:
        self.patch(shared, "MAX_ANSWERS", 3)
        for number in range(5):
            self.routes(f"agent-{number}")
            self.routes("agent-0")
        self.assertEqual(self.one.answers, 3)
        self.assertEqual(len(self.hub.finds), 5)

    def test_look_ups_at_the_same_time_are_bounded(self) -> None:
        self.hub.held = []
        for number in range(MAX_LOOKUPS + 10):
            self.routes(f"agent-{number}")
        self.assertEqual(len(self.hub.finds), MAX_LOOKUPS)
        self.hub.release()
        self.assertEqual(len(self.hub.finds), MAX_LOOKUPS + 10)

    def test_an_error_in_a_look_up_is_logged_and_not_the_end(self) -> None:
        async def broken(agent_id: str) -> list[AgentRecord]:
            raise ZeroDivisionError

        self.patch(MemoryStore, "find", lambda self, agent_id: broken(agent_id))
        self.routes()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class WatchTests(SynchronousTestCase):
    """Who waits is told."""

    def setUp(self) -> None:
        self.fleet = Fleet()
        self.one, self.two = self.fleet.all
        self.told: list[str] = []

    def watch(self, name: str = "x") -> object:
        return self.one.watch("agent", lambda: self.told.append(name))

    def test_told_once_by_news(self) -> None:
        self.one.routes("agent")
        self.watch("a")
        give_up = self.one.watch("agent", lambda: self.told.append("b"))
        self.watch("c")
        give_up()
        self.two.connected(record("other"))
        self.assertEqual(self.told, [])
        self.two.connected(record())
        self.assertEqual(self.told, ["a", "c"])
        self.two.connected(record(generation=2))
        self.assertEqual(self.told, ["a", "c"])
        give_up()

    def test_told_when_nobody_asked_before(self) -> None:
        self.watch()
        self.two.connected(record())
        self.assertEqual(self.told, ["x"])
        self.assertEqual(list(self.one.routes("agent")), [record()])

    def test_told_by_a_look_up(self) -> None:
        self.two.connected(record())
        self.fleet.hub.held = []
        self.one.routes("agent")
        self.watch()
        self.fleet.hub.release()
        self.assertEqual(self.told, ["x"])

    def test_one_that_fails_does_not_harm_the_others(self) -> None:
        self.one.watch("agent", lambda: 1 / 0)  # type: ignore[arg-type]
        self.watch()
        self.two.connected(record())
        self.assertEqual(self.told, ["x"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_what_was_missed_is_found_after_the_gap(self) -> None:
        self.one.routes("agent")
        self.watch()
        self.one.listening(False)
        self.fleet.hub.records["agent", b"i", kas(2).kas_id] = record()
        self.fleet.clock.advance(LOOK_INTERVAL)
        self.one.listening(True)
        passes(self.fleet.clock, _POLL)
        self.assertEqual(self.told, ["x"])

    def test_no_timer_runs_on_while_news_come_in(self) -> None:
        self.one.routes("agent")
        self.watch()
        passes(self.fleet.clock, 3 * _POLL)
        # Only the sweepers.
        self.assertEqual(len(self.fleet.clock.getDelayedCalls()), 2)


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
        self.one.watch("agent", lambda: told.append(True))
        passes(self.clock, _POLL)
        self.assertEqual(told, [True])

    def test_who_waits_is_told_what_the_peers_say(self) -> None:
        self.fleet.hub.fail()
        told: list[bool] = []
        self.one.watch("agent", lambda: told.append(True))
        passes(self.clock, _POLL)
        self.assertEqual(told, [])
        self.fleet.held["agent"] = [record()]
        passes(self.clock, _POLL)
        self.assertEqual(told, [True])
        asked = len(self.fleet.asked)
        passes(self.clock, 10 * _POLL)
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
        self.one.news([stranger], [])
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
        passes(self.clock, _POLL)
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
        self.one.watch("agent", lambda: told.append(True))
        passes(self.clock, 3 * _POLL)
        self.assertEqual((told, self.fleet.asked), ([], []))
        self.up()
        passes(self.clock, _POLL)
        self.assertEqual(told, [True])

    def test_who_waits_is_told_of_what_is_believed_again(self) -> None:
        self.two.connected(self.held)
        self.routes()
        self.cut_off()
        passes(self.clock, LEASE_GRACE)
        self.assertEqual(self.routes(), [])
        told: list[bool] = []
        self.one.watch("agent", lambda: told.append(True))
        self.up()
        self.assertEqual(told, [True])
        self.assertEqual(self.routes(), [self.held])

    def test_an_agent_that_connects_there_meanwhile(self) -> None:
        self.cut_off()
        self.up()
        self.fleet.held.clear()
        told: list[bool] = []
        self.routes()
        self.one.watch("agent", lambda: told.append(True))
        passes(self.clock, 3 * _POLL)
        self.fleet.held["agent"] = [self.held]
        passes(self.clock, _POLL)
        self.assertEqual(told, [True])
        asked = len(self.fleet.asked)
        passes(self.clock, 10 * _POLL)
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
        passes(self.clock, _POLL)
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
        passes(self.clock, _POLL)
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
        self.one.watch("agent", lambda: None)
        passes(self.clock, 100)
        self.hub.tell_leases()
        self.assertEqual((self.fleet.asked, self.fleet.dialled), ([], []))
        self.assertLessEqual(len(self.hub.finds), 4)


class SupersededTests(SynchronousTestCase):
    """An agent that moved, while its old connection still seems to live."""

    def setUp(self) -> None:
        self.fleet = Fleet()
        self.one, self.two = self.fleet.all

    def test_told_by_news(self) -> None:
        older = record(at=1)
        self.one.connected(older)
        self.two.connected(record(at=2, instance=2))
        self.assertEqual(self.fleet.superseded, [])
        self.two.connected(record(at=2, generation=2))
        self.assertEqual(self.fleet.superseded, [older])

    def test_told_by_a_look_up(self) -> None:
        older = record(at=1)
        self.one.connected(older)
        key = ("agent", older.agent.instance_id, kas(2).kas_id)
        self.fleet.hub.records[key] = record(at=2, generation=2)
        self.one.routes("agent")
        self.assertEqual(self.fleet.superseded, [older])

    def test_told_when_it_comes_late(self) -> None:
        self.one.routes("agent")
        self.two.connected(record(at=2, generation=2))
        older = record(at=1)
        self.one.connected(older)
        self.assertIn(older, self.fleet.superseded)

    def test_who_does_not_know_is_told_again(self) -> None:
        newer = record(at=2, generation=2)
        self.two.connected(newer)
        older = record(at=1)
        self.one.connected(older)
        self.assertEqual(self.fleet.stores[1].announced, [newer])
        self.assertEqual(self.fleet.superseded, [older])

    def test_a_hook_that_fails(self) -> None:
        def fail(record: AgentRecord) -> None:
            raise ZeroDivisionError

        self.one.on_superseded = fail
        self.one.connected(record(at=1))
        self.two.connected(record(at=2, generation=2))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


_NEWS = st.tuples(st.integers(1, 3), st.integers(1, 9), st.booleans())


@given(st.lists(_NEWS, max_size=40))
def test_whatever_the_order_the_newest_remains(
    news: list[tuple[int, int, bool]],
) -> None:
    """Connections and ends of three instances, overtaking each other at will."""
    fleet = Fleet()
    one = fleet.all[0]
    one.routes("agent")
    for instance, generation, connects in news:
        what = record(instance=instance, generation=generation, at=2 + generation % 2)
        one.news([what] if connects else [], [] if connects else [what])
    for instance in (1, 2, 3):
        seen = [(g, connects) for i, g, connects in news if i == instance]
        top = max((g for g, _ in seen), default=0)
        expected = {top} if seen and all(c for g, c in seen if g == top) else set()
        key = bytes([instance]) * 16
        got = {
            r.agent.generation
            for r in one.routes("agent")
            if r.agent.instance_id == key
        }
        assert got == expected


def test_instances_of_an_agent_are_bounded() -> None:
    answer = Answer("agent", 0.0)
    for number in range(MAX_INSTANCES + 10):
        made = record(instance=1)
        agent = made.agent.__class__(
            "agent", "agent", number.to_bytes(16, "big"), 1, 0.0
        )
        answer.connected(AgentRecord(agent, made.kas_id, made.kas_url), 1)
    assert len(list(answer.records())) == MAX_INSTANCES
    for number in range(MAX_INSTANCES + 10):
        answer.disconnected(number.to_bytes(16, "big"), 1, 2)
    assert len(answer._instances) == MAX_GONE
