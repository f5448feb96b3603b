"""
``exec``: a process of this machine at the other end of a WebSocket.

``v5.channel.k8s.io`` has five byte streams, which the first byte of a message
distinguishes.  The client can close one of them, which the process reads as the end of
its input.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
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

from twisted.internet.error import ProcessDone
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN, Side
from websockets.protocol import Protocol as WebSocketCore
from zope.interface import implementer

from tunnel.http1 import Exchange
from tunnel.testing.objects import Refusal

__all__ = ["CLOSE_TIMEOUT", "MAX_MESSAGE", "SIZE_WAIT", "Executions"]

#: Maximum number of bytes of a message: kubectl sends 32 KiB at once, and a terminal
#: needs no larger messages.
MAX_MESSAGE = 1024 * 1024

#: Maximum number of seconds until the client responds to our close frame.
CLOSE_TIMEOUT = 5.0

#: Maximum number of seconds that a process waits for the size of its terminal before it
#: starts, so that programs read the size when they start.
SIZE_WAIT = 0.1

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE = range(5)
_CLOSE = 255
_PROTOCOL = "v5.channel.k8s.io"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

# The process gets its own session, so that it and its children can be ended together.
_OWN_SESSION = "import os,sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])"
_END_OF_INPUT = b"\x04"


class Executions:
    """
    Starter of processes, which also ends the processes that still run at the end.

    :param folder: the working directory; each pod has its own folder below it.
    """

    def __init__(self, reactor: Any, folder: Path) -> None:
        self.reactor = reactor
        self._folder = folder
        #: Running processes.
        self.running: set[Execution] = set()

    def start(
        self, exchange: Exchange, pod: str, query: Mapping[str, Sequence[str]]
    ) -> Execution:
        """
        Run the command in a request for *pod*.

        :raises Refusal: the command is missing, or the client uses another protocol.
        """
        command = query.get("command", [])
        if not command or any("\0" in word for word in command):
            raise _bad("you must specify at least 1 command for the container")
        block = _accept(exchange)
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
        exchange.upgrade(block)
        stdin, tty = (query.get(name) in (["1"], ["true"]) for name in ("stdin", "tty"))
        return Execution(self, exchange, command, environment, stdin, tty)

    def end_all(self) -> None:
        """End all processes."""
        for execution in tuple(self.running):
            execution.kill()


def _accept(exchange: Exchange) -> bytes:
    """
    Return the 101 response to a request, with the hop-by-hop fields of a WebSocket.
    """
    taken = exchange.head.taken
    key = taken.get(b"sec-websocket-key", [b""])[0]
    offers = b",".join(taken.get(b"sec-websocket-protocol", ())).decode("latin-1")
    known = _PROTOCOL in [offer.strip() for offer in offers.split(",")]
    if exchange.head.upgrade.lower() != b"websocket" or not key or not known:
        raise _bad(f"the sandbox speaks WebSocket only, with {_PROTOCOL}")
    proof = base64.b64encode(hashlib.sha1(key + _GUID).digest())
    block = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n"
        b"Sec-WebSocket-Protocol: %b\r\n"
    )
    return block % (proof, _PROTOCOL.encode())


def _bad(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


@implementer(IPushProducer)
class Execution(ProcessProtocol):
    """
    One process, from its request to its exit status.

    It is the receiver of its upgraded exchange, and the producer of its output.
    """

    def __init__(
        self,
        owner: Executions,
        exchange: Exchange,
        command: Sequence[str],
        environment: dict[str, str],
        stdin: bool,
        tty: bool,
    ) -> None:
        self._owner = owner
        self._exchange = exchange
        self._command = command
        self._environment = environment
        self._stdin = stdin
        self._tty = tty
        self._core = WebSocketCore(Side.SERVER, state=OPEN, max_size=MAX_MESSAGE)
        self._parts: list[bytes] = []
        #: Whether the client has received the exit status, or has left.
        self._over = False
        #: Timer of the start, which waits for the size of the terminal; later, timer of
        #: the abort at the end.
        self._timer: Any = None
        self._size = (24, 80)
        self._master = -1
        self._group = 0
        if tty:
            self._timer = owner.reactor.callLater(SIZE_WAIT, self._start)
        else:
            self._start()

    def _start(self) -> None:
        self._timer = None
        environment = self._environment
        folder = environment["HOME"]
        program = shutil.which(self._command[0], path=environment["PATH"])
        if program is None:
            message = f"exec: {self._command[0]!r}: executable file not found in $PATH"
            self._close(Refusal(500, "InternalError", message).status)
            return
        spawn: Callable[..., Any] = self._owner.reactor.spawnProcess
        if self._tty:
            self._master, slave = os.openpty()
            self._resize()
            pty = (self._master, slave, os.ttyname(slave))
            process = spawn(
                self, program, self._command, environment, folder, usePTY=pty
            )
        else:
            wrapped = (sys.executable, "-ISc", _OWN_SESSION, *self._command)
            process = spawn(self, sys.executable, wrapped, environment, folder)
        self._group = process.pid
        self._owner.running.add(self)
        self._exchange.registerProducer(self, True)
        if self._stdin:
            # Back-pressure: the client is paused while the process does not read its
            # input.
            process.registerProducer(_Input(self._exchange), True)
        else:
            process.closeStdin()

    def _resize(self) -> None:
        size = struct.pack("HHHH", *self._size, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    # Methods of tunnel.http1.RequestReceiver, for the client's data.

    def body_received(self, data: bytes) -> None:
        """Handle frames from the client."""
        self._core.receive_data(data)
        self._take()

    def body_finished(self, trailers: bytes) -> None:
        """Handle a client that closed its half."""
        self._core.receive_eof()
        self._take()
        self.client_gone()

    def client_gone(self, reason: Exception | None = None) -> None:
        """Handle the end of the connection."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        self._over = True
        self.kill()

    def _take(self) -> None:
        for event in self._core.events_received():
            if not isinstance(event, Frame) or self._over:
                continue
            if event.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                self._parts.append(bytes(event.data))
                if event.fin:
                    message, self._parts = b"".join(self._parts), []
                    self._message(message[:1], message[1:])
        self._flush()

    def _message(self, channel: bytes, data: bytes) -> None:
        if channel == bytes([_RESIZE]):
            self._resized(data)
        if self._timer is not None:
            self._timer.cancel()
            self._start()
        if not self._stdin or not self._runs():
            return
        process: Any = self.transport
        if channel == bytes([_STDIN]):
            process.write(data)
        elif channel == bytes([_CLOSE]) and data == bytes([_STDIN]):
            process.unregisterProducer()
            if self._tty:
                process.write(_END_OF_INPUT)
            else:
                process.closeStdin()

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

    # Output to the client.

    def _send(self, channel: int, data: bytes) -> None:
        if not self._over:
            self._core.send_binary(bytes([channel]) + data)
            self._flush()

    def _close(self, status: Mapping[str, Any]) -> None:
        """Send the exit status, and close the connection."""
        if self._over:
            return
        self._send(_ERROR, json.dumps(status).encode())
        self._over = True
        self._core.send_close(CloseCode.NORMAL_CLOSURE)
        self._flush()
        reactor = self._owner.reactor
        self._timer = reactor.callLater(CLOSE_TIMEOUT, self._exchange.abort)

    def _flush(self) -> None:
        for data in self._core.data_to_send():
            if data:
                self._exchange.write(data)
            else:
                # Both sides have sent close frames, or the client violated the
                # protocol.
                self._exchange.finish()
                self.client_gone()

    # Methods of ProcessProtocol, for events of the process.

    def _runs(self) -> bool:
        return self in self._owner.running

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        """Send output to the client; a terminal has only one kind of output."""
        self._send(_STDERR if childFD == 2 else _STDOUT, data)

    def processExited(self, reason: Failure) -> None:
        """End the background processes that the process left behind."""
        self.kill()

    def processEnded(self, reason: Failure) -> None:
        """Send the exit status, because all output of the process has been read."""
        self._owner.running.discard(self)
        self._exchange.unregisterProducer()
        self._close(_outcome(reason))

    def kill(self) -> None:
        """End the process and its children."""
        if self._runs():
            try:
                os.killpg(self._group, signal.SIGKILL)
            except ProcessLookupError:
                pass

    # Methods of a producer for the WebSocket, used when its client does not read.

    def pauseProducing(self) -> None:
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def resumeProducing(self) -> None:
        self.transport.resumeProducing()  # type: ignore[union-attr]

    def stopProducing(self) -> None:
        self.kill()


@implementer(IPushProducer)
class _Input:
    """Producer of the process's input that continues after the input was closed."""

    def __init__(self, exchange: Exchange) -> None:
        self.pauseProducing = exchange.pauseProducing
        self.resumeProducing = exchange.resumeProducing

    def stopProducing(self) -> None:
        # The client's response to our close frame still has to be read.
        self.resumeProducing()


def _outcome(reason: Failure) -> dict[str, Any]:
    if reason.check(ProcessDone):
        return {"metadata": {}, "status": "Success"}
    value: Any = reason.value
    code = value.exitCode if value.signal is None else 128 + value.signal
    text = f"command terminated with non-zero exit code: exit status {code}"
    status = Refusal(500, "NonZeroExitCode", text).status
    del status["code"]
    status["details"] = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
    return status
