"""
What kas can be told, under the names that operators know from GitLab's kas.

The section of each feature module is kept as it is (`tunnel.config.Section`) and read
with the module's own schema once the module is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs

from kas.jwt import read_secret
from tunnel.config import (
    Duration,
    ExistingFile,
    Invalid,
    Listen,
    Section,
    authorities,
    field,
    identity,
    read,
    read_file,
)

__all__ = [
    "Agent",
    "AgentListen",
    "KasConfiguration",
    "Observability",
    "ObservabilityListen",
    "read_configuration",
    "read_configuration_file",
]


def _gitlabs(*names: str) -> Mapping[str, str]:
    """Keys of GitLab's kas that change nothing here, for `FOREIGN_KEYS`."""
    return dict.fromkeys(
        names, "a key of GitLab's kas that has no meaning here: remove it"
    )


def _not_yet(advice: str) -> Callable[[Any, Any, Any], None]:
    """A validator for what GitLab's kas has and this one does not: never be silent."""

    def validate(instance: object, attribute: object, value: object) -> None:
        if value is not None:
            raise ValueError(f"this version of kas does not support this yet; {advice}")

    return validate


def _url_path(instance: object, attribute: object, value: str) -> None:
    if not value.startswith("/") or any(c in value for c in "?# "):
        raise ValueError(f"{value!r} is not the path of a URL; write /{value.strip()}")


def _secret(instance: object, attribute: object, value: Path) -> None:
    read_secret(value)


def _password(instance: object, attribute: object, value: Path | None) -> None:
    if value is not None:
        read_password(value)


def read_password(path: Path) -> str:
    """
    The password in a file, without the end of its line.

    :raises ValueError: there is none.
    """
    try:
        password = path.read_text().rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeError:
        raise ValueError(f"{path} is no text; write the password into it") from None
    if not password:
        raise ValueError(f"{path} is empty; write the password into it")
    return password


def _positive(instance: object, attribute: object, value: float) -> None:
    if value <= 0:
        raise ValueError("must be more than 0")


@attrs.frozen(kw_only=True)
class AgentListen(Listen):
    """``agent.listen``: where agentk connects to."""

    FOREIGN_KEYS: ClassVar[Mapping[str, str]] = _gitlabs("max_connection_age")

    TLS_BY_DEFAULT: ClassVar[bool] = True

    address: str = field(default="127.0.0.1:8150", doc="host:port for agents")
    websocket: bool = field(
        default=False,
        doc="known from GitLab's kas and without effect: the port speaks both, always",
    )
    shutdown_grace_period: Duration = field(
        default=10.0, doc="how long requests that run may take after the order to stop"
    )
    resume_grace_period: Duration = field(
        default=60.0,
        doc="how long exec, port-forward, logs -f and watches outlive a broken path; "
        "0s: not at all",
    )
    connections_per_token_per_minute: int = field(
        default=40000,
        doc="how often one agent token may connect in a minute",
        validator=_positive,
    )


@attrs.frozen(kw_only=True)
class Agent:
    """``agent``: everything that faces agents, and what reaches them."""

    FOREIGN_KEYS: ClassVar[Mapping[str, str]] = _gitlabs(
        "info_cache_ttl",
        "info_cache_error_ttl",
        "redis_conn_info_ttl",
        "redis_conn_info_refresh",
        "redis_conn_info_gc",
        "receptive_agent",
    )

    listen: AgentListen = field(factory=AgentListen, doc="where agentk connects to")
    kubernetes_api: Section | None = field(
        default=None, doc="the Kubernetes API proxy for kubectl; on when present"
    )
    configuration: Section | None = field(
        default=None,
        doc="agent configuration from Git",
        validator=_not_yet("remove the section"),
    )
    gitops: Section | None = field(
        default=None, doc="GitOps", validator=_not_yet("remove the section")
    )


@attrs.frozen(kw_only=True)
class ObservabilityListen(Listen):
    """``observability.listen``: health, metrics and status."""

    address: str = field(default="127.0.0.1:8151", doc="host:port for probes, metrics")


