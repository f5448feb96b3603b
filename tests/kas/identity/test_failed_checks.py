"""An address that sends invented tokens does not use up what others have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, cycle, repeat
from random import Random
from typing import Any

import attrs
import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from kas.identity import authenticators as authenticators_module
from kas.identity import failed_checks as module
from kas.identity.authenticators import Authenticators
from kas.identity.failed_checks import Asker, CheckTurn, FailedChecks, NoTurn
from tunnel.api import Access, AgentIdentity, IAuthenticator
from tunnel.errors import CallError, Status
from tunnel.toolkit.addresses import peer_network

ACCESS = Access("x:1", "1", "prod")
LIMIT = 5


@attrs.frozen
class Connection:
    host: str

    @property
    def peer_address(self) -> IAddress:
        return IPv4Address("TCP", self.host, 4711)


ONE, OTHER = Connection("192.0.2.1"), Connection("192.0.2.2")


@implementer(IAuthenticator)
class Asking:
    """Asks in the next turn, as it should."""

    user_kinds = ("x",)
    agent_prefixes = (b"",)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[str] = []
        self.hangs = False
        self.good = "good"

    def authorize_user(self, agent: str, token: str) -> Access | Deferred[Access]:
        return ACCESS if token == "known" else self._ask(token, ACCESS)

    def authenticate_agent(self, token: bytes) -> Deferred[AgentIdentity]:
        return self._ask(token.decode(), AgentIdentity("1", "prod", "agent:1:x"))

    def _ask(self, token: str, result: Any) -> Deferred[Any]:
        def now() -> None:
            self.asked.append(token)
            if self.hangs:
                return
            if token == self.good:
                answer.callback(result)
            else:
                away = token == "away"
                status = Status.UNAVAILABLE if away else Status.UNAUTHENTICATED
                answer.errback(CallError(status, "no"))

        def cancel(_: object) -> None:
            if call.active():
                call.cancel()

        call = self.clock.callLater(0, now)
        answer: Deferred[Any] = Deferred(cancel)
        return answer


class FailedChecksTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.asking = Asking(self.clock)
        self.all = Authenticators(
            self.clock, FailedChecks(LIMIT, self.clock, Random(1).random)
        )
        self.all.add(self.asking)

    def check(self, token: str, peer: Connection | None = ONE) -> Any:
        """The access, or the status of the refusal."""
        try:
            answer = self.all.authorize_user("x", "1", token, peer)
        except CallError as error:
            return error.status
        if not isinstance(answer, Deferred):
            return answer
        self.clock.advance(0)
        found: list[Any] = []
        answer.addBoth(found.append)
        return found[0] if isinstance(found[0], Access) else found[0].value.status

    def test_limit(self) -> None:
        """So many a minute; others, and what is known, are served all the while."""
        for number in range(LIMIT):
            self.assertEqual(self.check(f"{number}"), Status.UNAUTHENTICATED)
        self.assertEqual(self.check("one more"), Status.RESOURCE_EXHAUSTED)
        self.assertEqual(self.check("good"), Status.RESOURCE_EXHAUSTED)
        self.assertEqual(len(self.asking.asked), LIMIT)
        self.assertEqual(self.check("known"), ACCESS)
        self.assertEqual(self.check("good", OTHER), ACCESS)
        self.assertEqual(self.all.checks, 0)
        self.clock.advance(60 / LIMIT)
        self.assertEqual(self.check("good"), ACCESS)
        self.assertEqual(self.check("bad"), Status.UNAUTHENTICATED)
        self.assertEqual(self.check("worse"), Status.RESOURCE_EXHAUSTED)
        self.clock.advance(60)
        for number in range(LIMIT):
            self.assertEqual(self.check(f"x{number}"), Status.UNAUTHENTICATED)
        self.assertEqual(self.check("worse"), Status.RESOURCE_EXHAUSTED)

    def test_repeated(self) -> None:
        """A bad credential that is sent again takes nothing from new ones."""
        for _ in range(10 * LIMIT):
            self.assertEqual(self.check("bad"), Status.UNAUTHENTICATED)
        # It is asked about again, but not each time.
        self.assertEqual(len(self.asking.asked), 1 + LIMIT)
        for number in range(LIMIT - 2):
            self.assertEqual(self.check(f"{number}"), Status.UNAUTHENTICATED)
        self.assertEqual(self.check("good"), ACCESS)
        # What was refused, and is good by now.
        self.clock.advance(60 / LIMIT)
        self.asking.good = "bad"
        self.assertEqual(self.check("bad"), ACCESS)
        self.assertEqual(len(self.all._refused), LIMIT - 2)

    def test_refused_are_bounded(self) -> None:
        """The one that was refused longest ago counts as a new one."""
        self.patch(authenticators_module, "MAX_REFUSED", 2)
        self.setUp()
        for number in range(LIMIT):
            self.check(f"{number}")
        self.assertEqual(len(self.all._refused), 2)

    def test_moment_of_patience(self) -> None:
        """A new credential waits for its turn where a burst of bad ones came before."""
        failed = FailedChecks(120, self.clock, Random(1).random)
        self.all = Authenticators(self.clock, failed)
        self.all.add(self.asking)
        for number in range(120):
            self.assertEqual(self.check(f"{number}"), Status.UNAUTHENTICATED)
        answer = self.all.authorize_user("x", "1", "good", ONE)
        assert isinstance(answer, Deferred)
        self.clock.advance(0.4)
        self.assertNotIn("good", self.asking.asked)
        self.clock.advance(0.2)
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(answer), ACCESS)
        # A flood of others does not wait without an end, and costs no memory.
        waiting = []
        with self.assertRaises(CallError) as caught:
            for number in range(20):
                peer = self.all.authorize_user("x", "1", f"y{number}", ONE)
                waiting.append(peer)
        self.assertEqual(caught.exception.status, Status.RESOURCE_EXHAUSTED)
        self.assertLessEqual(len(waiting), 2 + module.MAX_WAIT * 120 / 60)
        for one in waiting:
            assert isinstance(one, Deferred)
            one.addErrback(lambda _: None)
            # A client that leaves asks nothing.
            one.cancel()
        self.clock.pump([0.5] * 20)
        self.assertFalse([one for one in self.asking.asked if one.startswith("y")])
        self.assertEqual(self.all.checks, 0)

    def test_accepted_lately(self) -> None:
        """What others send from one address locks out nobody who was let in before."""
        self.assertEqual(self.check("good"), ACCESS)
        agent = self.all.authenticate_agent(b"good", ONE)
        self.clock.advance(0)
        assert isinstance(agent, Deferred)
        self.successResultOf(agent)
        for number in range(LIMIT):
            self.assertEqual(self.check(f"{number}"), Status.UNAUTHENTICATED)
        self.assertEqual(self.check("one more"), Status.RESOURCE_EXHAUSTED)
        self.assertEqual(self.check("good"), ACCESS)
        self.assertEqual(self.check("good"), ACCESS)
        self.assertIsInstance(self.all.authenticate_agent(b"good", ONE), Deferred)
        self.clock.advance(0)

    def test_refused_meanwhile(self) -> None:
        """One that is refused now is as any other."""
        self.assertEqual(self.check("good"), ACCESS)
        for number in range(LIMIT):
            self.check(f"{number}")
        self.asking.good = "another"
        self.assertEqual(self.check("good"), Status.UNAUTHENTICATED)
        self.assertEqual(self.check("other"), Status.RESOURCE_EXHAUSTED)

    def test_accepted_are_bounded(self) -> None:
        """The one that was accepted longest ago is checked as a new one."""
        self.patch(authenticators_module, "MAX_ACCEPTED", 1)
        self.setUp()
        self.check("good")
        self.asking.good = "another"
        self.check("another")
        self.asking.good = "good"
        for number in range(LIMIT):
            self.check(f"{number}")
        self.assertEqual(self.check("good"), Status.RESOURCE_EXHAUSTED)

    def test_agents(self) -> None:
        """Their tokens count as those of users do."""
        for number in range(LIMIT):
            answer = self.all.authenticate_agent(b"%d" % number, ONE)
            assert isinstance(answer, Deferred)
            self.clock.advance(0)
            self.failureResultOf(answer, CallError)
        again = self.all.authenticate_agent(b"0", ONE)
        assert isinstance(again, Deferred)
        self.clock.advance(0)
        self.failureResultOf(again, CallError)
        with self.assertRaises(CallError) as caught:
            self.all.authenticate_agent(b"good", ONE)
        self.assertEqual(caught.exception.status, Status.RESOURCE_EXHAUSTED)
        self.assertEqual(self.check("bad"), Status.RESOURCE_EXHAUSTED)
        answer = self.all.authenticate_agent(b"good", OTHER)
        assert isinstance(answer, Deferred)
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(answer).agent_id, "1")

    def test_no_failures(self) -> None:
        """What is accepted, and what nothing can be said of, costs nothing."""
        for _ in range(3 * LIMIT):
            self.assertEqual(self.check("good"), ACCESS)
            self.assertEqual(self.check("away"), Status.UNAVAILABLE)
        self.assertEqual(len(self.all.failed), 0)

    def test_not_answered_yet(self) -> None:
        """Those that wait count, so that a flood does not come all at once."""
        self.asking.hangs = True
        waiting = [self.all.authorize_user("x", "1", "good", ONE) for _ in range(LIMIT)]
        self.assertEqual(self.check("good"), Status.RESOURCE_EXHAUSTED)
        for one in waiting:
            assert isinstance(one, Deferred)
            one.addErrback(lambda _: None)
            one.cancel()
        self.asking.hangs = False
        # Leaving before the answer is no way around it.
        self.assertEqual(self.check("good"), Status.RESOURCE_EXHAUSTED)
        self.clock.advance(60)
        self.assertEqual(self.check("good"), ACCESS)

    def test_within(self) -> None:
        """A module that names no connection is not limited."""
        for _ in range(3 * LIMIT):
            self.assertEqual(self.check("bad", None), Status.UNAUTHENTICATED)

    def test_bounded(self) -> None:
        """Of many addresses the one that came longest ago is forgotten."""
        self.patch(module, "MAX_ADDRESSES", 2)
        self.setUp()
        for host in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
            self.check("bad", Connection(host))
        self.assertEqual(len(self.all.failed), 2)

    def test_addresses(self) -> None:
        """One customer of a provider is one address."""

        def v6(host: str) -> str:
            return peer_network(IPv6Address("TCP", host, 1))

        self.assertEqual(peer_network(IPv4Address("TCP", "192.0.2.1", 1)), "192.0.2.1")
        self.assertEqual(v6("::ffff:192.0.2.1"), "192.0.2.1")
        self.assertEqual(v6("2001:db8:1:2::1"), v6("2001:db8:1:2:ffff::9"))
        self.assertNotEqual(v6("2001:db8:1:2::1"), v6("2001:db8:1:3::1"))
        self.assertEqual(peer_network(UNIXAddress("/run/kas")), "local")


# The queue of one address.

RATE = 120


class OneAddress:
    """Clients behind one address, whose tokens are checked by a module that asks."""

    def __init__(self, random: Callable[[], float] | None = None) -> None:
        self.clock = Clock()
        self.asking = Asking(self.clock)
        failed = FailedChecks(RATE, self.clock, random or Random(1).random)
        self.all = Authenticators(self.clock, failed)
        self.all.add(self.asking)
        self.answers: dict[str, Any] = {}

    def ask(self, token: str, port: int) -> None:
        """Send *token* on a connection with this port; note the status."""

        def failed(failure: Failure) -> None:
            error = failure.value
            self.answers[token] = getattr(error, "status", error)

        self.answers[token] = None
        peer = ConnectionAtPort(IPv4Address("TCP", "192.0.2.1", port))
        try:
            answer = self.all.authorize_user("x", "1", token, peer)
        except CallError as error:
            self.answers[token] = error.status
            return
        assert isinstance(answer, Deferred)
        answer.addCallbacks(lambda _: self.answers.update({token: ACCESS}), failed)

    def spend_all(self) -> None:
        for number in range(RATE):
            self.ask(f"first{number}", 1)
        self.clock.advance(0)

    def in_after(self, bad: Callable[[int], tuple[str, int]], port: int) -> float:
        """
        Seconds until a good token is accepted, beside 500 others a second.

        :param bad: token and port of the nth one.
        """
        self.spend_all()
        number, begun = 0, self.clock.seconds()
        for step in range(3000):
            for _ in range(5):
                number += 1
                self.ask(*bad(number))
            if self.answers.get("good") is ACCESS:
                return self.clock.seconds() - begun - 5.0
            waits = "good" in self.answers and self.answers["good"] is None
            if step >= 500 and step % 100 == 0 and not waits:
                self.ask("good", port)
            self.clock.advance(0.01)
        return math.inf


@attrs.frozen
class ConnectionAtPort:
    peer_address: IAddress


@pytest.mark.parametrize(("connections", "most"), [(1, 1.0), (64, 8.0)])
def test_a_flood_of_a_few_connections(connections: int, most: float) -> None:
    """A connection that had no check comes first."""
    clients = OneAddress()
    assert clients.in_after(lambda n: (f"bad{n}", 100 + n % connections), 9) < most
    # GitLab gets no more requests than the limit permits.
    seconds = clients.clock.seconds()
    assert len(clients.asking.asked) <= RATE + 2 * seconds + 2


def test_a_flood_of_many_connections() -> None:
    """A token that is sent again comes before tokens that are sent once."""
    clients = OneAddress()
    assert clients.in_after(lambda n: (f"bad{n}", n + 10), 9) < 8.0
    seconds = clients.clock.seconds()
    assert len(clients.asking.asked) <= RATE + 2 * seconds + 2


def test_a_flood_of_repeated_tokens() -> None:
    """Each of its connections has a turn at most before a good token."""
    clients = OneAddress()
    assert clients.in_after(lambda n: (f"bad{n % 1000}", 100 + n % 20), 9) <= 20 / 2


class Flood:
    """
    Invented tokens from one address, each sent again every *period* seconds.

    :param ports: the ports of their connections.
    :param is_repeated: whether a token is sent again until it is checked, and not
        replaced after each request.
    """

    address = "192.0.2.1"

    def __init__(
        self,
        tokens: int,
        period: float,
        ports: Iterator[int],
        is_repeated: bool = True,
        per_minute: int = RATE,
    ) -> None:
        self.clock = Clock()
        self.failed = FailedChecks(per_minute, self.clock, Random(1).random)
        self.begun: set[bytes] = set()
        self._tokens = [0] * tokens
        self._ports = ports
        self._is_repeated = is_repeated
        self._interval = period / tokens
        self._sent = 0

    def ask(self, port: int, digest: bytes) -> None:
        try:
            turn = self.failed.begin(Asker(self.address, port, digest))
        except NoTurn:
            return
        if turn is None:
            self.begun.add(digest)
        else:
            turn.begins.addCallbacks(
                lambda _: self.begun.add(digest), lambda failure: failure.trap(NoTurn)
            )

    def go_on(self, seconds: float) -> None:
        """Send tokens for so many seconds."""
        until = self.clock.seconds() + seconds
        while self.clock.seconds() < until:
            place = self._sent % len(self._tokens)
            token = b"bad %d %d" % (place, self._tokens[place])
            if token in self.begun or not self._is_repeated:
                self._tokens[place] += 1
                token = b"bad %d %d" % (place, self._tokens[place])
            self._sent += 1
            self.ask(next(self._ports), token)
            self.clock.advance(self._interval)

    def tries(self, interval: float, port: int) -> int:
        """Count the requests of a new good token until it is checked, at most 100."""
        digest = b"good %d" % self._sent
        for number in range(1, 101):
            self.ask(port, digest)
            self.go_on(interval)
            if digest in self.begun:
                return number
        return 101


@pytest.mark.parametrize("is_on_own_port", [True, False])
def test_a_flood_of_repeated_tokens_on_many_connections(is_on_own_port: bool) -> None:
    """Any request has the same chance: 2 checks, and 27 requests a second."""
    flood = Flood(800, 30.0, iter(range(100, 10**6)))
    flood.go_on(60)
    tries = []
    for number in range(5):
        tries.append(flood.tries(3.0, number if is_on_own_port else 1))
    assert sum(tries) / len(tries) < (14 if is_on_own_port else 28) * 1.5
    assert max(tries) <= 60


def test_a_flood_of_repeated_tokens_through_a_proxy() -> None:
    """Lots decide where each token comes on the same connections."""
    flood = Flood(800, 30.0, cycle(range(16)))
    flood.go_on(60)
    tries = [flood.tries(3.0, number) for number in range(5)]
    assert sum(tries) / len(tries) < 28


@pytest.mark.parametrize("per_minute", [15, 30])
def test_a_flood_of_repeated_tokens_with_a_short_queue(per_minute: int) -> None:
    """A queue of one or two checks has turns of all orders."""
    flood = Flood(100, 25.0, iter(range(100, 10**6)), per_minute=per_minute)
    flood.go_on(60)
    tries = [flood.tries(3.0, number) for number in range(3)]
    assert sum(tries) / len(tries) < 2 * 4 / (per_minute / 60)


@pytest.mark.parametrize(("tokens", "per_minute"), [(800, RATE), (100, 15)])
def test_tokens_that_are_sent_once_beside_repeated_tokens(
    tokens: int, per_minute: int
) -> None:
    """Every fourth check is for any of the requests, also if its token is new."""
    flood = Flood(tokens, 27.0, iter(range(100, 10**6)), per_minute=per_minute)
    flood.go_on(60)
    for number in range(400):
        flood.ask(number % 100, b"good %d" % number)
        flood.go_on(1.0)
    checked = [token for token in flood.begun if token.startswith(b"good")]
    assert len(checked) >= 4


def test_a_user_who_tries_again_after_a_minute() -> None:
    """kas remembers the first request for longer than a minute."""
    flood = Flood(5, 1.0, iter(range(100, 10**6)), is_repeated=False)
    flood.go_on(60)
    assert flood.tries(60.0, 1) <= 2


def test_a_flood_on_the_connections_of_a_proxy() -> None:
    """A good credential is checked although its connection sent most of the flood."""
    clock = Clock()
    failed = FailedChecks(120, clock, Random(1).random)
    begun: list[bytes] = []
    number = 0

    def ask(port: int, digest: bytes) -> None:
        try:
            turn = failed.begin(Asker("192.0.2.1", port, digest))
        except NoTurn:
            return
        if turn is None:
            begun.append(digest)
        else:
            turn.begins.addCallbacks(
                lambda _: begun.append(digest), lambda failure: failure.trap(NoTurn)
            )

    for second in range(300):
        for port in (1, 1, *range(1000 + 3 * second, 1003 + 3 * second)):
            number += 1
            ask(port, b"%d" % number)
        if second >= 100:
            ask(1, b"good")
        clock.advance(1.0)
        if b"good" in begun:
            break
    assert b"good" in begun
    assert second < 130


def test_a_queue_is_bounded() -> None:
    """The request that would be last gives way, and learns it at once."""
    clients = OneAddress(lambda: 0.0)
    clients.spend_all()
    for number in range(20):
        clients.ask(f"bad{number}", 2)
    waiting = [token for token, answer in clients.answers.items() if answer is None]
    assert waiting == [f"bad{number}" for number in range(8)]
    clients.ask("good", 3)
    assert clients.answers["bad7"] is Status.RESOURCE_EXHAUSTED
    assert clients.answers.get("good") is None
    # By turns the oldest request, and the connection with the fewest checks.
    clients.clock.pump([0.51, 0, 0.5, 0, 0.5, 0])
    assert clients.answers["good"] is ACCESS
    # A check that succeeds costs nothing: the next one follows at once.
    assert clients.asking.asked[RATE:] == ["bad0", "bad1", "good", "bad2"]
    assert clients.all.checks == 4
    clients.clock.pump([0.5] * 10)
    assert clients.all.checks == 0
    assert not clients.all.failed._queues
    assert not clients.clock.getDelayedCalls()


def test_the_order_of_turns() -> None:
    """Every second turn is for connections, the others for lots and for the oldest."""
    clients = OneAddress(chain([0.0], repeat(0.5, 5), [0.1]).__next__)
    clients.spend_all()
    # All checks before came from this connection.
    clients.ask("old", 1)
    clients.clock.advance(0.1)
    for number in range(2, 6):
        clients.ask(f"bad{number}", number)
    clients.ask("lucky", 1)
    clients.clock.pump([0.5, 0] * 5)
    asked = clients.asking.asked[RATE:]
    assert asked[:4] == ["bad2", "lucky", "bad3", "old"]


def test_full_queues_keep_the_first_of_each_order() -> None:
    """A new request replaces no request that has one of the next turns."""
    numbers = chain([0.0], repeat(0.5, 8), [0.1], repeat(0.9))
    clients = OneAddress(numbers.__next__)
    clients.spend_all()
    # The connection with the most checks has the oldest request and the smallest lot.
    clients.ask("old", 1)
    clients.clock.advance(0.1)
    for number in range(2, 8):
        clients.ask(f"bad{number}", number)
    clients.ask("unlucky", 1)
    clients.ask("lucky", 1)
    assert clients.answers["unlucky"] is Status.RESOURCE_EXHAUSTED
    for number in range(8, 30):
        clients.ask(f"bad{number}", number)
    waiting = [token for token, answer in clients.answers.items() if answer is None]
    assert waiting == ["old", *(f"bad{number}" for number in range(2, 8)), "lucky"]


def test_lots_decide_among_old_credentials() -> None:
    """A credential does not come first because it was repeated for longer."""
    clock = Clock()
    lots = chain([0.0, 0.6], [0.5], [0.4], repeat(0.9))
    checks = FailedChecks(RATE, clock, lots.__next__)
    for number in range(RATE):
        assert checks.begin(Asker("192.0.2.1", 1, b"%d" % number)) is None
    turns = []
    for number in range(3):
        checks._ask(Asker("192.0.2.1", 2 + number, b"x%d" % number), clock.seconds())
        clock.advance(module.OLD)
    for _ in range(RATE):
        checks.count("192.0.2.1", 1)
    for number in range(3):
        turn = checks.begin(Asker("192.0.2.1", 2 + number, b"x%d" % number))
        assert turn is not None
        turns.append(turn)
    order = sorted(checks._ranks(turns))
    assert [rank.place for rank in order] == [2, 1, 0]


def test_turns_that_end_early() -> None:
    """A check that succeeds lets the next one begin; one that waits too long ends."""
    clients = OneAddress()
    clients.asking.hangs = True
    for number in range(RATE):
        clients.ask(f"first{number}", 1)
    clients.clock.advance(0)
    clients.ask("good", 2)
    checks = clients.all.failed
    checks.succeeded(Asker("192.0.2.1", 1, b""))
    clients.clock.pump([0, 0, 0])
    assert clients.answers["good"] is None
    assert clients.asking.asked[-1] == "good"
    # Another worker of this kas spends what this one waits for.
    clients.ask("late", 2)
    for _ in range(20):
        checks.count("192.0.2.1", 1)
    clients.clock.pump([0.5] * 8)
    assert clients.answers["late"] is Status.RESOURCE_EXHAUSTED


def test_memory_of_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    checks = FailedChecks(RATE, Clock())
    for number in range(10):
        checks._ask(Asker("192.0.2.1", number, b"%d" % number), 0.0)
    assert len(checks._credentials) == len(checks._connections) == 3


def test_clients_are_forgotten() -> None:
    """Another client may get the same port."""
    checks = FailedChecks(RATE, Clock())
    asker = Asker("192.0.2.1", 1, b"x")
    assert checks.begin(asker) is None
    checks._ask(asker, 0.0)
    turns = [CheckTurn(asker, Deferred(), 0.0, 0.5)] * 2
    assert checks._ranks(turns) == [(1, 0.0, 0.5, 0), (2, 0.0, 0.5, 1)]
    later = module.REMEMBERED_SECONDS + 1
    checks._ask(asker, later)
    assert checks._ranks(turns[:1]) == [(0, later, 0.5, 0)]
