"""One worker, as its supervisor sees it: start, supervision, replacement and stop."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping, Sequence

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.workers.parent import REPORTS, WorkerReport
from kas.workers.worker import VARIABLE, Worker
from tunnel.program.opened import Opened
from tunnel.program.runtime import Runtime
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.timers import Timers

__all__ = ["SILENCE", "WorkerProcess"]

#: Seconds of silence after which the supervisor kills a worker that was ready: no
#: client waits longer for a response, and a reactor that was only busy has continued by
#: this time.
SILENCE = 15.0

#: Maximum seconds until a replacement is ready.
STARTING = 60.0

#: Seconds between two checks of whether a worker has reported.  Silence is counted in
#: checks: a pause of the supervisor itself, for example on a suspended machine, counts
#: as one check.
LOOK_INTERVAL = 1.0

#: Seconds until the replacement of a dead process starts: the first pause, and the
#: maximum pause if each replacement dies again.
REPLACE_FIRST, REPLACE_MOST = 0.1, 10.0

#: Minimum lifetime of a worker, in seconds, for its replacement to start at once.
SETTLED = 30.0

#: Maximum bytes of a line from a worker; its addresses take some hundred bytes.
MAX_LINE = 64 * 1024

#: Descriptor of the first socket in a worker.
_FIRST_SOCKET = REPORTS + 1


@attrs.define(eq=False)
class WorkerProcess:
    """
    One numbered worker.  The supervisor replaces its process when that process ends.

    :param worker: the settings of the worker; its sockets are the supervisor's
        descriptors.
    :param command: the program and its arguments.
    :param log: called with lines of the worker's standard output; None to inherit the
        supervisor's output.
    :param ready: called each time a process is ready.
    :param reported: called with each report; the second argument is True while the
        worker refuses agents.
    :param failed: called if the first process ends before it is ready.
    """

    worker: Worker
    _command: Sequence[str]
    _environ: Mapping[str, str]
    _runtime: Runtime
    _log_line: Callable[[str], object] | None
    _ready: Callable[[WorkerProcess], None]
    _reported: Callable[[WorkerProcess, bool], None]
    _failed: Callable[[WorkerProcess, str], None]
    #: Open ports of the worker; None while it is not ready.
    opened: list[Opened] | None = None
    #: Id of the current process; None if no process is running.
    pid: int | None = None
    #: Number of times that a process of this worker was replaced.
    replaced: int = 0
    _transport: IProcessTransport | None = None
    _was_ready: bool = False
    _reload: bool = False
    _started: float = 0.0
    _looks_left: int = 0
    _ended: Deferred[None] | None = None
    _backoff: Backoff = attrs.field(init=False)
    _timers: Timers = attrs.field(init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._backoff = Backoff(self._runtime.random, REPLACE_FIRST, REPLACE_MOST)
        self._timers = Timers(self._runtime.reactor)

    @property
    def number(self) -> int:
        """Number of the worker, beginning with 1."""
        return self.worker.number

    @property
    def name(self) -> str:
        """Name of the current or next process."""
        return f"{self.number}.{self.replaced}"

    def start(self) -> None:
        """Start a process of this worker."""
        if self._was_ready:
            # Do not limit the time of the first process, which may take as long as the
            # operator allows for the start of kas.
            self._listen_for(STARTING)
        numbers = {
            name: _FIRST_SOCKET + index
            for index, name in enumerate(self.worker.sockets)
        }
        started = attrs.evolve(self.worker, sockets=numbers)
        descriptors: dict[int, int | str] = {
            0: "w",
            1: 1 if self._log_line is None else "r",
            2: 2,
            REPORTS: "r",
        }
        for name, number in numbers.items():
            descriptors[number] = self.worker.sockets[name]
        self._started = self._runtime.reactor.seconds()
        try:
            self._transport = self._runtime.reactor.spawnProcess(
                _Lines(self),
                self._command[0],
                self._command,
                {**self._environ, VARIABLE: started.to_variable()},
                childFDs=descriptors,
            )
        except OSError as error:
            # Try again later, because descriptors or processes are exhausted now.
            self._timers.cancel_all()
            self._replace(f"not started: {error.strerror}")
            return
        self.pid = self._transport.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self._transport is not None:
            try:
                self._transport.signalProcess(number)
            except ProcessExitedAlready:
                pass  # The process has ended, which will be reported soon.

    def stop(self) -> Deferred[None]:
        """
        Let the process drain, and return a Deferred that fires when the process has
        ended.
        """
        self._timers.cancel_all()
        ended = self._ended = Deferred()
        if self._transport is None:
            ended.callback(None)
        else:
            # Continue to listen, because the process reports until it has ended.
            self._listen_for(SILENCE)
            self.signal(signal.SIGTERM)
        return ended

    def reload(self) -> None:
        """Let the worker read its files again, at once or when it is ready."""
        if self.opened is None:
            # Remember this, because the signal would kill a worker that is not ready.
            self._reload = True
        else:
            self.signal(signal.SIGHUP)

    # Methods that handle events of the process.

    def reported(self, line: bytes) -> None:
        """Handle a report of the worker."""
        try:
            report = WorkerReport.from_line(line)
        except (ValueError, KeyError, TypeError):
            self._log.error(
                "cannot parse a report of worker {number}", number=self.number
            )
            return
        self._listen_for(SILENCE)
        if report.opened is not None:
            self.opened = report.opened
            self._was_ready = True
            self._ready(self)
            if self._reload:
                self._reload = False
                self.signal(signal.SIGHUP)
        self._reported(self, report.draining)

    def wrote(self, line: bytes) -> None:
        """Log a line of the worker's output."""
        if self._log_line is not None:
            self._log_line(line.decode(errors="replace") + "\n")

    def _listen_for(self, seconds: float) -> None:
        """
        Kill the worker unless it reports within *seconds*.

        Time is counted in checks by this process, so that a pause of this process, for
        example on a suspended machine, counts as only one check.
        """
        self._looks_left = math.ceil(seconds / LOOK_INTERVAL)
        self._timers.later("silence", LOOK_INTERVAL, self._look)

    def _look(self) -> None:
        self._looks_left -= 1
        if self._looks_left > 0:
            self._timers.later("silence", LOOK_INTERVAL, self._look)
            return
        self._log.error(
            "worker {number} (pid {pid}) has stopped reporting; killing it",
            number=self.number,
            pid=self.pid,
        )
        self.signal(signal.SIGKILL)

    def ended(self, reason: Failure) -> None:
        """Handle the end of the process."""
        how = f"pid {self.pid}, {_in_words(reason)}"
        self._transport = self.pid = self.opened = None
        self._timers.cancel_all()
        if self._ended is not None:
            self._ended.callback(None)
            return
        self._replace(how)

    def _replace(self, how: str) -> None:
        if not self._was_ready:
            self._failed(self, how)
            return
        if self._runtime.reactor.seconds() - self._started >= SETTLED:
            self._backoff.reset()
        pause = self._backoff.pause()
        self._log.error(
            "worker {number} ended ({how}); replacing it",
            number=self.number,
            how=how,
        )
        self.replaced += 1
        self._timers.later("replace", pause, self.start)


class _Lines(ProcessProtocol):
    """Protocol that reads a process' output line by line."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._rest: dict[int, bytes] = {}

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        take = self._process.reported if childFD == REPORTS else self._process.wrote
        *lines, rest = (self._rest.get(childFD, b"") + data).split(b"\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], b""
        self._rest[childFD] = rest
        for line in lines:
            take(line)

    def processEnded(self, reason: Failure) -> None:
        self._process.ended(reason)


def _in_words(reason: Failure) -> str:
    number = getattr(reason.value, "signal", None)
    if number is not None:
        return f"killed by {signal.Signals(number).name}"
    return f"status {getattr(reason.value, 'exitCode', None)}"
