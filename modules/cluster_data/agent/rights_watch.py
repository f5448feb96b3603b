"""
Watches of roles and bindings, so that kas notices early when rights may have changed.

agentk does not evaluate them: other authorizers may decide, too.  kas only drops the
answers that it remembers, and asks the API server again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater

from tunnel.api import AgentScope, IKubernetes, KubernetesResource, WatchEventType
from tunnel.errors import CallError
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.timers import cancel_call

__all__ = ["AGAIN", "BETWEEN", "KINDS", "RETRY", "SOON", "RightsWatch"]

_RBAC: Final = "rbac.authorization.k8s.io"
KINDS: Final = (
    KubernetesResource(_RBAC, "v1", "Role", "roles", True),
    KubernetesResource(_RBAC, "v1", "RoleBinding", "rolebindings", True),
    KubernetesResource(_RBAC, "v1", "ClusterRole", "clusterroles", False),
    KubernetesResource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", False),
)

#: Seconds after a change at which kas is notified, and notified again: the authorizer
#: of an API server learns of the change a moment later, and a busy one after seconds.
SOON, AGAIN = 0.3, 3.0

#: Minimum seconds between a notification and the first one of later changes: each makes
#: kas repeat the reviews for all open pages.
BETWEEN: Final = 10.0

#: Seconds until the next attempt if agentk may not watch a kind.  Then, kas notices
#: changes of rights when the answers that it remembers are too old.
RETRY: Final = 600.0

_CHANGES: Final = (
    WatchEventType.ADDED,
    WatchEventType.MODIFIED,
    WatchEventType.DELETED,
)


class RightsWatch:
    """
    Watches of the kinds that RBAC has.

    :param scope: the part of the cluster to watch.
    :param changed: called after changes, twice in `BETWEEN` at most.
    """

    def __init__(
        self,
        kubernetes: IKubernetes,
        clock: IReactorTime,
        scope: AgentScope,
        changed: Callable[[], object],
    ) -> None:
        self._scope = scope
        self._kubernetes = kubernetes
        self._clock = clock
        self._changed = changed
        self._soon: IDelayedCall | None = None
        self._again: IDelayedCall | None = None
        self._notified_at = float("-inf")

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            await in_parallel(
                [
                    partial(self._watch, kind, namespace)
                    for namespace in self._scope.namespaces or ("",)
                    for kind in KINDS
                    if kind.namespaced or not namespace
                ]
            )
        finally:
            cancel_call(self._soon)
            cancel_call(self._again)

    async def _watch(self, kind: KubernetesResource, namespace: str) -> None:
        client = self._kubernetes.as_agentk()
        while True:
            is_synced = has_been_synced = False
            try:
                events = client.watch(kind, namespace, metadata_only=True)
                async for event in events:
                    if event.type is WatchEventType.RESET:
                        is_synced = False
                    elif event.type is WatchEventType.SYNCED:
                        # Changes may be missing before all objects arrive again.
                        if has_been_synced:
                            self._note()
                        is_synced = has_been_synced = True
                    elif is_synced and event.type in _CHANGES:
                        self._note()
            except CallError:
                # agentk may not watch the kind, or the API server does not have it.
                await deferLater(self._clock, RETRY)

    def _note(self) -> None:
        """Notify kas after a pause."""
        if self._soon is None:
            now = self._clock.seconds()
            pause = max(SOON, self._notified_at + BETWEEN - now)
            self._soon = self._clock.callLater(pause, self._notify)

    def _notify(self) -> None:
        self._soon = None
        self._notified_at = self._clock.seconds()
        self._changed()
        if self._again is None:
            self._again = self._clock.callLater(AGAIN, self._notify_again)

    def _notify_again(self) -> None:
        self._again = None
        self._changed()
