"""
Configuration: YAML in, frozen attrs classes out, all problems at once.

A schema is an attrs class whose annotations say how each value is read::

    @attrs.frozen(kw_only=True)
    class EchoConfiguration:
        greeting: str = field(default="hello", doc="what every answer begins with")
        timeout: Duration = field(default=30.0, doc="how long one answer may take")

    configuration = read(text, "echo.yaml", EchoConfiguration)

Annotations may be `str`, `int`, `float`, `bool`, `pathlib.Path` (relative to the file
it stands in), `ExistingFile`, `Duration`, `Size`, `Literal`, enums, attrs classes,
``X | None``, ``list[X]``, ``tuple[X, ...]``, ``dict[str, X]``, `Section`, and
``Annotated[X, Text(parse, expected)]`` for a text format of your own.  Validators of
attrs apply; `Invalid` from ``__attrs_post_init__`` reports what does not go together.
A class attribute ``FOREIGN_KEYS`` says what keys are that others know and this schema
does not, for the message that refuses them.

A problem reads ``file:line:column: path: what is wrong, and what to do``.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import attrs
from twisted.internet.endpoints import quoteStringArgument, serverFromString

from tunnel import _schema
from tunnel._schema import Invalid, MustExist, PartlyRead, Section, Text, nearest
from tunnel._yaml import MAX_TEXT
from tunnel.errors import ConfigurationError
from tunnel.net.tls import check_authorities, check_identity

__all__ = [
    "Duration",
    "ExistingFile",
    "Invalid",
    "Key",
    "Listen",
    "PartlyRead",
    "Section",
    "Size",
    "Text",
    "authorities",
    "field",
    "identity",
    "keys",
    "nearest",
    "parse_duration",
    "parse_size",
    "read",
    "read_file",
]

T = TypeVar("T")

# No time here is longer; what is must be a slip, and a timer could not take it.
MAX_DURATION = 100 * 365 * 86400.0

#: Connections that wait to be accepted: after an outage thousands of agents come back
#: within seconds, and with Twisted's 50 most of them would wait for a retransmission.
BACKLOG = 4096

# attrs types `Factory` as a function that returns what the field holds
_FACTORY: Any = attrs.Factory

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(d|h|ms|m|s)")
_SIZES = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = re.compile(r"([0-9]{1,12}) ?(|B|KiB|MiB|GiB)")


def parse_duration(text: str) -> float:
    """
    Seconds in ``90s``, ``5m``, ``2h``, ``1h30m``, ``500ms``, ``30d`` or ``0``.

    :raises ValueError: for anything else.
    """
    if text == "0":
        return 0.0
    total = 0.0
    position = 0
    largest = float("inf")
    while position < len(text):
        found = _DURATION.match(text, position)
        if found is None:
            number = text.replace(".", "", 1).isdigit()
            raise ValueError(f"write the unit: {text}s" if number else "")
        unit = _UNITS[found.group(2)]
        if unit >= largest:
            raise ValueError("larger units come first, each once")
        largest = unit
        total += float(found.group(1)) * unit
        position = found.end()
    if not text:
        raise ValueError
    if total > MAX_DURATION:
        raise ValueError("that is longer than 100 years")
    return total


def parse_size(text: str) -> int:
    """
    Bytes in ``64KiB``, ``1MiB``, ``2GiB`` or ``4096``.

    :raises ValueError: for anything else.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("units are B, KiB, MiB and GiB")
    return int(found.group(1)) * _SIZES[found.group(2)]


#: Seconds, written with a unit.
Duration = Annotated[
    float, Text(parse_duration, "a time such as 90s, 5m, 1h30m or 500ms")
]
#: Bytes, written with a binary unit.
Size = Annotated[int, Text(parse_size, "a size such as 64KiB or 1MiB")]
#: A file that can be read when the configuration is.
ExistingFile = Annotated[Path, MustExist()]


def authorities(instance: object, attribute: object, value: Path | None) -> None:
    """A validator: there are CA certificates in the file."""
    if value is not None:
        try:
            check_authorities(str(value))
        except ConfigurationError as error:
            raise ValueError(str(error)) from None


def identity(certificate: Path, key: Path) -> None:
    """
    What `certificate_file` and `key_file` name belongs together.

    :raises Invalid: at the key whose file is to blame.
    """
    try:
        check_identity(str(certificate), str(key))
    except ConfigurationError as error:
        text = str(error)
        blamed = "key_file" if text.startswith(f"{key}: ") else "certificate_file"
        raise Invalid(text, blamed) from None


