"""Commands and queries of `kasctl` for a kas with several workers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kas.audit.commits import COMMIT_SECONDS
from kas.state.control import parse_change
from kas.workers.calls import WorkerCalls, WorkerRefused, problem_of
from kas.workers.process import WorkerProcess
from kas.workers.summary import add_agents, add_progress
from tunnel.api import AuditStage
from tunnel.errors import CallError, Status
from tunnel.toolkit.recent import Recent

__all__ = ["WorkersOperations"]


#: Maximum number of changes whose end is awaited: `kasctl` makes one at a time.
MAX_BEGUN = 100


class WorkersOperations:
    """
    Implementation of `kas.state.control.Controlled` for a kas with several workers.

    :param alone: whether these workers are the only kas.
    """

    _log = Logger()

    def __init__(self, calls: WorkerCalls, alone: bool) -> None:
        self._calls = calls
        self._workers = calls.workers
        self._alone = alone
        self._draining = False
        #: Workers that are receiving the command.
        self._telling: set[WorkerProcess] = set()
        #: Workers that recorded the beginning of a change, by the id of the event.
        self._began: Recent[str, WorkerProcess] = Recent(MAX_BEGUN)
        self._workers.on_report = self._reported

    @property
    def ready(self) -> bool:
        """
        Whether kas is ready.

        kas is ready if it has started, is neither draining nor stopping, and at least
        one worker accepts connections.  A killed worker is soon replaced, and the other
        workers continue in the meantime.
        """
        workers = self._workers
        return workers.is_ready and not self._draining and bool(workers.open)

    def _reported(self, worker: WorkerProcess, draining: bool) -> None:
        """
        Send the last command again to a worker that is a replacement, or did not
        receive the command.
        """
        if draining is self._draining or worker in self._telling:
            return
        self._telling.add(worker)
        Deferred.fromCoroutine(
            self._calls.ask_one(worker, "control", _order(self._draining), b"POST")
        ).addBoth(lambda answer: self._telling.discard(worker))

    async def summed(
        self,
        socket_name: str,
        path: str,
        add: Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]],
        method: bytes = b"GET",
    ) -> dict[str, Any]:
        """Return the responses of all workers, combined by *add*."""
        answers = await self._calls.ask_all(socket_name, path, method)
        return {
            # The agents of workers that did not respond are unknown.
            "silent_workers": len(self._workers.processes) - len(answers),
            **add([json.loads(body) for _, body in answers]),
            "pid": os.getpid(),
            "draining": self._draining,
            "ready": self.ready,
        }

    async def progress(self) -> dict[str, Any]:
        """Return the numbers of agents and requests of all workers."""
        return await self._progress("/")

    async def drain(self) -> dict[str, Any]:
        """Drain every worker."""
        return await self._set_draining(True)

    async def undrain(self) -> dict[str, Any]:
        """Have all workers accept agents again."""
        return await self._set_draining(False)

    async def _set_draining(self, draining: bool) -> dict[str, Any]:
        # Remember the command: workers that do not respond receive it again when they
        # report.
        self._draining = draining
        return await self._progress(_order(draining), b"POST")

    async def _progress(self, path: str, method: bytes = b"GET") -> dict[str, Any]:
        found = await self.summed("control", path, add_progress, method)
        return {"agents": 0, "requests": 0, **found}

    async def rebalance(self) -> dict[str, Any]:
        """
        Move the agents above the mean to other kas; ``asked`` is the number of these
        agents.
        """
        return await self._summed_or_fail("/rebalance", b"POST")

    async def peers(self) -> dict[str, Any]:
        """Return the state of the other kas as all workers see it."""
        return await self._summed_or_fail("/peers")

    async def _summed_or_fail(
        self, path: str, method: bytes = b"GET"
    ) -> dict[str, Any]:
        found = await self.summed("control", path, add_progress, method)
        if found["silent_workers"] == len(self._workers.processes):
            raise _no_worker_answers()
        return found

    async def agents(self) -> dict[str, Any]:
        """Return all agents, with their connections to all workers."""
        answers = await self._calls.ask_all("control", "/agents")
        if not answers:
            raise _no_worker_answers()
        silent = len(self._workers.processes) - len(answers)
        found = [json.loads(body) for _, body in answers]
        return add_agents(found, silent, alone=self._alone)

    async def record_change(self, body: bytes) -> dict[str, Any]:
        """
        Let one worker record a change that `kasctl` made, or begins, in the audit log.

        The method waits for the worker only if the change begins, because a worker that
        does not respond would delay `kasctl` for seconds.
        """
        if parse_change(body).stage is AuditStage.BEGUN:
            return await self._begin_change(body)
        Deferred.fromCoroutine(self._record_change(body)).addErrback(
            lambda failure: self._log.failure("recording a change failed", failure)
        )
        return {}

    async def _begin_change(self, body: bytes) -> dict[str, Any]:
        for worker in self._workers.open:
            try:
                text = await self._calls.ask(
                    worker,
                    "control",
                    "/changes",
                    b"POST",
                    timeout=COMMIT_SECONDS + 1,
                    body=body,
                )
            except WorkerRefused as error:
                # Do not ask another worker, because all of them write to one file.
                raise CallError(Status.UNAVAILABLE, error.text) from None
            except Exception as error:
                self._log.warn(
                    "worker {number} did not record a change: {reason}",
                    number=worker.number,
                    reason=problem_of(error),
                )
                continue
            found: dict[str, Any] = json.loads(text)
            self._began[str(found.get("id"))] = worker
            return found
        raise _no_worker_answers()

    async def _record_change(self, body: bytes) -> None:
        # The worker that recorded the beginning first, so that both events are in one
        # chain.
        began = self._began.pop(parse_change(body).id, None)
        for worker in sorted(self._workers.processes, key=lambda one: one is not began):
            if worker.opened is None:
                continue
            try:
                await self._calls.ask(worker, "control", "/changes", b"POST", body=body)
                return
            except Exception as error:
                self._log.warn(
                    "worker {number} did not record a change: {reason}",
                    number=worker.number,
                    reason=problem_of(error),
                )
        self._log.error(
            "no worker responds: the audit log has no entry for {change}",
            change=body.decode(errors="replace"),
        )


def _order(draining: bool) -> str:
    """Return the path of the request that starts or ends draining."""
    return "/drain" if draining else "/undrain"


def _no_worker_answers() -> CallError:
    return CallError(Status.UNAVAILABLE, "no worker responds")
