"""Execution of operators' orders to a project."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hmac import compare_digest

import attrs

from modules.gitops.agent.apply.backups import KeptState
from modules.gitops.agent.inventory.orders import AppliedCommit, Approval, Orders
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.project.desired import DesiredCommits
from modules.gitops.agent.project.explanations import no_object
from modules.gitops.agent.project.passes import Passes
from modules.gitops.agent.project.stores import ProjectStores
from modules.gitops.agent.source.commits import Commits
from modules.gitops.agent.source.snapshot import Snapshot
from tunnel.errors import CallError, Status

__all__ = ["ProjectOperations"]


@attrs.frozen(eq=False)
class ProjectOperations:
    """
    Executor of operators' orders to one project.

    :param how_to_look: returns the command that shows the status.
    """

    _desired: DesiredCommits
    _commits: Commits
    _passes: Passes
    _stores: ProjectStores
    _how_to_look: Callable[[], str]

    async def approve(self, release: str, by: str = "") -> None:
        """
        Approve the deletes that a limit holds back.

        :param release: the value of `Report.release`.
        :param by: the user who approves the deletes.
        :raises CallError: FAILED_PRECONDITION if *release* is for other objects, or no
            delete is held.
        """
        report = self._passes.report
        if report is None or not report.held:
            text = f"nothing is held: {self._how_to_look()}"
            raise CallError(Status.FAILED_PRECONDITION, text)
        if not compare_digest(report.release.encode(), release.encode()):
            raise CallError(
                Status.FAILED_PRECONDITION,
                "other objects are held now, or those of another commit: "
                f"{self._how_to_look()}",
            )

        def approved(orders: Orders) -> Orders:
            approval = orders.approval.adding(report.commit, report.held_uids, by)
            return attrs.evolve(orders, approval=approval)

        await self._order(approved)

    async def suspend(self) -> None:
        """
        Stop all changes until `resume`.

        :raises CallError: FAILED_PRECONDITION if no commit of the project has arrived
            yet.
        """
        await self._order(lambda orders: attrs.evolve(orders, suspended=True))

    async def resume(self) -> None:
        """
        Follow Git again, and end the notice that the inventory was gone.

        :raises CallError: as `suspend`.
        """

        def resumed(orders: Orders) -> Orders:
            # Deletes that were approved before the undo need another approval.
            approval = Approval() if orders.pinned else orders.approval
            return attrs.evolve(
                orders, suspended=False, pinned="", approval=approval, lost=False
            )

        await self._order(resumed)

    async def sync(self) -> str:
        """
        Request the newest commit, and apply it now.

        :returns: the id of the commit.
        :raises CallError: if kas cannot name the commit.
        """
        commit = await self._commits.newest()
        self._passes.interrupt()
        return commit

    async def repair(self, keys: Collection[ObjectKey]) -> None:
        """
        Apply objects again, and take their fields back from other field managers, once.

        :param keys: objects of the current commit; empty for all of them.
        :raises CallError: FAILED_PRECONDITION if the project is suspended, or no commit
            was applied; NOT_FOUND if the commit does not contain one of *keys*.
        """
        report = self._passes.report
        if report is None or self._passes.is_dry_run:
            text = "no commit of the project was applied yet"
            raise CallError(Status.FAILED_PRECONDITION, text)
        if self._desired.orders.suspended:
            text = "the project is suspended: resume it first"
            raise CallError(Status.FAILED_PRECONDITION, text)
        for key in keys:
            if key not in report.results:
                raise CallError(Status.NOT_FOUND, no_object(key, report.results))
        self._passes.repair(keys)

    async def undo(self, wanted: str) -> str:
        """
        Apply an earlier commit, and stay at that commit until `resume`.

        :param wanted: the first digits of the commit's id; empty for the last other
            commit whose objects were all applied.
        :return: the id of the commit.
        :raises CallError: as `suspend`; NOT_FOUND if no such commit was applied.
        """
        history = await self.history()
        commits = list(dict.fromkeys(one.commit for one in reversed(history)))
        complete = {one.commit for one in history if one.complete}
        report = self._passes.report
        now = report.commit if report is not None else ""
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
            lambda orders: attrs.evolve(
                orders, suspended=False, pinned=found[0], approval=Approval()
            )
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
        snapshot = self._desired.snapshot
        if snapshot is None:
            text = "no commit of the project has arrived yet"
            raise CallError(Status.FAILED_PRECONDITION, text)
        return snapshot

    async def _order(self, change: Callable[[Orders], Orders]) -> None:
        await self._stores.orders(self._first_snapshot()).change(change)
        self._passes.interrupt()
