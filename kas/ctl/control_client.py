"""Client of the control sockets of the kas that run with a state directory."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunnel.errors import ConfigurationError

__all__ = ["Hung", "UnixConnection", "ask"]

#: Timeout of one response in seconds: for a response, kas does no slow work except
#: connecting to other kas, for at most two seconds.
_TIMEOUT = 2.5


class Hung(ConfigurationError):
    """Error for a kas that runs but does not respond."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP connection through a Unix socket, with a timeout in seconds."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("kas", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(
    path: Path,
    method: str,
    what: str,
    content: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """
    Return the response of kas to a request.

    :param path: the path of kas' control socket.
    :param content: the content of the request, which is sent as JSON.
    :param timeout: maximum seconds until the response, if kas needs longer than usual.
    :raises ConfigurationError: if kas does not respond; `Hung` if its process exists.
    """
    timeout = _TIMEOUT if timeout is None else timeout
    body = None if content is None else json.dumps(content)
    connection = UnixConnection(path, timeout)
    try:
        connection.request(method, what, body)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        found = json.loads(text) if answer.status == 200 else None
    except (TimeoutError, BlockingIOError):
        # BlockingIOError means that the queue of connections to kas is full.
        pid = path.stem.rpartition(".")[2]
        raise Hung(
            [
                f"kas (pid {pid}) does not respond within {timeout:g} s although its "
                "process exists; see its log, or kill it and start it again"
            ]
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            [f"{path}: kas does not respond ({reason}); is it still running?"]
        ) from None
    finally:
        connection.close()
    if not isinstance(found, dict):
        what = text.strip() or "nothing"
        raise ConfigurationError(
            [f"{path}: kas responded with {answer.status}: {what}"]
        )
    return found
