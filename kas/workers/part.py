"""The processes of all workers, as a part of the supervisor."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kas.workers.process import WorkerProcess
from kas.workers.sockets import WorkerSockets
from kas.workers.worker import Worker
from tunnel.errors import ConfigurationError
from tunnel.program.logs import LoggingService
from tunnel.program.parts import Part, Phase
from tunnel.program.runtime import Runtime

__all__ = ["WorkerCommand", "WorkersPart"]

#: Program of a worker: twistd, with the following arguments.
_PROGRAM = "from twisted.scripts.twistd import run; run()"

#: Environment variables that systemd sets only for the process that it started.
_SUPERVISORS = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
)


@attrs.frozen
class WorkerCommand:
    """
    Command line for starting workers.

    :ivar arguments: the arguments of ``twistd kas``.
    :ivar twisted: the arguments of ``twistd`` itself.
    :ivar file: the path of the configuration file.
    """

    arguments: Sequence[str] = ()
    twisted: Sequence[str] = ()
    file: Path | None = None


class WorkersPart(Part):
    """
    Manager of the processes of all workers, which are started when their sockets are
    open.

    :param log: the log of this process, which receives the lines of the workers.
    """

    _log = Logger()
    name = "workers"

    def __init__(
        self,
        sockets: WorkerSockets,
        command: WorkerCommand,
        runtime: Runtime,
        log: LoggingService,
    ) -> None:
        self.sockets = sockets
        self._command = command
        self._runtime = runtime
        self._our_log = log
        self._ready: Deferred[None] | None = None
        self.processes: list[WorkerProcess] = []
        #: Whether this kas has started and is not stopping.
        self.is_ready = False
        #: Callback for each report of a worker; called with the worker and with whether
        #: the worker accepts no agents.
        self.on_report: Callable[[WorkerProcess, bool], None] = lambda worker, _: None

    @property
    def open(self) -> list[WorkerProcess]:
        """Workers that are ready."""
        return [one for one in self.processes if one.opened is not None]

    async def start(self) -> None:
        """
        Start the workers, and wait until all workers are ready.

        :raises ConfigurationError: if a worker ended.
        """
        self.processes = [self._process(one) for one in self.sockets.workers]
        ready = self._ready = Deferred()
        for one in self.processes:
            one.start()
            if ready.called:
                break  # Resources are exhausted, so do not start further workers.
        try:
            await ready
        except ConfigurationError:
            # Remove the folder now, because the process may exit before the other
            # workers have ended.
            self.sockets.folder.remove()
            raise

    def _process(self, worker: Worker) -> WorkerProcess:
        log, command = self._our_log, self._command
        environ = self._runtime.environ.items()
        return WorkerProcess(
            worker,
            [
                *(sys.executable, "-P", "-c", _PROGRAM, "--nodaemon", "--pidfile="),
                *("--logfile=-", *command.twisted, "kas", *command.arguments),
                f"--log-format={log.log_format}",
            ],
            {
                **{name: value for name, value in environ if name not in _SUPERVISORS},
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            self._runtime,
            None if log.log_is_output else self._write_line,
            self._worker_ready,
            lambda worker, draining: self.on_report(worker, draining),
            self._worker_failed,
        )

    def _write_line(self, line: str) -> None:
        writer = self._our_log.log_writer
        if writer is not None:
            writer.write(line)
        else:
            self._log.info("{line}", line=line.rstrip())  # syslog

    def _worker_ready(self, worker: WorkerProcess) -> None:
        self._log.info(
            "worker {number} is ready (pid {worker_pid})",
            number=worker.number,
            worker_pid=worker.pid,
        )
        ready = self._ready
        if ready is not None and len(self.open) == len(self.processes):
            self._ready = None
            ready.callback(None)

    def _worker_failed(self, worker: WorkerProcess, how: str) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.errback(
                ConfigurationError(
                    [
                        f"worker {worker.number} ended before it was ready ({how}); "
                        "see its log lines above"
                    ]
                )
            )

    async def drain(self, phase: Phase) -> None:
        """Let all workers drain."""
        if phase is Phase.READINESS:
            self.is_ready = False
        if phase is Phase.LISTENERS:
            await self.stop()

    async def stop(self) -> None:
        """End all workers."""
        ending = [Deferred.fromCoroutine(self._end(one)) for one in self.processes]
        self.sockets.let_go()
        for one in ending:
            await one

    async def _end(self, worker: WorkerProcess) -> None:
        await worker.stop()
        await self.sockets.close_own(worker.number)
