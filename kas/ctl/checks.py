"""``kasctl config``, and requests to a running kas."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from twisted.python.reflect import namedAny

from kas.config.schema import KasConfiguration
from kas.ctl.common import SIZE, Ctl, command, printable
from tunnel.config import (
    Listen,
    expiry_problem,
    json_schema,
    nearest,
    read_file,
    validity,
)
from tunnel.errors import ConfigurationError, TunnelError
from tunnel.plugin import ServerModule, installed

__all__ = [
    "DEFAULT_URL",
    "NoAnswer",
    "declare",
    "fetch",
    "named_certificates",
    "unanswered",
]

DEFAULT_URL = "http://127.0.0.1:8151"
# Timeout in seconds: kas is on the same machine, and responds from memory.
TIMEOUT = 3.0
# Maximum bytes of a response: a thousand agents take 300 KiB.
MAX_ANSWER = 64 * 1024 * 1024


def declare(group: click.Group) -> None:
    """Add the command to *group*."""
    group.add_command(config)


@click.group()
def config() -> None:
    """Check and show the configuration file."""


@command(config, "check")
@click.option(
    "--of",
    "module",
    metavar="MODULE",
    help="Check a file of MODULE instead of kas' configuration file.",
)
@click.option(
    "--max-size",
    type=SIZE,
    help="With --of: the maximum size of files that kas accepts.",
)
@click.argument("file", type=click.Path())
def check(ctl: Ctl, file: str, module: str | None, max_size: int | None) -> None:
    """
    Report every problem in a configuration file; exit with 1 if there are any, else 0.

    With --of agent_configuration, FILE is an agent's configuration file from Git.
    """
    if max_size is not None and module is None:
        raise click.UsageError("--max-size needs --of")
    if module is not None:
        document = _document(module)
        most = max_size or getattr(document, "MAX_BYTES", None)
        notes: list[str] = []
        read_file(file, document, remark=notes.append, max_bytes=most)
        for text in notes:
            ctl.note(text)
        result = {"problems": [], "warnings": notes, "modules": [module]}
        ctl.result(result, f"{file} is valid as a file of {module}")
        return
    # Imported here, because it imports every module that the file enables.
    from kas.audit.log import file_problems
    from kas.config.loading import listeners, load
    from kas.workers.sharing import check_listeners

    remarks: list[str] = []
    configuration, modules = load(file, remark=remarks.append)
    check_listeners(configuration, modules, file)
    warnings = list(dict.fromkeys(remarks))
    problems: list[str] = []
    now = ctl.now()
    for place, certificate in named_certificates(listeners(configuration, modules)):
        if text := expiry_problem(certificate, now.timestamp()):
            begin, end = validity(certificate)
            unusable = now < begin or end <= now
            (problems if unusable else warnings).append(f"{file}: {place}: {text}")
    problems += file_problems(configuration.observability.audit, file)
    if problems:
        raise ConfigurationError([*problems, *warnings])
    names = [module.name for module in modules]
    shown = ", ".join(names) or "none"
    for text in warnings:
        ctl.note(text)
    workers = configuration.workers
    ctl.result(
        {"problems": [], "warnings": warnings, "modules": names, "workers": workers},
        f"{file} is valid; workers: {workers}; modules: {shown}",
    )


@command(config, "schema")
@click.argument("module", required=False)
def schema(ctl: Ctl, module: str | None) -> None:
    """
    Print the JSON Schema of a configuration file, for editors.

    The default is kas' configuration file; with MODULE agent_configuration, it is the
    file of agents in Git.
    """
    if module is None:
        found = json_schema(KasConfiguration, "Configuration of kas")
    else:
        found = json_schema(_document(module), f"File of {module}")
    ctl.result(found, json.dumps(found, indent=2, ensure_ascii=False))


def _document(module: str) -> type[Any]:
    """
    Return the schema of the files that belong to a module.

    :raises ConfigurationError: if the module has no such files.
    """
    documents = {one.name: one.document for one in installed(ServerModule)}
    documents = {name: one for name, one in documents.items() if one}
    if module not in documents:
        raise ConfigurationError(
            [f"no file belongs to {module!r}; {nearest(module, documents)}"]
        )
    found: type[Any] = namedAny(documents[module])
    return found


#: Keys of a listener that name certificates.
_CERTIFICATES = (
    "certificate_file",
    "client_ca_certificate_file",
    "ca_certificate_file",
)


def named_certificates(
    listeners: Iterable[tuple[str, Listen]],
) -> Iterator[tuple[str, Path]]:
    """Yield the certificates that a configuration names, each with its key."""
    for place, listen in listeners:
        for key in _CERTIFICATES:
            file: Path | None = getattr(listen, key, None)
            if file is not None:
                yield f"{place}.{key}", file


class NoAnswer(TunnelError):
    """Error if kas does not respond, or its response cannot be used."""


def unanswered(where: str, seconds: float | None = None) -> str:
    """Return the message for a kas that does not respond."""
    seconds = TIMEOUT if seconds is None else seconds
    return (
        f"{where}: kas accepts the connection but does not respond within {seconds:g} "
        "s; see its log, or kill it and start it again"
    )


def fetch(url: str, path: str, *, option: str = "--url") -> tuple[int, bytes]:
    """
    GET *path* from the observability listener of kas.

    :param option: the option of the command that sets another address.
    :raises NoAnswer: if kas does not respond; the text contains advice.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise NoAnswer(f"{url!r} is not a URL such as {DEFAULT_URL}")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        # Do not verify the certificate: it is often for another name, the server is on
        # the same machine, and no data is secret.
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
        if isinstance(error, TimeoutError) and connection.sock is not None:
            raise NoAnswer(unanswered(url)) from None
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoAnswer(
            f"kas does not respond at {url} ({printable(reason)}); is it running, "
            f"and is this its observability.listen.address?  ({option} sets another)"
        ) from None
    finally:
        connection.close()
