"""
Current commits of branches and tags, and their changes, for modules of kas.

A single loop reads each ref, regardless of the number of its agents: once in each
period, and earlier after the notification of a push, but at most once in `MIN_PAUSE`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from tunnel.api.git import GitAddress, GitalyAddress, IRepositories, IRepository
from tunnel.errors import CallError, Status, Stopping
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.timers import call_by, cancel_call

__all__ = ["FollowedRef", "FollowedRefs"]

#: Minimum seconds between two reads, however many pushes are announced.
MIN_PAUSE = 1.0

#: Seconds before a failed read is retried: first and maximum pause.
RETRY_FIRST, RETRY_MOST = 10.0, 60.0

#: Maximum number of remembered refs without a waiting caller: an agent does not wait
#: while it processes the last response.  Agents choose the names, so the number must be
#: limited.
MAX_IDLE = 1000


@attrs.frozen
class _Caller:
    """
    A caller that waits.

    :ivar known: the commit that the caller already has; empty if it has none.
    :ivar since: when it began to wait.
    """

    known: str
    since: float


@attrs.define(eq=False)
class FollowedRef:
    """
    Ref that kas reads as long as a caller waits for its next commit.

    :param name: the repository, in messages and in notifications of pushes.
    :param random: returns a number between 0 and 1, so that refs are not read all at
        once.
    """

    _log = Logger()

    name: str
    repository: IRepository
    ref: str
    _period: float
    _clock: IReactorTime
    _random: Callable[[], float]
    _waiting: dict[Deferred[str], _Caller] = attrs.Factory(dict)
    #: Full name of the ref; ``HEAD`` if the branch is unknown.
    whole: str = attrs.field(default="", init=False)
    #: Whether the repository has reported the branch of the last commit of HEAD.
    _has_branch: bool = attrs.field(default=False, init=False)
    _commit: str = ""
    _looked_at: float = float("-inf")
    #: Earliest time of the next read.
    _next: float = float("-inf")
    #: Time of the last read if it failed; None if it succeeded, or if a push ended the
    #: backoff.
    _failed_at: float | None = attrs.field(default=None, init=False)
    _backoff: Backoff = attrs.field(init=False)
    _looking: Deferred[Any] | None = None
    _call: IDelayedCall | None = None

    def __attrs_post_init__(self) -> None:
        self._backoff = Backoff(self._random, RETRY_FIRST, RETRY_MOST)

    @property
    def followed(self) -> bool:
        """Whether a caller waits for the ref."""
        return bool(self._waiting)

    async def next(self, known: str) -> str:
        """
        Return the commit of the ref, once it differs from *known*.

        :raises CallError: if the ref could not be read.
        """
        fresh = self._clock.seconds() - self._looked_at < MIN_PAUSE
        if self._commit and self._commit != known and fresh:
            return self._commit
        waiter: Deferred[str] = Deferred()
        self._waiting[waiter] = _Caller(known, self._clock.seconds())
        # Read the ref instead of using an older result: the result may be older than
        # the caller's commit from another kas, and would roll the cluster back.
        self._look_at(self._looked_at + self._period if fresh else self._next)
        try:
            return await waiter
        finally:
            self._waiting.pop(waiter, None)
            if not self._waiting:
                self._cancel()

    def announced(self) -> None:
        """Read the ref after a push, even during the backoff after a failed read."""
        if self._failed_at is not None:
            self._next = min(self._next, self._failed_at + MIN_PAUSE)
            self._failed_at = None
        self.pushed()

    def pushed(self) -> None:
        """Note that the repository may have changed."""
        # Mark the result as old, so that the next caller does not receive it.
        self._looked_at = float("-inf")
        if self._waiting and self._looking is None:
            self._look_at(self._next)

    def stop(self) -> None:
        """Stop reading, and notify the waiting callers."""
        self._cancel()
        if self._looking is not None:
            self._looking.cancel()
        self._fail(Stopping())

    def _look_at(self, when: float) -> None:
        if self._looking is not None:
            return
        self._call = call_by(when, self._call, self._look, self._clock)

    def _cancel(self) -> None:
        cancel_call(self._call)
        self._call = None

    def _look(self) -> None:
        self._call = None
        self._looked_at = now = self._clock.seconds()
        self._next = now + MIN_PAUSE
        self._looking = looking = Deferred.fromCoroutine(self._resolve(now))
        looking.addBoth(self._looked)

    async def _resolve(self, began: float) -> None:
        try:
            commit = await self.repository.resolve(self.ref)
            if self.ref != "HEAD":
                self.whole = self.ref
            elif commit != self._commit or not self._has_branch:
                # Set the name before the callers receive the commit, because they need
                # both.
                self.whole = await self._default_branch()
            self._commit = commit
        except CallError as error:
            self._looked_at = float("-inf")
            self._failed_at = self._clock.seconds()
            self._next = self._failed_at + self._backoff.pause()
            why = f"repository {self.name}: {error.message}"
            self._fail(CallError(error.status, why))
            return
        self._failed_at = None
        self._backoff.reset()
        for waiter, caller in tuple(self._waiting.items()):
            # As in `next`, for a read that took longer than the caller has waited.
            is_old = caller.since - began >= MIN_PAUSE
            if caller.known != self._commit and not is_old and not waiter.called:
                waiter.callback(self._commit)

    async def _default_branch(self) -> str:
        """Return the name of the default branch; ``HEAD`` if it cannot be read now."""
        self._has_branch = False
        try:
            branch = await self.repository.default_branch()
        except CallError as error:
            # Callers can use the commit without the name.
            self._log.debug(
                "cannot read the default branch of {name}: {why}",
                name=self.name,
                why=error.message,
            )
            return "HEAD"
        self._has_branch = True
        return branch

    def _looked(self, failure: Any) -> None:
        self._looking = None
        if failure is not None and not failure.check(CancelledError):
            self._log.failure("reading {name} failed", failure, name=self.name)
            self._fail(
                CallError(
                    Status.UNAVAILABLE,
                    "kas failed to read the repository; see its log",
                )
            )
        waiting = [
            caller for waiter, caller in self._waiting.items() if not waiter.called
        ]
        if waiting:
            period = self._period * (0.9 + self._random() / 10)
            # Read again if a push was announced during this read, or if the read was
            # too old for a caller that came during it.
            again = self._looked_at == float("-inf") or any(
                one.known != self._commit for one in waiting
            )
            self._look_at(self._next if again else self._looked_at + period)

    def _fail(self, error: CallError) -> None:
        for waiter in tuple(self._waiting):
            if not waiter.called:
                waiter.errback(error)


class FollowedRefs:
    """
    The refs that one module follows, by the address of the repository.

    :param period: seconds between two reads of a ref without the notification of a
        push.
    :param random: as in `FollowedRef`.
    """

    def __init__(
        self,
        git: IRepositories,
        period: float,
        clock: IReactorTime,
        random: Callable[[], float],
    ) -> None:
        self._git = git
        self._period = period
        self._clock = clock
        self._random = random
        self._refs: dict[tuple[GitAddress | GitalyAddress, str], FollowedRef] = {}

    def __len__(self) -> int:
        return len(self._refs)

    def get(
        self, name: str, address: GitAddress | GitalyAddress, ref: str
    ) -> FollowedRef:
        """
        Return a ref of the repository at *address*.

        :param name: the repository, in messages and in notifications of pushes.
        """
        found = self._refs.pop((address, ref), None)
        if found is None:
            idle = [key for key, one in self._refs.items() if not one.followed]
            for key in idle[: max(0, len(idle) - MAX_IDLE)]:
                del self._refs[key]
            found = FollowedRef(
                name,
                self._git.open(address),
                ref,
                self._period,
                self._clock,
                self._random,
            )
        # The most recently used entry comes last.
        self._refs[address, ref] = found
        return found

    def announced(
        self, name: str, address: GitAddress | GitalyAddress | None = None
    ) -> None:
        """
        Read the refs of a repository again after a push.

        :param name: the repository that the notification names.
        :param address: the address of the repository with this name in the
            configuration, because a repository may have several names.
        """
        for (at, _), followed in self._refs.items():
            if followed.name == name or at == address:
                followed.announced()

    def stop(self) -> None:
        """Stop reading all refs, and notify the waiting callers."""
        for followed in self._refs.values():
            followed.stop()
