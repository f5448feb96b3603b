"""Calls of the services of modules, at the kas on this machine or at any other kas."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import attrs
import click

from kas.api.auth import AUDIENCE
from kas.ctl.checks import NoAnswer, unanswered
from kas.ctl.common import (
    Ctl,
    ca_file_option,
    issuer_option,
    pid_option,
    printable,
    secret_option,
)
from kas.ctl.control_client import UnixConnection
from kas.ctl.operator import operator_name
from kas.identity.jwt import read_secret, sign
from kas.state.process_socket import CALLS, CONTROL
from tunnel import __version__
from tunnel.api import OPERATOR
from tunnel.errors import ConfigurationError

__all__ = ["Callee", "Server", "callee_options"]

_F = TypeVar("_F", bound=Callable[..., Any])

# Parts of the names of services, and the keys that enable their modules.
_MODULES = (
    (".gitops.", "agent.gitops"),
    (".cluster_data.", "modules.cluster_data"),
    (".webhooks.", "modules.webhooks"),
    (".prometheus.", "modules.prometheus"),
)

# Maximum bytes of a response: enough for a hundred thousand agents.
MAX_ANSWER = 64 * 1024 * 1024

# Seconds during which the token of one request is valid; the clock of this machine and
# the clock of kas may differ.
LIFETIME = 30.0


class Callee(Protocol):
    """Interface of a kas whose modules' services kasctl can call."""

    def call(
        self, method: str, request: dict[str, Any], timeout: float
    ) -> dict[str, Any]:
        """
        Call a method and return its response, as protobuf's JSON.

        :param method: ``package.Service/Method``.
        :param timeout: maximum seconds until the response.
        :raises NoAnswer: if kas does not respond; the text contains advice.
        """


@attrs.frozen
class Here:
    """
    The kas that runs on this machine, which is called through its socket in the state
    directory.
    """

    socket: Path

    def call(
        self, method: str, request: dict[str, Any], timeout: float
    ) -> dict[str, Any]:
        connection = UnixConnection(self.socket, timeout)
        try:
            connection.request(
                "POST",
                f"/{method}",
                json.dumps(request).encode(),
                _fields(),
            )
            response = connection.getresponse()
            status, body = response.status, response.read(MAX_ANSWER)
        except TimeoutError:
            raise NoAnswer(unanswered(str(self.socket), timeout)) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or error
            raise NoAnswer(
                f"{self.socket}: kas does not respond ({reason}); is it at least as "
                "new as this kasctl?"
            ) from None
        finally:
            connection.close()
        return _content(status, body, str(self.socket))


@attrs.frozen
class Server:
    """A kas that is called through its external API, with credentials for this API."""

    url: str
    secret_file: Path
    issuer: str
    #: Certificates of the CAs that sign the server's certificate; None to accept the
    #: system's CAs.
    authorities: Path | None = None

    def call(
        self, method: str, request: dict[str, Any], timeout: float
    ) -> dict[str, Any]:
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NoAnswer(f"{self.url!r} is not a URL such as http://127.0.0.1:8153")
        try:
            secret = read_secret(self.secret_file)
        except ValueError as error:
            raise ConfigurationError([str(error)]) from None
        token = sign(
            secret,
            issuer=self.issuer,
            audience=AUDIENCE,
            now=time.time(),
            lifetime=LIFETIME,
        )
        connection: http.client.HTTPConnection
        tls = parts.scheme == "https"
        try:
            if tls:
                context = ssl.create_default_context(
                    cafile=str(self.authorities) if self.authorities else None
                )
                connection = http.client.HTTPSConnection(
                    parts.hostname, port or 443, timeout=timeout, context=context
                )
            else:
                connection = http.client.HTTPConnection(
                    parts.hostname, port or 80, timeout=timeout
                )
            try:
                connection.request(
                    "POST",
                    f"{parts.path.rstrip('/')}/{method}",
                    json.dumps(request).encode(),
                    {"Authorization": f"Bearer {token}", **_fields()},
                )
                response = connection.getresponse()
                status, body = response.status, response.read(MAX_ANSWER)
            finally:
                connection.close()
        except ssl.SSLCertVerificationError as error:
            raise NoAnswer(
                f"the certificate of {self.url} cannot be verified "
                f"({error.verify_message}); pass the CA with --ca-file, and a host "
                "name that the certificate contains"
            ) from None
        except ssl.SSLError as error:
            raise NoAnswer(
                f"no TLS with {self.url} ({error.reason or error}); if the server "
                "does not use TLS, write http://"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = (
                getattr(error, "strerror", None) or str(error) or type(error).__name__
            )
            hint = (
                "is it running, and is this its api.listen.address?  (--server sets "
                "another)"
            )
            if not tls and _was_there(error):
                hint = "if it uses TLS, write https://"
            elif tls and isinstance(error, TimeoutError):
                hint = "if it does not use TLS, write http://"
            raise NoAnswer(
                f"kas does not respond at {self.url} ({printable(reason)}); {hint}"
            ) from None
        return _content(status, body, self.url)


def _fields() -> dict[str, str]:
    """
    Return the header fields of every request; the audit log contains the last two
    fields.
    """
    return {
        "Content-Type": "application/json",
        "User-Agent": f"kasctl/{__version__}",
        OPERATOR: operator_name(),
    }


def callee_options(function: _F) -> _F:
    """Add the options that select a kas to call; the command receives a `Callee`."""

    @pid_option
    @click.option(
        "--server",
        metavar="URL",
        help="Call the external API at this URL  [default: the kas that runs here].",
    )
    @secret_option()
    @issuer_option
    @ca_file_option
    @wraps(function)
    def run(
        ctl: Ctl,
        pid: int | None,
        server: str | None,
        secret_file: Path | None,
        issuer: str,
        ca_file: Path | None,
        **rest: Any,
    ) -> None:
        callee: Callee
        if server is None:
            control = ctl.control_socket(pid)
            name = CALLS + control.name.removeprefix(CONTROL)
            callee = Here(control.with_name(name))
        elif pid is not None:
            raise ConfigurationError(
                ["--pid already selects a kas; pass only one of the two"]
            )
        elif secret_file is None:
            raise ConfigurationError(["--server needs --secret-file"])
        else:
            callee = Server(server, secret_file, issuer, ca_file)
        function(ctl, callee, **rest)

    return run  # type: ignore[return-value]


def _was_there(error: Exception) -> bool:
    """
    Return whether the server accepted the connection, but did not understand the
    request.
    """
    return isinstance(error, (ConnectionResetError, http.client.HTTPException))


def _content(status: int, body: bytes, where: str) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise NoAnswer(
            f"{where} responded with {status} and without JSON; is that kas?"
        )
    if status != 200:
        reason = content.get("message") or content.get("code") or status
        if content.get("code") == "unimplemented":
            key = next(
                (f" ({key})" for part, key in _MODULES if part in str(reason)), ""
            )
            raise NoAnswer(
                f"kas at {where} does not serve this: its configuration does not "
                f"enable the module{key}, or it is an older kas "
                f"({printable(str(reason))})"
            )
        raise NoAnswer(f"kas at {where} refused: {printable(str(reason))}")
    return content
