"""Schema of a connection to Redis."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import attrs

from tunnel.config.certificates import authorities, identity
from tunnel.config.schema import ExistingFile, Invalid, field, is_positive
from tunnel.config.texts import Duration
from tunnel.toolkit.files import read_secret_file
from tunnel.toolkit.urls import quoted_address

__all__ = [
    "REDIS_PORT",
    "SENTINEL_PORT",
    "RedisConnection",
    "RedisSentinel",
    "RedisServer",
    "RedisTls",
    "read_password",
    "redis_address",
]

#: The default port of Redis and its sentinels.
REDIS_PORT = 6379
SENTINEL_PORT = 26379

_REDIS_ADDRESS = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+)\]|([^:/\[\]\s]+))(?::([0-9]{1,5}))?"
)


def redis_address(text: str, port: int = REDIS_PORT) -> tuple[str, int]:
    """
    Return host and port of ``host:port``; *port* is the default.

    :raises ValueError: if *text* has another format.
    """
    if "://" in text:
        raise ValueError(
            f"{quoted_address(text)} is a URL; write host:port (TLS: 'tls.enabled')"
        )
    found = _REDIS_ADDRESS.fullmatch(text)
    if found is None or int(found[3] or port) not in range(1, 65536):
        raise ValueError(f"{quoted_address(text)} is not 'host:port'; write redis:6379")
    return found[1] or found[2], int(found[3] or port)


def read_password(path: Path) -> str:
    """
    Return the password in a file, without the line break at its end.

    :raises ValueError: if the file contains no password.
    """
    try:
        password = read_secret_file(path).decode().rstrip("\r\n")
    except UnicodeError:
        raise ValueError(f"{path} is not text; write the password into it") from None
    if not password:
        raise ValueError(f"{path} is empty; write the password into it")
    return password


def _password(instance: object, attribute: object, value: Path | None) -> None:
    if value is not None:
        read_password(value)


@attrs.frozen(kw_only=True)
class RedisServer:
    """``redis.server``."""

    address: str = field(doc="host:port, or the path of the socket if network is unix")


@attrs.frozen(kw_only=True)
class RedisSentinel:
    """``redis.sentinel``."""

    master_name: str = field(doc="name of the master")
    addresses: tuple[str, ...] = field(doc="host:port of each sentinel")
    sentinel_password_file: ExistingFile | None = field(
        default=None, doc="password of the sentinels", validator=_password
    )

    def __attrs_post_init__(self) -> None:
        if not self.addresses:
            raise Invalid("write at least one 'host:port'", "addresses")
        for address in self.addresses:
            try:
                redis_address(address, SENTINEL_PORT)
            except ValueError as error:
                raise Invalid(str(error), "addresses") from None


@attrs.frozen(kw_only=True)
class RedisTls:
    """``redis.tls``."""

    enabled: bool = field(default=False, doc="whether to use TLS")
    certificate_file: ExistingFile | None = field(default=None, doc="our certificate")
    key_file: ExistingFile | None = field(default=None, doc="its key")
    ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc=(
            "PEM certificates of the CAs that sign Redis' certificate; default: the "
            "system's"
        ),
        validator=authorities,
    )

    def __attrs_post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise Invalid("'certificate_file' and 'key_file' are needed together")
        if self.certificate_file is not None and self.key_file is not None:
            identity(self.certificate_file, self.key_file)


@attrs.frozen(kw_only=True)
class RedisConnection:
    """A Redis server, or several servers with sentinels, and the credentials."""

    server: RedisServer | None = field(default=None, doc="one server")
    sentinel: RedisSentinel | None = field(
        default=None, doc="several servers, with failover"
    )
    network: Literal["tcp", "unix"] = field(default="tcp", doc="tcp or unix")
    username: str = field(default="", doc="name of the user (ACL)")
    password_file: ExistingFile | None = field(
        default=None, doc="password", validator=_password
    )
    database_index: int = field(default=0, doc="number of the database")
    dial_timeout: Duration = field(
        default=5.0, doc="for connecting", validator=is_positive
    )
    write_timeout: Duration = field(
        default=3.0, doc="timeout of a command", validator=is_positive
    )
    tls: RedisTls = field(factory=RedisTls, doc="TLS to Redis and its sentinels")

    def __attrs_post_init__(self) -> None:
        if (self.server is None) == (self.sentinel is None):
            raise Invalid("write either 'server' or 'sentinel'")
        if self.database_index < 0:
            raise Invalid("databases are counted from 0", "database_index")
        if self.network == "unix":
            if self.sentinel is not None:
                raise Invalid("sentinels report the host of their master", "network")
            if self.tls.enabled:
                raise Invalid("a Unix socket needs no TLS", "tls")
        elif self.server is not None:
            try:
                redis_address(self.server.address)
            except ValueError as error:
                raise Invalid(str(error), "server") from None
