"""
The deliveries of one agent, while its leading agentk is connected.

kas keeps only the newest commit of each ref and target.  The store has the last commit
that the receiver accepted, so kas needs no work for an agent that is away: when the
agent returns, kas compares this commit with the ref, and one delivery announces
everything in between.

Attempts and times are in the store, so the schedule continues after a restart of kas or
agentk.  An attempt counts when agentk reports its result.  If the stream ends before
that, the next stream repeats the attempt, which receivers tolerate.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredLock,
    TimeoutError,
)
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from modules.webhooks.server.metrics import WebhookMetrics
from modules.webhooks.server.schedule import MAX_RETRY_AFTER, next_step
from modules.webhooks.server.stored import (
    StoredDeliveries,
    StoredDelivery,
    delivery_id,
)
from modules.webhooks.wire import webhooks_pb2 as wire
from tunnel.api import (
    ConnectedAgent,
    FollowedRef,
    FollowedRefs,
    GitAddress,
    IServerModuleApi,
    RepositorySettings,
    project_of,
    readable_repository,
)
from tunnel.errors import CallError, Status, Stopping
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.peer_slots import PeerSlots
from tunnel.toolkit.texts import clean
from tunnel.toolkit.timers import cancel_call

__all__ = ["AgentDeliveries", "SharedParts", "check_targets"]

#: Maximum number of targets of one agent, and of refs of all its targets, as in the
#: schema of the agent's configuration.
MAX_TARGETS, MAX_REFS = 20, 100

#: Maximum characters of each text of a target.
MAX_TEXT = 2100

#: Maximum number of changed paths in a delivery, and maximum characters of these paths.
#: A delivery with more changes names none of them, and receivers then assume that
#: everything has changed.
MAX_CHANGED, MAX_CHANGED_TEXT = 1000, 64 * 1024

#: Seconds that a repository has to list changed paths and its default branch.
GIT_SECONDS = 10.0

#: Seconds within which agentk reports the result of an attempt: three times its timeout
#: of 60 seconds, because it makes 8 of 20 attempts at a time, and time for the report.
REPORT_SECONDS = 210.0

#: Maximum bytes of a response's body in the store, and maximum characters of an error
#: or problem.
MAX_BODY, MAX_ERROR = 4096, 300

#: Maximum seconds until kas looks at the schedule again: the clock of the machine may
#: have been set.
LOOK_AGAIN = 3600.0

#: Seconds after which a connection of the agent renews a value in the store, far more
#: often than values expire.
RENEW = 7 * 86_400.0

#: Seconds of the first and of the longest pause after other programs changed a state at
#: the same time: two kas need one pause, and another program may write all the time.
CHANGED_FIRST, CHANGED_MOST = 0.1, 60.0

#: Section of kas' configuration file, for messages.
_SECTION = "modules.webhooks.repositories"

#: Results of attempts in the metrics.
_RESULTS = {
    wire.DELIVERED: "delivered",
    wire.PENDING: "retry",
    wire.FAILED: "failed",
    wire.DISABLED: "disabled",
}

#: Prefixes of refs that agents may name in full.  Other refs, such as the refs of kas'
#: own copies, may contain unpublished commits.
_FULL = ("refs/heads/", "refs/tags/")

#: Parent of a commit that the receiver has not seen before.
NO_COMMIT = "0" * 40


@attrs.define(eq=False)
class _Entry:
    """
    One ref of one target.

    :ivar is_current: whether kas has tried to read the ref since the stream began, so
        that the delivery is not an obsolete one.
    :ivar attempt: id of the delivery that agentk attempts now; empty if none.
    :ivar pause: seconds until the ref is read again, because another program changed
        the state at the same time.
    """

    target: wire.Target
    ref: str
    stored: StoredDelivery
    backoff: Backoff
    pause: float = 0.0
    lock: DeferredLock = attrs.Factory(DeferredLock)
    followed: FollowedRef | None = None
    repository: str = ""
    repository_url: str = ""
    is_current: bool = False
    attempt: str = ""
    late: IDelayedCall | None = None

    @property
    def state(self) -> wire.DeliveryState:
        """State of the delivery."""
        return self.stored.state


def check_targets(targets: Any) -> None:
    """
    Check the targets that an agentk sent.

    :raises CallError: INVALID_ARGUMENT if they exceed a limit, or name a ref that
        agents may not follow.
    """
    refs = sum(len(one.refs) for one in targets)
    if len(targets) > MAX_TARGETS or refs > MAX_REFS:
        text = f"an agent may have at most {MAX_TARGETS} targets and {MAX_REFS} refs"
        raise CallError(Status.INVALID_ARGUMENT, text)
    pairs = [(one.name, ref) for one in targets for ref in one.refs]
    if len(set(pairs)) < len(pairs):
        raise CallError(Status.INVALID_ARGUMENT, "two targets are equal")
    for one in targets:
        texts = (one.name, one.repository, one.repository_url, one.address, *one.refs)
        if any(len(text) > MAX_TEXT or not text.isprintable() for text in texts):
            raise CallError(Status.INVALID_ARGUMENT, "a target has an invalid text")
        for ref in one.refs:
            if not ref or (ref.startswith("refs/") and not ref.startswith(_FULL)):
                text = f"{ref[:MAX_ERROR]!r} is not a branch or tag"
                raise CallError(Status.INVALID_ARGUMENT, text)


@attrs.frozen
class SharedParts:
    """
    The parts of kas that the deliveries of all agents share.

    :ivar slots: slots for the first reads of refs, by agent.
    :ivar now: returns the time in seconds since 1970.
    :ivar random: returns a number between 0 and 1, for pauses.
    """

    api: IServerModuleApi
    repositories: Mapping[str, RepositorySettings]
    refs: FollowedRefs
    slots: PeerSlots[str]
    stored: StoredDeliveries
    metrics: WebhookMetrics
    now: Callable[[], float]
    random: Callable[[], float]


class AgentDeliveries:
    """Deliveries to the targets of one agent, and their results."""

    _log = Logger()

    def __init__(
        self, shared: SharedParts, agent: ConnectedAgent, targets: Any
    ) -> None:
        self.agent = agent
        self._shared = shared
        self._stored = shared.stored
        self._metrics = shared.metrics
        self._now = shared.now
        self._clock: IReactorTime = shared.api.clock
        self._targets = targets
        self._entries: dict[str, _Entry] = {}
        #: Time until which a target gets no request, by target.
        self._slow: dict[str, float] = {}
        self._following: list[Deferred[None]] = []
        self._waiter: Deferred[None] | None = None
        self._ended = False
        self._complained = False

    @property
    def states(self) -> list[wire.DeliveryState]:
        """The state of each delivery."""
        return [one.state for one in self._entries.values()]

    async def start(self) -> None:
        """
        Read the states from the store, delete those of removed targets, and follow the
        refs.

        :raises CallError: the store cannot be read now.
        """
        agent = self.agent
        for target in self._targets:
            for ref in target.refs:
                key = self._stored.key(agent.agent_id, target.name, ref)
                found = await self._stored.read(key)
                stored = found or StoredDelivery(key, wire.DeliveryState())
                backoff = Backoff(self._shared.random, CHANGED_FIRST, CHANGED_MOST)
                self._entries[key] = _Entry(target, ref, stored, backoff)
        async for key in self._stored.keys(f"{agent.agent_id}/"):
            if key not in self._entries:
                await self._stored.store.delete(key)
        for entry in tuple(self._entries.values()):
            async with self._changing(entry):
                self._adopt(entry)
        if self._ended:
            return
        for entry in self._entries.values():
            following = Deferred.fromCoroutine(self._follow(entry))
            following.addErrback(self._failed)
            self._following.append(following)

    def _adopt(self, entry: _Entry) -> None:
        """Describe the target, and enable a disabled target that has changed."""
        state, target, now = entry.state, entry.target, self._now()
        if state.fingerprint != target.fingerprint and state.state == wire.DISABLED:
            _begin_again(state, now)
        state.agent_id, state.agent_name = self.agent.agent_id, self.agent.agent_name
        state.project = project_of(self._shared.api, self.agent) or ""
        state.target, state.ref = target.name, entry.ref
        state.address, state.fingerprint = target.address, target.fingerprint
        state.state = state.state or wire.WAITING
        if now - _seconds(state.stored_at) > RENEW:
            state.stored_at.FromMicroseconds(int(now * 1e6))

    def stop(self) -> None:
        """End the stream, and stop following the refs."""
        self.end()
        following, self._following = self._following, []
        for one in following:
            one.cancel()
        for entry in self._entries.values():
            cancel_call(entry.late)

    def end(self) -> None:
        """End the stream."""
        self._ended = True
        self._wake()

    # Pushes

    async def _follow(self, entry: _Entry) -> None:
        try:
            entry.followed = followed = self._find(entry)
        except CallError as error:
            await self._complain(entry, error.message)
            return
        while True:
            pause, entry.pause = entry.pause, 0.0
            if pause:
                await deferLater(self._clock, pause)
            try:
                if entry.is_current and not entry.state.problem:
                    commit = await followed.next(entry.state.after)
                else:
                    # Get the commit even if kas knows it.
                    async with self._shared.slots.slot(self.agent.agent_id):
                        commit = await followed.next("")
            except Stopping:
                self.end()
                return
            except CallError as error:
                # The cluster may reach the repository although kas does not.
                entry.is_current = True
                await self._complain(entry, error.message)
                continue
            entry.is_current = True
            await self._noticed(entry, commit, followed.whole)

    def _find(self, entry: _Entry) -> FollowedRef:
        """
        Return the ref of a target in its repository, and set the repository's name and
        its URL for receivers in *entry*.

        :raises CallError: FAILED_PRECONDITION if the agent may not read the repository,
            or if this URL is unknown.
        """
        target = entry.target
        name, address, _ = readable_repository(
            self._shared.api,
            self._shared.repositories,
            self.agent,
            target.repository,
            _SECTION,
        )
        url = address.url if isinstance(address, GitAddress) else ""
        entry.repository = name
        entry.repository_url = (target.repository_url or url).removesuffix(".git")
        if not entry.repository_url:
            text = (
                f"kas does not know a URL of the repository {name} for receivers: set "
                f"repository_url of the target {target.name}"
            )
            raise CallError(Status.FAILED_PRECONDITION, text)
        ref = entry.ref
        if ref != "HEAD" and not ref.startswith("refs/"):
            ref = f"refs/heads/{ref}"
        return self._shared.refs.get(name, address, ref)

    async def _noticed(self, entry: _Entry, commit: str, ref: str) -> None:
        """Record the newest commit of a ref, which supersedes an earlier delivery."""
        async with self._changing(entry):
            state, now = entry.state, self._now()
            state.problem, state.full_ref = "", ref
            if state.after == commit:
                return
            first = not state.after
            state.after = commit
            noticed_at = int(now * 1e6)
            state.id = delivery_id(entry.repository_url, ref, commit, noticed_at)
            state.noticed_at.FromMicroseconds(noticed_at)
            if first:
                # Receivers read the repository themselves when they are configured.
                state.before, state.accepted = NO_COMMIT, commit
                return
            state.before = state.accepted or NO_COMMIT
            self._metrics.pushes += 1
            if state.state != wire.DISABLED:
                _begin_again(state, now)

    async def _complain(self, entry: _Entry, problem: str) -> None:
        problem = clean(problem, MAX_ERROR)
        if entry.state.problem == problem:
            self._wake()
            return
        self._log.warn(
            "cannot notify {target} of agent {agent_name} of pushes: {problem}",
            target=entry.target.name,
            agent_name=self.agent.agent_name,
            problem=problem,
        )
        async with self._changing(entry):
            entry.state.problem = problem

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("following a ref for a webhook failed", failure)
            self.end()

    # Attempts

    async def next(self) -> wire.Delivery | None:
        """Return the next delivery once an attempt is due; None at the end."""
        while not self._ended:
            entry, due = self._earliest()
            pause = due - self._now()
            if entry is not None and pause <= 0:
                return await self._attempt(entry)
            waiter: Deferred[None] = Deferred()
            self._waiter = waiter
            call = self._clock.callLater(min(pause, LOOK_AGAIN), self._wake)
            try:
                await waiter
            finally:
                self._waiter = None
                cancel_call(call)
        return None

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.called:
            waiter.callback(None)

    def _earliest(self) -> tuple[_Entry | None, float]:
        """Return the delivery whose attempt is due first, and the time."""
        # A target gets one request at a time.
        busy = {one.target.name for one in self._entries.values() if one.attempt}
        found: _Entry | None = None
        now = self._now()
        due = now + LOOK_AGAIN
        for entry in self._entries.values():
            name, state = entry.target.name, entry.state
            if state.state != wire.PENDING or name in busy or not entry.is_current:
                continue
            at = max(_seconds(state.next_attempt), self._slow.get(name, 0.0))
            if at > now + MAX_RETRY_AFTER + LOOK_AGAIN:
                # The clock was ahead when the time was computed: no pause is so long.
                at = now
            if at < due:
                found, due = entry, at
        return found, due

    async def _attempt(self, entry: _Entry) -> wire.Delivery:
        state = entry.state
        entry.attempt = state.id
        entry.late = self._clock.callLater(REPORT_SECONDS, self._never_reported, entry)
        delivery = wire.Delivery(
            target=state.target,
            ref=state.ref,
            id=state.id,
            full_ref=state.full_ref,
            before=state.before,
            after=state.after,
            repository=entry.repository,
            repository_url=entry.repository_url,
            noticed_at=state.noticed_at,
        )
        await self._describe(entry, delivery)
        return delivery

    async def _describe(self, entry: _Entry, delivery: wire.Delivery) -> None:
        """Add the default branch and the changed paths, if the repository has them."""
        assert entry.followed is not None
        repository = entry.followed.repository
        if entry.ref == "HEAD":
            delivery.default_branch = delivery.full_ref
        else:
            branch = await self._within(repository.default_branch(), "")
            delivery.default_branch = branch if branch.startswith("refs/") else ""
        if delivery.before == NO_COMMIT:
            return
        paths = await self._within(
            repository.changed(delivery.before, delivery.after), []
        )
        few = len(paths) <= MAX_CHANGED and sum(map(len, paths)) <= MAX_CHANGED_TEXT
        delivery.changed.extend(paths if few else ())

    async def _within(self, reading: Any, otherwise: Any) -> Any:
        """Return what a repository answers in time, or *otherwise*."""

        async def read() -> Any:
            return await reading

        waiting = Deferred.fromCoroutine(read())
        waiting.addTimeout(GIT_SECONDS, self._clock)
        try:
            return await waiting
        except (CallError, TimeoutError):
            # Receivers then read the repository instead.
            return otherwise

    def _never_reported(self, entry: _Entry) -> None:
        report = wire.ReportAttemptRequest(
            target=entry.target.name,
            ref=entry.ref,
            id=entry.attempt,
            error="agentk did not report the result",
        )
        reporting = Deferred.fromCoroutine(self.report(report))
        reporting.addErrback(self._failed)

    async def report(self, request: wire.ReportAttemptRequest) -> None:
        """
        Record the result of an attempt.

        :raises CallError: FAILED_PRECONDITION if agentk does not attempt this delivery.
        """
        key = self._stored.key(self.agent.agent_id, request.target, request.ref)
        entry = self._entries.get(key)
        if entry is None or not entry.attempt or entry.attempt != request.id:
            text = "kas does not wait for the result of this delivery"
            raise CallError(Status.FAILED_PRECONDITION, text)
        cancel_call(entry.late)
        entry.attempt = ""
        async with self._changing(entry):
            self._result(entry, request)
        if entry.state.state == wire.DISABLED:
            await self._disable(entry.target.name)

    def _result(self, entry: _Entry, request: wire.ReportAttemptRequest) -> None:
        state, now = entry.state, self._now()
        step = next_step(state.attempts + 1, request.status, request.retry_after, now)
        state.last_attempt.FromMicroseconds(int(now * 1e6))
        state.last_status = request.status
        state.last_body = request.body[:MAX_BODY]
        state.last_error = clean(request.error, MAX_ERROR)
        self._slow[state.target] = max(self._slow.get(state.target, 0), step.slow_until)
        self._metrics.attempts[_RESULTS[step.state]] += 1
        if state.state != wire.PENDING:
            return
        if step.state == wire.DISABLED:
            state.state = step.state
        if state.id != request.id:
            # A newer push has superseded the delivery.
            return
        state.attempts += 1
        state.state = step.state
        state.ClearField("next_attempt")
        if step.state == wire.PENDING:
            state.next_attempt.FromMicroseconds(int(step.next_attempt * 1e6))
        elif step.state == wire.DELIVERED:
            state.accepted = state.after
        self._log_result(entry, step.state)

    def _log_result(self, entry: _Entry, result: wire.State) -> None:
        state = entry.state
        if result == wire.PENDING:
            return
        why = state.last_error or f"status {state.last_status}"
        text = {
            wire.DELIVERED: "{target} of agent {agent_name} accepted {commit}",
            wire.FAILED: "{target} of agent {agent_name} did not accept {commit} in "
            "{attempts} attempts ({why}); the next push starts again",
            wire.DISABLED: "{target} of agent {agent_name} responded with 410, which "
            "disables it until 'kasctl webhooks resend' or a change of the target",
        }[result]
        log = self._log.info if result == wire.DELIVERED else self._log.warn
        log(
            text,
            target=state.target,
            agent_name=state.agent_name,
            commit=state.after,
            attempts=state.attempts,
            why=why,
        )

    async def _disable(self, target: str) -> None:
        """Disable the other refs of a target, too."""
        for entry in tuple(self._entries.values()):
            if entry.target.name == target and entry.state.state == wire.PENDING:
                async with self._changing(entry):
                    entry.state.state = wire.DISABLED
                    entry.state.ClearField("next_attempt")

    # The store

    async def reread(self, key: str, version: int) -> None:
        """Read a state again if another kas has changed it, for an operator."""
        entry = self._entries.get(key)
        if entry is None:
            return
        await entry.lock.acquire()
        try:
            if entry.stored.version < version:
                await self._take_stored(entry)
        finally:
            entry.lock.release()
        self._wake()

    async def _take_stored(self, entry: _Entry) -> None:
        found = await self._stored.read(entry.stored.key)
        self._take(entry, found)

    def _take(self, entry: _Entry, found: StoredDelivery | None) -> None:
        entry.stored = found or StoredDelivery(entry.stored.key, wire.DeliveryState())
        if found is None:
            self._adopt(entry)

    @asynccontextmanager
    async def _changing(self, entry: _Entry) -> AsyncIterator[None]:
        """Change the state of a delivery inside the block, and write it at its end."""
        await entry.lock.acquire()
        try:
            before = entry.state.SerializeToString(deterministic=True)
            yield
            if entry.state.SerializeToString(deterministic=True) != before:
                await self._write(entry)
        finally:
            entry.lock.release()
        self._wake()

    async def _write(self, entry: _Entry) -> None:
        try:
            await self._stored.write(entry.stored)
        except CallError as error:
            if error.status is not Status.ABORTED:
                self._not_stored(error.message)
                return
            found = await self._stored.read(entry.stored.key)
            if found is None and not entry.stored.version:
                # The store has a value that kas cannot read: use the state in memory,
                # because the next attempt to write it fails in the same way.
                self._not_stored("the store has a value that kas cannot read")
                return
            # Another kas has a stream of this agent, or an operator's request.
            entry.pause = entry.backoff.pause()
            # The state may say that the last attempt is still due.
            name, until = entry.target.name, self._now() + entry.pause
            self._slow[name] = max(self._slow.get(name, 0.0), until)
            self._take(entry, found)
        else:
            self._complained = False
            entry.backoff.reset()

    def _not_stored(self, reason: str) -> None:
        if not self._complained:
            self._complained = True
            self._log.warn(
                "the state of webhooks of agent {agent_name} is not stored: "
                "{reason}; a restart of kas repeats deliveries",
                agent_name=self.agent.agent_name,
                reason=reason,
            )


def _seconds(timestamp: Any) -> float:
    return float(timestamp.ToMicroseconds() / 1e6)


def _begin_again(state: wire.DeliveryState, now: float) -> None:
    """Plan the first attempt of a delivery now."""
    state.state = wire.PENDING
    state.attempts = 0
    state.next_attempt.FromMicroseconds(int(now * 1e6))
