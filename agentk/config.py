"""
agentk's options: flags and environment, under the names of GitLab's agentk.

There is little of it, because kas decides what it can; the one file is for the sections
of agent modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
from twisted.logger import Logger

from tunnel.config import Invalid, Listen, PartlyRead, Section, field, read_file
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import Prepared, load_modules
from tunnel.plugin import AgentModule
from tunnel.transport.address import KasAddress, parse_kas_address
from tunnel.transport.tls import client_context

__all__ = [
    "AgentkConfiguration",
    "AgentkOptions",
    "ProbeListen",
    "TokenSource",
    "read_modules",
    "read_options",
    "read_token",
]

#: Takes the token where no file can be mounted.
TOKEN_VARIABLE = "AGENTK_TOKEN"  # noqa: S105 - the name, not a token
# kas refuses longer ones anyway; this bounds what a mistaken path reads.
MAX_TOKEN = 4096

_TOKEN = re.compile(rb"[\x21-\x7e]+")
_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?")

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class ProbeListen(Listen):
    """``--observability-listen-*``: probes and metrics."""

    # every address, because the kubelet asks the address of the pod
    address: str = field(default=":8080", doc="host:port for probes and metrics")


#: How the keys of that are said on the command line.
_OPTIONS = {
    "network": "observability-listen-network",
    "address": "observability-listen-address",
    "certificate_file": "observability-cert-file",
    "key_file": "observability-key-file",
}


@attrs.frozen(kw_only=True)
class AgentkConfiguration:
    """``--configuration-file``."""

    modules: dict[str, Section] = field(
        factory=dict, doc="one section per agent module, by the module's name"
    )


@attrs.frozen(kw_only=True)
class AgentkOptions:
    """All options of agentk, checked; see `read_options`."""

    kas_address: KasAddress
    #: CAs that are trusted besides the system's.
    ca_cert_file: Path | None = None
    #: For WebSockets.
    kas_headers: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    kas_insecure_skip_tls_verify: bool = False
    kas_tls_server_name: str = ""
    observability: ProbeListen = attrs.field(factory=ProbeListen)
    #: Of the pod; what is empty here may still be known of the service account.
    pod_namespace: str = ""
    pod_name: str = ""


def read_options(flags: Mapping[str, Any], environ: Mapping[str, str]) -> AgentkOptions:
    """
    Check the flags of the command line (their names are the keys, without ``--``).

    :param flags: may lack keys; ``kas-header`` is a list.
    :raises ConfigurationError: with every problem.
    """
    return _Flags(flags, environ).options()


class _Flags:
    """The flags while they are being checked."""

    def __init__(self, flags: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._flags = flags
        self._environ = environ
        self._problems: list[str] = []

    def options(self) -> AgentkOptions:
        address = self._address()
        headers = self._headers()
        options: dict[str, Any] = {
            "ca_cert_file": self._authorities(),
            "kas_headers": headers,
            "kas_insecure_skip_tls_verify": bool(
                self._flags.get("kas-insecure-skip-tls-verify")
            ),
            "kas_tls_server_name": self._text("kas-tls-server-name"),
            "observability": self._observability(),
            "pod_namespace": self._text("namespace")
            or self._environ.get("POD_NAMESPACE", ""),
            "pod_name": self._environ.get("POD_NAME", ""),
        }
        if address is not None:
            self._without_effect(address, options)
        if self._problems or address is None:
            raise ConfigurationError(self._problems)
        return AgentkOptions(kas_address=address, **options)

    def _text(self, name: str) -> str:
        return str(self._flags.get(name) or "").strip()

    def _attempt(self, name: str, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except ConfigurationError as error:
            self._problems += [f"--{name}: {problem}" for problem in error.problems]
            return None

    def _address(self) -> KasAddress | None:
        text = self._text("kas-address")
        if not text:
            self._problems.append(
                "--kas-address: is missing; write, for instance, tls://kas.example:8150"
            )
            return None
        return self._attempt("kas-address", lambda: parse_kas_address(text))

    def _file(self, name: str) -> Path | None:
        text = self._text(name)
        if not text:
            return None
        # twistd changes the working directory later
        path = Path(text).absolute()
        if not path.is_file():
            self._problems.append(
                f"--{name}: {path} does not exist, or is no file; correct the path"
            )
        return path

    def _authorities(self) -> Path | None:
        path = self._file("ca-cert-file")
        if path is not None and path.is_file():
            # For its complaints: each start makes a context of its own.
            self._attempt("ca-cert-file", lambda: client_context(ca_file=str(path)))
        return path

    def _headers(self) -> tuple[tuple[str, str], ...]:
        headers = []
        for text in self._flags.get("kas-header") or ():
            name, colon, value = (part.strip() for part in text.partition(":"))
            if (
                colon
                and _HEADER_NAME.fullmatch(name)
                and _HEADER_VALUE.fullmatch(value)
            ):
                headers.append((name, value))
            else:
                # without the value, which may be a secret, as may what has no colon
                which = repr(name[:40]) if colon else "a header without a colon"
                self._problems.append(
                    f"--kas-header: {which} is not like 'Name: value'"
                )
        return tuple(headers)

    def _observability(self) -> ProbeListen | None:
        given: dict[str, Any] = {
            key: self._text(_OPTIONS[key]) for key in ("network", "address")
        }
        before = len(self._problems)
        files = {
            key: self._file(_OPTIONS[key]) for key in ("certificate_file", "key_file")
        }
        if len(self._problems) == before:
            given |= files  # else it is said already what is wrong with them
        try:
            return ProbeListen(**{k: v for k, v in given.items() if v})
        except* Invalid as group:
            for error in group.exceptions:
                option = _OPTIONS[getattr(error, "key", "address")]
                self._problems.append(f"--{option}: {error}")
        return None

    def _without_effect(self, address: KasAddress, options: dict[str, Any]) -> None:
        # Silence would let operators believe in a check that does not happen.
        if options["kas_headers"] and not address.is_websocket:
            self._problems.append(
                f"--kas-header: {address.scheme}:// has no headers; "
                "use wss://, or remove it"
            )
        if address.scheme in ("tls", "wss"):
            return
        for name, key in (
            ("ca-cert-file", "ca_cert_file"),
            ("kas-tls-server-name", "kas_tls_server_name"),
            ("kas-insecure-skip-tls-verify", "kas_insecure_skip_tls_verify"),
        ):
            if options[key]:
                self._problems.append(
                    f"--{name}: {address.scheme}: has no TLS; use tls:// or wss://, "
                    "or remove it"
                )


def read_modules(file: str | None) -> list[Prepared]:
    """
    The modules that run by default, and those that the file asks for.

    :param file: the value of ``--configuration-file``.
    :raises ConfigurationError: with every problem of the file and of all modules.
    """
    problems: tuple[str, ...] = ()
    sections: dict[str, Section] = {}
    if file := (file or "").strip():
        try:
            sections = read_file(Path(file).absolute(), AgentkConfiguration).modules
        except PartlyRead as error:
            problems = error.problems
            sections = error.below("modules")
    return load_modules(AgentModule, sections, problems)


def read_token(file: str | None, environ: MutableMapping[str, str]) -> TokenSource:
    """
    Where the token is, from the file or from ``$AGENTK_TOKEN``.

    :param file: the value of ``--token-file``.

    The variable is removed, so that no process we start inherits it.

    :raises ConfigurationError: neither, both, or what is there cannot be a token.
    """
    given = environ.pop(TOKEN_VARIABLE, "")
    file = (file or "").strip()
    if given and file:
        raise ConfigurationError(
            [f"--token-file and ${TOKEN_VARIABLE} exclude each other; remove one"]
        )
    if given:
        return TokenSource(None, _checked(given.encode(), f"${TOKEN_VARIABLE}"))
    if not file:
        raise ConfigurationError(
            [
                "no token: pass --token-file FILE, or set "
                f"${TOKEN_VARIABLE}; 'kasctl agent add NAME' on kas makes one"
            ]
        )
    # twistd changes the working directory later
    path = Path(file).absolute()
    return TokenSource(path, _read(path))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as source:
            data = source.read(MAX_TOKEN + 1)
    except OSError as error:
        message = (
            f"--token-file: {path}: the token cannot be read ({error.strerror}); "
            "correct the path"
        )
        raise ConfigurationError([message]) from None
    return _checked(data, str(path))


def _checked(data: bytes, where: str) -> bytes:
    token = data.strip()
    if len(data) > MAX_TOKEN or not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            [f"{where}: there has to be one token in it, and nothing else"]
        )
    return token


@attrs.define(eq=False)
class TokenSource:
    """The agent's token, as it is now: files are replaced when tokens rotate."""

    _path: Path | None
    _token: bytes = attrs.field(repr=False)
    _complained: bool = False
    _log = Logger()

    def current(self) -> bytes:
        """To be asked for each connection; never fails."""
        if self._path is None:
            return self._token
        try:
            self._token = _read(self._path)
        except ConfigurationError as error:
            if not self._complained:
                self._log.error("{problem}; the old one stays", problem=str(error))
            self._complained = True
        else:
            self._complained = False
        return self._token
