"""``kasctl config check``, and how to ask a running kas."""

from __future__ import annotations

import http.client
import ssl
from urllib.parse import urlsplit

import click

from kas.ctl.common import Ctl, command, printable
from tunnel.errors import TunnelError

__all__ = ["DEFAULT_URL", "NoAnswer", "config", "fetch"]

DEFAULT_URL = "http://127.0.0.1:8151"
# On the same machine; kas answers from memory.
TIMEOUT = 5.0
# A thousand agents are 300 KiB.
MAX_ANSWER = 64 * 1024 * 1024


@click.group()
def config() -> None:
    """The configuration file."""


@command(config, "check")
@click.argument("file", type=click.Path())
def check(ctl: Ctl, file: str) -> None:
    """Say everything that is wrong with a configuration file (exit status 0 or 1)."""
    # Here, because it imports every module that the file asks for.
    from kas.loading import load

    _, modules = load(file)
    names = [module.name for module in modules]
    shown = ", ".join(names) or "none"
    ctl.result(
        {"problems": [], "modules": names}, f"{file} is usable; modules: {shown}"
    )


class NoAnswer(TunnelError):
    """Nothing usable came from kas."""


def fetch(url: str, path: str, *, option: str = "--url") -> tuple[int, bytes]:
    """
    GET *path* from kas' observability listener.

    :param option: of the command, with which another place can be said.
    :raises NoAnswer: saying what to look at.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise NoAnswer(f"{url!r} is not a URL like {DEFAULT_URL}")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        # the same machine, nothing secret, and often a certificate for another name
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            parts.hostname, port, timeout=TIMEOUT, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, port, timeout=TIMEOUT)
    try:
        connection.request("GET", parts.path.rstrip("/") + path)
        response = connection.getresponse()
        return response.status, response.read(MAX_ANSWER)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoAnswer(
            f"kas does not answer at {url} ({printable(reason)}); is it running, and "
            f"is observability.listen.address that one?  ({option} says another)"
        ) from None
    finally:
        connection.close()
