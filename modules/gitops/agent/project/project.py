"""
A manifest project, for as long as this agentk leads.

    Commits ──> DesiredCommits ──> Passes ──> the cluster
                     ▲               ▲  └───> Drifts
    operators ──> ProjectOperations ─┘        ProjectStatus reads all of them

A new commit replaces the commit in progress at once, even while that one waits: the
inventory lists all objects that it may have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from modules.gitops.agent.drift.drift import Drift, Drifts
from modules.gitops.agent.inventory.handover import ProjectHandover
from modules.gitops.agent.objects.manifests import ObjectKey, Source
from modules.gitops.agent.project.account_reviews import AccountReviews
from modules.gitops.agent.project.context import Programs, ProjectContext
from modules.gitops.agent.project.dependencies import Dependencies
from modules.gitops.agent.project.desired import DesiredCommits
from modules.gitops.agent.project.explanations import how_to_look
from modules.gitops.agent.project.journal import Journal, bounded
from modules.gitops.agent.project.operations import ProjectOperations
from modules.gitops.agent.project.passes import Passes
from modules.gitops.agent.project.previewer import Previewer
from modules.gitops.agent.project.status import ProjectStatus
from modules.gitops.agent.project.stores import ProjectStores
from modules.gitops.agent.project.transfers import Transfers
from modules.gitops.agent.source.commits import Commits, Rendering
from modules.gitops.agent.source.decryption import Decryptor
from modules.gitops.agent.source.snapshot import Snapshot
from modules.gitops.wire.settings import ManifestProject
from tunnel.toolkit.parallel import in_parallel

__all__ = ["Project"]


class Project:
    """
    Manifest project of this agent, with all its parts.

    :param context: shared by all projects of this agentk.
    :param may_use: returns whether an inventory belongs to this project alone.
    :param dependencies: the dependencies between this agent's projects.
    :param handover: the handover of objects between this project and others.
    :ivar desired: the commits that the project should apply.
    :ivar passes: the passes that apply these commits.
    :ivar drifts: changes by other clients after a commit was applied.
    """

    def __init__(
        self,
        context: ProjectContext,
        settings: ManifestProject,
        may_use: Callable[[str], bool],
        dependencies: Dependencies,
        handover: ProjectHandover,
    ) -> None:
        api = context.api
        self.settings = settings
        self._context = context
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
        stores = ProjectStores(api, settings, context.inventories, context.now)
        self.desired = DesiredCommits(
            settings, self._commits, stores, api.clock, handover.changed
        )
        self._handover = handover
        self._reviews = AccountReviews(
            self._client, api.clock, bool(account), handover.changed
        )
        self._transfers = Transfers(handover, api.clock, stores.claims)
        self.passes = Passes(
            context,
            settings,
            self.desired,
            stores,
            self._transfers,
            self.drifts,
            dependencies,
            self._journal,
            self._client,
            may_use,
            lambda: self.status.note_sync(),
        )
        self.status = ProjectStatus(
            self.desired,
            self._commits,
            self.passes,
            self._journal,
            self._transfers,
            self.drifts,
            settings.drift.mode,
            context.now,
        )
        self.operations = ProjectOperations(
            self.desired, self._commits, self.passes, stores, self._how_to_look
        )
        self.previewer = Previewer(
            self.desired,
            self._commits,
            self.passes,
            stores,
            self._transfers,
            self.drifts,
            context.preview_programs,
        )

    @property
    def name(self) -> str:
        """Name in the configuration."""
        return self.settings.label or "of the agent's configuration"

    def has_in_git(self, key: ObjectKey) -> bool:
        """
        Return whether the newest commit, or the pinned one, contains an object.

        An object that the project's service account may not write no longer counts
        after some time, because the project could not change that object anyway.
        """
        return self.desired.contains(key) and not self._reviews.is_given_up(key)

    async def run(self) -> None:
        """Process commits until cancelled."""
        await in_parallel(
            (self._commits.run, self.passes.run, self.drifts.run, self._reviews.run)
        )

    # Methods that are called when other projects change.

    def others_changed(self) -> None:
        """Check again if this project waits for other projects."""
        if self._transfers.waits:
            self.passes.interrupt()

    def dependency_worked(self) -> None:
        """Check again, if this project waits for other projects."""
        if self.passes.awaits_dependency:
            self.passes.interrupt()

    # Callbacks of the parts.

    def _came(self, snapshot: Snapshot, source: Source) -> None:
        self._note_absent()
        if source.problems:
            # The previous commit stays in effect.
            self.desired.refuse(snapshot.commit, source)
            self._journal.list_all(snapshot.commit, bounded(source.problems))
            self.status.note_sync()
            return
        self.desired.accept(snapshot, source)
        self._transfers.new_commit()
        self.passes.interrupt()
        self._handover.changed()

    def _note_kas(self) -> None:
        """Update what kas reports: a problem, the repository, a missing folder."""
        self.status.note_sync()
        self._note_absent()
        self.desired.note_inventory()

    def _note_absent(self) -> None:
        """
        Note a newer commit without the project's folder, so that the other projects
        know it.
        """
        if self.desired.note_absent() and self.desired.snapshot is None:
            self.passes.interrupt()

    def _drifted(self, drift: Drift) -> None:
        self.status.note_sync()
        self._context.drifted(self.name, drift)
        self._journal.drift(drift)

    def _rendering(self, programs: Programs) -> Rendering:
        decrypted = partial(self._decrypted, programs.decryptor)
        return Rendering(programs.renderer, decrypted)

    async def _decrypted(self, decryptor: Decryptor, source: Source) -> Source:
        """Return a source with its encrypted Secrets decrypted."""
        decryption = self.settings.decryption
        secret = decryption.secret if decryption else ""
        return await decryptor.decrypt(source, self._client, secret)

    def _how_to_look(self) -> str:
        agent = self._context.api.agent_name
        return how_to_look(agent, self.desired.name_in_commands)
