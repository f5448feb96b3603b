"""When agents are asked to go elsewhere, how many, and which."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.balance import DEADLINE, INTERVAL, PER_SECOND, SPREAD, Balance
from kas.directory import KasRecord
from kas.registry import AgentConnection, Registry
from tunnel.interfaces import ConnectedAgent
from tunnel.pb import tunnel_pb2 as pb


class _Tunnel:
    """Notes that it was sent away."""

    peer = "127.0.0.1"

    def __init__(self, load: int) -> None:
        self.load = load
        self.told: list[pb.GoAway] = []

    def go_away(self, go_away: pb.GoAway) -> None:
        self.told.append(go_away)


class BalanceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.registry = Registry()
        self.others: list[KasRecord] = []
        self.tunnels: list[_Tunnel] = []
        self.balance = Balance(self.registry, self, self.clock, lambda: 0.5)  # type: ignore[arg-type]

    def peers(self) -> list[KasRecord]:
        """As `kas.directory.Directory.peers`."""
        return self.others

    def here(self, count: int, load: int = 0) -> None:
        """More agents."""
        for _ in range(count):
            number = len(self.tunnels)
            tunnel = _Tunnel(load)
            self.tunnels.append(tunnel)
            agent = ConnectedAgent(str(number), f"agent-{number}", b"i", 1, 0.0)
            self.registry.add(AgentConnection(tunnel, agent, "x"))  # type: ignore[arg-type]

    def there(self, *agents: int, draining: bool = False) -> None:
        """More kas, with so many agents each."""
        for one in agents:
            kas_id = bytes([len(self.others) + 1]) * 16
            self.others.append(KasRecord(kas_id, "", agents=one, draining=draining))

    @property
    def sent_away(self) -> list[bool]:
        return [bool(tunnel.told) for tunnel in self.tunnels]

    def test_alone(self) -> None:
        self.here(100)
        self.assertEqual(self.balance.rebalance(), 0)
        self.there(0, 0, draining=True)
        self.assertEqual(self.balance.rebalance(), 0)

    def test_a_little_more_is_no_matter(self) -> None:
        self.here(110)
        self.there(90)
        self.assertEqual(self.balance.rebalance(), 0)
        self.here(3)
        self.assertGreater(self.balance.rebalance(), 0)

    def test_few_agents(self) -> None:
        """One more than the others is as even as it gets."""
        self.here(1)
        self.there(0, 0)
        self.assertEqual(self.balance.rebalance(), 0)

    def test_how_many(self) -> None:
        """The surplus, and those that will come back."""
        self.here(300)
        self.there(0, 0)
        self.assertEqual(self.balance.rebalance(), 300)
        self.assertEqual(self.balance.moved, 300)
        # They are asked once.
        self.assertEqual(self.balance.rebalance(), 0)

    def test_idle_ones_first(self) -> None:
        self.here(30, load=5)
        self.here(30)
        self.there(30)
        self.assertEqual(self.balance.rebalance(), 30)
        self.assertEqual(self.sent_away, [False] * 30 + [True] * 30)

    def test_what_they_are_told(self) -> None:
        self.here(10)
        self.balance.send_away(self.registry, "kas stops", deadline=7)
        (told,) = self.tunnels[0].told
        self.assertTrue(told.elsewhere)
        self.assertEqual(
            (told.message, told.deadline_ms, told.reconnect_within_ms),
            ("kas stops", 7000, SPREAD * 1000),
        )
        self.assertEqual(self.balance.send_away(self.registry, "again"), 0)
        self.assertEqual(len(self.tunnels[0].told), 1)

    def test_many_take_their_time(self) -> None:
        """Each of them is a handshake elsewhere."""
        count = round(PER_SECOND * SPREAD * 2)
        self.here(count)
        self.there(0)
        self.balance.rebalance()
        (told,) = self.tunnels[0].told
        self.assertEqual(told.reconnect_within_ms, SPREAD * 2 * 1000)
        self.assertEqual(told.deadline_ms, DEADLINE * 1000)

    def test_every_so_often(self) -> None:
        self.balance.stop()
        self.balance.start()
        self.here(30)
        self.there(0)
        self.clock.advance(INTERVAL - 1)
        self.assertFalse(any(self.sent_away))
        self.clock.advance(1)
        self.assertTrue(all(self.sent_away))
        self.balance.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
