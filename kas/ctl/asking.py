"""How `kasctl` asks the kas that run with a state directory: by their sockets there."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from kas.ctl.common import Ctl, one_of
from kas.state.process_socket import CONTROL, SUFFIX
from tunnel.errors import ConfigurationError

__all__ = ["Hung", "UnixConnection", "ask", "choose"]

#: Seconds for one answer: kas does nothing long for it, and dials others for two.
_TIMEOUT = 2.5


class Hung(ConfigurationError):
    """A kas that runs, and does not answer."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket; *timeout* in seconds."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("kas", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(path: Path, method: str, what: str) -> dict[str, Any]:
    """
    One answer of kas.

    :raises ConfigurationError: there is none; `Hung` where the process is there.
    """
    connection = UnixConnection(path, _TIMEOUT)
    try:
        connection.request(method, what)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        found = json.loads(text) if answer.status == 200 else None
    except (TimeoutError, BlockingIOError):
        # the second: it does not take the connections that wait, either
        pid = path.stem.rpartition(".")[2]
        raise Hung(
            [
                f"kas (pid {pid}) does not answer within {_TIMEOUT:g} s although its "
                "process is there; see its log, or kill it and start it again"
            ]
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            [f"{path}: kas does not answer ({reason}); does it still run?"]
        ) from None
    finally:
        connection.close()
    if not isinstance(found, dict):
        what = text.strip() or "nothing"
        raise ConfigurationError([f"{path}: kas answered {answer.status}: {what}"])
    return found


def choose(ctl: Ctl, pid: int | None) -> Path:
    """
    Return the socket of the single running kas, or of the selected one.

    :raises ConfigurationError: none runs, or several, which the error lists.
    """
    state = ctl.existing()
    alive: dict[int, Path] = {}
    for number, path in state.of_processes(CONTROL, SUFFIX):
        try:
            ask(path, "GET", "/")
            alive[number] = path
        except Hung:
            # the command that comes says so
            alive[number] = path
        except ConfigurationError:
            continue  # left by a dead kas
    known = {one.pid: str(one) for one in ctl.all_running()}
    shown = ", ".join(known.get(one, str(one)) for one in sorted(alive)) or "none"
    chosen = one_of(alive, pid, state.path, shown)
    if chosen is None:
        raise ConfigurationError(
            [
                f"{state.path}: no kas runs with this state directory; name its own "
                "with --state-directory"
            ]
        )
    return chosen
