"""
Drift: applied objects that other clients changed, detected when it happens.

    watches.py --metadata--> are agentk's fields unchanged? --no--> get the object, and
                 dry-run its manifest --they differ--> drift

A change of other fields (status, replicas that Git does not name, defaults of webhooks)
costs no request: the API server's ``managedFields`` show that agentk's fields are
unchanged.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from modules.gitops.agent.apply.outcome import Outcome, Result
from modules.gitops.agent.apply.server_side_apply import marked
from modules.gitops.agent.apply.settled import Settled
from modules.gitops.agent.drift.audit_log import KubernetesAuditLog
from modules.gitops.agent.drift.change_authors import Changes, Writes
from modules.gitops.agent.drift.watches import Kind, KindWatches
from modules.gitops.agent.inventory.inventory import InventoryEntry
from modules.gitops.agent.objects.differences import (
    AppliedVersion,
    ChangedField,
    Writer,
    changed_fields,
    owned_fields,
    writers_of,
)
from modules.gitops.agent.objects.error_statuses import UNDECIDED
from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER
from modules.gitops.agent.objects.live import live_object
from modules.gitops.agent.objects.manifests import Manifest, ObjectKey, Origin
from modules.gitops.agent.plan.plan import Action, Plan, Verb
from tunnel.api import (
    IKubernetesClient,
    KubernetesObject,
    KubernetesResource,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.allowance import Allowance
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.timers import cancel_call

__all__ = ["Drift", "DriftKind", "DriftState", "Drifts"]

#: Seconds from an event to the check of its object: changes often come in pairs.
SETTLE = 0.1

#: Maximum number of objects that are checked at the same time.
IN_FLIGHT = 8

#: Maximum number of checks of one object in a period, and the seconds of that period:
#: an object that is rewritten each second is checked less often.
LOOKS, LOOKS_SECONDS = 5, 60.0

#: Seconds between two checks of all objects of kinds that cannot be watched: each check
#: costs one request for each object.
UNWATCHED_AGAIN = 600.0

#: Seconds until the retry of a failed check.
LOOK_AGAIN = 5.0

#: Number of checks of one object that a newer change may overtake before its drift is
#: reported without fields: the status of some objects changes all the time.
OVERTAKEN = 3

#: Maximum number of repairs of one object in a period, and the seconds of that period:
#: if an object needs more repairs, another program keeps changing it, and users have to
#: decide whether that program or Git is right.
REPAIRS, REPAIRS_SECONDS = 5, 3600.0

#: Maximum number of repairs of a project in a period, and the seconds of that period: a
#: whole namespace may have been deleted.
ALL_REPAIRS, ALL_REPAIRS_SECONDS = 100, 60.0

#: Seconds until the retry of a failed repair.
REPAIR_AGAIN = 60.0

#: Maximum number of kinds that are counted by name; all others are counted as "other".
MAX_KINDS = 50

#: Maximum number of remembered drifts that ended.
REMEMBERED = 100


class DriftKind(Enum):
    """Kind of change that other clients made to an object."""

    CHANGED = "changed"
    DELETED = "deleted"
    #: The object's deletion was requested, but a finalizer holds it.
    DELETING = "being deleted"
    #: Another object has the object's name.
    REPLACED = "replaced"


class DriftState(Enum):
    """
    State of a drift: whether it was reported, repaired, or is still to be repaired.
    """

    REPORTED = "reported"
    #: The drift will be repaired soon.
    DUE = "due"
    REPAIRED = "repaired"
    #: The drift is not repaired for a while, because it was repaired too often.
    PAUSED = "paused"
    #: The drift could not be repaired; the repair is retried.
    FAILED = "failed"
    #: The drift ended without a repair: the object is as in Git again.
    ENDED = "ended"


@attrs.frozen
class Drift:
    """
    Difference between an object and its applied manifest.

    :ivar more: the number of changed fields that *fields* leaves out.
    :ivar writers: the current managers of the fields; empty for a deleted object.
    :ivar found_at: when the drift was found, in seconds since 1970.
    :ivar reason: why the drift is not repaired although it should be.
    :ivar credentials: the credentials that made the change, as far as known: through
        kas (``user:alice``), or from the API server's audit log (``kubernetes:alice``).
    :ivar uid: the uid of the current object; if the object was deleted, the uid of the
        applied object.
    """

    key: ObjectKey
    kind: DriftKind
    commit: str
    found_at: float
    api_version: str
    fields: tuple[ChangedField, ...] = ()
    more: int = 0
    writers: tuple[Writer, ...] = ()
    state: DriftState = DriftState.REPORTED
    reason: str = ""
    origin: Origin | None = None
    credentials: tuple[str, ...] = ()
    uid: str = ""

    def __str__(self) -> str:
        paths = [one.path for one in self.fields]
        if self.more:
            paths.append(f"{self.more} more")
        what = f": {', '.join(paths)}" if paths else ""
        by = f" by {', '.join(map(str, self.writers))}" if self.writers else ""
        who = f" ({' or '.join(self.credentials)})" if self.credentials else ""
        return f"{self.key} {self.kind.value}{by}{who}{what}"


@attrs.define(eq=False)
class _Applied:
    """
    Version of an object after agentk applied it.

    :ivar fields: the result of `owned_fields`.
    :ivar at: when the object was applied, by the reactor's clock.
    """

    manifest: Manifest
    uid: str
    version: str
    fields: str
    at: float

    def is_as_before(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether none of agentk's fields has changed."""
        if metadata.get("resourceVersion") == self.version:
            return True
        return (
            metadata.get("uid") == self.uid
            and not metadata.get("deletionTimestamp")
            and owned_fields(metadata, FIELD_MANAGER) == self.fields
        )