@attrs.frozen(kw_only=True)
class Prometheus:
    """``observability.prometheus``."""

    url_path: str = field(default="/metrics", doc="metrics", validator=_url_path)


@attrs.frozen(kw_only=True)
class LivenessProbe:
    """``observability.liveness_probe``."""

    url_path: str = field(
        default="/liveness", doc="200 while the process works", validator=_url_path
    )


@attrs.frozen(kw_only=True)
class ReadinessProbe:
    """``observability.readiness_probe``."""

    url_path: str = field(
        default="/readiness", doc="200 while it can serve", validator=_url_path
    )


@attrs.frozen(kw_only=True)
class Logging:
    """``observability.logging``."""

    FOREIGN_KEYS: ClassVar[Mapping[str, str]] = _gitlabs("grpc_level")

    level: Literal["debug", "info", "warn", "error"] = field(
        default="info", doc="the least important events to write"
    )


@attrs.frozen(kw_only=True)
class Observability:
    """``observability``: how to see what kas does."""

    FOREIGN_KEYS: ClassVar[Mapping[str, str]] = _gitlabs(
        "usage_reporting_period", "event_reporting_period"
    )

    listen: ObservabilityListen = field(
        factory=ObservabilityListen, doc="health, metrics and status"
    )
    prometheus: Prometheus = field(factory=Prometheus, doc="metrics")
    liveness_probe: LivenessProbe = field(factory=LivenessProbe, doc="liveness")
    readiness_probe: ReadinessProbe = field(factory=ReadinessProbe, doc="readiness")
    logging: Logging = field(factory=Logging, doc="logs")
    tracing: Section | None = field(
        default=None, doc="OpenTelemetry", validator=_not_yet("remove the section")
    )
    sentry: Section | None = field(
        default=None, doc="Sentry", validator=_not_yet("remove the section")
    )
    google_profiler: Section | None = field(
        default=None, doc="profiler", validator=_not_yet("remove the section")
    )


@attrs.frozen(kw_only=True)
class SignedListen(Listen):
    """Where everyone comes with a token that is signed with a secret."""

    authentication_secret_file: ExistingFile = field(
        doc="secret of the tokens that clients sign, in base64", validator=_secret
    )
    accepted_secret_files: tuple[ExistingFile, ...] = field(
        default=(),
        doc="further secrets that are accepted, while the one is being replaced",
        validator=attrs.validators.deep_iterable(_secret),
    )
    max_connection_age: Duration = field(
        default=7200.0,
        doc="after this a connection is asked to come anew",
        validator=_positive,
    )
    shutdown_grace_period: Duration = field(
        default=10.0, doc="how long calls that run may take after that"
    )


@attrs.frozen(kw_only=True)
class ApiListen(SignedListen):
    """``api.listen``: calls of GitLab."""

    address: str = field(default="127.0.0.1:8153", doc="host:port for GitLab")
    issuer: str = field(
        default="gitlab", doc="who has to have signed (iss); '' for anybody"
    )


@attrs.frozen(kw_only=True)
class Api:
    """``api``."""

    listen: ApiListen = field(doc="where GitLab calls")


@attrs.frozen(kw_only=True)
class PrivateApiListen(SignedListen):
    """``private_api.listen``: calls of other kas."""

    address: str = field(default="127.0.0.1:8155", doc="host:port for other kas")
    ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc="PEM certificates that sign those of other kas",
        validator=authorities,
    )


@attrs.frozen(kw_only=True)
class PrivateApi:
    """``private_api``."""

    listen: PrivateApiListen = field(doc="where other kas call")


@attrs.frozen(kw_only=True)
class RedisServer:
    """``redis.server``."""

    address: str = field(
        doc="host:port, or the path of the socket when network is unix"
    )


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
        doc="PEM certificates that sign Redis'; else the system's",
        validator=authorities,
    )

    def __attrs_post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise Invalid("'certificate_file' and 'key_file' are needed together")
        if self.certificate_file is not None and self.key_file is not None:
            identity(self.certificate_file, self.key_file)


#: Where Redis and its sentinels listen unless told otherwise.
REDIS_PORT = 6379
SENTINEL_PORT = 26379

