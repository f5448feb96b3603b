"""
Limits on refused credentials from one address, and a fair queue for the next checks.

If too many checks of an address failed, further checks wait in a short queue. The queue
is fair: the connection with the fewest checks comes first; among connections with the
same number of checks, the credential that has been requested for the longest time comes
first, including its earlier requests. Every second turn goes to the credential that has
been requested for the longest time on any connection, because a proxy mixes clients on
its connections. If the queue is full, a new request replaces the last one. Therefore
any number of invented credentials delays a good credential by only a few seconds if its
client retries, unless the invented credentials arrive on many connections and are also
repeated within `REMEMBERED_SECONDS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tunnel.toolkit.recent import Recent
from tunnel.toolkit.timers import cancel_call
from tunnel.toolkit.token_bucket import TokenBucket

__all__ = ["Asker", "CheckTurn", "FailedChecks", "NoTurn"]

#: Maximum number of addresses that are counted at the same time, with 150 bytes each;
#: if there are more, kas forgets the oldest address, which at worst permits a check.
MAX_ADDRESSES = 10_000

#: Maximum seconds for which a check waits if too many checks failed, so that a good
#: credential is not refused because of a short burst of bad credentials.
MAX_WAIT = 4.0

#: Maximum number of credentials whose first request is remembered, and of connections
#: whose checks are counted, for all addresses.  A flood of 500 invented tokens per
#: second displaces credentials without a request in the last 40 seconds.  Each entry
#: takes 200 bytes.
MAX_REMEMBERED = 20_000

#: Seconds without a request after which a credential or connection counts as new again:
#: agentk pauses for at most 30 seconds, and another connection may get the same port.
#: Invented tokens have to be sent again within this time to stay ahead of other tokens.
REMEMBERED_SECONDS = 40.0

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
    """

    asker: Asker
    begins: Deferred[None]
    until: float


@attrs.define(eq=False)
class _Queue:
    """Queue of the checks of one address that wait."""

    turns: list[CheckTurn] = attrs.field(factory=list)
    call: IDelayedCall | None = None
    #: Whether the next turn goes to the credential with the oldest request.
    is_for_oldest: bool = False


class FailedChecks:
    """
    Limiter with a token bucket for each address, which counts the checks that were
    refused, that the client cancelled, or that are still running.

    Checks whose credential is accepted, and checks that fail without a result, do not
    count.  A flood of invented tokens uses up the limit of its own address, and not the
    time of the server.

    :param per_minute: the number of checks that may fail, at once or over a minute.
    """

    def __init__(self, per_minute: int, clock: IReactorTime) -> None:
        self._size = per_minute
        self._clock = clock
        #: Callback that notifies other workers of this kas of checks that began (1) or
        #: succeeded (-1); None without other workers.
        self.tell: Callable[[str, int], None] | None = None
        self._buckets: Recent[str, TokenBucket] = Recent(MAX_ADDRESSES)
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
        bucket = self._bucket(address, now)
        if queue is None and bucket.spend(now):
            self._begun(asker)
            return None
        turns = [] if queue is None else queue.turns
        if len(turns) >= self._longest:
            ranks = self._ranks([*(turn.asker for turn in turns), asker])
            # Keep the credential with the oldest request if the queue has room for two
            # checks.
            oldest = min(ranks, key=_age) if len(turns) > 1 else None
            last = ranks.index(max(one for one in ranks if one is not oldest))
            if last == len(turns):
                raise NoTurn
            self._refuse(turns[last])
        turn = CheckTurn(asker, Deferred(lambda _: self._leave(turn)), now + MAX_WAIT)
        queue = self._queues.setdefault(address, _Queue())
        queue.turns.append(turn)
        self._look_later(address, queue)
        return turn

    # Methods that manage the queue.

    def _ask(self, asker: Asker, now: float) -> None:
        """Record a request of a client."""
        address, port, digest = asker
        _note(self._credentials, (address, digest), now)
        _note(self._connections, (address, port), now)

    def _ranks(self, askers: list[Asker]) -> list[tuple[int, float, int]]:
        """
        Return the keys that sort the queue; the check with the smallest key is first.
        """
        ahead: Counter[int] = Counter()
        ranks = []
        for place, (address, port, digest) in enumerate(askers):
            connection = self._connections.get((address, port))
            credential = self._credentials.get((address, digest))
            checks = 0 if connection is None else connection.checks
            first = self._clock.seconds() if credential is None else credential.first
            ranks.append((checks + ahead[port], first, place))
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
            seconds = self._bucket(address, now).due(now)
            # Turns may end earlier if other workers of this kas use up the remaining
            # checks.
            seconds = min([seconds, *(turn.until - now for turn in queue.turns)])
            queue.call = self._clock.callLater(max(0.0, seconds), self._next, address)

    def _next(self, address: str) -> None:
        """Begin the checks whose turn it is."""
        queue = self._queues[address]
        queue.call = None
        now = self._clock.seconds()
        bucket = self._bucket(address, now)
        while queue.turns and bucket.spend(now):
            ranks = self._ranks([turn.asker for turn in queue.turns])
            first = min(ranks, key=_age) if queue.is_for_oldest else min(ranks)
            queue.is_for_oldest = not queue.is_for_oldest
            turn = queue.turns[ranks.index(first)]
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
        return self._bucket(address, now).borrow(now, MAX_WAIT)

    def _bucket(self, address: str, now: float) -> TokenBucket:
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = TokenBucket(self._size, self._size / 60, now)
        self._buckets[address] = bucket
        return bucket

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


def _age(rank: tuple[int, float, int]) -> tuple[float, int]:
    """Return the part of a rank that does not depend on the connection."""
    _, first, place = rank
    return first, place


def _note(seen: Recent[_K, _Seen], key: _K, now: float) -> None:
    """Record a request of a credential or a connection."""
    one = seen.get(key)
    if one is None or now - one.last > REMEMBERED_SECONDS:
        one = _Seen(now, now)
    one.last = now
    seen[key] = one
