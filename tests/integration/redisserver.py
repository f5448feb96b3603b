"""Redis servers that tests start, and commands to them past our own client."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import hiredis
from twisted.internet.task import deferLater

from tests.integration import needs
from tests.integration.processes import PATIENCE, Process, eventually
from tools.ports import free_port

INSTALL = "apt-get install redis-server"


async def until(look: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
    """Let the reactor run until something is so."""
    from twisted.internet import reactor

    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, f"after {seconds} s not yet: {what}"
        await deferLater(cast(Any, reactor), 0.005, lambda: None)


class RedisServer:
    """
    One server without persistence, with a socket that tests command it by.

    :param options: more for its command line, such as ``("--maxmemory", "2mb")``.
    """

    def __init__(self, folder: Path, name: str = "redis", *options: str | Path) -> None:
        self.program = needs.program("redis-server", INSTALL)
        self.folder = folder
        self.name = name
        self.options = options
        self.port = free_port()
        self.socket = folder / f"{name}.sock"
        self.process: Process | None = None
        self.start()

    def start(self) -> None:
        """Start, or start again at the same port."""
        self.process = Process(
            self.name,
            [
                *(self.program, "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--unixsocket", self.socket, "--save", "", "--appendonly", "no"),
                *("--dir", self.folder, "--repl-diskless-sync-delay", "0"),
                *self.options,
            ],
            self.folder / f"{self.name}.log",
        )
        try:
            eventually(self._answers, what=f"{self.name} answers")
        except AssertionError:
            self.stop()
            raise

    def _answers(self) -> bool:
        try:
            return self("PING") is not None
        except OSError:
            return False

    def stop(self) -> None:
        """End it at once: nothing of it is kept."""
        if self.process is not None:
            self.process.kill()

    def __call__(self, *command: str | bytes | int) -> Any:
        """The answer to a command, or the error as a value."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE)
            sock.connect(str(self.socket))
            sock.sendall(hiredis.pack_command(command))  # type: ignore[arg-type]
            reader = hiredis.Reader()
            while (answer := reader.gets()) is False:
                data = sock.recv(65536)
                if not data:
                    raise ConnectionError("closed")
                reader.feed(data)
            return answer

    def info(self, name: str) -> str:
        """One line of INFO."""
        text: str = self("INFO", "all").decode()
        return next(
            line.partition(":")[2]
            for line in text.splitlines()
            if line.startswith(f"{name}:")
        )

    def commands(self) -> int:
        """How many it has done; each question costs one."""
        return int(self.info("total_commands_processed"))