def field(
    *, doc: str, key: str | None = None, secret: bool = False, **rest: Any
) -> Any:
    """
    `attrs.field` that documents itself.

    :param doc: what the key is for; messages and reference pages show it.
    :param key: its name in the file where Python cannot have it (``current-context``).
    :param secret: keep the value out of messages and of ``repr``.
    """
    metadata: dict[str, Any] = {_schema._DOC: doc, **rest.pop("metadata", {})}
    if key is not None:
        metadata[_schema._KEY] = key
    if secret:
        metadata[_schema._SECRET] = True
        rest.setdefault("repr", False)
    return attrs.field(metadata=metadata, **rest)


def read(
    text: str,
    file: str,
    schema: type[T],
    *,
    unknown_keys: Literal["refuse", "skip"] = "refuse",
) -> T:
    """
    Read *text* as an instance of *schema*.

    :param file: names the text in messages; relative paths in it start in its folder.
    :param unknown_keys: ``skip`` is for formats that belong to someone else.
    :raises ConfigurationError: with everything that is wrong; a `PartlyRead`, unless
        the text could not even be parsed.
    """
    return _schema.read(text, file, schema, unknown_keys=unknown_keys)


def read_file(
    path: str | Path,
    schema: type[T],
    *,
    unknown_keys: Literal["refuse", "skip"] = "refuse",
) -> T:
    """`read` what is in a file; one that cannot be opened is a problem too."""
    try:
        with open(path, "rb") as source:
            # one more than allowed is enough to know that it is too large
            data = source.read(4 * MAX_TEXT + 1)
    except OSError as error:
        what = error.strerror or type(error).__name__
        message = f"{path}: cannot be read ({what}); correct the path or its mode"
        raise ConfigurationError([message]) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        message = f"{path}:{line}:{column}: not UTF-8; save the file in that encoding"
        raise ConfigurationError([message]) from None
    return read(text, str(path), schema, unknown_keys=unknown_keys)


@attrs.frozen
class Key:
    """One key that a schema knows, for reference pages and checks of examples."""

    path: str
    doc: str
    default: object = attrs.NOTHING

    @property
    def required(self) -> bool:
        """Whether a file without the key is refused."""
        return self.default is attrs.NOTHING


def keys(schema: type[Any], path: str = "") -> Iterator[Key]:
    """Every key of *schema*, those of nested sections after their own."""
    for name, (attribute, wanted) in _schema.field_types(schema).items():
        where = f"{path}.{name}" if path else name
        default = attribute.default
        if isinstance(default, _FACTORY):
            default = None if default.takes_self else default.factory()
        yield Key(where, attribute.metadata.get(_schema._DOC, ""), default)
        for inner in (wanted, *get_args(wanted)):
            if isinstance(inner, type) and attrs.has(inner) and inner is not Section:
                yield from keys(inner, where)


_ADDRESS = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*)):([0-9]{1,5})")
# What Twisted can check without a reactor; others come from plugins or from systemd,
# whose sockets are not there when a file is merely checked.
_CHECKABLE = frozenset({"tcp", "tcp4", "tcp6", "unix"})


