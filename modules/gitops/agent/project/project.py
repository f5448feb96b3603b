"""
A manifest project, for as long as this agentk leads.

    `Commits` ──the newest commit──> reconciled, again and again

A new commit replaces the commit in progress at once, whatever the latter waits for: the
inventory lists all objects that it may have changed.
"""

from __future__ import annotations

import math
import shlex
from collections import deque
from collections.abc import Callable, Collection, Iterator
from enum import Enum
from functools import partial
from hmac import compare_digest
from typing import Any, Literal, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from modules.gitops.agent.apply.backups import KeptState
from modules.gitops.agent.apply.ledger import Superseded
from modules.gitops.agent.apply.outcome import Outcome, Result
from modules.gitops.agent.apply.pruner import Pruning
from modules.gitops.agent.apply.settled import Settled, digest_of
from modules.gitops.agent.drift.drift import UNWATCHED_AGAIN, Drift, Drifts
from modules.gitops.agent.inventory.handover import ProjectHandover, names
from modules.gitops.agent.inventory.inventory import InventoryStore
from modules.gitops.agent.inventory.orders import AppliedCommit, Orders, OrderStore
from modules.gitops.agent.objects.differences import AppliedVersion
from modules.gitops.agent.objects.manifests import Manifest, ObjectKey, Source
from modules.gitops.agent.objects.prune_guards import AWAY
from modules.gitops.agent.plan.plan import Plan, SourceSettings
from modules.gitops.agent.project.context import Programs, ProjectContext
from modules.gitops.agent.project.dependencies import Dependencies
from modules.gitops.agent.project.journal import MAX_LINE, Journal, bounded, counted
from modules.gitops.agent.project.preview import Preview, below, preview_of, with_drift
from modules.gitops.agent.project.reconcile import Reconciler, Report
from modules.gitops.agent.project.stores import ProjectStores
from modules.gitops.agent.project.transfers import Transfers
from modules.gitops.agent.source.commits import Commits, Rendering
from modules.gitops.agent.source.decryption import Decryptor
from modules.gitops.agent.source.snapshot import Location, Snapshot
from modules.gitops.wire import rpc_pb2
from modules.gitops.wire.commit_id import COMMIT
from modules.gitops.wire.settings import ManifestProject
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.texts import clean

__all__ = [
    "Project",
    "State",
]

_T = TypeVar("_T")

#: Bounds of the backoff, in seconds, before agentk retries a failed commit.
TRY_FIRST, TRY_MOST = 10.0, 60.0

#: Minimum of seconds between two passes when a wait for another agent ends.
LOOK_SOONEST = 1.0

#: Maximum of seconds until all objects are applied again, which repairs their drift:
#: without watches, and with watches that detect drift when it happens.
AGAIN, WATCHED_AGAIN = 300.0, 3600.0

#: Number of kinds without a watch that the status names.
MAX_KINDS = 5

#: Seconds of one pause while there is no work.
REST = 3600.0

#: Number of commits that a project remembers: other projects of its branch are not
#: further behind.
MAX_PAST = 100

#: Number of objects in deletion whose reasons the status shows.
MAX_STAYING = 5

_PROPAGATION: dict[str, Literal["Background", "Foreground", "Orphan"]] = {
    "background": "Background",
    "foreground": "Foreground",
    "orphan": "Orphan",
}


#: Outcomes of objects that keep a commit from being applied as a whole.
_IN_PART = (Outcome.FAILED, Outcome.SKIPPED, Outcome.BLOCKED)

#: Name of the approving operator if kas did not name one.
UNKNOWN = "unknown"

#: Outcomes of objects that do not need an approval any more.
_GONE_FOR_GOOD = (Outcome.PRUNED, Outcome.DETACHED, Outcome.FORGOTTEN)


class State(Enum):
    """The state of a project."""

    #: No commit has arrived, or it cannot be read, or another project comes first.
    WAITING = "waiting"
    WORKING = "working"
    #: All objects are as in Git.
    CURRENT = "current"
    #: Some objects are not as in Git, because of an error.
    FAILED = "failed"
    #: Objects that left Git wait for an operator's approval.
    HELD = "held"
    #: An operator has suspended all changes.
    SUSPENDED = "suspended"


class _Unreadable(CallError):
    """Raised if the commit to which a project is pinned cannot be obtained."""


