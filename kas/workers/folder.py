"""The folder of the sockets of one kas' workers, in the state directory."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
from pathlib import Path

import attrs

from kas.state.directory import StateDirectory
from kas.state.process_socket import MAX_PATH
from kas.state.running import is_alive
from tunnel.errors import ConfigurationError

__all__ = ["WorkersFolder", "worker_at"]

#: Where a worker is reached by the others, where there is no Redis.
_PEER = re.compile(r"unix://.*/workers-[0-9a-f]{4}-([0-9]+)/([0-9]+)\.peer")


@attrs.frozen
class WorkersFolder:
    """
    The folder of one supervisor.

    Its name is shorter than those of other files of processes: two names follow it, and
    the path of a socket has few bytes.
    """

    path: Path

    @classmethod
    def make(cls, state: StateDirectory, workers: int) -> WorkersFolder:
        """
        Make that of this process, and remove those of supervisors that are gone.

        :raises ConfigurationError: paths in it would be too long for sockets.
        """
        for path in state.path.glob(f"{_prefix()}*"):
            number = path.name.removeprefix(_prefix())
            if number.isdecimal() and not is_alive(int(number)):
                shutil.rmtree(path, ignore_errors=True)
        made = cls(state.file(f"{_prefix()}{os.getpid()}"))
        longest = made.socket(workers, "control")
        if len(os.fsencode(longest)) > MAX_PATH:
            raise ConfigurationError(
                [
                    f"{longest} is too long for a socket, and workers need some: use a "
                    "state directory with a shorter path, or 'workers: 1'"
                ]
            )
        # In a container every process has the number of the one before.
        made.remove()
        made.path.mkdir(mode=0o700)
        return made

    def socket(self, number: int, what: str) -> Path:
        """That of one worker for *what*: ``status``, ``control`` or ``peer``."""
        return self.path / f"{number}.{what}"

    @property
    def secret(self) -> Path:
        """The file of the secret by which the workers know each other."""
        return self.path / "secret"

    @property
    def configuration(self) -> Path:
        """The configuration file, as it was when kas was started."""
        return self.path / "kas.yaml"

    def keep(self, file: Path) -> None:
        """Copy the configuration *file*."""
        self.configuration.touch(mode=0o600)
        shutil.copyfile(file, self.configuration)

    def remove(self) -> None:
        """Remove it, and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def worker_at(url: str) -> str:
    """For people: which worker *url* leads to, and of which kas; or *url* itself."""
    found = _PEER.fullmatch(url)
    return url if found is None else f"worker {found[2]} of {found[1]}"


def _prefix() -> str:
    """What begins the names of those of this host: several may share the directory."""
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()
    return f"workers-{host[:4]}-"