def _address(network: str, text: str) -> tuple[str, int]:
    """Host and port of ``host:port``; raises ValueError."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not 'host:port'; write 127.0.0.1:8150, [::1]:8150 or :8150"
        )
    bracketed, plain, port = found.groups()
    host = bracketed if bracketed is not None else plain
    if int(port) > 65535:
        raise ValueError(f"{port} is not a port; they end at 65535")
    try:
        version = ipaddress.ip_address(host).version if host else 0
    except ValueError:
        version = 0
        if bracketed is not None:
            raise ValueError(f"{host!r} is not an IPv6 address") from None
    if (network, version) in (("tcp4", 6), ("tcp6", 4)):
        raise ValueError(f"{text!r} is no address of the network {network}")
    if network == "tcp6" and host and version == 0:
        raise ValueError(f"with network tcp6 write an address, not {host!r}")
    return host, int(port)


@attrs.frozen(kw_only=True)
class Listen:
    """
    Where to listen: ``network`` and ``address``, or a Twisted ``endpoint`` string.

    Subclass it to give ``address`` a default.
    """

    #: For what carries credentials: to go without TLS then has to be said.
    TLS_BY_DEFAULT: ClassVar[bool] = False

    network: Literal["tcp", "tcp4", "tcp6", "unix"] = field(
        default="tcp", doc="tcp, tcp4, tcp6 or unix"
    )
    address: str = field(
        default="", doc="host:port, or the path of the socket when network is unix"
    )
    endpoint: str = field(
        default="", doc="a Twisted endpoint string, instead of network and address"
    )
    certificate_file: ExistingFile | None = field(
        default=None, doc="PEM chain, leaf first; with key_file, turns TLS on"
    )
    key_file: ExistingFile | None = field(
        default=None, doc="PEM private key of certificate_file"
    )
    development_certificate: bool | None = field(
        default=None,
        doc="TLS with the certificate that kas makes for itself; false: none",
    )
    client_ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc="PEM certificates that have to sign every client's (mTLS)",
        validator=authorities,
    )
    listen_grace_period: Duration = field(
        default=5.0, doc="how long to go on accepting after the order to stop"
    )
    shutdown_grace_period: Duration = field(
        default=3600.0, doc="how long what runs may take after that"
    )

    def __attrs_post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ExceptionGroup("listen", problems)

    def _problems(self) -> Iterator[Invalid]:
        default = attrs.fields_dict(type(self))["address"].default
        # a file's value was checked before; flags of a command line were not
        if self.network not in (networks := ("tcp", "tcp4", "tcp6", "unix")):
            yield Invalid(f"expected one of: {', '.join(networks)}", "network")
            return
        if self.endpoint:
            if self.address != default:
                yield Invalid("'address' and 'endpoint' exclude each other", "endpoint")
            if self.network != "tcp":
                yield Invalid("'network' and 'endpoint' exclude each other", "endpoint")
        try:
            if self.endpoint:
                _check_endpoint(self.endpoint)
            else:
                self.endpoint_string()
        except ValueError as error:
            yield Invalid(str(error), "endpoint" if self.endpoint else "address")
        if self.certificate_file is not None and self.key_file is None:
            yield Invalid("'key_file' is missing; TLS needs both", "certificate_file")
        if self.key_file is not None and self.certificate_file is None:
            yield Invalid("'certificate_file' is missing; TLS needs both", "key_file")
        if self.development_certificate and (self.certificate_file or self.key_file):
            yield Invalid(
                "there is a 'certificate_file' already; keep one of the two",
                "development_certificate",
            )
        if self.client_ca_certificate_file is not None and not self.tls:
            yield Invalid(
                "client certificates need TLS: add 'certificate_file' and 'key_file'",
                "client_ca_certificate_file",
            )
        if self.certificate_file is not None and self.key_file is not None:
            # For its complaints: who listens loads the files again, and follows them.
            try:
                identity(self.certificate_file, self.key_file)
            except Invalid as error:
                yield error

    @property
    def tls(self) -> bool:
        """Whether TLS goes on top of `endpoint_string`, which never has it."""
        return self.own_certificate or (
            self.certificate_file is not None and self.key_file is not None
        )

    @property
    def own_certificate(self) -> bool:
        """Whether that is done with the certificate that kas makes for itself."""
        if self.development_certificate is None:
            return self.TLS_BY_DEFAULT and self.certificate_file is None
        return self.development_certificate

    def endpoint_string(self) -> str:
        """
        For `twisted.internet.endpoints.serverFromString`, without TLS.

        :raises ValueError: when the address is none; reading a file checked that.
        """
        if self.endpoint:
            return self.endpoint
        if self.network == "unix":
            if not self.address or "\0" in self.address:
                raise ValueError("with network unix write the path of the socket")
            # only our own group: who can open the socket is as good as on loopback
            return f"unix:{quoteStringArgument(self.address)}:mode=660"
        host, port = _address(self.network, self.address)
        if not host:
            # like Go: ":8080" is every address, of both families where there are two
            both = self.network == "tcp" and socket.has_dualstack_ipv6()
            if both or self.network == "tcp6":
                return rf"tcp6:{port}:interface=\:\::backlog={BACKLOG}"
            return f"tcp:{port}:backlog={BACKLOG}"
        kind = "tcp6" if ":" in host else "tcp"
        where = quoteStringArgument(host)
        return f"{kind}:{port}:interface={where}:backlog={BACKLOG}"


def _check_endpoint(text: str) -> None:
    kind, colon, _ = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is no endpoint; write, for instance, tcp:8150")
    if kind not in _CHECKABLE:
        return
    nowhere: Any = None  # made, never listened on
    try:
        serverFromString(nowhere, text)
    except Exception as error:
        raise ValueError(f"{text!r} is no endpoint Twisted can use ({error})") from None