@attrs.define(eq=False)
class Drifts:
    """
    Detector of the drift of one project, which also schedules its repair.

    :param now: returns the time in seconds since 1970.
    :param writes: recent writes of clients of kas.
    :param audit_log: the API server's audit log, for changes that bypassed kas.
    :param repairs: whether drift is repaired; `Project` repairs the objects that `due`
        returns.
    :param tell: called with each new drift and each change of its state; must not
        block.
    :ivar present: the current drift, by object.
    :ivar lately: the last drifts that ended.
    :ivar by_kind: the number of drifts by kind of the object.
    :ivar by_state: the number of changes to each state.
    """

    _client: IKubernetesClient
    _watches: KindWatches
    _clock: IReactorTime
    _now: Callable[[], float]
    _writes: Writes
    _audit_log: KubernetesAuditLog | None
    _repairs: bool
    _tell: Callable[[Drift], None]
    present: dict[ObjectKey, Drift] = attrs.field(factory=dict, init=False)
    lately: deque[Drift] = attrs.field(
        factory=lambda: deque[Drift](maxlen=REMEMBERED), init=False
    )
    by_kind: Counter[str] = attrs.field(factory=Counter, init=False)
    by_state: Counter[DriftState] = attrs.field(factory=Counter, init=False)
    _inventory_id: str = attrs.field(default="", init=False)
    _commit: str = attrs.field(default="", init=False)
    _applied: dict[ObjectKey, _Applied] = attrs.field(factory=dict, init=False)
    _keys: dict[Kind, set[ObjectKey]] = attrs.field(factory=dict, init=False)
    #: Objects that agentk is about to apply, so that changes to them are not drift.
    _ours: set[ObjectKey] = attrs.field(factory=set, init=False)
    #: Objects to check, each with the earliest time of the check.
    _dirty: dict[ObjectKey, float] = attrs.field(factory=dict, init=False)
    _looks: dict[ObjectKey, Allowance] = attrs.field(factory=dict, init=False)
    #: Number of consecutive checks that a newer change overtook, by object.
    _overtaken: Counter[ObjectKey] = attrs.field(factory=Counter, init=False)
    _repaired: dict[ObjectKey, Allowance] = attrs.field(factory=dict, init=False)
    _not_before: dict[ObjectKey, float] = attrs.field(factory=dict, init=False)
    _all_repairs: Allowance = attrs.field(init=False)
    _changes: Changes = attrs.field(init=False)
    #: Deferreds on which `run` and `wait` sleep; None while they are not sleeping.
    _wake_run: Deferred[None] | None = attrs.field(default=None, init=False)
    _wake_wait: Deferred[None] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._all_repairs = Allowance(ALL_REPAIRS, ALL_REPAIRS_SECONDS)
        self._changes = Changes(self._clock.seconds)

    # Methods about applied objects.

    def planned(self, plan: Plan, inventory_id: str) -> None:
        """
        Note which objects a plan applies, and forget the objects that were removed from
        Git.
        """
        self._inventory_id, self._commit = inventory_id, plan.commit
        wanted = {
            key: one
            for key, one in plan.wanted.items()
            if one.verb is not Verb.REFUSE and one.manifest is not None
        }
        self._ours = {key for key, one in wanted.items() if one.verb is not Verb.LEAVE}
        if not plan.whole:
            return
        for key in [key for key in self._applied if key not in wanted]:
            self._forget(key)
        kinds = {
            (key.group, key.kind): one.manifest.api_version
            for key, one in wanted.items()
            if one.manifest is not None
        }
        now = self._clock.seconds()
        for allowances in (self._looks, self._repaired):
            for key, one in tuple(allowances.items()):
                if not one.wait(now) and not one.is_spent and key not in self.present:
                    del allowances[key]
        for key, action in wanted.items():
            if key not in self._applied:
                self._inherit(action, plan.inventory.entries.get(key))
        self._watches.follow(self, kinds)

    def _inherit(self, action: Action, entry: InventoryEntry | None) -> None:
        """
        Record an object that another agentk applied, and detect changes from now on.
        """
        known = Settled.read(entry.applied) if entry is not None else None
        if known is None or entry is None or action.manifest is None:
            return
        seen = action.seen
        version = seen.version if seen and seen.owned == known.owned else ""
        now = self._clock.seconds()
        self._know(_Applied(action.manifest, entry.uid, version, known.owned, now))

    def _know(self, known: _Applied) -> None:
        key = known.manifest.key
        self._applied[key] = known
        self._keys.setdefault((key.group, key.kind), set()).add(key)

    def applied(self, manifest: Manifest, found: AppliedVersion) -> None:
        """Note that an object was applied."""
        key = manifest.key
        now = self._clock.seconds()
        self._know(_Applied(manifest, found.uid, found.version, found.fields, now))
        self._ours.discard(key)
        self._changes.forget(key)
        self._ended(key, DriftState.REPAIRED, found.uid)

    def worked(self) -> None:
        """Note that the plan is finished: later changes are made by other clients."""
        self._ours = set()
        self._wake()

    def origin(self, key: ObjectKey) -> Origin | None:
        """Return the place in Git of the applied manifest; None if the object was not
        applied."""
        known = self._applied.get(key)
        return None if known is None else known.manifest.origin

    def leaves(self, manifest: Manifest) -> bool:
        """
        Return whether drift of an object stays, because its manifest in Git is
        unchanged.
        """
        return not self._repairs and self.is_of_others(manifest)

    def is_of_others(self, manifest: Manifest) -> bool:
        """
        Return whether other clients changed an object whose manifest is unchanged.
        """
        if manifest.key not in self.present:
            return False
        return self._applied[manifest.key].manifest.is_as(manifest)

    def stop(self) -> None:
        """Stop watching."""
        self._watches.leave(self)

    @property
    def is_watched(self) -> bool:
        """Whether every kind is watched, so that polling is unnecessary."""
        return not self._watches.unwatched(self)

    @property
    def unwatched(self) -> Mapping[Kind, str]:
        """Reasons why kinds cannot be watched, by kind."""
        return self._watches.problems(self)

    # Implementation of `KindFollower`.

    def keys_of(self, kind: Kind) -> Collection[ObjectKey]:
        """See `KindFollower`."""
        return self._keys.get(kind, ())

    def changed(self, key: ObjectKey, metadata: Mapping[str, Any]) -> None:
        """See `KindFollower`."""
        known = self._applied.get(key)
        if known is None:
            return
        if metadata.get("resourceVersion") != known.version:
            self._changes.note(key, metadata)
        if key in self._dirty:
            # A check is already scheduled.
            return
        try:
            if key not in self.present and known.is_as_before(metadata):
                return
        except RecursionError:
            # The metadata is nested too deeply to compare here: the check reports the
            # drift or the failure.
            pass
        self._look_at(key)

    def deleted(self, key: ObjectKey) -> None:
        """See `KindFollower`."""
        known = self._applied.get(key)
        if known is not None and not _goes_by_itself(known.manifest):
            self._look_at(key)

    # Methods that check objects.

    async def run(self) -> None:
        """Check changed objects until cancelled."""
        try:
            await in_parallel([self._look, self._look_at_unwatched])
        finally:
            self.stop()

    async def _look(self) -> None:
        while True:
            now = self._clock.seconds()
            ready = [
                key
                for key, when in self._dirty.items()
                if when <= now and key not in self._ours
            ]
            if not ready:
                await self._sleep(now)
                continue
            for key in ready:
                del self._dirty[key]
            await in_parallel((partial(self._check, key) for key in ready), IN_FLIGHT)

    async def _sleep(self, now: float) -> None:
        """Sleep until an object has to be checked."""
        times = [when for key, when in self._dirty.items() if key not in self._ours]
        self._wake_run = Deferred()
        call = self._clock.callLater(min(times) - now, self._wake) if times else None
        try:
            await self._wake_run
        finally:
            self._wake_run = None
            cancel_call(call)

    def _wake(self) -> None:
        if self._wake_run is not None and not self._wake_run.called:
            self._wake_run.callback(None)

    async def _look_at_unwatched(self) -> None:
        while True:
            await deferLater(self._clock, UNWATCHED_AGAIN)
            for kind in self._watches.unwatched(self):
                for key in tuple(self.keys_of(kind)):
                    self._look_at(key)

    def _look_at(self, key: ObjectKey, after: float = SETTLE) -> None:
        now = self._clock.seconds()
        looks = self._looks.setdefault(key, Allowance(LOOKS, LOOKS_SECONDS))
        self._dirty.setdefault(key, now + max(after, looks.wait(now)))
        self._wake()

    async def _check(self, key: ObjectKey) -> None:
        known = self._applied.get(key)
        if known is None:
            return
        self._looks.setdefault(key, Allowance(LOOKS, LOOKS_SECONDS)).take(
            self._clock.seconds()
        )
        try:
            found = await self._compared(key, known)
        except CallError as error:
            if error.status in UNDECIDED:
                self._look_at(key, LOOK_AGAIN)
            return
        except RecursionError:
            # An object that is nested this deeply ends only its own check.
            return
        if self._applied.get(key) is not known or key in self._ours:
            # The object was applied again during the check.
            return
        if found is None:
            self._ended(key, DriftState.ENDED)
        else:
            self._found(found)

    async def _compared(self, key: ObjectKey, known: _Applied) -> Drift | None:
        """Return the drift of an object; None if it has none."""
        resource = await self._client.resource(known.manifest.api_version, key.kind)
        live = await live_object(self._client, resource, key)
        drift = partial(
            Drift,
            key=key,
            commit=self._commit,
            found_at=self._now(),
            api_version=known.manifest.api_version,
            origin=known.manifest.origin,
            uid=known.uid,
        )
        who = partial(self._who, resource, key, known.at)
        if live is None:
            return drift(kind=DriftKind.DELETED, credentials=await who((), 0))
        metadata = live["metadata"]
        if metadata.get("deletionTimestamp"):
            return drift(kind=DriftKind.DELETING, credentials=await who((), 0))
        if metadata.get("uid", "") != known.uid:
            writers = writers_of(live, (), FIELD_MANAGER)
            return drift(
                kind=DriftKind.REPLACED,
                writers=tuple(writers),
                uid=metadata.get("uid", ""),
            )
        if key not in self.present and known.is_as_before(metadata):
            return None
        try:
            wanted = await self._client.apply(
                marked(known.manifest, self._inventory_id, known.uid),
                field_manager=FIELD_MANAGER,
                force=True,
                dry_run=True,
            )
        except CallError as error:
            if error.status in UNDECIDED or error.status is Status.ABORTED:
                raise CallError(Status.UNAVAILABLE, error.message) from None
            # The dry run failed, for example because of a webhook; agentk's fields were
            # changed in any case.
            writers = writers_of(live, (), FIELD_MANAGER)
            return drift(kind=DriftKind.CHANGED, writers=tuple(writers))
        if wanted["metadata"].get("resourceVersion") != metadata["resourceVersion"]:
            self._overtaken[key] += 1
            if self._overtaken[key] < OVERTAKEN:
                text = "it has changed between two requests"
                raise CallError(Status.UNAVAILABLE, text)
            return self._known_drift(key, known, live, drift)
        del self._overtaken[key]
        fields, more = changed_fields(key, wanted, live)
        if not fields:
            # Other clients set the same values, so agentk has nothing to revert.
            known.version = metadata["resourceVersion"]
            known.fields = owned_fields(metadata, FIELD_MANAGER)
            return None
        writers = writers_of(live, [path for path, _ in fields], FIELD_MANAGER)
        return drift(
            kind=DriftKind.CHANGED,
            fields=tuple(field for _, field in fields),
            more=more,
            writers=tuple(writers),
            credentials=await who(writers, self._changes.lately(key)),
        )

    async def _who(
        self,
        resource: KubernetesResource,
        key: ObjectKey,
        since: float,
        writers: Collection[Writer],
        changes: int,
    ) -> tuple[str, ...]:
        """
        Return the credentials that changed an object, as far as known; see `Writes.of`.
        """
        found = self._writes.of(resource, key, since, writers, changes)
        if found or self._audit_log is None or (changes and not writers):
            return found
        age = self._clock.seconds() - since
        return await self._audit_log.of(resource, key, age, writers)

    def _known_drift(
        self,
        key: ObjectKey,
        known: _Applied,
        live: KubernetesObject,
        drift: Callable[..., Drift],
    ) -> Drift | None:
        """Return the drift of an object that changes faster than it can be checked."""
        if known.is_as_before(live["metadata"]):
            return None
        before = self.present.get(key)
        if before is not None and before.kind is DriftKind.CHANGED:
            # Report the drift once, instead of alternately with and without its fields.
            return attrs.evolve(before, state=DriftState.REPORTED, reason="")
        writers = writers_of(live, (), FIELD_MANAGER)
        return drift(kind=DriftKind.CHANGED, writers=tuple(writers))

    def _say(self, drift: Drift) -> None:
        self.by_state[drift.state] += 1
        self._tell(drift)

    def _found(self, drift: Drift) -> None:
        kind = drift.key.kind
        before = self.present.get(drift.key)
        if before is not None:
            # Keep the time at which the drift was first found.
            drift = attrs.evolve(drift, found_at=before.found_at)
            if drift.fields == before.fields and drift.writers == before.writers:
                drift = attrs.evolve(drift, credentials=before.credentials)
        if self._repairs:
            drift = self._allowed(drift)
        self.present[drift.key] = drift
        paused = drift.state is DriftState.PAUSED
        # Without this, each write of the other client to a paused object would be
        # reported.
        known = before is not None and before.state is drift.state and paused
        if before is None:
            more = len(self.by_kind) >= MAX_KINDS and kind not in self.by_kind
            self.by_kind["other" if more else kind] += 1
        if drift != before and not known:
            self._say(drift)
        if drift.state is DriftState.DUE:
            self._wake_waiting()

    def _allowed(self, drift: Drift) -> Drift:
        """Return the drift with the state DUE or PAUSED if it can be repaired."""
        if drift.kind is DriftKind.DELETING:
            return drift
        repaired = self._repaired.get(drift.key)
        if repaired is None or not repaired.wait(self._clock.seconds()):
            return attrs.evolve(drift, state=DriftState.DUE)
        others = ", ".join(sorted({one.manager for one in drift.writers}))
        why = (
            f"{FIELD_MANAGER} and {others or 'another client'} keep changing it: "
            f"repaired {REPAIRS} times in {REPAIRS_SECONDS / 60:g} minutes"
        )
        return attrs.evolve(drift, state=DriftState.PAUSED, reason=why)

    def _ended(self, key: ObjectKey, state: DriftState, uid: str = "") -> None:
        drift = self.present.pop(key, None)
        self._not_before.pop(key, None)
        self._overtaken.pop(key, None)
        if drift is not None:
            ended = attrs.evolve(drift, state=state, reason="", uid=uid or drift.uid)
            self.lately.append(ended)
            self._say(ended)

    def _forget(self, key: ObjectKey) -> None:
        """Remove an object that was removed from Git from all tables."""
        del self._applied[key]
        tables: tuple[dict[ObjectKey, Any], ...] = (
            *(self._dirty, self._looks, self._overtaken),
            *(self._repaired, self._not_before),
        )
        for table in tables:
            table.pop(key, None)
        self._keys[key.group, key.kind].discard(key)
        self._ended(key, DriftState.ENDED)

    # Methods that repair drift.

    async def wait(self, seconds: float) -> None:
        """Wait until an object has to be repaired, but at most *seconds*."""
        due = self._due_in()
        if due == 0:
            return
        self._wake_wait = Deferred()
        pause = seconds if due is None else min(due, seconds)
        call = self._clock.callLater(pause, self._wake_waiting)
        try:
            await self._wake_wait
        finally:
            self._wake_wait = None
            cancel_call(call)

    def _wake_waiting(self) -> None:
        if self._wake_wait is not None and not self._wake_wait.called:
            self._wake_wait.callback(None)

    def due(self) -> list[Manifest]:
        """
        Return the manifests that have to be repaired now, and count each as one repair.
        """
        now = self._clock.seconds()
        found: list[Manifest] = []
        for key in self.present:
            if self._all_repairs.wait(now):
                break
            if self._waits(key, now) == 0:
                repaired = Allowance(REPAIRS, REPAIRS_SECONDS)
                self._repaired.setdefault(key, repaired).take(now)
                self._all_repairs.take(now)
                found.append(self._applied[key].manifest)
        return found

    def repaired(self, results: Mapping[ObjectKey, Result]) -> None:
        """Record the results of the repairs that `due` returned."""
        for key, result in results.items():
            if result.outcome in (Outcome.FAILED, Outcome.SKIPPED):
                self._failed(key, result.reason)

    def could_not_repair(self, keys: Collection[ObjectKey], reason: str) -> None:
        """Record that repairs failed because the cluster could not be reached."""
        for key in keys:
            self._failed(key, reason)

    def _failed(self, key: ObjectKey, reason: str) -> None:
        drift = self.present.get(key)
        if drift is None:
            return
        self._not_before[key] = self._clock.seconds() + REPAIR_AGAIN
        if (repaired := self._repaired.get(key)) is not None:
            # A failed repair does not show that another program keeps changing the
            # object.
            repaired.give_back()
        failed = attrs.evolve(drift, state=DriftState.FAILED, reason=reason)
        self.present[key] = failed
        if failed != drift:
            self._say(failed)

    def _due_in(self) -> float | None:
        """Return the seconds until the next repair; None if none is due."""
        now = self._clock.seconds()
        waits = [
            wait for key in self.present if (wait := self._waits(key, now)) is not None
        ]
        return max(min(waits), self._all_repairs.wait(now)) if waits else None

    def _waits(self, key: ObjectKey, now: float) -> float | None:
        """
        Return the seconds until the repair of an object is due; None if the object is
        not to be repaired.
        """
        drift = self.present[key]
        if not self._repairs or drift.kind is DriftKind.DELETING:
            return None
        repaired = self._repaired.get(key)
        return max(
            0.0,
            repaired.wait(now) if repaired is not None else 0.0,
            self._not_before.get(key, 0.0) - now,
        )


def _goes_by_itself(manifest: Manifest) -> bool:
    """Return whether a manifest is a Job that the cluster deletes after it is done."""
    spec = manifest.object.get("spec")
    return (
        (manifest.key.group, manifest.key.kind) == ("batch", "Job")
        and isinstance(spec, dict)
        and spec.get("ttlSecondsAfterFinished") is not None
    )
