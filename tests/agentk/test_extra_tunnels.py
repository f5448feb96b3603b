"""Tunnels to kas that have much relayed: opened where they pay, closed elsewhere."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.defer import Deferred

from agentk import extra_tunnels
from agentk.extra_tunnels import (
    BUSY,
    IDLE,
    INTERVAL,
    MAX_COUNTED,
    RETRY_FIRST,
    RETRY_MOST,
    WANTED,
)
from tests.kas.many import Kas, ManyCase
from tunnel.errors import ErrorCode
from tunnel.session.resume import DEFAULT_RESUME_LIMITS
from tunnel.testing import RecordingReceiver


class _Case(ManyCase):
    """An agent that is connected to the first kas; its next dials go where we say."""

    def setUp(self) -> None:
        super().setUp()
        self.agent = self.many.agent(self.one)
        self.extra = self.agent.extra
        self.extra.start()
        self.addCleanup(self.extra.stop)

    def busy(self, at: Kas, requests: int = BUSY) -> None:
        """As many requests come through a kas, and are answered."""
        for _ in range(requests):
            self.ask(at)
            self.answer(self.agent)
            self.assert_answered()

    def ask(self, at: Kas, **options: Any) -> RecordingReceiver:
        """One request, which waits for its answer."""
        self.client = RecordingReceiver()
        at.open(self.client, fin=True, **options)
        self.many.settle()
        return self.client

    def open(self, at: Kas) -> None:
        """An extra tunnel to a kas."""
        self.busy(at)
        self.agent.at = at
        self.many.later(INTERVAL)
        self.assertEqual(list(self.extra.tunnels), [at.me.kas_id])
        self.assertEqual(at.registry.extra, 1)

    def relays(self) -> int:
        """How many requests another kas relayed."""
        return sum(kas.gateway.relayed for kas in self.many.kas)


class OpenTests(_Case):
    """To whom there is one."""

    def test_opened(self) -> None:
        """Requests to that kas take it, and no other kas is on their way."""
        self.open(self.two)
        before = self.relays()
        self.busy(self.two)
        self.assertEqual(self.relays(), before)
        # It is a shorter path, not another connection.
        self.assertEqual((len(self.two.registry), self.two.registry.agents), (0, 0))
        self.assertEqual(len(self.one.registry), 1)
        self.busy(self.three, 1)
        self.assertEqual(self.relays(), before + 1)
        self.assertEqual(
            [route.kas_id for route in self.three.directory.routes("7")],
            [self.one.me.kas_id],
        )

    def test_not_for_a_few(self) -> None:
        """What is relayed now and then costs less than a handshake."""
        self.agent.at = self.two
        for _ in range(3):
            self.busy(self.two, BUSY - 1)
            self.many.later(INTERVAL)
        self.assertEqual((self.extra.tunnels, self.two.registry.extra), ({}, 0))

    def test_not_for_those_that_come_directly(self) -> None:
        """Nothing could be shorter."""
        self.agent.at = self.two
        self.busy(self.one, 3 * BUSY)
        self.many.later(INTERVAL)
        self.assertEqual(self.two.registry.extra, 0)

    def test_each_that_is_busy(self) -> None:
        """One tunnel for each of them."""
        self.open(self.two)
        self.busy(self.three)
        self.agent.at = self.three
        self.many.later(INTERVAL)
        self.assertEqual(
            set(self.extra.tunnels), {self.two.me.kas_id, self.three.me.kas_id}
        )

    def test_most(self) -> None:
        """There are never more than that."""
        self.patch(extra_tunnels, "MAX_TUNNELS", 1)
        self.open(self.two)
        self.busy(self.three)
        self.agent.at = self.three
        self.many.later(10 * INTERVAL)
        self.assertEqual(len(self.extra.tunnels), 1)

    def test_most_counted(self) -> None:
        """A kas that names itself anew each time takes no memory."""
        for number in range(2 * MAX_COUNTED):
            self.agent.dialer.on_relayed(b"%d" % number)
        self.assertEqual(len(self.extra._relayed), MAX_COUNTED)
        self.many.later(INTERVAL)
        self.assertEqual(len(self.extra._relayed), 0)


class ByChanceTests(_Case):
    """Who takes a connection is not ours to choose."""

    def dials(self) -> int:
        return self.agent.dialer._generation

    def test_meets_its_own_kas(self) -> None:
        """Which refuses it; the connection stays, and the next dial comes soon."""
        self.busy(self.two)
        self.many.later(INTERVAL)
        self.assertEqual((self.dials(), self.extra.tunnels), (2, {}))
        self.assertTrue(self.agent.dialer.ready)
        self.assertEqual(self.one.acceptor.refusals["already-here"], 1)
        self.agent.at = self.two
        self.many.later(RETRY_FIRST)
        self.assertEqual(list(self.extra.tunnels), [self.two.me.kas_id])

    def test_meets_a_third(self) -> None:
        """It is not in the way of the next attempt, and goes when it was not used."""
        self.busy(self.two)
        self.agent.at = self.three
        self.many.later(INTERVAL)
        self.assertEqual(list(self.extra.tunnels), [self.three.me.kas_id])
        self.agent.at = self.two
        self.many.later(RETRY_FIRST)
        self.assertEqual(self.two.registry.extra, 1)
        for _ in range(4):
            self.busy(self.two, 1)
            self.many.later(IDLE / 3, step=INTERVAL)
        self.assertEqual(list(self.extra.tunnels), [self.two.me.kas_id])
        self.assertEqual(self.three.registry.extra, 0)

    def test_never_meets_it(self) -> None:
        """A balancer that always sends us to one kas is not called all the time."""
        for _ in range(20):
            self.busy(self.two)
            self.many.later(WANTED)
        # Once a minute, after the first ones.
        self.assertLess(self.dials(), 20 * WANTED / RETRY_MOST + 15)
        # Of a long quiet time nothing is left.
        self.many.later(2 * WANTED)
        self.agent.at = self.two
        self.busy(self.two)
        self.many.later(INTERVAL)
        self.assertEqual(list(self.extra.tunnels), [self.two.me.kas_id])

    def test_connection_comes_there(self) -> None:
        """The kas that is looked for has the connection itself now."""
        for waited in (0.0, INTERVAL):
            self.busy(self.two)
            self.many.later(waited)
            self.agent.at = self.two
            self.many.network.cut(self.one.agents_url)
            self.many.later(1)
            self.assertEqual(self.agent.dialer.kas_id, self.two.me.kas_id)
            refusals = self.two.acceptor.refusals["already-here"]
            self.many.later(2 * WANTED)
            self.assertEqual(self.two.acceptor.refusals["already-here"], refusals)
            self.agent.at = self.one
            self.many.network.cut(self.two.agents_url)
            self.many.later(1)

    def test_not_wanted_any_more(self) -> None:
        """What was busy once is not looked for for ever."""
        self.busy(self.two)
        self.many.later(2 * WANTED)
        dials = self.dials()
        self.many.later(3 * RETRY_MOST, step=INTERVAL)
        self.assertEqual(self.dials(), dials)

    def test_out_of_reach(self) -> None:
        """Nobody listens there; the connection that we have is not touched."""
        self.busy(self.two)
        self.agent.at = _Nowhere()  # type: ignore[assignment]
        self.many.later(INTERVAL)
        self.assertTrue(self.agent.dialer.ready)
        self.agent.at = self.two
        self.many.later(1)
        self.assertEqual(list(self.extra.tunnels), [self.two.me.kas_id])

    def test_refused(self) -> None:
        """A kas of a former release does not know what this is, and says so."""
        self.busy(self.two)
        acceptor = self.two.acceptor
        self.patch(
            acceptor, "hello_received", lambda tunnel, hello: _old(acceptor, tunnel)
        )
        self.agent.at = self.two
        self.many.later(INTERVAL)
        self.assertEqual((self.extra.tunnels, self.two.registry.extra), ({}, 0))
        self.busy(self.two, 1)
        self.assertEqual(len(self.one.registry), 1)


@attrs.frozen
class _Nowhere:
    agents_url: str = "tcp://nowhere:1"


def _old(acceptor: object, tunnel: object) -> None:
    tunnel.end(ErrorCode.PROTOCOL, "this port is for agents")  # type: ignore[attr-defined]


class KilledTests(_Case):
    """agentk is killed; the end of one of its tunnels comes later."""

    def test_nothing_says_that_it_lives(self) -> None:
        """What was relayed before does not wait for longer because of the extra one."""
        watch = self.ask(self.two, resumable=True)
        self.agent.streams[-1][0].send_headers(b"head")
        self.open(self.two)
        extra = self.many.network.pipes[-1][1]
        extra.cut = True
        self.agent.at = _Nowhere()  # type: ignore[assignment]
        self.many.network.cut(self.one.agents_url)
        self.many.later(1)
        extra.cut = False
        self.many.network.cut(self.two.agents_url)
        self.many.later(DEFAULT_RESUME_LIMITS.closed_grace)
        self.assertEqual(len(watch.closed), 1)

    def test_nor_does_a_connection_of_before(self) -> None:
        """It is newer than the extra tunnel, and ended with it."""
        self.open(self.two)
        self.agent.at = self.three
        self.many.network.cut(self.one.agents_url)
        self.many.later(1)
        watch = self.ask(self.two, resumable=True)
        self.agent.streams[-1][0].send_headers(b"head")
        self.many.settle()
        self.agent.at = _Nowhere()  # type: ignore[assignment]
        connection = self.many.network.pipes[-1][1]
        connection.cut = True
        self.many.network.cut(self.two.agents_url)
        self.many.later(1)
        connection.cut = False
        self.many.network.cut(self.three.agents_url)
        self.many.later(DEFAULT_RESUME_LIMITS.closed_grace)
        self.assertEqual(len(watch.closed), 1)


class EndTests(_Case):
    """When it goes."""

    def setUp(self) -> None:
        super().setUp()
        self.open(self.two)

    def test_lost(self) -> None:
        """Requests are relayed as before, none is lost, and it is opened again."""
        self.many.network.cut(self.two.agents_url)
        self.assertEqual((self.extra.tunnels, self.two.registry.extra), ({}, 0))
        self.busy(self.two)
        self.many.later(INTERVAL)
        self.assertEqual(list(self.extra.tunnels), [self.two.me.kas_id])

    def test_lost_with_a_request(self) -> None:
        """An idempotent one is asked again, by the other path."""
        self.ask(self.two, idempotent=True)
        self.many.network.cut(self.two.agents_url)
        self.many.later(1)
        self.assertEqual(self.client.closed, [])
        self.answer(self.agent)
        self.assert_answered()

    def test_idle(self) -> None:
        """Nobody uses it."""
        self.many.later(IDLE)
        self.assertEqual(len(self.extra.tunnels), 1)
        self.many.later(2 * INTERVAL)
        self.assertEqual((self.extra.tunnels, self.two.registry.extra), ({}, 0))
        self.assertEqual(len(self.agent.dialer._tunnels), 1)

    def test_used(self) -> None:
        """By what runs for long, or now and then."""
        self.ask(self.two)
        self.many.later(3 * IDLE, step=INTERVAL)
        self.assertEqual(len(self.extra.tunnels), 1)
        self.answer(self.agent)
        self.assert_answered()
        for _ in range(3):
            self.many.later(IDLE - INTERVAL, step=INTERVAL)
            self.busy(self.two, 1)
        self.assertEqual(len(self.extra.tunnels), 1)

    def test_kas_leaves(self) -> None:
        """What it began is answered; what comes then is relayed."""
        first = self.ask(self.two)
        before = self.relays()
        self.two.balance.send_away(self.two.registry.tunnels(), "kas stops")
        self.many.settle()
        self.assertEqual(self.extra.tunnels, {})
        self.ask(self.two)
        self.assertEqual(self.relays(), before + 1)
        self.answer(self.agent)
        self.assert_answered()
        stream, _ = self.agent.streams[-2]
        stream.finish()
        self.many.settle()
        self.assertEqual((first.closed, self.two.registry.extra), ([None], 0))

    def test_connection_comes_there(self) -> None:
        """The kas to which it leads has the connection itself now."""
        self.many.network.cut(self.one.agents_url)
        self.many.later(1)
        self.assertEqual(len(self.two.registry), 1)
        self.busy(self.two, 1)
        self.many.later(INTERVAL)
        self.assertEqual((self.extra.tunnels, self.two.registry.extra), ({}, 0))
        self.busy(self.two, 1)

    def test_connection_is_away(self) -> None:
        """While agentk connects again, requests go on through an extra tunnel."""
        del self.many.network.listeners[self.two.agents_url]
        self.many.network.cut(self.one.agents_url)
        self.assertFalse(self.agent.dialer.ready)
        self.busy(self.two, 1)

    def test_stops(self) -> None:
        """agentk ends all its tunnels, and no timer is left."""
        self.extra.stop()
        stopping = Deferred.fromCoroutine(self.agent.dialer.stop(1))
        self.many.later(30)
        self.successResultOf(stopping)
        self.assertEqual(self.agent.dialer._tunnels, {})
        self.assertEqual((len(self.one.registry), self.two.registry.extra), (0, 0))

    def test_stops_while_it_dials(self) -> None:
        """The attempt is given up."""
        self.busy(self.three)
        self.extra.stop()
        dials = self.agent.dialer._generation
        self.many.later(WANTED)
        self.assertEqual(self.agent.dialer._generation, dials)