class Project:
    """
    A manifest project.

    :param context: shared by all projects of this agentk.
    :param claim: tells whether an inventory belongs to this project alone.
    :param dependencies: the dependencies between this agent's projects.
    :param handover: the handover of objects between this project and others.
    :ivar orders: the operators' orders, as last read.
    :ivar report: the result of the last commit that was processed.
    :ivar drifts: changes by other clients since then.
    :ivar out_of_sync_since: when the cluster began to differ from Git; None if it does
        not differ.
    :ivar worked_at: when agentk finished that commit, or last failed to read the
        cluster; None if it has processed no commit.
    """

    def __init__(
        self,
        context: ProjectContext,
        settings: ManifestProject,
        claim: Callable[[str], bool],
        dependencies: Dependencies,
        handover: ProjectHandover,
    ) -> None:
        api = context.api
        self.settings = settings
        self.orders = Orders()
        self.report: Report | None = None
        self.worked_at: float | None = None
        self.out_of_sync_since: float | None = None
        self._api = api
        self._context = context
        self._now = context.now
        self._claim = claim
        self._stores = ProjectStores(api, settings, context.inventories, context.now)
        self._journal = Journal(self.name, api.clock)
        account = settings.service_account
        #: Client for changes of objects; inventories use agentk's own client.
        self._client = (
            api.kubernetes.as_service_account(*account.split("/"))
            if account
            else api.kubernetes.as_agentk()
        )
        self.drifts = Drifts(
            self._client,
            context.watches,
            api.clock,
            context.now,
            context.writes,
            context.audit_log,
            settings.drift.mode == "repair",
            self._drifted,
        )
        self._commits = Commits(
            self.name,
            api,
            context.service,
            settings,
            context.random,
            self._rendering(context.programs),
            self._rendering(context.preview_programs),
            self._came,
            self._note_kas,
        )
        self._snapshot: Snapshot | None = None
        self._source: Source | None = None
        self._store: InventoryStore | None = None
        self._working: Deferred[Any] | None = None
        self._dependencies = dependencies
        self._transfers = Transfers(
            handover, api.clock, self._client, bool(account), self._stores.claims
        )
        #: Whether `orders` were read at least once.
        self._orders_read = False
        #: Commits that were read before the present one.
        self._past: deque[str] = deque(maxlen=MAX_PAST)
        #: The commit that was last read because an order pinned it.
        self._last_pinned: tuple[Snapshot, Source] | None = None
        #: See `known_since`.
        self._known_since = 0.0
        self._busy = False
        #: Whether another project has to be current first.
        self._waits = False
        self._settled: dict[ObjectKey, Settled] = {}
        #: The commit without the project's folder that the other projects know; see
        #: `Commits.absent`.
        self._absent: Snapshot | None = None
        #: Predicates to which `has_in_git` delegates.
        self._named: list[Callable[[ObjectKey], bool]] = []
        #: The content of the commit that `orders` pin or last pinned.
        self._pinned: tuple[Snapshot, Source] | None = None
        #: Objects whose fields an operator takes back; empty for all; None without such
        #: an order.
        self._repairing: frozenset[ObjectKey] | None = None
        #: The commit that was last processed. A newer commit may be waiting.
        self._worked = ""
        #: The progress of deletes; None if none are in progress.
        self._pruning: Pruning | None = None
        #: Whether a commit other than the one in progress has arrived.
        self._changed = False
        #: Whether a part of `run` has ended, so that the others must end, too.
        self._ends = False
        #: The newest commit, if it cannot be used, and the reasons; the commit before
        #: it remains in effect.
        self._refused = Report("")

    def _rendering(self, programs: Programs) -> Rendering:
        decrypted = partial(self._decrypted, programs.decryptor)
        return Rendering(programs.renderer, decrypted)

    async def _decrypted(self, decryptor: Decryptor, source: Source) -> Source:
        """Return a source with its encrypted Secrets decrypted."""
        decryption = self.settings.decryption
        secret = decryption.secret if decryption else ""
        return await decryptor.decrypt(source, self._client, secret)

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.settings.label or "of the agent's configuration"

    @property
    def repository(self) -> str:
        """The repository of the project's files; empty if it is not known yet."""
        return self._snapshot.project if self._snapshot is not None else ""

    @property
    def inventory(self) -> str:
        """The id of its inventory; empty before the first commit."""
        found = self._snapshot or self._commits.absent
        return "" if found is None else self._stores.id_of(found)

    @property
    def commit(self) -> str:
        """The last commit that was read; empty if there is none."""
        return "" if self._snapshot is None else self._snapshot.commit

    @property
    def known_commit(self) -> str:
        """
        Return the last commit that `has_in_git` knows; empty if there is none.

        A commit without the project's folder counts as a commit without its objects,
        although the project itself stays at the previous commit.
        """
        absent = self._commits.absent
        return self.commit if absent is None else absent.commit

    @property
    def known_since(self) -> float:
        """The time when `known_commit` became known."""
        return self._known_since

    @property
    def location(self) -> Location:
        """The project's ref and repository, as kas resolved them."""
        if self._snapshot is not None:
            return self._snapshot.at
        found = self._commits.at_location
        ref = self.settings.ref
        if found.ref or ref is None:
            return found
        # Only the default branch has a name that the configuration does not contain.
        name = f"refs/heads/{ref.branch}" if ref.branch else f"refs/tags/{ref.tag}"
        return attrs.evolve(found, ref=ref.commit or name)

    @property
    def past_commits(self) -> Collection[str]:
        """
        Known commits from before `known_commit`: commits that were read earlier, and
        commits of the orders' history.
        """
        history = (one.commit for one in self.orders.history)
        return {*self._past, *history, self.commit} - {"", self.known_commit}

    def has_in_git(self, key: ObjectKey) -> bool:
        """
        Tell whether the newest commit, or the pinned one, contains an object.

        An object that the service account may not write ceases to count after some
        time: the project could not keep it from others either.
        """
        given_up = self._transfers.has_given_up(key)
        return not given_up and any(named(key) for named in self._named)

    @property
    def knows_orders(self) -> bool:
        """
        Whether `has_in_git` knows the commit that an operator pinned, if any.
        """
        pinned = self.orders.pinned
        known = self._pinned[0].commit if self._pinned is not None else ""
        return self._orders_read and pinned in ("", known)

    def others_changed(self) -> None:
        """Check again if this project waits for other projects."""
        if self._transfers.waits:
            self._interrupt()

    @property
    def next_commit(self) -> str:
        """
        The newest commit, if it differs from the commit of the report; empty otherwise.
        """
        done = self.report.commit if self.report is not None else ""
        newest = self._commits.refused or self._commits.seen
        return newest if newest != done else ""

    @property
    def next_reason(self) -> str:
        """
        The reason why `next_commit` is not applied; empty if it is, or if there is
        none.
        """
        newest = self.next_commit
        if not newest:
            return ""
        if self.orders.suspended:
            return "the project is suspended"
        if self.orders.pinned:
            return f"the project is pinned to {self.orders.pinned[:12]}"
        if self._refused.problems and self._refused.commit == newest:
            return bounded(self._refused.problems)[0]
        if self._commits.problem_of_newer:
            return self._commits.problem
        # Otherwise the report is about an earlier commit.
        if self.commit == newest:
            if self._busy:
                return "agentk is applying it"
            if self._journal.problems and self._journal.commit == newest:
                return self._journal.problems[0]
        return "agentk is about to apply it"

    @property
    def problems(self) -> list[str]:
        """The present problems, as logged."""
        refused = self._refused
        pruning = self._pruning
        said = self._journal.problems
        if self._busy and self._journal.commit != (self.orders.pinned or self.commit):
            # Another commit is in progress.
            said = []
        if pruning is not None:
            # Deletes that were approved since the report do not wait any more.
            said = [*_pruning_lines(pruning)] + ([] if pruning.approved else said)
        why = bounded(
            f"commit {refused.commit[:12]}: {one}"
            for one in refused.problems
            # A pinned project does not follow the newest commit.
            if not self.orders.pinned
        )
        return [*filter(None, [self._commits.problem]), *why, *said]

    @property
    def release(self) -> str:
        """
        See `Report.release`; empty as well while the approved deletes are made, or if
        an approval would change nothing now.
        """
        approved = self._pruning is not None and self._pruning.approved
        if self.report is None or approved or self.orders.suspended:
            return ""
        return self.report.release

    @property
    def state(self) -> State:
        """The state of the project."""
        if self.orders.suspended:
            return State.SUSPENDED
        if self._busy:
            return State.WORKING
        if self._waits:
            return State.WAITING
        if not self.orders.pinned:
            if self._refused.problems or self._commits.refused:
                return State.FAILED
            if self._commits.not_read:
                return State.WAITING
        if self.report is None:
            return State.FAILED if self._journal.problems else State.WAITING
        if self.report.release:
            return State.HELD
        if self._journal.problems and self._transfers.awaits_agents:
            return State.WAITING
        return State.FAILED if self._journal.problems else State.CURRENT

    @property
    def is_current(self) -> bool:
        """
        Whether all objects of the newest or pinned commit are as in Git.

        An object that stays until another project takes it does not count: that project
        may wait for this one.
        """
        done = not self.next_commit or bool(self.orders.pinned)
        hands_over = self.state is State.FAILED and self._transfers.hands_over
        return done and (self.state is State.CURRENT or hands_over)

    @property
    def hands_over(self) -> bool:
        """
        Whether objects stay until another project takes them, and nothing else is
        wrong.
        """
        waits = self._transfers.only_waits
        return self.state in (State.FAILED, State.WAITING) and waits

    @property
    def drift_delay(self) -> str:
        """
        The reason why drift is detected late; empty if it is detected at once, or not
        looked for.
        """
        problems = self.drifts.unwatched if self.settings.drift.mode != "off" else {}
        if not problems:
            return ""
        repairs = self.settings.drift.mode == "repair"
        seconds = AGAIN if repairs else UNWATCHED_AGAIN
        kinds = sorted(kind for _, kind in problems)
        named = ", ".join(kinds[:MAX_KINDS])
        if len(kinds) > MAX_KINDS:
            named += f" and {len(kinds) - MAX_KINDS} more kinds"
        why = clean(next(iter(problems.values())), MAX_LINE, " ")
        return (
            f"changes to {named} by other clients are detected every "
            f"{seconds / 60:.0f} minutes only, because agentk cannot watch them (it "
            f"needs list and watch in the whole cluster): {why}"
        )

    def dependency_worked(self) -> None:
        """Check again, if this project waits for other projects."""
        if self._waits:
            self._interrupt()

    async def approve(self, release: str, by: str = "") -> None:
        """
        Approve the deletes that a limit holds back.

        :param release: the value of `Report.release`.
        :param by: the user who approves them.
        :raises CallError: FAILED_PRECONDITION, *release* is for other objects, or
            nothing is held.
        """
        report = self.report
        if report is None or not report.held:
            text = f"nothing is held: {self._how_to_look}"
            raise CallError(Status.FAILED_PRECONDITION, text)
        if not compare_digest(report.release.encode(), release.encode()):
            raise CallError(
                Status.FAILED_PRECONDITION,
                (
                    "other objects are held now, or those of another commit: "
                    f"{self._how_to_look}"
                ),
            )

        def approved(orders: Orders) -> Orders:
            approval = orders.approval.adding(report.commit, report.held, by)
            return attrs.evolve(orders, approval=approval)

        await self._order(approved)

    async def suspend(self) -> None:
        """
        Change nothing until `resume`.

        :raises CallError: FAILED_PRECONDITION, no commit of the project has arrived
            yet.
        """
        await self._order(lambda orders: attrs.evolve(orders, suspended=True))

    async def resume(self) -> None:
        """
        Follow Git again.

        :raises CallError: as `suspend`.
        """
        await self._order(
            lambda orders: attrs.evolve(orders, suspended=False, pinned="")
        )

    async def sync(self) -> str:
        """
        Request the newest commit, and apply it now.

        :returns: its id.
        :raises CallError: kas cannot name it.
        """
        commit = await self._commits.newest()
        self._interrupt()
        return commit

    async def repair(self, keys: Collection[ObjectKey]) -> None:
        """
        Apply objects again, and take their fields back from other field managers, once.

        :param keys: objects of the current commit; empty for all of them.
        :raises CallError: FAILED_PRECONDITION, the project is suspended, or no commit
            was applied; NOT_FOUND, the commit does not have one of them.
        """
        report = self.report
        if report is None or self.settings.dry_run_strategy != "none":
            text = "no commit of the project was applied yet"
            raise CallError(Status.FAILED_PRECONDITION, text)
        if self.orders.suspended:
            text = "the project is suspended: resume it first"
            raise CallError(Status.FAILED_PRECONDITION, text)
        for key in keys:
            if key not in report.results:
                raise CallError(Status.NOT_FOUND, _no_object(key, report.results))
        self._repairing = frozenset(keys)
        self._interrupt()

    async def undo(self, wanted: str) -> str:
        """
        Apply an earlier commit, and stay there until `resume`.

        :param wanted: the first digits of its id; empty for the last other commit whose
            objects were all applied.
        :return: its id.
        :raises CallError: as `suspend`; NOT_FOUND, no such commit was applied.
        """
        history = await self.history()
        commits = list(dict.fromkeys(one.commit for one in reversed(history)))
        complete = {one.commit for one in history if one.complete}
        now = self.report.commit if self.report is not None else ""
        found = [
            one
            for one in commits
            if (one.startswith(wanted) if wanted else one != now and one in complete)
        ]
        if not found or (wanted and len(found) > 1):
            known = ", ".join(one[:12] for one in commits) or "none"
            raise CallError(
                Status.NOT_FOUND,
                f"{wanted[:64]!r} does not identify one applied commit; the history "
                f"has: {known}"
                if wanted
                else f"no other commit was applied in full; the history has: {known}",
            )
        await self._order(
            lambda orders: attrs.evolve(orders, suspended=False, pinned=found[0])
        )
        return found[0]

    async def history(self) -> tuple[AppliedCommit, ...]:
        """
        Return the applied commits, the newest last.

        :raises CallError: as `suspend`.
        """
        return (await self._stores.orders(self._first_snapshot()).read()).history

    async def kept(self) -> list[KeptState]:
        """
        Return the kept states of objects.

        :raises CallError: as `suspend`.
        """
        return await self._stores.backups(self._first_snapshot()).read()

    def _first_snapshot(self) -> Snapshot:
        """Return the snapshot that names the inventory."""
        if self._snapshot is None:
            text = "no commit of the project has arrived yet"
            raise CallError(Status.FAILED_PRECONDITION, text)
        return self._snapshot

    async def _order(self, change: Callable[[Orders], Orders]) -> None:
        await self._stores.orders(self._first_snapshot()).change(change)
        self._interrupt()

    async def preview(self, ref: rpc_pb2.Ref, path: str = "") -> Preview:
        """
        Return the effect of the commit of *ref*, without changes.

        :param ref: empty for the followed ref.
        :param path: a file or a folder that limits the preview; empty for all files.
        :raises CallError: the commit does not exist; or the API server is unavailable.
        """
        asked = ref if ref.WhichOneof("ref") else None
        if ref.commit:
            asked = rpc_pb2.Ref(commit=self._whole(ref.commit))
        snapshot, source = await self._commits.at(asked)
        store = self._stores.inventory(snapshot, self._stores.orders(snapshot))
        waits = self._transfers.deletes_wait.copy()
        reconciler = attrs.evolve(
            self._reconciler(snapshot, store),
            # A preview neither begins nor ends a wait of a pass that may be running.
            stays=self._transfers.handover.stays,
            given=self._transfers.gives,
            claims=self._stores.claims(snapshot, waits).of,
            threads=self._context.preview_programs.renderer.threads,
        )
        plan = await reconciler.plan(snapshot.commit, source)
        if isinstance(plan, Report):
            return Preview(snapshot.commit, plan.problems)
        if path.strip("/"):
            plan = below(plan, path, self.drifts.origin)
        found = await preview_of(
            reconciler.client,
            plan,
            reconciler.settings,
            self.drifts.is_of_others,
            self._was_applied,
        )
        objects = [with_drift(one, self.drifts.present) for one in found]
        return Preview(snapshot.commit, objects=tuple(objects))

    def _was_applied(self, manifest: Manifest) -> bool:
        """Tell whether this is the manifest of an object that was last applied."""
        settled = self._settled.get(manifest.key)
        return (
            settled is not None
            and not settled.problem
            and settled.digest == digest_of(manifest)
        )

    def _whole(self, commit: str) -> str:
        """
        Return the id of the known commit that begins with *commit*, or *commit* if it
        is a whole id.

        :raises CallError: INVALID_ARGUMENT, no known commit begins with it.
        """
        if COMMIT.fullmatch(commit):
            return commit
        every = {self._commits.seen, *(one.commit for one in self.orders.history)}
        if self.report is not None:
            every.add(self.report.commit)
        found = [one for one in every if one.startswith(commit)]
        if len(found) != 1:
            raise CallError(
                Status.INVALID_ARGUMENT,
                f"no commit {commit[:64]!r} is known: give the whole id, which "
                "'git rev-parse' prints, or a branch with --ref",
            )
        return found[0]

    async def run(self) -> None:
        """Process commits until cancelled."""
        parts = (self._commits.run, self._work, self.drifts.run)
        await in_parallel(parts, ends=self._end)

    def _end(self) -> None:
        self._ends = True

    # Results of the passes.

    def _note_kas(self) -> None:
        """Update the problem that kas reports, and log changes."""
        self._note_sync()
        self._note_absent()

    def _note_absent(self) -> None:
        """
        Notify the other projects if a newer commit does not contain the project's
        folder.
        """
        found = self._commits.absent
        if found is not self._absent:
            if self._absent is not None:
                self._past.append(self._absent.commit)
            self._absent = found
            self._known_since = self._api.clock.seconds()
            self._note_named()
            self._transfers.handover.changed()
            if self._snapshot is None:
                self._interrupt()

    def _came(self, snapshot: Snapshot, source: Source) -> None:
        self._note_absent()
        if source.problems:
            # The previous commit stays in effect.
            self._refused = Report(snapshot.commit, source.problems)
            self._journal.list_all(snapshot.commit, bounded(source.problems))
            self._note_sync()
            return
        self._refused = Report("")
        if self._snapshot is None or self._snapshot.commit != snapshot.commit:
            self._known_since = self._api.clock.seconds()
            if self._snapshot is not None:
                self._past.append(self._snapshot.commit)
        self._snapshot, self._source = snapshot, source
        self._transfers.new_commit()
        self._note_named()
        self._interrupt()
        self._transfers.handover.changed()

    def _note_named(self) -> None:
        pinned = None if self._pinned is None else self._pinned[1]
        newest = self._source if self._absent is None else None
        self._named = [
            names(one.manifests, self.settings.default_namespace)
            for one in (newest, pinned)
            if one is not None
        ]

    def _interrupt(self) -> None:
        """Start over with another commit, or after an operator's order."""
        self._changed = True
        if self._working is not None:
            self._working.cancel()

    async def _step(self, work: Deferred[_T]) -> _T | None:
        """Return the result of *work*; None if `_interrupt` ended it."""
        self._working = work
        try:
            return await work
        except CancelledError:
            if self._ends or not self._changed:
                raise
            return None
        finally:
            self._working = None

    async def _work(self) -> None:
        backoff = Backoff(self._context.random, TRY_FIRST, TRY_MOST)
        while True:
            self._changed = False
            snapshot, source = self._snapshot, self._source
            if snapshot is None or source is None:
                await self._step(Deferred.fromCoroutine(self._unread(backoff)))
                continue
            work = self._reconciled(snapshot, source)
            well = await self._step(Deferred.fromCoroutine(work))
            if well:
                backoff.reset()
            if not self._changed:
                pause = self._pause() if well else backoff.pause()
                left = self._transfers.wait_ends - self._api.clock.seconds()
                pause = min(pause, max(left, LOOK_SOONEST))
                await self._step(Deferred.fromCoroutine(self._rest(pause)))

    async def _unread(self, backoff: Backoff) -> None:
        """Read the orders if a commit without the project's folder has arrived."""
        absent = self._absent
        if absent is None or self.knows_orders:
            await Deferred()
            return
        try:
            orders = await self._stores.orders(absent).read()
            await self._take_orders(orders, absent, None)
        except CallError as error:
            self._journal.explain(absent.commit, [self._explained(error)])
            await deferLater(self._api.clock, backoff.failed())
        else:
            self._journal.explain(absent.commit, [])
            backoff.reset()

    def _pause(self) -> float:
        """Return the seconds until all objects are applied again."""
        if self.settings.drift.mode != "repair":
            # Changes by other clients stay until the next commit.
            return math.inf
        if self.settings.dry_run_strategy == "none" and self.drifts.is_watched:
            return WATCHED_AGAIN * (0.5 + self._context.random() / 2)
        return AGAIN * (0.9 + self._context.random() / 10)

    async def _rest(self, seconds: float) -> None:
        """
        Wait, repairing drift in the meantime; an order or a commit ends the wait early.
        """
        until = self._api.clock.seconds() + seconds
        while (left := until - self._api.clock.seconds()) > 0:
            pause = min(left, REST)
            if self.orders.suspended:
                # Drift is not repaired now.
                await deferLater(self._api.clock, pause)
                continue
            await self.drifts.wait(pause)
            if (due := self.drifts.due()) and not await self._repair(due):
                return

    async def _repair(self, manifests: list[Manifest]) -> bool:
        """
        Repair the drift of *manifests*; return False if an operator changed the orders.
        """
        snapshot = self._snapshot
        assert snapshot is not None
        keys = [one.key for one in manifests]
        store = self._stores.orders(snapshot)
        reconciler = self._reconciler(snapshot, self._stores.inventory(snapshot, store))
        try:
            orders = await store.read()
            if orders.bound != self.orders.bound:
                why = "an operator suspended the project, or chose another commit"
                self.drifts.could_not_repair(keys, why)
                return False
            results = await reconciler.repair(self._worked, manifests)
        except Superseded:
            self.drifts.could_not_repair(keys, "another agentk leads")
        except CallError as error:
            self.drifts.could_not_repair(keys, error.message)
        else:
            self.drifts.repaired(results)
        finally:
            self.drifts.worked()
        return True

    async def _reconciled(self, snapshot: Snapshot, source: Source) -> bool:
        """Apply a commit; tell whether all objects are as in Git now."""
        self._transfers.idle()
        store = self._stores.orders(snapshot)
        try:
            await self._take_orders(await store.read(), snapshot, source)
        except CallError as error:
            # A suspended project needs no commit.
            if not (isinstance(error, _Unreadable) and self.orders.suspended):
                self._explain_failure(snapshot.commit, error)
                return False
        if not self._claim(self._stores.id_of(snapshot)):
            why = (
                "another project of this agent also has this repository and no name: "
                "give one of them a 'name'"
            )
            self._journal.explain(snapshot.commit, [why])
            return False
        missing = self._dependencies.missing(self.settings.depends_on)
        self._waits = bool(missing)
        if missing:
            why = f"it waits for {', '.join(missing)} (depends_on)"
            self._journal.explain(snapshot.commit, [why], is_wrong=False)
            return False
        self._transfers.begin()
        if self.orders.suspended:
            why = "suspended: nothing is changed"
            self._journal.explain(snapshot.commit, [why], is_wrong=False)
            return False
        if self._pinned is not None:
            snapshot, source = self._pinned
        self._busy = True
        try:
            self._worked = snapshot.commit
            self._store = self._stores.inventory(snapshot, store)
            self._transfers.use(self._store)
            report = await self._reported(snapshot, source)
            await self._remember(report, store)
            await self._transfers.end(report)
        except Superseded:
            self._journal.superseded()
            return False
        except CallError as error:
            self._explain_failure(snapshot.commit, error)
            return False
        finally:
            self._busy = False
            self._pruning = None
            self.drifts.worked()
        self.report = report
        self.worked_at = self._now()
        self._note_sync()
        lines = [str(one) for one in report.problems]
        lines += [str(one) for one in (*report.failed, *self._guarded(report))]
        if report.release:
            lines.insert(0, self._how_to_release(report))
        self._journal.explain(
            snapshot.commit, lines, is_wrong=not self._transfers.awaits_agents
        )
        if not report.problems:
            self._journal.summarize(report)
        self._dependencies.worked(self.settings.label)
        return not (report.problems or report.failed or self._transfers.waits)

    def _explain_failure(self, commit: str, error: CallError) -> None:
        self._journal.explain(commit, [self._explained(error)])
        if self.report is not None:
            # Callers that wait for this pass learn that it is over.
            self.worked_at = self._now()

    async def _take_orders(
        self, orders: Orders, snapshot: Snapshot, source: Source | None
    ) -> None:
        """
        Take over the orders, and read the commit that they pin.

        :param snapshot: the newest commit; *source* is its content, or None if it was
            not read.
        :raises CallError: the pinned commit cannot be read now.
        """
        self.orders = orders
        before = self._pinned
        if before is not None and before[0].commit != orders.pinned:
            self._pinned = None
            self._note_named()
        if orders.pinned and self._pinned is None:
            if orders.pinned == snapshot.commit and source is not None:
                self._pinned = (snapshot, source)
            else:
                self._pinned = await self._of_pinned(orders.pinned)
        if not self._orders_read or self._pinned is not before:
            self._orders_read = True
            self._note_named()
            self._transfers.handover.changed()

    def _note_pruning(self, pruning: Pruning) -> None:
        self._pruning = pruning

    def _note_pruned(self, commit: str, key: ObjectKey) -> None:
        """Report the delete of an object to kas, for its audit log."""
        approval = self.orders.approval
        names = ", ".join(approval.by) or UNKNOWN
        by = names if approval.covers(commit, key) else ""
        self._context.pruned(self.name, commit, key, by)

    async def _of_pinned(self, commit: str) -> tuple[Snapshot, Source]:
        """
        Return the content of the pinned commit.

        Each order makes kas check the commit again, because a forced push may have
        removed it from the history. If kas or the Git server is unavailable, a commit
        that was read for an earlier order still counts.

        :raises CallError: it cannot be read, or is not in the history of the ref.
        """
        try:
            found = await self._commits.of_history(commit)
        except CallError as error:
            known = self._last_pinned
            is_known = known is not None and known[0].commit == commit
            if known is not None and is_known and error.status in AWAY:
                return known
            why = _unreadable(commit, error.message)
            raise _Unreadable(error.status, why) from None
        if problems := found[1].problems:
            why = _unreadable(commit, str(problems[0]))
            raise _Unreadable(Status.FAILED_PRECONDITION, why)
        self._last_pinned = found
        return found

    async def _remember(self, report: Report, store: OrderStore) -> None:
        """Record in the cluster that a commit was applied."""
        history = self.orders.history
        dry = self.settings.dry_run_strategy != "none"
        if dry or report.problems:
            return
        summary = counted(one.outcome.value for one in report.results.values())
        complete = not any(one.outcome in _IN_PART for one in report.results.values())
        replaces = bool(history) and history[-1].commit == report.commit
        gone = [
            one.key for one in report.results.values() if one.outcome in _GONE_FOR_GOOD
        ]

        def used(orders: Orders) -> Orders:
            approval = orders.approval.without(report.commit, gone)
            return attrs.evolve(orders.holding(report.held), approval=approval)

        if replaces and (history[-1].summary == summary or history[-1].complete):
            if used(self.orders) != self.orders:
                self.orders = await store.change(used)
            return
        done = AppliedCommit(report.commit, round(self._now()), summary, complete)
        # Objects of this commit that were failed or held have reached another state
        # since.
        self.orders = await store.change(
            lambda orders: used(orders).remembering(done, replaces)
        )

    async def _reported(self, snapshot: Snapshot, source: Source) -> Report:
        assert self._store is not None
        reconciler = self._reconciler(snapshot, self._store)
        if self.settings.dry_run_strategy == "none":
            if self._repairing is not None and not source.problems:
                keys = self._repairing
                await reconciler.repair(snapshot.commit, source.manifests, keys)
                self._repairing = None
            return await reconciler.run(snapshot.commit, source)
        plan = await reconciler.plan(snapshot.commit, source)
        if isinstance(plan, Report):
            return plan
        actions = (*plan.wanted.values(), *plan.leaving.values())
        self._journal.dry_run(snapshot.commit, (one.verb.value for one in actions))
        return Report(snapshot.commit)

    def _reconciler(self, snapshot: Snapshot, store: InventoryStore) -> Reconciler:
        settings = self.settings
        return Reconciler(
            client=self._client,
            store=store,
            settings=SourceSettings(
                inventory_id=self._stores.id_of(snapshot),
                source=snapshot.followed,
                siblings=self._transfers.handover.inventories,
                default_namespace=settings.default_namespace,
                policy=settings.inventory_policy,
                only_keeps=(
                    self._absent is not None
                    and snapshot is self._snapshot
                    and not self.orders.pinned
                ),
                prune=settings.prune,
                limits=settings.prune_limits,
                force=settings.conflicts == "force",
                takes_back=settings.drift.mode == "repair",
                only_reports=settings.drift.mode == "report",
                reconcile_timeout=settings.reconcile_timeout,
                awaits_all=self._dependencies.is_needed(settings.label),
                prune_timeout=settings.prune_timeout,
                propagation=_PROPAGATION[settings.prune_propagation_policy],
            ),
            leads=lambda: self._api.leadership.leads,
            clock=self._api.clock,
            now=self._now,
            planned=partial(self._planned, self._stores.id_of(snapshot)),
            applied=self._applied,
            settled=self._settled,
            kept=self._stores.backups(snapshot),
            leaves=self.drifts.leaves,
            stays=self._transfers.stays,
            given=partial(self._transfers.given, snapshot),
            claims=partial(self._transfers.claims, snapshot),
            prunes=self._note_pruning,
            pruned=self._note_pruned,
            threads=self._context.programs.renderer.threads,
        )

    # Changes by other clients.

    def _planned(self, name: str, plan: Plan) -> None:
        if self.settings.drift.mode != "off":
            self.drifts.planned(plan, name)

    def _applied(self, manifest: Manifest, found: AppliedVersion) -> None:
        if self.settings.drift.mode != "off":
            self.drifts.applied(manifest, found)

    def _note_sync(self) -> None:
        report = self.report
        behind = report is None or bool(
            report.problems or report.failed or self._guarded(report)
        )
        # A newer commit exists, but cannot be read.
        newer = bool(self._refused.problems or self._commits.problem_of_newer)
        behind = behind or newer
        if not behind and not self.drifts.present:
            self.out_of_sync_since = None
        elif self.out_of_sync_since is None:
            self.out_of_sync_since = self._now()

    def _drifted(self, drift: Drift) -> None:
        self._note_sync()
        self._context.drifted(self.name, drift)
        self._journal.drift(drift)

    def _guarded(self, report: Report) -> list[Result]:
        """
        Return the objects that agentk should prune but keeps; empty if ``prune`` is
        false.
        """
        return report.blocked if self.settings.prune else []

    # Texts for operators.

    @property
    def _how_to_look(self) -> str:
        """The command that shows the status."""
        words = shlex.join(
            [self._api.agent_name, self.settings.label or self.repository]
        )
        return f"see 'kasctl gitops status {words}'"

    def _how_to_release(self, report: Report) -> str:
        count = len(report.held)
        what = "1 object waits" if count == 1 else f"{count} objects wait"
        words = (
            self._api.agent_name,
            self.settings.label or self.repository,
            report.release,
        )
        return (
            f"{what} for an approval; to delete: kasctl gitops approve "
            f"{' '.join(words)}"
        )

    def _explained(self, error: CallError) -> str:
        """Return the reason why nothing could be done."""
        if isinstance(error, _Unreadable):
            return error.message
        space = "" if self._store is None else self._store.namespace
        if (
            error.status is Status.NOT_FOUND
            and f'namespaces "{space}"' in error.message
        ):
            return (
                f"the Namespace {space}, which is to hold the inventory, does not "
                "exist: create it, or name another one in "
                "modules.gitops.inventory_namespace of agentk"
            )
        if error.status is Status.PERMISSION_DENIED:
            return error.message
        return f"the API server cannot be reached: {error.message}"


