"""
The process that operators start if a kas has several workers.

    twistd kas ──> Supervisor: ports, readiness, metrics, status, kasctl, systemd
                      │ starts, watches, replaces
                      ├──> worker 1: a whole kas, except for the list above
                      └──> worker 2 ...

The supervisor has no agents and forwards no requests: the workers accept connections
from its sockets, and reach each other through the private API, as other kas do.
Therefore the supervisor is unlikely to fail, and a worker that dies affects only its
own connections.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from twisted.logger import Logger

from kas.config.loading import certificate_names, listeners
from kas.config.schema import KasConfiguration
from kas.state import pki, running
from kas.state.control import control_site
from kas.state.directory import StateDirectory
from kas.state.process_socket import CONTROL, ProcessSocket
from kas.state.running_record import RunningRecord
from kas.workers.calls import WorkerCalls
from kas.workers.operations import WorkersOperations
from kas.workers.part import WorkerCommand, WorkersPart
from kas.workers.sharing import OBSERVABILITY
from kas.workers.site import make_workers_site
from kas.workers.sockets import WorkerSockets
from tunnel.hosting.modules import Prepared
from tunnel.program import sdnotify
from tunnel.program.listening import Listening
from tunnel.program.opened import Opened
from tunnel.program.parts import Steps
from tunnel.program.runtime import Runtime
from tunnel.program.service import ProgramService

__all__ = ["Supervisor"]


class Supervisor(ProgramService):
    """
    Service of the process that supervises several workers.

    :param command: the command line of each worker.
    """

    _log = Logger()

    def __init__(
        self,
        configuration: KasConfiguration,
        modules: Sequence[Prepared],
        state: StateDirectory,
        command: WorkerCommand,
        reactor: Any,
        *,
        environ: Mapping[str, str] = os.environ,
        remarks: Sequence[str] = (),
    ) -> None:
        super().__init__("kas", reactor, remarks)
        runtime = Runtime(reactor=reactor, environ=environ)
        names = certificate_names(configuration, modules, environ)
        certificate = partial(_development_certificate, state, runtime, names)
        development = []
        if any(one.own_certificate for _, one in listeners(configuration, modules)):
            # Issue the certificate only once, and not in all workers at the same time.
            development.append(Steps("the development certificate", start=certificate))
        self._listening = Listening(reactor, certificate, "kas", runtime.now)
        alone = configuration.redis is None
        self._record = RunningRecord(
            state,
            alone,
            lambda: self._opened,
            configuration.observability.enforces_administration,
        )
        self._sockets = WorkerSockets(
            configuration, modules, state, command.file, runtime
        )
        self._workers = WorkersPart(self._sockets, command, runtime, self)
        calls = WorkerCalls(self._workers, reactor)
        operations = WorkersOperations(calls, alone)
        settings = configuration.observability
        site = make_workers_site(settings, calls, operations, reactor)
        self.compose(
            self._record,
            *development,
            self._sockets,
            self._listening,
            Steps(
                "health and metrics",
                start=partial(
                    self._listening.listen,
                    settings.listen,
                    site,
                    what=running.OBSERVABILITY,
                    setting=f"{OBSERVABILITY}.address",
                ),
            ),
            self._workers,
            ProcessSocket(
                state, CONTROL, control_site(operations), reactor, "drain and rebalance"
            ),
            Steps("readiness", start=self._become_ready),
            sdnotify.Watchdog(reactor),
        )

    @property
    def _opened(self) -> list[Opened]:
        """Open ports of this kas, including the ports of its workers."""
        first = self._workers.processes[0].opened or ()
        ours = (running.OBSERVABILITY, running.OTHER_KAS)
        return [
            *self._listening.opened,
            *(one for one in first if one.what not in ours),
        ]

    def _become_ready(self) -> None:
        for port in self._opened[1:]:
            self._listening.announce(port)
        self._record.publish()
        self._workers.is_ready = True
        sdnotify.notify("READY=1")
        count = len(self._workers.processes)
        self._log.info("kas is ready, with {count} workers", count=count)

    def reload(self) -> None:
        """Reopen the log, and have the workers read their files again."""
        self.reopen_log()
        self._log.info("SIGHUP: forwarded to the workers")
        for one in self._workers.processes:
            one.reload()


def _development_certificate(
    state: StateDirectory, runtime: Runtime, names: Sequence[str]
) -> tuple[Path, Path]:
    files = pki.ensure(state, runtime.now, socket.gethostname(), names)
    return files.certificate_file, files.key_file
