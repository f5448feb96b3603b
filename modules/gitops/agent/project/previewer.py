"""Previews of a project's commits."""

from __future__ import annotations

import attrs

from modules.gitops.agent.apply.settled import digest_of
from modules.gitops.agent.drift.drift import Drifts
from modules.gitops.agent.objects.manifests import Manifest
from modules.gitops.agent.plan.plan import OtherSources
from modules.gitops.agent.project.context import Programs
from modules.gitops.agent.project.desired import DesiredCommits
from modules.gitops.agent.project.passes import Passes
from modules.gitops.agent.project.preview import Preview, below, preview_of, with_drift
from modules.gitops.agent.project.reconcile import Report
from modules.gitops.agent.project.stores import ProjectStores
from modules.gitops.agent.project.transfers import Transfers
from modules.gitops.agent.source.commits import Commits
from modules.gitops.wire import rpc_pb2
from modules.gitops.wire.commit_id import COMMIT
from tunnel.errors import CallError, Status

__all__ = ["Previewer"]


@attrs.frozen(eq=False)
class Previewer:
    """
    Maker of previews of one project's commits.

    :param programs: the programs that process the commits of previews.
    """

    _desired: DesiredCommits
    _commits: Commits
    _passes: Passes
    _stores: ProjectStores
    _transfers: Transfers
    _drifts: Drifts
    _programs: Programs

    async def preview(self, ref: rpc_pb2.Ref, path: str = "") -> Preview:
        """
        Return the effect of the commit of *ref*, without changes.

        :param ref: empty for the followed ref.
        :param path: a file or a folder that limits the preview; empty for all files.
        :raises CallError: if the commit does not exist, or the API server is
            unavailable.
        """
        asked = ref if ref.WhichOneof("ref") else None
        if ref.commit:
            asked = rpc_pb2.Ref(commit=self._whole(ref.commit))
        snapshot, source = await self._commits.at(asked)
        store = self._stores.inventory(snapshot, self._stores.orders(snapshot))
        waits = self._transfers.deletes_wait.copy()
        siblings = self._transfers.handover.inventories
        one_pass = attrs.evolve(
            self._passes.pass_for(snapshot, store),
            # A preview neither begins nor ends a wait of a pass that may be running.
            others=OtherSources(
                stays=self._transfers.handover.stays,
                given=self._transfers.gives,
                claims=self._stores.claims(snapshot, waits, siblings).of,
            ),
            threads=self._programs.renderer.threads,
        )
        reconciler = self._passes.reconciler
        plan = await reconciler.plan(one_pass, snapshot.commit, source)
        if isinstance(plan, Report):
            return Preview(snapshot.commit, plan.problems)
        if path.strip("/"):
            plan = below(plan, path, self._drifts.origin)
        found = await preview_of(
            reconciler.client,
            plan,
            one_pass.settings,
            self._drifts.is_of_others,
            self._was_applied,
        )
        objects = [with_drift(one, self._drifts.present) for one in found]
        return Preview(snapshot.commit, objects=tuple(objects))

    def _was_applied(self, manifest: Manifest) -> bool:
        """
        Return whether a manifest is the manifest that was last applied for its object.
        """
        settled = self._passes.reconciler.settled.get(manifest.key)
        return (
            settled is not None
            and not settled.problem
            and settled.digest == digest_of(manifest)
        )

    def _whole(self, commit: str) -> str:
        """
        Return the id of the known commit that begins with *commit*, or *commit* if it
        is a full id.

        :raises CallError: INVALID_ARGUMENT if no known commit begins with *commit*.
        """
        if COMMIT.fullmatch(commit):
            return commit
        history = self._desired.orders.history
        every = {self._commits.seen, *(one.commit for one in history)}
        if self._passes.report is not None:
            every.add(self._passes.report.commit)
        found = [one for one in every if one.startswith(commit)]
        if len(found) != 1:
            raise CallError(
                Status.INVALID_ARGUMENT,
                f"no commit {commit[:64]!r} is known: give the full id, which "
                "'git rev-parse' prints, or a branch with --ref",
            )
        return found[0]
