"""
Limits on refused credentials from one address, and a fair queue for the next checks.

If too many checks of an address failed, further checks wait in a short queue.  Three
orders of the queue take turns, and every second turn is for the first of them:

* the connection with the fewest checks first; among connections with the same number of
  checks, the older credential first;
* the request with the smallest random number, its lot, first;
* the older credential first, on any connection, because a proxy mixes clients on its
  connections.

The age of a credential is the time since its first request, at most `OLD` seconds; lots
decide among credentials of the same age.  If the queue is full, a new request replaces
the last one, but never a request that is first in one of the next turns.

So any number of invented credentials that are sent once delays a good credential by
only a few seconds if its client retries.  kas cannot distinguish good credentials from
invented ones that are also repeated and arrive on many connections.  Then each request
for a credential that is `OLD` seconds old has the same chance, and an earlier request a
quarter of it: with 2 checks and 27 requests per second, a good credential is checked
after about 14 requests of its client.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tunnel.toolkit.recent import Recent
from tunnel.toolkit.timers import cancel_call
from tunnel.toolkit.token_buckets import TokenBuckets

__all__ = ["Asker", "CheckTurn", "FailedChecks", "NoTurn"]

#: Maximum number of addresses that are counted at the same time, with 150 bytes each;
#: if there are more, kas forgets the oldest address, which at worst permits a check.
MAX_ADDRESSES = 10_000

#: Maximum wait of a check, in seconds, if too many checks failed, so that a good
#: credential is not refused because of a short burst of bad credentials.
MAX_WAIT = 4.0

#: Maximum number of credentials whose first request is remembered, and of connections
#: whose checks are counted, for all addresses.  A flood of 500 invented tokens per
#: second displaces credentials without a request in the last 40 seconds.  Each entry
#: takes 200 bytes.
MAX_REMEMBERED = 20_000

#: Seconds without a request after which a credential or connection counts as new again:
#: agentk pauses for at most 30 seconds, users retry after a minute, and another
#: connection may get the same port.
REMEMBERED_SECONDS = 90.0

#: Seconds after its first request from which a credential does not become older.  A
#: credential that is sent again becomes older than all credentials that wait after
#: their first request, for `MAX_WAIT` seconds at most.  Among older credentials, lots
#: decide, because otherwise invented tokens that are repeated again and again would
#: come before any new token.
OLD = 2 * MAX_WAIT

_RANDOM = secrets.SystemRandom().random

_K = TypeVar("_K")


class NoTurn(Exception):
    """
    Error for a credential that is not checked now because other credentials come first.
    """


class Asker(NamedTuple):
    """
    Identity of a client that requests the check of a credential.

    :ivar address: see `peer_network`.
    :ivar port: the port of the client's connection; 0 if unknown.
    :ivar digest: the digest of the client's credential.
    """

    address: str
    port: int
    digest: bytes


@attrs.define
class _Seen:
    """
    Credential or connection with recent requests.

    :ivar first: the time of the first request.
    :ivar last: the time of the last request.
    :ivar checks: the number of checks that failed or are running.
    """

    first: float
    last: float
    checks: int = 0


@attrs.define(eq=False)
class CheckTurn:
    """
    Place of a check in the queue of its client's address.

    :ivar begins: fires when the check may begin; fails with `NoTurn`.  Cancelling this
        Deferred removes the check from the queue.
    :ivar until: the time at which the check leaves the queue without a turn.
    :ivar lot: a random number.
    """

    asker: Asker
    begins: Deferred[None]
    until: float
    lot: float


class _Rank(NamedTuple):
    """
    Properties of a check in the queue that decide when its turn comes.

    :ivar checks: the number of checks of its connection, including those before it.
    :ivar first: the time of the credential's first request, at most `OLD` seconds ago.
    :ivar lot: see `CheckTurn`.
    :ivar place: the place in the queue.
    """

    checks: int
    first: float
    lot: float
    place: int


#: The orders of successive turns: the check with the smallest part of its `_Rank` from
#: this property on is first.
_ORDERS = tuple(
    _Rank._fields.index(name) for name in ("checks", "lot", "checks", "first")
)


@attrs.define(eq=False)
class _Queue:
    """
    Queue of the checks of one address that wait.

    :ivar order: the number of the next turn, which selects one of `_ORDERS`.
    """

    order: int
    turns: list[CheckTurn] = attrs.field(factory=list)
    call: IDelayedCall | None = None

    def kept(self, ranks: list[_Rank], count: int) -> list[_Rank]:
        """Return the ranks of the checks that are first in the next *count* turns."""
        orders = range(self.order, self.order + min(count, len(_ORDERS)))
        return [_first(ranks, order) for order in orders]

    def take(self, ranks: list[_Rank]) -> CheckTurn:
        """Return the check whose turn it is."""
        rank = _first(ranks, self.order)
        self.order += 1
        return self.turns[rank.place]


def _first(ranks: list[_Rank], order: int) -> _Rank:
    """Return the rank of the check that is first in an order."""
    begin = _ORDERS[order % len(_ORDERS)]
    return min(ranks, key=lambda rank: rank[begin:])


class FailedChecks:
    """
    Limiter with a token bucket for each address, which counts the checks that were
    refused, that the client cancelled, or that are still running.

    Checks whose credential is accepted, and checks that fail without a result, do not
    count.  A flood of invented tokens uses up the limit of its own address, and not the
    time of the server.

    :param per_minute: the number of checks that may fail, at once or over a minute.
    :param random: returns random numbers from 0 to 1.
    """

    def __init__(
        self,
        per_minute: int,
        clock: IReactorTime,
        random: Callable[[], float] = _RANDOM,
    ) -> None:
        self._size = per_minute
        self._clock = clock
        self._random = random
        #: Callback that notifies other workers of this kas of checks that began (1) or
        #: succeeded (-1); None without other workers.
        self.tell: Callable[[str, int], None] | None = None
        self._buckets: TokenBuckets[str] = TokenBuckets(
            MAX_ADDRESSES, per_minute, per_minute / 60
        )
        #: Queues of addresses with waiting checks; `Authenticators` limits the number
        #: of waiting checks.
        self._queues: dict[str, _Queue] = {}
        self._credentials: Recent[tuple[str, bytes], _Seen] = Recent(MAX_REMEMBERED)
        self._connections: Recent[tuple[str, int], _Seen] = Recent(MAX_REMEMBERED)
        # Maximum length of a queue, so that its last check begins within `MAX_WAIT`.
        self._longest = int(MAX_WAIT * per_minute / 60)

    def __len__(self) -> int:
        return len(self._buckets)

    def begin(self, asker: Asker) -> CheckTurn | None:
        """
        Count a check that a client requests.

        :returns: the place of the check in the queue; None if the check begins now.
        :raises NoTurn: if too many checks failed, and other checks come first.
        """
        now = self._clock.seconds()
        address = asker.address
        self._ask(asker, now)
        queue = self._queues.get(address)
        bucket = self._buckets.used(address, now)
        if queue is None and bucket.spend(now):
            self._begun(asker)
            return None
        if queue is None:
            # Begin with a random order, because a short queue may end after each turn.
            queue = _Queue(int(self._random() * len(_ORDERS)))
        turn = CheckTurn(
            asker, Deferred(lambda _: self._leave(turn)), now + MAX_WAIT, self._random()
        )
        last = None
        if len(queue.turns) >= self._longest:
            turns = [*queue.turns, turn]
            ranks = self._ranks(turns)
            kept = queue.kept(ranks, self._longest)
            last = turns[max(one for one in ranks if one not in kept).place]
            if last is turn:
                raise NoTurn
        self._queues[address] = queue
        queue.turns.append(turn)
        self._look_later(address, queue)
        if last is not None:
            self._refuse(last)
        return turn

    # Methods that manage the queue.

    def _ask(self, asker: Asker, now: float) -> None:
        """Record a request of a client."""
        address, port, digest = asker
        _note(self._credentials, (address, digest), now)
        _note(self._connections, (address, port), now)

    def _ranks(self, turns: list[CheckTurn]) -> list[_Rank]:
        """Return the ranks of *turns*; the last one is refused if the queue is full."""
        now = self._clock.seconds()
        ahead: Counter[int] = Counter()
        ranks = []
        for place, turn in enumerate(turns):
            address, port, digest = turn.asker
            connection = self._connections.get((address, port))
            credential = self._credentials.get((address, digest))
            checks = 0 if connection is None else connection.checks
            first = now if credential is None else max(credential.first, now - OLD)
            ranks.append(_Rank(checks + ahead[port], first, turn.lot, place))
            ahead[port] += 1
        return ranks

    def _begun(self, asker: Asker) -> None:
        """Record that the check of a client's credential begins."""
        address, port, digest = asker
        # The next request of the credential counts as new.
        self._credentials.pop((address, digest), None)
        connection = self._connections.get((address, port))
        if connection is not None:
            connection.checks += 1
        if self.tell is not None:
            self.tell(address, 1)

    def _leave(self, turn: CheckTurn) -> None:
        address = turn.asker.address
        queue = self._queues[address]
        queue.turns.remove(turn)
        if not queue.turns:
            del self._queues[address]
            cancel_call(queue.call)
            queue.call = None

    def _refuse(self, turn: CheckTurn) -> None:
        self._leave(turn)
        turn.begins.errback(NoTurn())

    def _look_later(self, address: str, queue: _Queue) -> None:
        if queue.call is None:
            now = self._clock.seconds()
            seconds = self._buckets.used(address, now).due(now)
            # Turns may end earlier if other workers of this kas use up the remaining
            # checks.
            seconds = min([seconds, *(turn.until - now for turn in queue.turns)])
            queue.call = self._clock.callLater(max(0.0, seconds), self._next, address)

    def _next(self, address: str) -> None:
        """Begin the checks whose turn it is."""
        queue = self._queues[address]
        queue.call = None
        now = self._clock.seconds()
        bucket = self._buckets.used(address, now)
        while queue.turns and bucket.spend(now):
            turn = queue.take(self._ranks(queue.turns))
            self._leave(turn)
            self._begun(turn.asker)
            turn.begins.callback(None)
        for turn in [turn for turn in queue.turns if turn.until <= now]:
            if turn in queue.turns:
                self._refuse(turn)
        if queue.turns:
            self._look_later(address, queue)

    def count(self, address: str, amount: int) -> None:
        """Count failed checks of another worker."""
        if amount > 0:
            self._begin(address)
        else:
            self._succeeded(address)

    def _begin(self, address: str) -> float | None:
        now = self._clock.seconds()
        return self._buckets.used(address, now).borrow(now, MAX_WAIT)

    def succeeded(self, asker: Asker) -> None:
        """Record that a check that began did not fail."""
        address = asker.address
        connection = self._connections.get((address, asker.port))
        if connection is not None and connection.checks:
            connection.checks -= 1
        self._succeeded(address)
        if self.tell is not None:
            self.tell(address, -1)

    def _succeeded(self, address: str) -> None:
        bucket = self._buckets.get(address)
        if bucket is not None:
            bucket.earn()
            if bucket.fill(self._clock.seconds()) >= self._size:
                del self._buckets[address]
        queue = self._queues.get(address)
        if queue is not None and queue.call is not None:
            # Schedule the next turn again, because it comes earlier now.
            cancel_call(queue.call)
            queue.call = None
            self._look_later(address, queue)


def _note(seen: Recent[_K, _Seen], key: _K, now: float) -> None:
    """Record a request of a credential or a connection."""
    one = seen.get(key)
    if one is None or now - one.last > REMEMBERED_SECONDS:
        one = _Seen(now, now)
    one.last = now
    seen[key] = one
