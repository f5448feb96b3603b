"""Each caller's share of kas and of an agent: no flood of one slows the others."""

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

#: Weight that a caller needs for each request that it may have under way while others
#: are active.  A request takes some 60 us of kas and as much of agentk: with 2 of a
#: flood before it, one of another caller takes 1.6 times its time (p99), with 4 twice,
#: with 8 four times.
WEIGHT_OF_ONE: Final = 2

#: Seconds after which a request no longer counts: a longer one waits for the cluster or
#: for a long path, and costs nothing here.  So a user can begin at least 400 a second,
#: a job 200.
FAST_SECONDS: Final = 0.005

#: Seconds for which a caller without requests counts as active: a user who waits for
#: one response after the other must not meet a flood that does not count them.
REMEMBERED_SECONDS: Final = 5.0

#: Credentials without requests that are remembered; the oldest go first.
REMEMBERED: Final = 1_000


#: The most weight that `Access` gives.
HEAVIEST: Final = 4


def room_of(weight: int) -> int:
    """
    Return how many requests a caller may have in progress while others are active.
    """
    return max(1, weight // WEIGHT_OF_ONE)


class TooMany(Exception):
    """A request cannot be taken now; the text says what there are too many of."""


class Sharing(Protocol):
    """A request, as far as it has a share."""

    @property
    def over(self) -> bool:
        """Nothing more will happen."""

    def begin(self) -> None:
        """Begin the request."""

    def begin_failed(self) -> None:
        """End with an error: `begin` raised an exception, which is logged."""


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
        #: With the id of the credential that each came with.
        self.requests: dict[R, str] = {}
        #: Those under way that began a moment ago while others were active, and when;
        #: the oldest first.
        self.counted: dict[R, float] = {}
        #: Requests that begin when fewer are counted.
        self.waiting: deque[R] = deque()
        #: None: any number a second.
        self.rate = rate
        #: It had a request since the idle ones were looked through.
        self.seen = True

    def has_room(self, now: float) -> bool:
        """Whether one more may begin."""
        counted = self.counted
        room = room_of(self.weight)
        if len(counted) < room:
            return True
        for request, since in tuple(counted.items()):
            # Summed as in `frees_at`: a rounding would have it looked at without end.
            if since + FAST_SECONDS > now:
                break
            del counted[request]
        return len(counted) < room

    @property
    def frees_at(self) -> float:
        """When the oldest of `counted` ceases to count."""
        return next(iter(self.counted.values()), 0.0) + FAST_SECONDS


@attrs.define(eq=False)
class _Load(Generic[R]):
    """Requests at one agent."""

    by_account: dict[Account[R], int]
    count: int = 0


class Shares(Collector, Generic[R]):
    """
    Scheduler that decides which requests begin at once, later, or not at all.

    While a single caller is active, no request waits.  With several, each has at most
    as many running requests as `room_of` permits: the requests of a flood wait here,
    where another caller's request passes them, and not in agentk or the API server,
    where it would wait behind them.

    When an agent has half of its permitted requests, it accepts no more from a caller
    than the caller's share by weight, so that a new caller still has room.

    :param per_credential: running requests of one caller.
    :param per_agent: running requests at one agent.
    :param per_second: requests that one caller begins; None: any number.
    :param together: counters of callers and of agents for running requests at other
        workers of this kas; None without workers.
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
        #: Those without a request, the longest idle first.
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
            "Requests that waited for their turn beside other callers.",
            self._held_back,
        )

    @property
    def counts(self) -> tuple[int, int]:
        """Callers, and agents, with a request under way."""
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
        """Every request under way."""
        return [one for account in self._active.values() for one in account.requests]

    def enter(self, request: R, access: Access, now: float) -> None:
        """
        Count *request*, which `leave` takes out again, also when this raises.

        :param now: when it came.
        :raises TooMany: it must be refused.
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
            raise TooMany(f"of {access.who} are under way")
        if at_agent > self._per_agent:
            raise TooMany(f"at agent {access.agent_name} are under way")
        if 2 * at_agent > self._per_agent:
            # A share of the requests that others leave, so that one more caller always
            # has room; callers that all want more arrive at shares by their weights,
            # and one such share stays free.
            left = self._per_agent - at_agent + there + 1
            share = max(1, left * account.weight // (account.weight + HEAVIEST))
            if there >= share:
                raise TooMany(
                    f"of {access.who} at agent {access.agent_name} are under way: "
                    f"{share} are its share"
                )
        if account.rate is not None and not account.rate.spend(now):
            raise TooMany(
                f"of {access.who} come: {self._per_second} in a second are allowed"
            )

    def admits(self, request: R, access: Access) -> bool:
        """Whether *request* begins now; if not, its ``begin`` is called later."""
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
        """*request* is over."""
        account = self._active[access.owner]
        if account.counted.pop(request, None) is not None and account.waiting:
            # In the next turn: what fails at once would come here again and again.
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
        """Nothing begins any more."""
        for call in (self._next_call, self._idle_call):
            if call is not None:
                call.cancel()
        self._next_call = self._idle_call = None
        self._waiting.clear()
        self._idle.clear()

    def _look_at(self, when: float) -> None:
        """Look for room at *when*, or earlier if a look is already scheduled."""
        self._next_call = call_by(when, self._next_call, self._next, self._clock)

    def _next(self) -> None:
        """Begin what waited, as far as there is room."""
        self._next_call = None
        now = self._clock.seconds()
        for account in tuple(self._waiting):
            while account.waiting and account.has_room(now):
                request = account.waiting.popleft()
                # It may have been given up meanwhile.
                if not request.over:
                    account.counted[request] = now
                    self._begin(request)
            if account.waiting:
                self._look_at(account.frees_at)
            else:
                del self._waiting[account]

    def _begin(self, request: R) -> None:
        """Begin *request*; if it fails, the others of this pass begin all the same."""
        try:
            request.begin()
        except Exception:
            self._log.failure("cannot begin a request that waited")
            for_each((request,), lambda one: one.begin_failed(), "the end of a request")

    def _rate(self, now: float) -> TokenBucket | None:
        """Of one more account."""
        rate = self._per_second
        return None if rate is None else TokenBucket(rate, rate, now)

    def _forget_later(self) -> None:
        self._idle_call = self._clock.callLater(REMEMBERED_SECONDS, self._forget)

    def _forget(self) -> None:
        """Forget accounts without a request since the last check."""
        self._idle_call = None
        for account in list(self._idle.values()):
            if account.seen:
                account.seen = False
            else:
                del self._idle[account.owner]
        if self._idle:
            self._forget_later()
