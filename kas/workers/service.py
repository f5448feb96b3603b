"""Service of a worker: the parts of kas, which use the supervisor's sockets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from kas.config.schema import KasConfiguration
from kas.service import KasService
from kas.state.directory import StateDirectory
from kas.state.running_record import Announcer
from kas.storage.backend import Changed
from kas.workers.limits import SharedLimits
from kas.workers.supervised import SupervisedWorker
from kas.workers.worker import Worker
from tunnel.hosting.modules import Prepared

__all__ = ["WorkerService"]


class WorkerService(KasService):
    """
    Service of a worker, which shares its limits with the other workers of this kas.
    """

    _ready_text = "this worker is ready; instance id: {me}"

    def __init__(
        self,
        worker: Worker,
        configuration: KasConfiguration,
        modules: Sequence[Prepared],
        state: StateDirectory,
        reactor: Any,
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._worker = worker
        configuration, environ = worker.configure(configuration, environ)
        super().__init__(
            configuration,
            modules,
            state,
            reactor,
            environ=environ,
            sockets=worker.sockets,
            sibling_urls=worker.sibling_urls,
        )
        self.log_fields = {"worker": worker.number}
        count = self._agents.acceptor.workers = len(worker.urls)
        siblings = self.fleet.siblings
        if siblings is None:
            return
        limits = siblings.workers = SharedLimits(count, siblings.used, self._stores)
        failed = self._credentials.authenticators.failed
        failed.tell = limits.happening("failed-checks", failed.count)
        rate = self._agents.acceptor.rate
        rate.tell = limits.happening("connections", rate.count)
        self._context.count_together = limits.under_way

    def _make_place(
        self, state: StateDirectory, configuration: KasConfiguration
    ) -> Announcer:
        acceptor = self._agents.acceptor
        return SupervisedWorker(
            self.listening, lambda: acceptor.draining, self._runtime.reactor
        )

    def _store_listener(self) -> Changed | None:
        siblings = self.fleet.siblings
        if siblings is None or not self._worker.shares_store:
            return None
        return siblings.stored
