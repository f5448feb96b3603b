"""``kasctl config check`` and ``kasctl status``."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

import click

from kas.ctl.common import Ctl, command
from kas.running import OBSERVABILITY
from tunnel.errors import ConfigurationError, TunnelError

__all__ = ["DEFAULT_URL", "config", "declare", "fetch"]

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


def fetch(url: str, path: str) -> tuple[int, bytes]:
    """
    GET *path* from kas' observability listener.

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
            f"kas does not answer at {url} ({reason}); is it running, and is "
            "observability.listen.address that one?  (--url says another)"
        ) from None
    finally:
        connection.close()


def declare(group: click.Group) -> None:
    """Add ``status`` to *group*."""
    command(group, "status")(_status)


@click.option(
    "--url",
    help="Where kas' observability listener is  [default: what the running kas says, "
    f"else {DEFAULT_URL}]",
)
def _status(ctl: Ctl, url: str | None) -> None:
    """Show what a running kas does: modules, agents, connections."""
    if url is None and (running := ctl.running()) is not None:
        url = running.url(OBSERVABILITY)
    url = url or DEFAULT_URL
    code, body = fetch(url, "/status")
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if code != 200 or not isinstance(content, dict):
        raise ConfigurationError(
            [f"{url}/status answered {code} and no status; is that kas?"]
        )
    ctl.result(content, "\n".join(_lines(content)))


def _lines(content: dict[str, Any]) -> list[str]:
    lines = []
    for key, value in content.items():
        name = key.replace("_", " ")
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {inner}: {_plain(shown)}" for inner, shown in value.items()]
        elif isinstance(value, list):
            lines.append(f"{name}: {len(value)}")
            for item in value:
                members = item.items() if isinstance(item, dict) else [("", item)]
                pairs = (f"{k}={_plain(v)}" for k, v in members if v != "")
                lines.append("  " + " ".join(pairs))
        else:
            lines.append(f"{name}: {_plain(value)}")
    return lines


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
