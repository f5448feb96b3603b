"""``exec``: a process of this machine at the end of a `ChannelSocket`."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import struct
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.error import ProcessDone
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from demo.sandbox.channels import RESIZE, STDERR, STDIN, STDOUT, ChannelSocket
from demo.sandbox.store import ApiError, failure
from tunnel.http1 import Exchange

__all__ = ["Execution", "Executions", "Request", "read_request"]

#: Seconds that a terminal waits for its size, so that programs see it when they start.
SIZE_WAIT = 0.1

# A session of its own, so that all of it can be ended together.
_OWN_SESSION = "import os,sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])"
_END_OF_INPUT = b"\x04"


@attrs.frozen
class Request:
    """What to run, and how."""

    command: tuple[str, ...]
    stdin: bool = False
    tty: bool = False


def read_request(command: Sequence[str], query: Mapping[str, str]) -> Request:
    """:raises ApiError: there is no command."""
    if not command or any("\0" in word for word in command):
        raise ApiError(400, "you must specify at least 1 command for the container")
    flags = (query.get(name) in ("1", "true") for name in ("stdin", "tty"))
    return Request(tuple(command), *flags)


class Executions:
    """
    Starts processes, and ends all that are left.

    :param folder: where they start; each pod has its own below it.
    """

    def __init__(self, reactor: Any, folder: Path) -> None:
        self.reactor = reactor
        self._folder = folder
        #: Those that run.
        self.running: set[Execution] = set()

    def start(self, pod: str, request: Request, socket: ChannelSocket) -> None:
        """Run *request* in *pod*."""
        home = self._folder / pod
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = {
            "HOME": str(home),
            "HOSTNAME": pod,
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "PS1": f"{pod}$ ",
            "TERM": "xterm",
        }
        execution = Execution(request, socket, environment, self)
        socket.receiver = execution
        execution.prepare()

    def end_all(self) -> None:
        """Leave nothing behind."""
        for execution in tuple(self.running):
            execution.kill()


@implementer(IPushProducer)
class Execution(ProcessProtocol):
    """One process, from its request to its exit status."""

    def __init__(
        self,
        request: Request,
        socket: ChannelSocket,
        environment: dict[str, str],
        owner: Executions,
    ) -> None:
        self._request = request
        self._socket = socket
        self._environment = environment
        self._owner = owner
        self._waiting: Any = None
        self._size = (24, 80)
        self._master = -1
        self._group = 0

    def prepare(self) -> None:
        """Start now, or when the size of the terminal is known."""
        if self._request.tty:
            self._waiting = self._owner.reactor.callLater(SIZE_WAIT, self._start)
        else:
            self._start()

    def _start(self) -> None:
        if self._waiting is not None and self._waiting.active():
            self._waiting.cancel()
        self._waiting = None
        request, environment = self._request, self._environment
        program = shutil.which(request.command[0], path=environment["PATH"])
        if program is None:
            message = (
                f"exec: {request.command[0]!r}: executable file not found in $PATH"
            )
            self._socket.close(failure(500, message, "InternalError"))
            return
        spawn: Callable[..., Any] = self._owner.reactor.spawnProcess
        folder = environment["HOME"]
        if request.tty:
            self._master, slave = os.openpty()
            self._resize()
            pty = (self._master, slave, os.ttyname(slave))
            process = spawn(
                self, program, request.command, environment, folder, usePTY=pty
            )
        else:
            wrapped = (sys.executable, "-ISc", _OWN_SESSION, *request.command)
            process = spawn(self, sys.executable, wrapped, environment, folder)
        self._group = process.pid
        self._owner.running.add(self)
        self._socket.exchange.registerProducer(self, True)
        if request.stdin:
            # What the process does not read, its client does not get to send.
            process.registerProducer(_Input(self._socket.exchange), True)
        else:
            process.closeStdin()

    def _resize(self) -> None:
        size = struct.pack("HHHH", *self._size, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    # From the client.

    def channel_received(self, channel: int, data: bytes) -> None:
        """Input, or the size of the window."""
        if channel == RESIZE:
            self._resized(data)
        if self._waiting is not None:
            self._start()
        if channel == STDIN and self._request.stdin and self._runs():
            self.transport.write(data)  # type: ignore[union-attr]

    def _resized(self, data: bytes) -> None:
        try:
            size = json.loads(data)
            rows, columns = int(size["Height"]), int(size["Width"])
            if not (0 < rows < 2**16 and 0 < columns < 2**16):
                raise ValueError
        except (ValueError, TypeError, KeyError):
            return  # as every kubelet does
        self._size = (rows, columns)
        if self._runs() and self._master >= 0:
            self._resize()

    def channel_closed(self, channel: int) -> None:
        """The end of the input."""
        if channel != STDIN or not self._runs():
            return
        process: Any = self.transport
        process.unregisterProducer()
        if self._request.tty:
            process.write(_END_OF_INPUT)
        else:
            process.closeStdin()

    def gone(self) -> None:
        """Nobody is there any more."""
        if self._waiting is not None and self._waiting.active():
            self._waiting.cancel()
        self.kill()

    # From the process.

    def _runs(self) -> bool:
        return self in self._owner.running

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        """Output; a terminal has only one kind."""
        self._socket.send(STDERR if childFD == 2 else STDOUT, data)

    def processExited(self, reason: Failure) -> None:
        """What it left in the background ends with it."""
        self.kill()

    def processEnded(self, reason: Failure) -> None:
        """All of its output is on its way."""
        self._owner.running.discard(self)
        self._socket.exchange.unregisterProducer()
        self._socket.close(_outcome(reason))

    def kill(self) -> None:
        """End it, and everything that it started."""
        if self._group and self._runs():
            try:
                os.killpg(self._group, signal.SIGKILL)
            except ProcessLookupError:
                pass

    # For the WebSocket, when its client does not read.

    def pauseProducing(self) -> None:
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def resumeProducing(self) -> None:
        self.transport.resumeProducing()  # type: ignore[union-attr]

    def stopProducing(self) -> None:
        self.kill()


@implementer(IPushProducer)
class _Input:
    """The client, as a source that outlives the input of the process."""

    def __init__(self, exchange: Exchange) -> None:
        self.pauseProducing = exchange.pauseProducing
        self.resumeProducing = exchange.resumeProducing

    def stopProducing(self) -> None:
        # There is still the answer to our close to be read.
        self.resumeProducing()


def _outcome(reason: Failure) -> dict[str, Any]:
    if reason.check(ProcessDone):
        return {"metadata": {}, "status": "Success"}
    value: Any = reason.value
    code = value.exitCode if value.signal is None else 128 + value.signal
    status = failure(
        500,
        f"command terminated with non-zero exit code: exit status {code}",
        "NonZeroExitCode",
    )
    del status["code"]
    status["details"] = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
    return status