def _unreadable(commit: str, why: str) -> str:
    return (
        f"the project is pinned to {commit[:12]}, which cannot be applied; the "
        f"cluster stays as it is: {why}"
    )


def _pruning_lines(pruning: Pruning) -> Iterator[str]:
    """Yield the progress of deletes, and the reasons of the first objects that stay."""
    word = "approved" if pruning.approved else "pruning"
    yield f"{word}, {pruning.gone} of {pruning.total} gone"
    for key, why in sorted(pruning.stays.items())[:MAX_STAYING]:
        yield f"{key} still exists: {clean(why, MAX_LINE, ' ')}"


def _no_object(key: ObjectKey, known: Collection[ObjectKey]) -> str:
    """Return an error for an unknown *key*, with similar objects of the project."""
    text = f"the project has no object {_argument(key)}"
    wanted = key.kind.lower(), key.name
    # Users often omit the group or Namespace, and kubectl ignores the case of a kind.
    near = sorted(one for one in known if (one.kind.lower(), one.name) == wanted)
    if near:
        return f"{text}; it has {', '.join(map(_argument, near[:MAX_KINDS]))}"
    return (
        f"{text}: name it KIND[.GROUP]/[NAMESPACE/]NAME, as 'kasctl gitops status "
        "--objects' lists them"
    )


def _argument(key: ObjectKey) -> str:
    """Return the argument of ``kasctl gitops repair`` for an object."""
    return str(key).replace(" ", "/", 1)[:MAX_LINE]
