"""
One manifest project, for as long as this agentk leads.

    kas ──files of a commit──> the last one that came ──> reconciled, again and again

A commit that comes while another is worked on takes its place at once, whatever that
one waits for: its inventory names all that it may have done.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Literal, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops import rpc_pb2
from modules.gitops.act import Superseded
from modules.gitops.inventory import APPROVED, InventoryStore
from modules.gitops.manifests import Source
from modules.gitops.parallel import in_parallel
from modules.gitops.plan import SourceSettings
from modules.gitops.reconcile import Reconciler, Report, read_snapshot
from modules.gitops.settings import ManifestProject
from modules.gitops.snapshot import Snapshot, receive
from tunnel.errors import CallError
from tunnel.interfaces import IAgentModuleApi, IServiceClient
from tunnel.util.backoff import Backoff

__all__ = ["Project", "inventory_id"]

_T = TypeVar("_T")

#: Seconds before kas is asked again, at first and at most, as GitLab's agent has them.
ASK_FIRST, ASK_MOST = 10.0, 300.0

#: Seconds between two commits at the least, whatever kas sends.
BETWEEN = 1.0

#: Seconds before a commit that could not be applied is tried again, likewise.
TRY_FIRST, TRY_MOST = 10.0, 60.0

#: Seconds after which all of it is looked at again: what others changed is put right.
AGAIN = 300.0

#: Seconds between two looks whether a person lets go what is held: one GET.
ASK_APPROVAL = 10.0

#: Lines of one report; what it has beyond that is counted.
MAX_LINES = 20

_PROPAGATION: dict[str, Literal["Background", "Foreground", "Orphan"]] = {
    "background": "Background",
    "foreground": "Foreground",
    "orphan": "Orphan",
}


def inventory_id(agent_id: str, project_id: int, project: str) -> str:
    """
    What the inventory of a project is called, and the mark of its objects.

    As GitLab's agent calls it, where GitLab has agent and project; else readable, and
    different for whatever else differs.
    """
    if agent_id.isdecimal() and project_id:
        return f"{agent_id}-{project_id}"
    names = [
        re.sub(r"[^a-z0-9]+", "-", one.lower())[:20] for one in (agent_id, project)
    ]
    exact = sha256(f"{agent_id}\0{project}".encode()).hexdigest()[:8]
    return "-".join([*(name.strip("-") or "x" for name in names), exact])


class Project:
    """
    See the module.

    :param service: what asks kas for files.
    :param now: seconds since 1970.
    :param claim: whether an inventory is of this project alone.
    :ivar report: what became of the last commit that was worked on.
    """

    _log = Logger()

    def __init__(
        self,
        api: IAgentModuleApi,
        service: IServiceClient,
        settings: ManifestProject,
        random: Callable[[], float],
        now: Callable[[], float],
        claim: Callable[[str], bool],
    ) -> None:
        self.settings = settings
        self.report: Report | None = None
        self._api = api
        self._service = service
        self._random = random
        self._now = now
        self._claim = claim
        #: The commit that came last, good or not.
        self._seen = ""
        self._snapshot: Snapshot | None = None
        self._source: Source | None = None
        self._store: InventoryStore | None = None
        self._working: Deferred[Any] | None = None
        #: There is another commit than the work at hand is of.
        self._changed = False
        #: Why files cannot be had, and what is wrong with them; said once.
        self._problem = ""
        self._said: list[str] = []
        self._summary = ("", "")

    @property
    def name(self) -> str:
        """As the configuration calls it."""
        return self.settings.id or "of the agent's configuration"

    async def run(self) -> None:
        """Until it is cancelled."""
        await in_parallel([self._follow, self._work])

    # What kas sends.

    async def _follow(self) -> None:
        backoff = Backoff(self._random, ASK_FIRST, ASK_MOST)
        while True:
            try:
                snapshot = await receive(self._asked())
            except CallError as error:
                self._complain(error.message)
                await deferLater(self._api.clock, backoff.pause())
                continue
            backoff.reset()
            self._complain("")
            if snapshot is None:
                # kas stops, and another one answers.
                await deferLater(self._api.clock, ASK_FIRST * self._random())
                continue
            self._seen = snapshot.commit
            source = await read_snapshot(snapshot)
            if source.problems:
                # The commit before goes on, as it was.
                self._tell(snapshot.commit, [str(one) for one in source.problems])
                self.report = Report(snapshot.commit, source.problems)
                await deferLater(self._api.clock, BETWEEN)
                continue
            self._source = source
            # Its files are read, and not needed any more.
            self._snapshot = attrs.evolve(snapshot, files=())
            self._log.info(
                "project {project}: commit {commit} has come: {files} files, "
                "{objects} objects",
                project=self.name,
                commit=snapshot.commit,
                files=len(snapshot.files),
                objects=len(source.manifests),
            )
            self._interrupt()
            await deferLater(self._api.clock, BETWEEN)
            if self.settings.ref is not None and self.settings.ref.commit:
                # It never changes.
                await Deferred()

    def _asked(self) -> AsyncIterator[rpc_pb2.ObjectsToSynchronizeResponse]:
        settings, ref = self.settings, rpc_pb2.Ref()
        if settings.ref is not None:
            ref = rpc_pb2.Ref(
                **{
                    key: one
                    for key, one in attrs.asdict(settings.ref).items()
                    if one is not None
                }
            )
        request = rpc_pb2.ObjectsToSynchronizeRequest(
            project_id=settings.id,
            commit_id=self._seen,
            paths=[rpc_pb2.Path(glob=one) for one in settings.globs],
            ref=ref,
        )
        return self._service.stream("GetObjectsToSynchronize", request)

    def _complain(self, problem: str) -> None:
        if problem and problem != self._problem:
            self._log.warn(
                "project {project}: its files cannot be had, and what is in the "
                "cluster stays: {reason}",
                project=self.name,
                reason=problem,
            )
        self._problem = problem

    # What becomes of it.

    def _interrupt(self) -> None:
        """There is another commit than the work at hand is of."""
        self._changed = True
        if self._working is not None:
            self._working.cancel()

    async def _step(self, work: Deferred[_T]) -> _T | None:
        """The result of *work*; None: `_interrupt` ended it."""
        self._working = work
        try:
            return await work
        except CancelledError:
            if not self._changed:
                raise
            return None
        finally:
            self._working = None

    async def _work(self) -> None:
        backoff = Backoff(self._random, TRY_FIRST, TRY_MOST)
        while True:
            self._changed = False
            snapshot, source = self._snapshot, self._source
            if snapshot is None or source is None:
                await self._step(Deferred())
                continue
            work = self._reconciled(snapshot, source)
            well = await self._step(Deferred.fromCoroutine(work))
            if well:
                backoff.reset()
            if not self._changed:
                pause = AGAIN * (0.9 + self._random() / 10) if well else backoff.pause()
                await self._step(Deferred.fromCoroutine(self._rest(pause)))

    async def _rest(self, seconds: float) -> None:
        """So long, or until a person lets go what a limit holds."""
        release, store = (
            (self.report.release, self._store) if self.report else ("", None)
        )
        if not release or store is None:
            await deferLater(self._api.clock, seconds)
            return
        until = self._api.clock.seconds() + seconds
        while (left := until - self._api.clock.seconds()) > 0:
            await deferLater(self._api.clock, min(left, ASK_APPROVAL))
            try:
                if compare_digest(await store.approved(), release):
                    return
            except CallError:
                # The next run says what is wrong.
                return

    async def _reconciled(self, snapshot: Snapshot, source: Source) -> bool:
        """Whether all is as Git has it."""
        if not self._claim(self._inventory_id(snapshot)):
            why = "another project of this agent is the same source; remove one"
            self._tell(snapshot.commit, [why])
            return False
        try:
            report = await self._reported(snapshot, source)
        except Superseded:
            self._log.info(
                "project {project}: another agentk has worked on it; looking again",
                project=self.name,
            )
            return False
        except CallError as error:
            self._tell(
                snapshot.commit, [f"the cluster cannot be asked: {error.message}"]
            )
            return False
        self.report = report
        lines = [str(one) for one in report.problems]
        lines += [str(one) for one in (*report.failed, *report.blocked)]
        if report.release:
            lines.insert(0, self._how_to_release(snapshot, report))
        self._tell(snapshot.commit, lines)
        if not report.problems:
            self._summarize(report)
        return not report.problems and not report.failed

    async def _reported(self, snapshot: Snapshot, source: Source) -> Report:
        reconciler = self._reconciler(snapshot)
        if self.settings.dry_run_strategy == "none":
            return await reconciler.run(snapshot.commit, source)
        plan = await reconciler.plan(snapshot.commit, source)
        if isinstance(plan, Report):
            return plan
        self._log.info(
            "project {project}: commit {commit} would {what} (dry run)",
            project=self.name,
            commit=snapshot.commit,
            what=_counted(
                one.verb.value
                for one in (*plan.wanted.values(), *plan.leaving.values())
            ),
        )
        return Report(snapshot.commit)

    def _reconciler(self, snapshot: Snapshot) -> Reconciler:
        settings, client = self.settings, self._api.kubernetes_as_agentk()
        name = self._inventory_id(snapshot)
        self._store = InventoryStore(client, name, settings.default_namespace)
        return Reconciler(
            client=client,
            store=self._store,
            settings=SourceSettings(
                inventory_id=name,
                default_namespace=settings.default_namespace,
                policy=settings.inventory_policy,
                prune=settings.prune,
                limits=settings.prune_limits,
                force=settings.conflicts == "force",
                reconcile_timeout=settings.reconcile_timeout,
                prune_timeout=settings.prune_timeout,
                propagation=_PROPAGATION[settings.prune_propagation_policy],
            ),
            leads=lambda: self._api.leads,
            clock=self._api.clock,
            now=self._now,
        )

    # What an operator reads.

    def _how_to_release(self, snapshot: Snapshot, report: Report) -> str:
        name = self._inventory_id(snapshot)
        return (
            f"{len(report.blocked)} objects wait for a person; these go with "
            f"kubectl annotate --overwrite configmap -n {report.inventory_namespace} "
            f"inventory-{name} {APPROVED}={report.release}"
        )

    def _inventory_id(self, snapshot: Snapshot) -> str:
        return inventory_id(self._api.agent_id, snapshot.project_id, snapshot.project)

    def _tell(self, commit: str, lines: list[str]) -> None:
        """What is wrong; once, for as long as it stays so."""
        if lines == self._said:
            return
        self._said = lines
        for line in lines[:MAX_LINES]:
            self._log.error(
                "project {project}, commit {commit}: {line}",
                project=self.name,
                commit=commit[:12],
                line=line,
            )
        if len(lines) > MAX_LINES:
            self._log.error(
                "project {project}, commit {commit}: and {count} more",
                project=self.name,
                commit=commit[:12],
                count=len(lines) - MAX_LINES,
            )

    def _summarize(self, report: Report) -> None:
        summary = _counted(one.outcome.value for one in report.results.values())
        if (report.commit, summary) == self._summary:
            return
        self._summary = (report.commit, summary)
        self._log.info(
            "project {project}: commit {commit} is {what}: {summary}",
            project=self.name,
            commit=report.commit,
            what="in the cluster" if not report.failed else "in the cluster in part",
            summary=summary,
        )


def _counted(words: Iterable[str]) -> str:
    """How often there is each: ``3 created, 1 pruned``."""
    counts = Counter(words)
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "0"
