"""When agents are asked to move, and how many."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.trial.unittest import SynchronousTestCase

from kas.directory.records import KasRecord
from kas.fleet.balance import (
    FIRST_LOOKS,
    INTERVAL,
    KNOWN_SECONDS,
    NEXT_LOOKS,
    PER_SECOND,
    SPREAD,
    Balance,
)
from tests.kas.world import World
from tunnel.errors import ErrorCode
from tunnel.program.runtime import Runtime


@attrs.define
class Peers:
    """A directory that knows other kas, and how many agents each has."""

    counts: list[int]
    draining: bool = False
    current: bool = True

    def is_current(self) -> bool:
        return self.current

    def living(self) -> list[KasRecord]:
        return [
            KasRecord(bytes([number]) * 16, "", count, self.draining)
            for number, count in enumerate(self.counts)
        ]


class BalanceTests(SynchronousTestCase):
    """One kas with agents; the others are numbers."""

    def setUp(self) -> None:
        self.world = World()
        self.peers = Peers([])
        directory: Any = self.peers
        runtime = Runtime(reactor=self.world.clock, random=lambda: 0.5)
        self.balance = Balance(self.world.registry, directory, runtime)

    def agents(self, count: int) -> None:
        self.all = [
            self.world.agent(instance=bytes([number]) * 16) for number in range(count)
        ]

    def asked(self) -> list[Any]:
        """The GO_AWAY of each agent that got one."""
        for agent in self.all:
            agent.pipe.flush()
        return [agent.going_away[0] for agent in self.all if agent.going_away]

    def looks(self, count: int) -> None:
        for _ in range(count):
            self.world.clock.advance(INTERVAL)

    def test_alone(self) -> None:
        self.agents(9)
        self.assertEqual(self.balance.rebalance(), 0)

    def test_even(self) -> None:
        self.agents(9)
        self.peers.counts = [9, 8]
        self.assertEqual(self.balance.rebalance(), 0)

    def test_too_many(self) -> None:
        """Half the difference, in case all of them go to the same."""
        self.agents(12)
        self.peers.counts = [0, 0]
        self.assertEqual(self.balance.rebalance(), 6)
        self.assertTrue(all(going.elsewhere for going in self.asked()))
        self.assertEqual(self.balance.moved, 6)

    def test_never_below_the_mean(self) -> None:
        """Others have too many as well; a load balancer sends some of them back."""
        self.agents(12)
        self.peers.counts = [12, 12, 0]
        self.assertEqual(self.balance.rebalance(), 4)

    def test_again_at_once(self) -> None:
        """What was sent away may all have gone to the one that has fewest."""
        self.agents(9)
        self.peers.counts = [0, 0]
        self.assertEqual(self.balance.rebalance(), 4)
        self.assertEqual(self.balance.rebalance(), 0)
        self.leave(4)
        self.assertEqual(self.balance.rebalance(), 0)
        self.peers.counts = [2, 2]
        self.assertEqual(self.balance.rebalance(), 1)

    def test_tiny(self) -> None:
        """Two kas and two agents: one of them stays."""
        for count, moved in ((1, 0), (2, 1), (3, 1), (4, 2)):
            self.setUp()
            self.agents(count)
            self.peers.counts = [0]
            self.assertEqual(self.balance.rebalance(), moved)

    def test_asked_once(self) -> None:
        self.agents(6)
        self.peers.counts = [0]
        self.assertEqual(self.balance.rebalance(), 3)
        self.assertEqual(self.balance.rebalance(), 0)
        self.assertEqual(len(self.asked()), 3)

    def leave(self, count: int) -> None:
        """So many of those that were asked connect elsewhere."""
        going = [one for one in self.world.registry if one.leaving]
        for connection in going[:count]:
            connection.tunnel.end(ErrorCode.SHUTDOWN, "elsewhere")
        for agent in self.all:
            agent.pipe.flush()

    def test_those_on_their_way_count(self) -> None:
        """They left, and the other kas has not told of them yet."""
        self.agents(8)
        self.peers.counts = [0]
        self.assertEqual(self.balance.rebalance(), 4)
        self.leave(4)
        for _ in range(3):
            self.assertEqual(self.balance.rebalance(), 0)
            self.world.clock.advance(KNOWN_SECONDS / 3)
        self.peers.counts = [4]
        self.world.clock.advance(SPREAD + KNOWN_SECONDS)
        self.assertEqual(self.balance.rebalance(), 0)
        self.peers.counts = [0]
        self.assertEqual(self.balance.rebalance(), 2)

    def test_those_that_do_not_leave(self) -> None:
        """They are asked once, and nobody goes in their place."""
        self.agents(8)
        self.peers.counts = [0]
        self.assertEqual(self.balance.rebalance(), 4)
        self.world.clock.advance(10 * KNOWN_SECONDS)
        self.assertEqual(self.balance.rebalance(), 0)

    def test_old_counts(self) -> None:
        """What cannot be renewed is nothing to act upon."""
        self.agents(8)
        self.peers.counts = [0]
        self.peers.current = False
        self.balance.start()
        self.looks(10)
        self.assertEqual((self.asked(), self.balance.rebalance()), ([], 0))
        self.peers.current = True
        self.assertEqual(self.balance.rebalance(), 4)

    def test_draining_kas_do_not_count(self) -> None:
        self.agents(6)
        self.peers.counts, self.peers.draining = [0], True
        self.assertEqual(self.balance.rebalance(), 0)

    def test_idle_agents_first(self) -> None:
        self.agents(4)
        busy = list(self.world.registry)[:2]
        from tunnel.pb import tunnel_pb2 as pb
        from tunnel.testing import RecordingReceiver

        for connection in busy:
            connection.tunnel.open_stream(pb.Open(method="/x"), RecordingReceiver())
        self.peers.counts = [0]
        self.assertEqual(self.balance.rebalance(), 2)
        self.assertEqual([one.leaving for one in busy], [False, False])

    def test_not_for_a_moment(self) -> None:
        """A kas that died is counted for a while; its agents stay where they went."""
        self.balance.start()
        self.agents(12)
        self.peers.counts = [0, 12]
        self.looks(FIRST_LOOKS - 1)
        self.assertEqual(self.asked(), [])
        self.peers.counts = [12]
        self.looks(5)
        self.assertEqual(self.asked(), [])

    def test_by_itself(self) -> None:
        self.balance.start()
        self.balance.start()
        self.agents(12)
        self.peers.counts = [6]
        self.looks(FIRST_LOOKS)
        self.assertEqual(len(self.asked()), 3)
        # Nobody left, and none came.
        self.looks(5 * NEXT_LOOKS)
        self.assertEqual(len(self.asked()), 3)
        self.balance.stop()
        self.balance.stop()
        self.assertFalse(self.balance._loop.running)

    def test_pace(self) -> None:
        """Many are spread over more time."""
        self.agents(10)
        connections = list(self.world.registry)
        self.balance.send_away(connections[:5], "why")
        self.assertEqual(
            {going.reconnect_within_ms for going in self.asked()},
            {round(SPREAD * 1000)},
        )
        self.assertEqual(self.balance.send_away(connections[:5], "why"), 0)
        many = connections[5:] * int(PER_SECOND * SPREAD)
        self.balance.send_away(many, "why")
        longest = max(going.reconnect_within_ms for going in self.asked())
        self.assertGreater(longest, SPREAD * 1000)

    def test_extra_tunnels(self) -> None:
        """They are asked to go, too, but are no agents that come back somewhere."""
        self.agents(2)
        self.world.agent(instance=b"e", role="agent-extra")
        *agents, extra = self.world.registry.tunnels()
        crowd = [*agents, *[extra] * int(2 * PER_SECOND * SPREAD)]
        self.assertEqual(self.balance.send_away(crowd, "why"), 2)
        self.assertEqual(self.balance.moved, 2)
        self.assertTrue(extra.leaving)
        self.assertEqual(
            {going.reconnect_within_ms for going in self.asked()},
            {round(SPREAD * 1000)},
        )
