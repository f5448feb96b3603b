"""Commands that print more than a path carries, and what their client sees of it."""

from __future__ import annotations

import json
import ssl
import threading
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.integration.rawhttp import Way

#: Seconds between two PINGs, and until kubectl gives a connection up that answers none.
PING_INTERVAL, PING_TIMEOUT = 5.0, 60.0

#: Prints for so many seconds, as fast as it is read, and says how much that was.
PRINTS = """\
import os, sys, time
end, total, piece = time.monotonic() + {seconds}, 0, b"0123456789abcdef" * 4096
while time.monotonic() < end:
    total += os.write(1, piece)
open({total!r}, "w").write(str(total))
"""

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
    """

    def __init__(
        self, way: Way, namespace: str, command: list[str], tty: bool = False
    ) -> None:
        super().__init__(daemon=True)
        self.received = 0
        self.status = ""
        self.pongs: list[float] = []
        self.pause = 0.0
        self.problem = ""
        query = [("container", "echo"), ("stdout", "true")]
        query += [("command", part) for part in command]
        if tty:
            query += [("stdin", "true"), ("tty", "true")]
        path = f"/api/v1/namespaces/{namespace}/pods/main/exec?{urlencode(query)}"
        context = ssl.create_default_context(cafile=str(way.ca_file))
        self._socket: ClientConnection = connect(
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
        self._ended = threading.Event()
        self._pinger = threading.Thread(target=self._ping, daemon=True)

    @classmethod
    def printing(cls, way: Way, namespace: str, seconds: float, total: Path) -> Self:
        """Prints for *seconds*; the file *total* then has how many bytes."""
        program = PRINTS.format(seconds=seconds, total=str(total))
        return cls(way, namespace, ["python3", "-c", program])

    @classmethod
    def interrupted(cls, way: Way, namespace: str, when: Path) -> Self:
        """Prints at a terminal until `interrupt`; the file *when* then has the time."""
        command = INTERRUPTED.format(when=when)
        return cls(way, namespace, ["sh", "-c", command], tty=True)

    def run(self) -> None:
        """Read all of it."""
        self._pinger.start()
        last = time.monotonic()
        try:
            for message in self._socket:
                assert isinstance(message, bytes)
                now = time.monotonic()
                self.pause, last = max(self.pause, now - last), now
                if message[:1] == bytes((_OUTPUT,)):
                    self.received += len(message) - 1
                elif message[:1] == bytes((_STATUS,)):
                    self.status = str(json.loads(message[1:]).get("status"))
        except (ConnectionClosed, OSError) as error:
            self.problem = self.problem or repr(error)
        finally:
            self._ended.set()

    def _ping(self) -> None:
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
        self._socket.send(bytes((_INPUT,)) + b"\x03")
        return now

    def leave(self) -> None:
        """Close without reading the rest."""
        self._ended.set()
        self._socket.socket.close()
