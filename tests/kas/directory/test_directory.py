"""The directory of one kas among several: what it answers, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.directory import cache
from kas.directory.cache import (
    ABSENT_INTERVAL,
    LOOK_INTERVAL,
    MAX_LOOKUPS,
    UNUSED_SECONDS,
)
from kas.directory.directory import SWEEP_INTERVAL, Directory
from kas.directory.known_kas import LEASE_GRACE
from kas.directory.records import AgentRecord, KasRecord
from tests.kas.directory.memory import Hub, MemoryStore, kas, record
from tests.kas.directory.several import POLL, Fleet, now, passes
from tunnel.errors import CallError
from tunnel.program.runtime import Runtime


class AloneTests(SynchronousTestCase):
    """Without a store: one kas."""

    def test_it_is_all_there_is(self) -> None:
        clock = Clock()
        directory = Directory(kas(1), None, Runtime(reactor=clock))
        checked: Directory = directory
        now(checked.start())
        one, other = record("a", at=1, project_id=7), record("b", at=1)
        directory.connected(one)
        directory.connected(other)
        self.assertEqual(list(directory.routes("a")), [])
        directory.look_again("a")
        directory.wait("a", lambda: self.fail("nobody comes"))()
        self.assertEqual(list(directory.peers()), [])
        self.assertEqual(now(directory.agents()), [one, other])
        self.assertEqual(now(directory.agents(agent_id="b")), [other])
        self.assertEqual(now(directory.agents(project_id=7)), [one])
        directory.disconnected(one)
        self.assertEqual(now(directory.agents()), [other])
        self.assertEqual(clock.getDelayedCalls(), [])
        now(directory.stop())

    def test_stopped_before_it_was_started(self) -> None:
        """As it is where kas cannot begin to listen."""
        directory = Directory(kas(1), None, Runtime(reactor=Clock()))
        now(directory.stop())

    def test_a_late_end_does_not_remove_what_is_newer(self) -> None:
        directory = Directory(kas(1), None, Runtime(reactor=Clock()))
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

    def test_a_look_up_that_failed_is_done_again_soon(self) -> None:
        """Events still come in, and none will say what did not change."""
        there = record(at=2)
        self.two.connected(there)
        self.routes()
        self.assertEqual(self.routes(), [there])
        self.hub.down = True
        self.fleet.broken = ValueError("nobody answers")
        passes(self.clock, POLL)
        self.one.look_again("agent", there)
        passes(self.clock, POLL)
        self.assertEqual(self.routes(), [])
        passes(self.clock, POLL)
        self.hub.down = False
        woken: list[None] = []
        self.one.wait("agent", lambda: woken.append(None))
        passes(self.clock, 2 * POLL)
        self.assertEqual(woken, [None])
        self.assertEqual(self.routes(), [there])

    def test_a_worker_that_begins_while_the_store_is_down(self) -> None:
        """It asks those whose addresses it was started with."""
        self.hub.down = True
        store = MemoryStore(self.hub, kas(4))
        siblings = (kas(2).url, kas(3).url)
        worker = Directory(
            store.me,
            store,
            Runtime(reactor=self.clock, random=lambda: 0.5),
            sessions=self.fleet,
            siblings=siblings,
        )
        now(worker.start())
        there = record(at=2)
        self.fleet.held["agent"] = [there]
        worker.routes("agent")
        self.assertEqual(list(worker.routes("agent")), [there])
        self.assertEqual(now(worker.agents(agent_id="agent")), [there])
        now(worker.stop())

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
        self.assertEqual(self.one.entries, 0)

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
        self.one.wait("agent", lambda: told.append(True))
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

    def test_one_that_is_not_believed_hides_no_other(self) -> None:
        """Of two instances the kas of the first has no lease any more."""
        self.routes()
        self.two.connected(record(at=2))
        self.three.connected(record(at=3, instance=2))
        self.one.leases([kas(3)])
        self.clock.advance(LEASE_GRACE)
        self.assertEqual(self.routes(), [record(at=3, instance=2)])

    def test_what_peers_said_ends_with_the_next_look_up(self) -> None:
        """It was asked for while the store was down; no event has ever come in."""
        self.hub.fail()
        self.fleet.held["agent"] = [record(at=2)]
        self.routes()
        self.assertEqual(self.routes(), [record(at=2)])
        self.hub.recover()
        self.one.look_again("agent")
        passes(self.clock, POLL)
        self.assertEqual(self.routes(), [])

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
        self.one.wait("waited for", lambda: None)
        passes(self.clock, UNUSED_SECONDS, 20)
        self.routes("used")
        passes(self.clock, 2 * SWEEP_INTERVAL, 20)
        self.assertEqual(self.one.entries, 2)

    def test_the_table_is_bounded(self) -> None:
        self.patch(cache, "MAX_ENTRIES", 3)
        for number in range(5):
            self.routes(f"agent-{number}")
            self.routes("agent-0")
        self.assertEqual(self.one.entries, 3)
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


class HooksTests(SynchronousTestCase):
    """What others hear of it, and what it counts."""

    def setUp(self) -> None:
        self.fleet = Fleet()
        self.one, self.two = self.fleet.all
        self.clock = self.fleet.clock

    def test_connected_elsewhere(self) -> None:
        """Each connection at another kas is told, and none of our own."""
        told: list[AgentRecord] = []
        self.one.on_connected = told.append
        self.one.connected(record("ours", at=1))
        self.two.connected(record())
        self.assertEqual(told, [record()])
        self.two.disconnected(record())
        self.assertEqual(told, [record()])

    def test_counts(self) -> None:
        """Look-ups, those that went to the peers, and events: from nothing on."""

        def counts() -> tuple[int, int, int]:
            one = self.one
            return one.lookups, one.asked, one.events_received

        self.assertEqual(counts(), (0, 0, 0))
        self.one.routes("agent")
        self.assertEqual(counts(), (1, 0, 0))
        self.two.connected(record())
        self.assertEqual(counts(), (1, 0, 1))
        self.fleet.hub.fail()
        self.one.routes("other")
        self.assertEqual(counts(), (2, 1, 1))
        self.assertEqual(self.one.entries, 2)

    def test_nobody_to_ask(self) -> None:
        """Where no session to peers is possible, the store alone is asked."""
        hub = Hub()
        store = MemoryStore(hub, kas(3))
        alone = Directory(
            kas(3), store, Runtime(reactor=self.clock, random=lambda: 0.5)
        )
        now(alone.start())
        self.assertEqual(now(alone.agents(agent_id="agent")), [])
        hub.fail()
        alone.routes("agent")
        self.assertEqual((alone.lookups, alone.asked), (1, 0))
        with self.assertRaises(CallError):
            now(alone.agents(agent_id="agent"))

    def test_listings_ask_no_peer_that_has_its_lease(self) -> None:
        """Nor anybody for all agents: the store knows those of every kas."""
        self.two.connected(record())
        self.assertEqual(now(self.one.agents(agent_id="agent")), [record()])
        self.assertEqual(now(self.one.agents()), [record()])
        self.assertEqual(self.fleet.asked, [])
        self.fleet.hub.cut_off(self.fleet.stores[1])
        self.fleet.sessions.append(kas(2))
        self.assertEqual(now(self.one.agents()), [])
        self.assertEqual(self.fleet.asked, [])

    def test_last_seen(self) -> None:
        """As the store has it; nothing where there is none, or it does not answer."""
        self.fleet.hub.seen = {"agent": 1000.0, "other": 2000.0}
        wanted = ["agent", "third"]
        self.assertEqual(now(self.one.last_seen(wanted)), {"agent": 1000.0})
        self.fleet.hub.fail()
        self.assertEqual(now(self.one.last_seen(wanted)), {})
        alone = Directory(kas(3), None, Runtime(reactor=self.clock))
        self.assertEqual(now(alone.last_seen(wanted)), {})

    def test_current(self) -> None:
        """What others say of themselves comes in while events do."""
        self.assertTrue(self.one.is_current())
        self.fleet.hub.fail()
        self.assertFalse(self.one.is_current())

    def test_same_generation_elsewhere(self) -> None:
        """A connection that another kas has, too, is no better than ours."""
        self.one.connected(record(at=1))
        self.one.events([record(at=2)], [])
        self.assertEqual(list(self.one.routes("agent")), [])

    def test_stop(self) -> None:
        """No timer is left, whatever was waited for."""
        self.fleet.hub.fail()
        for directory in self.fleet.all:
            directory.routes("agent")
            directory.wait("agent", lambda: None)
            directory.routes("other")
            directory.look_again("other")
        for directory in self.fleet.all:
            now(directory.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        asked = len(self.fleet.asked)
        self.one.look_again("agent")
        self.one.wait("agent", lambda: None)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        passes(self.clock, 60)
        self.assertEqual(len(self.fleet.asked), asked)


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


class WaitTests(SynchronousTestCase):
    """Waiters are called once, however the agent is found."""

    def setUp(self) -> None:
        self.fleet = Fleet()
        self.one, self.two = self.fleet.all
        self.told: list[str] = []

    def wait(self, name: str = "x") -> object:
        return self.one.wait("agent", lambda: self.told.append(name))

    def test_told_once_by_news(self) -> None:
        self.one.routes("agent")
        self.wait("a")
        give_up = self.one.wait("agent", lambda: self.told.append("b"))
        self.wait("c")
        give_up()
        self.two.connected(record("other"))
        self.assertEqual(self.told, [])
        self.two.connected(record())
        self.assertEqual(self.told, ["a", "c"])
        self.two.connected(record(generation=2))
        self.assertEqual(self.told, ["a", "c"])
        give_up()

    def test_told_when_nobody_asked_before(self) -> None:
        self.wait()
        self.two.connected(record())
        self.assertEqual(self.told, ["x"])
        self.assertEqual(list(self.one.routes("agent")), [record()])

    def test_told_by_a_look_up(self) -> None:
        self.two.connected(record())
        self.fleet.hub.held = []
        self.one.routes("agent")
        self.wait()
        self.fleet.hub.release()
        self.assertEqual(self.told, ["x"])

    def test_one_that_fails_does_not_harm_the_others(self) -> None:
        self.one.wait("agent", lambda: 1 / 0)  # type: ignore[arg-type]
        self.wait()
        self.two.connected(record())
        self.assertEqual(self.told, ["x"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_what_was_missed_is_found_after_the_gap(self) -> None:
        self.one.routes("agent")
        self.wait()
        self.one.listening(False)
        self.fleet.hub.records["agent", b"i", kas(2).kas_id] = record()
        self.fleet.clock.advance(LOOK_INTERVAL)
        self.one.listening(True)
        passes(self.fleet.clock, POLL)
        self.assertEqual(self.told, ["x"])

    def test_what_was_missed_is_looked_up_at_once(self) -> None:
        """Nothing was to be looked up any more when events stopped and came again."""
        self.wait()
        passes(self.fleet.clock, 3 * POLL)
        self.fleet.hub.records["agent", b"i", kas(2).kas_id] = record()
        self.one.listening(True)
        self.fleet.clock.advance(0)
        self.assertEqual(self.told, ["x"])

    def test_what_no_event_says_is_looked_up_again(self) -> None:
        """The store answers, and its events do not come in."""
        self.one.listening(False)
        self.wait()
        passes(self.fleet.clock, 3 * POLL)
        self.assertEqual(self.told, [])
        self.fleet.hub.records["agent", b"i", kas(2).kas_id] = record()
        passes(self.fleet.clock, POLL)
        self.assertEqual(self.told, ["x"])

    def test_told_though_the_table_is_full(self) -> None:
        """Who waits hears of the agent, though others took its place in the table."""
        self.patch(cache, "MAX_ENTRIES", 1)
        self.wait()
        self.one.routes("other")
        self.two.connected(record())
        self.assertEqual(self.told, ["x"])

    def test_told_when_peers_say_again_what_was_not_believed(self) -> None:
        """The kas that has it lost its lease, and now it answers itself."""
        self.one.routes("agent")
        self.two.connected(record())
        self.one.leases([])
        self.fleet.clock.advance(LEASE_GRACE)
        self.fleet.hub.fail()
        self.assertEqual(list(self.one.routes("agent")), [])
        self.wait()
        self.fleet.held["agent"] = [record()]
        passes(self.fleet.clock, POLL)
        self.assertEqual(self.told, ["x"])

    def test_no_timer_runs_on_while_news_come_in(self) -> None:
        self.one.routes("agent")
        self.wait()
        passes(self.fleet.clock, 3 * POLL)
        # Only the sweepers.
        self.assertEqual(len(self.fleet.clock.getDelayedCalls()), 2)
