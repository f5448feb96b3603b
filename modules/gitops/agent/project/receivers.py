"""
Notification of other engines of each commit, through their objects.

A GitRepository of Flux or an Application of Argo CD polls Git every few minutes, and a
webhook that would notify it earlier cannot reach a cluster behind NAT.  kas, however,
is notified of the push:

    kas ──the commit──> an annotation that makes the engine poll Git now, or a field
                        with the commit to use
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER
from modules.gitops.agent.objects.ignored import path_of
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.source.pause import ASK_FIRST, ASK_MOST, pause
from modules.gitops.agent.source.snapshot import receive, ref_message
from modules.gitops.wire import rpc_pb2
from modules.gitops.wire.settings import ReceiverObject, ReceiverSettings
from tunnel.api import (
    AgentScope,
    IAgentModuleApi,
    IServiceClient,
    KubernetesObject,
)
from tunnel.errors import CallError, Status
from tunnel.kubernetes import ObjectHealth, health_of
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.parallel import in_parallel

__all__ = ["Receiver", "key_of"]

#: Annotation that makes Argo CD poll Git.
_REFRESH = "argocd.argoproj.io/refresh"

#: Minimum seconds between two notifications of an object.
BETWEEN = 1.0


@attrs.define(eq=False)
class Receiver:
    """
    Notifier of objects about the commits of one ref.

    :param service: client of the service of kas that sends commits.
    :param now: returns the time in seconds since 1970.
    :ivar commit: the last commit that all objects received; empty before the first
        commit.
    :ivar notified: the last commit that each object received.
    :ivar problems: the reasons why objects did not receive the last commit.
    :ivar problem: why kas does not send a commit; empty if kas sends commits.
    """

    settings: ReceiverSettings
    _api: IAgentModuleApi
    _service: IServiceClient
    _random: Callable[[], float]
    _now: Callable[[], float]
    _scope: Callable[[], AgentScope]
    commit: str = attrs.field(default="", init=False)
    problem: str = attrs.field(default="", init=False)
    problems: dict[ReceiverObject, str] = attrs.field(factory=dict, init=False)
    notified: dict[ReceiverObject, str] = attrs.field(factory=dict, init=False)
    _log = Logger()

    async def run(self) -> None:
        """Notify the objects of each commit until cancelled."""
        backoff = Backoff(self._random, ASK_FIRST, ASK_MOST)
        while True:
            try:
                commit = await self._next()
            except CallError as error:
                self._complain(error.message)
                await pause(self._api, backoff.pause(), self._random)
                continue
            self._complain("")
            if not commit:
                # kas is stopping; another kas will respond.
                await deferLater(self._api.clock, ASK_FIRST * self._random())
                continue
            # Each notification starts work in its engine.  They run in parallel, so
            # that a silent webhook does not delay the others.
            await in_parallel(
                partial(self._tell, one, commit)
                for one in self.settings.objects
                if self.notified.get(one) != commit
            )
            if self.problems:
                await deferLater(self._api.clock, backoff.pause())
                continue
            backoff.reset()
            self.commit = commit
            await deferLater(self._api.clock, BETWEEN)

    async def _next(self) -> str:
        """
        Return the commit of the ref once it has changed; empty if the request must be
        repeated.
        """
        request = rpc_pb2.ObjectsToSynchronizeRequest(
            project_id=self.settings.project,
            # After a problem, request any commit, so that agentk notices that the
            # problem has ended: the next commit may be weeks away.
            commit_id="" if self.problem else self.commit,
            ref=ref_message(self.settings.ref),
            only_commit=True,
        )
        found = await receive(self._service.stream("GetObjectsToSynchronize", request))
        return found.commit if found is not None else ""

    async def _tell(self, one: ReceiverObject, commit: str) -> None:
        client = self._api.kubernetes.as_agentk()
        try:
            self._check_scope(one)
            resource = await client.resource(one.api_version, one.kind)
            await client.patch(
                resource,
                one.name,
                _change(one, commit),
                one.namespace,
                field_manager=FIELD_MANAGER,
            )
        except (CallError, ValueError) as error:
            # ValueError: a namespace for a cluster-wide kind, or no namespace for a
            # namespaced kind.
            if self.problems.get(one) != str(error):
                self._log.warn(
                    "{object} cannot be notified of commit {commit}: {reason}",
                    object=str(key_of(one)),
                    commit=commit,
                    reason=str(error),
                )
            self.problems[one] = str(error)
            return
        self.problems.pop(one, None)
        self.notified[one] = commit
        self._log.info(
            "{object} was notified of commit {commit}",
            object=str(key_of(one)),
            commit=commit,
        )

    async def health(self, one: ReceiverObject, until: float) -> ObjectHealth:
        """
        Return the health of a notified object.

        :param until: the deadline, by the reactor's clock.
        :raises CallError: if the object cannot be read.
        """
        asking = Deferred.fromCoroutine(self._health(one))
        asking.addTimeout(max(0.0, until - self._api.clock.seconds()), self._api.clock)
        try:
            return await asking
        except TimeoutError:
            text = "the API server does not answer now"
            raise CallError(Status.DEADLINE_EXCEEDED, text) from None

    async def _health(self, one: ReceiverObject) -> ObjectHealth:
        client = self._api.kubernetes.as_agentk()
        try:
            self._check_scope(one)
            resource = await client.resource(one.api_version, one.kind)
            live = await client.get(resource, one.name, one.namespace)
        except ValueError as error:
            raise CallError(Status.INVALID_ARGUMENT, str(error)) from None
        return health_of(live, self._now())

    def _check_scope(self, one: ReceiverObject) -> None:
        if outside := self._scope().why_outside(one.namespace):
            raise ValueError(outside)

    def _complain(self, problem: str) -> None:
        if problem and problem != self.problem:
            self._log.warn(
                "commits of {project} are unavailable: {reason}",
                project=self.settings.project or "the agent's repository",
                reason=problem,
            )
        self.problem = problem


def _change(one: ReceiverObject, commit: str) -> KubernetesObject:
    """Return the merge patch that notifies an object of a commit."""
    path, value = ["metadata", "annotations", one.annotation], commit
    if one.field:
        path = path_of(one.field)
    elif one.annotation == _REFRESH:
        # Argo CD accepts only two values: normal and hard.
        value = "normal"
    found: Any = value
    for name in reversed(path):
        found = {name: found}
    return dict(found)


def key_of(one: ReceiverObject) -> ObjectKey:
    """Return the key of a notified object."""
    group = one.api_version.rpartition("/")[0]
    return ObjectKey(group, one.kind, one.namespace, one.name)
