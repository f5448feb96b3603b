"""
Limits on how much of kas and of an agent each caller may use, so that a flood of
requests from one caller does not slow down the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import ClassVar, Final, Generic, Protocol, TypeVar

import attrs
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from tunnel.api import Access, ISharedCount
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.timers import call_by
from tunnel.toolkit.token_bucket import TokenBucket

__all__ = [
    "FAST_SECONDS",
    "HEAVIEST",
    "Shares",
    "Sharing",
    "TooMany",
    "room_of",
]

#: Weight that a caller needs for each request that it may have in progress while other
#: callers are active.  A request takes about 60 us of kas and of agentk each: after 2
#: requests of a flood, a request of another caller takes 1.6 times as long (p99), after
#: 4 twice as long, and after 8 four times as long.
WEIGHT_OF_ONE: Final = 2

#: Seconds after which a request no longer counts: a longer request waits for the
#: cluster or for a long path, and needs no resources of kas.  Therefore a user can
#: begin at least 400 requests per second, a job 200.
FAST_SECONDS: Final = 0.005

#: Seconds that a caller without requests counts as active, because a flood between
#: its requests must not slow down a user who sends one request after the other.
REMEMBERED_SECONDS: Final = 5.0

#: Maximum number of remembered credentials without requests; the oldest are dropped
#: first.
REMEMBERED: Final = 1_000


#: Maximum weight in an `Access`.
HEAVIEST: Final = 4


def room_of(weight: int) -> int:
    """
    Return how many requests a caller may have in progress while others are active.
    """
    return max(1, weight // WEIGHT_OF_ONE)


class TooMany(Exception):
    """
    Error for a request that cannot be accepted now; the text names the exceeded limit.
    """


class Sharing(Protocol):
    """Interface of a request whose start the scheduler decides."""

    @property
    def over(self) -> bool:
        """Whether the request has ended."""

    def begin(self) -> None:
        """Begin the request."""

    def begin_failed(self) -> None:
        """End with an error because `begin` raised an exception, which is logged."""


R = TypeVar("R", bound=Sharing)


class Account(Generic[R]):
    """Requests of one caller (`Access.owner`)."""

    __slots__ = (
        "counted",
        "owner",
        "rate",
        "requests",
        "seen",
        "waiting",
        "weight",
    )

    def __init__(self, owner: str, weight: int, rate: TokenBucket | None) -> None:
        self.owner = owner
        self.weight = weight
        #: Requests, each with the id of its credential.
        self.requests: dict[R, str] = {}
        #: Recent requests in progress that began while other callers were active, each
        #: with its time; the oldest first.
        self.counted: dict[R, float] = {}
        #: Requests that wait until fewer requests of this caller are in `counted`.
        self.waiting: deque[R] = deque()
        #: Maximum number of requests per second; None for any number.
        self.rate = rate
        #: Whether the caller had a request since the last search for idle accounts.
        self.seen = True

    def has_room(self, now: float) -> bool:
        """Return whether one more request may begin."""
        counted = self.counted
        room = room_of(self.weight)
        if len(counted) < room:
            return True
        for request, since in tuple(counted.items()):
            # Use the same sum as `frees_at`: a rounding difference would cause endless
            # checks.
            if since + FAST_SECONDS > now:
                break
            del counted[request]
        return len(counted) < room

    @property
    def frees_at(self) -> float:
        """Return the time at which the oldest of `counted` no longer counts."""
        return next(iter(self.counted.values()), 0.0) + FAST_SECONDS


@attrs.define(eq=False)
class _Load(Generic[R]):
    """Numbers of requests at one agent."""

    by_account: dict[Account[R], int]
    count: int = 0


class Shares(Collector, Generic[R]):
    """
    A scheduler that decides which requests begin at once, later, or not at all.

    While a single caller is active, no request waits.  With several, each has at most
    as many running requests as `room_of` permits: the requests of a flood wait in the
    scheduler, where another caller's request can pass them.  In agentk or in the API
    server, that request would have to wait behind the flood.

    When an agent has half of its permitted requests, it accepts no more from a caller
    than the caller's share by weight, so that a new caller still has room.

    :param per_credential: maximum number of running requests of one caller.
    :param per_agent: maximum number of running requests at one agent.
    :param per_second: maximum requests that one caller begins in a second; None for
        any number.
    :param together: counters of running requests by caller and by agent, which all
        workers of this kas share; None without workers.
    """

    _log: ClassVar = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        per_credential: int,
        per_agent: int,
        per_second: int | None = None,
        together: tuple[ISharedCount, ISharedCount] | None = None,
    ) -> None:
        self._together = together
        self._clock = clock
        self._per_credential = per_credential
        self._per_agent = per_agent
        self._per_second = per_second
        self._active: dict[str, Account[R]] = {}
        #: Accounts without requests; the longest idle first.
        self._idle: dict[str, Account[R]] = {}
        self._agents: dict[str, _Load[R]] = {}
        #: Accounts with waiting requests.
        self._waiting: dict[Account[R], None] = {}
        self._next_call: IDelayedCall | None = None
        self._idle_call: IDelayedCall | None = None
        self._held_back = 0

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        yield CounterMetricFamily(
            "kas_kubernetes_api_held_back",
            "Requests that waited for their turn because of other callers.",
            self._held_back,
        )

    @property
    def counts(self) -> tuple[int, int]:
        """Return the numbers of callers and of agents with a request in progress."""
        return len(self._active), len(self._agents)

    def credentials(self) -> set[str]:
        """Return the ids of credentials with a request in progress."""
        return {
            one
            for account in self._active.values()
            for one in account.requests.values()
        }

    def of(self, credential_id: str) -> list[R]:
        """Return the requests of a credential."""
        return [
            request
            for account in self._active.values()
            for request, one in account.requests.items()
            if one == credential_id
        ]

    def all(self) -> list[R]:
        """Return every request in progress."""
        return [one for account in self._active.values() for one in account.requests]

    def admit(self, request: R, access: Access, now: float) -> None:
        """
        Count *request* until `leave` is called; the request is counted even if this
        method raises an exception.

        :param now: the time when the request arrived.
        :raises TooMany: if the request has to be refused.
        """
        owner = access.owner
        account = self._active.get(owner)
        if account is None:
            account = self._idle.pop(owner, None)
            if account is None:
                account = Account(owner, access.weight, self._rate(now))
            self._active[owner] = account
        account.requests[request] = access.credential_id
        load = self._agents.get(access.agent_id)
        if load is None:
            load = self._agents[access.agent_id] = _Load({})
        there = load.by_account.get(account, 0)
        load.by_account[account] = there + 1
        load.count += 1
        of_caller, at_agent = len(account.requests), load.count
        if self._together is not None:
            callers, agents = self._together
            callers.here(owner, of_caller)
            agents.here(access.agent_id, at_agent)
            of_caller += callers.elsewhere[owner]
            at_agent += agents.elsewhere[access.agent_id]
        if of_caller > self._per_credential:
            raise TooMany(f"of {access.who} are in progress")
        if at_agent > self._per_agent:
            raise TooMany(f"at agent {access.agent_name} are in progress")
        if 2 * at_agent > self._per_agent:
            # The share is computed from the requests that other callers leave free, so
            # that one more caller always has room.  If all callers want more, each
            # approaches a share by its weight, and one more such share stays free.
            left = self._per_agent - at_agent + there + 1
            share = max(1, left * account.weight // (account.weight + HEAVIEST))
            if there >= share:
                raise TooMany(
                    f"of {access.who} at agent {access.agent_name} are in progress: "
                    f"its share is {share}"
                )
        if account.rate is not None and not account.rate.spend(now):
            raise TooMany(
                f"of {access.who} arrive: {self._per_second} in a second are allowed"
            )

    def admits(self, request: R, access: Access) -> bool:
        """
        Return whether *request* begins now; if not, its ``begin`` is called later.
        """
        if len(self._active) + len(self._idle) < 2:
            return True
        account = self._active[access.owner]
        now = self._clock.seconds()
        if account.waiting or not account.has_room(now):
            self._held_back += 1
            account.waiting.append(request)
            self._waiting[account] = None
            self._look_at(account.frees_at)
            return False
        account.counted[request] = now
        return True

    def leave(self, request: R, access: Access) -> None:
        """Stop counting *request*, which has ended."""
        account = self._active[access.owner]
        if account.counted.pop(request, None) is not None and account.waiting:
            # Check in the next turn: a request that fails at once would call this
            # method again and again.
            self._look_at(self._clock.seconds())
        account.requests.pop(request, None)
        if not account.requests:
            del self._active[access.owner]
            account.seen = True
            self._idle[account.owner] = account
            if len(self._idle) > REMEMBERED:
                del self._idle[next(iter(self._idle))]
            if self._idle_call is None:
                self._forget_later()
        load = self._agents[access.agent_id]
        load.count -= 1
        if self._together is not None:
            callers, agents = self._together
            callers.here(access.owner, len(account.requests))
            agents.here(access.agent_id, load.count)
        if not load.count:
            del self._agents[access.agent_id]
            return
        there = load.by_account[account] - 1
        if there:
            load.by_account[account] = there
        else:
            del load.by_account[account]

    def stop(self) -> None:
        """Start no more requests."""
        for call in (self._next_call, self._idle_call):
            if call is not None:
                call.cancel()
        self._next_call = self._idle_call = None
        self._waiting.clear()
        self._idle.clear()

    def _look_at(self, when: float) -> None:
        """Check for room at *when*, unless an earlier check is scheduled."""
        self._next_call = call_by(when, self._next_call, self._next, self._clock)

    def _next(self) -> None:
        """Start waiting requests while there is room for them."""
        self._next_call = None
        now = self._clock.seconds()
        for account in tuple(self._waiting):
            while account.waiting and account.has_room(now):
                request = account.waiting.popleft()
                # The request may have been cancelled in the meantime.
                if not request.over:
                    account.counted[request] = now
                    self._begin(request)
            if account.waiting:
                self._look_at(account.frees_at)
            else:
                del self._waiting[account]

    def _begin(self, request: R) -> None:
        """Start *request*; if it fails, the other waiting requests still start."""
        try:
            request.begin()
        except Exception:
            self._log.failure("cannot begin a request that waited")
            for_each((request,), lambda one: one.begin_failed(), "ending a request")

    def _rate(self, now: float) -> TokenBucket | None:
        """Return the rate limiter for a new account; None without a limit."""
        rate = self._per_second
        return None if rate is None else TokenBucket(rate, rate, now)

    def _forget_later(self) -> None:
        self._idle_call = self._clock.callLater(REMEMBERED_SECONDS, self._forget)

    def _forget(self) -> None:
        """Forget the accounts that had no request since the last check."""
        self._idle_call = None
        for account in list(self._idle.values()):
            if account.seen:
                account.seen = False
            else:
                del self._idle[account.owner]
        if self._idle:
            self._forget_later()
