"""Context that all projects of an agentk share."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from modules.gitops.agent.drift.audit_log import KubernetesAuditLog
from modules.gitops.agent.drift.change_authors import Writes
from modules.gitops.agent.drift.drift import Drift
from modules.gitops.agent.drift.watches import KindWatches
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.source.decryption import Decryptor
from modules.gitops.agent.source.rendering import Renderer
from tunnel.api import AgentScope, IAgentModuleApi, IServiceClient

__all__ = ["Programs", "ProjectContext"]


@attrs.frozen(eq=False)
class Programs:
    """
    Programs that process commits.

    :ivar renderer: runs kustomize and Helm.
    :ivar decryptor: runs sops.
    """

    renderer: Renderer
    decryptor: Decryptor


@attrs.frozen(eq=False, kw_only=True)
class ProjectContext:
    """
    Context that all projects of an agentk share.

    :ivar service: client of kas' service that sends files.
    :ivar random: returns a number between 0 and 1.
    :ivar now: returns the time in seconds since 1970.
    :ivar programs: the programs for commits that are applied; *preview_programs* are
        for commits that are only previewed.
    :ivar scope: returns the part of the cluster that the agent works in.
    :ivar inventories: the Namespace of all inventories; empty for agentk's own.
    :ivar watches: the watches on the kinds of all projects.
    :ivar writes: the recent writes of clients of kas.
    :ivar audit_log: the audit log of the API server; None if agentk cannot read it.
    :ivar drifted: called with the name of a project and its drift.
    :ivar pruned: called for each prune with the project, the commit, the object, and
        the users who approved the prune.
    """

    api: IAgentModuleApi
    service: IServiceClient
    random: Callable[[], float]
    now: Callable[[], float]
    programs: Programs
    preview_programs: Programs
    scope: Callable[[], AgentScope]
    inventories: str
    watches: KindWatches
    writes: Writes
    audit_log: KubernetesAuditLog | None
    drifted: Callable[[str, Drift], None]
    pruned: Callable[[str, str, ObjectKey, str], None]
