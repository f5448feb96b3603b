"""Commands that print more than a path carries, and what their client sees of it."""

from __future__ import annotations

import json
import ssl
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.integration.rawhttp import Way

#: Seconds between two PINGs, and until kubectl gives a connection up that answers none.
PING_INTERVAL, PING_TIMEOUT = 5.0, 60.0

#: Prints until Ctrl-C, and says when that came.
INTERRUPTED = "trap : INT; yes; date +%s.%N >{when}"

_INPUT, _OUTPUT, _STATUS = 0, 1, 3


class SlowExec(threading.Thread):
    """
    One command, with the PINGs of kubectl; runs until its end.

    :ivar received: bytes of its output.
    :ivar status: ``Success``, or what the API server said; empty without an end.
    :ivar pongs: seconds from each PING to its PONG.
    :ivar pause: the longest time without a byte.
    :ivar took: seconds to the end.
    """

    def __init__(
        self,
        way: Way,
        namespace: str,
        command: list[str],
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> None:
        super().__init__(daemon=True)
        self.received = 0
        self.status = ""
        self.pongs: list[float] = []
        self.pause = 0.0
        self.took = 0.0
        self._size = -1
        self.problem = ""
        query = [("container", "echo"), ("stdout", "true")]
        query += [("command", part) for part in command]
        query += [("stdin", "true")] * stdin + [("tty", "true")] * tty
        path = f"/api/v1/namespaces/{namespace}/pods/main/exec?{urlencode(query)}"
        context = ssl.create_default_context(cafile=str(way.ca_file))
        self._stack = ExitStack()
        opening = connect(
            f"wss://127.0.0.1:{way.port}{path}",
            ssl=context,
            additional_headers={"Authorization": f"Bearer {way.token}"},
            subprotocols=[Subprotocol("v5.channel.k8s.io")],
            compression=None,
            max_size=None,
            ping_interval=None,
            open_timeout=60,
            proxy=None,
        )
        #: None: it did not open, and `problem` says why.
        self._socket: ClientConnection | None = None
        try:
            self._socket = self._stack.enter_context(opening)
        except InvalidHandshake as error:
            self.problem = f"did not open: {error}"
        self._ended = threading.Event()
        self._pinger = threading.Thread(target=self._ping, daemon=True)

    @classmethod
    def printing(cls, way: Way, namespace: str, size: int) -> Self:
        """
        Prints so many bytes, as fast as they are read, and ends when all were.

        An API server whose client is slow loses some of what a command printed last,
        if the command does not wait: straight, too.
        """
        command = f"head -c {size} /dev/zero; read line"
        one = cls(way, namespace, ["sh", "-c", command], stdin=True)
        one._size = size
        return one

    @classmethod
    def ending(cls, way: Way, namespace: str, size: int) -> Self:
        """Prints so many bytes and ends; they fit into the kernel's buffers."""
        return cls(way, namespace, ["head", "-c", str(size), "/dev/zero"])

    @classmethod
    def interrupted(cls, way: Way, namespace: str, when: Path) -> Self:
        """Prints at a terminal until `interrupt`; the file *when* then has the time."""
        command = INTERRUPTED.format(when=when)
        return cls(way, namespace, ["sh", "-c", command], stdin=True, tty=True)

    def run(self) -> None:
        """Read all of it."""
        if self._socket is None:
            return
        self._pinger.start()
        begun = last = time.monotonic()
        try:
            for message in self._socket:
                assert isinstance(message, bytes)
                now = time.monotonic()
                self.pause, last = max(self.pause, now - last), now
                if message[:1] == bytes((_OUTPUT,)):
                    self.received += len(message) - 1
                    if self.received == self._size:
                        self._socket.send(bytes((_INPUT,)) + b"\n")
                elif message[:1] == bytes((_STATUS,)):
                    self.status = str(json.loads(message[1:]).get("status"))
        except (ConnectionClosed, OSError) as error:
            self.problem = self.problem or repr(error)
        finally:
            self.took = time.monotonic() - begun
            self._ended.set()
            self._stack.close()

    def _ping(self) -> None:
        assert self._socket is not None
        while not self._ended.wait(PING_INTERVAL):
            try:
                answered: Any = self._socket.ping()
            except (ConnectionClosed, OSError):
                return
            begun = time.monotonic()
            if not answered.wait(PING_TIMEOUT):
                self.problem = f"no PONG within {PING_TIMEOUT:g} s"
                self._socket.socket.close()
                return
            if not self._ended.is_set():
                self.pongs.append(time.monotonic() - begun)

    def interrupt(self) -> float:
        """Ctrl-C; the time of day when it was typed."""
        now = time.time()
        if self._socket is not None:
            self._socket.send(bytes((_INPUT,)) + b"\x03")
        return now

    def leave(self) -> None:
        """Close without reading the rest."""
        self._ended.set()
        if self._socket is not None:
            self._socket.socket.close()
