"""When agents are asked to move, and how many."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.trial.unittest import SynchronousTestCase

from kas.balance import FIRST_LOOKS, INTERVAL, NEXT_LOOKS, PER_SECOND, SPREAD, Balance
from kas.directory import KasRecord
from tests.kas.test_registry import World


@attrs.define
class Peers:
    """A directory that knows other kas, and how many agents each has."""

    counts: list[int]
    draining: bool = False

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
        self.balance = Balance(
            self.world.registry, directory, self.world.clock, lambda: 0.5
        )

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
        """More are asked than have to go, as a balancer sends some of them back."""
        self.agents(12)
        self.peers.counts = [0, 0]
        self.assertEqual(self.balance.rebalance(), 12)
        self.assertTrue(all(going.elsewhere for going in self.asked()))
        self.assertEqual(self.balance.moved, 12)

    def test_asked_once(self) -> None:
        self.agents(6)
        self.peers.counts = [0]
        self.assertEqual(self.balance.rebalance(), 6)
        self.assertEqual(self.balance.rebalance(), 0)
        self.assertEqual(len(self.asked()), 6)

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
        self.peers.counts = [2]
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
        self.assertEqual(len(self.asked()), 6)
        # Nobody left, and none came: the rest is asked only after a pause.
        self.looks(NEXT_LOOKS - 1)
        self.assertEqual(len(self.asked()), 6)
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