_REDIS_ADDRESS = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+)\]|([^:/\[\]\s]+))(?::([0-9]{1,5}))?"
)


def redis_address(text: str, port: int = REDIS_PORT) -> tuple[str, int]:
    """
    Host and port of ``host:port``; *port* where none is written.

    :raises ValueError: it is something else.
    """
    if "://" in text:
        raise ValueError(f"{text!r} is a URL; write host:port (TLS: 'tls.enabled')")
    found = _REDIS_ADDRESS.fullmatch(text)
    if found is None or int(found[3] or port) not in range(1, 65536):
        raise ValueError(f"{text!r} is not 'host:port'; write redis:6379")
    return found[1] or found[2], int(found[3] or port)


@attrs.frozen(kw_only=True)
class Redis:
    """``redis``: what several kas share."""

    FOREIGN_KEYS: ClassVar[Mapping[str, str]] = _gitlabs(
        "pool_size", "read_timeout", "idle_timeout"
    )

    server: RedisServer | None = field(default=None, doc="one server")
    sentinel: RedisSentinel | None = field(default=None, doc="several, with failover")
    network: Literal["tcp", "unix"] = field(default="tcp", doc="tcp or unix")
    username: str = field(default="", doc="name for the ACL")
    password_file: ExistingFile | None = field(
        default=None, doc="password", validator=_password
    )
    database_index: int = field(default=0, doc="number of the database")
    key_prefix: str = field(default="gitlab-kas", doc="begins every key")
    dial_timeout: Duration = field(
        default=5.0, doc="for connecting", validator=_positive
    )
    write_timeout: Duration = field(
        default=3.0, doc="for a command", validator=_positive
    )
    tls: RedisTls = field(factory=RedisTls, doc="TLS to Redis and its sentinels")

    def __attrs_post_init__(self) -> None:
        if (self.server is None) == (self.sentinel is None):
            raise Invalid("write either 'server' or 'sentinel'")
        if self.database_index < 0:
            raise Invalid("databases are counted from 0", "database_index")
        if self.network == "unix":
            if self.sentinel is not None:
                raise Invalid("sentinels name their master by host", "network")
            if self.tls.enabled:
                raise Invalid("a socket of this machine needs no TLS", "tls")
        elif self.server is not None:
            try:
                redis_address(self.server.address)
            except ValueError as error:
                raise Invalid(str(error), "server") from None


@attrs.frozen(kw_only=True)
class KasConfiguration:
    """The whole file; without one, kas runs alone with what is the default here."""

    FOREIGN_KEYS: ClassVar[Mapping[str, str]] = _gitlabs("workspaces", "autoflow")

    agent: Agent = field(factory=Agent, doc="what faces agents")
    observability: Observability = field(
        factory=Observability, doc="how to see what kas does"
    )
    modules: dict[str, Section] = field(
        factory=dict, doc="one section per feature module, by the module's name"
    )
    api: Api | None = field(default=None, doc="calls of GitLab; on when present")
    private_api: PrivateApi | None = field(
        default=None,
        doc="calls between several kas",
    )
    gitlab: Section | None = field(
        default=None,
        doc="GitLab as the one who knows agents and users",
        validator=_not_yet("remove the section, and add agents with 'kasctl agent'"),
    )
    redis: Redis | None = field(default=None, doc="what several kas share")
    gitaly: Section | None = field(
        default=None, doc="Git", validator=_not_yet("remove the section")
    )

    def __attrs_post_init__(self) -> None:
        if self.redis is not None and self.private_api is None:
            raise Invalid(
                "kas that share a Redis reach each other through 'private_api': add "
                "that section too",
                "redis",
            )


def read_configuration(text: str, file: str) -> KasConfiguration:
    """
    The configuration in *text*.

    :raises tunnel.errors.ConfigurationError: with every problem.
    """
    return read(text, file, KasConfiguration)


def read_configuration_file(path: str | Path | None) -> KasConfiguration:
    """The configuration in a file, or the defaults when there is none to read."""
    if path is None:
        return KasConfiguration()
    return read_file(path, KasConfiguration)
