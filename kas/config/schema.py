"""
Schema of the configuration, with the names of GitLab's kas.

The section of each feature module stays unparsed (`tunnel.config.Section`) until the
module is found; the module's own schema then parses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

import attrs

from kas.config.checks import (
    gitlabs,
    is_secret,
    is_url_path,
)
from kas.config.gitaly import GitalyRateLimits
from kas.config.gitlab import GitLab
from kas.config.oidc import OpenIdConnect
from kas.config.redis import Redis
from kas.config.workers import Workers
from tunnel.config import (
    DrainingListen,
    Duration,
    ExistingFile,
    Invalid,
    Listen,
    Profile,
    Remark,
    Section,
    Sentry,
    Size,
    Tracing,
    authorities,
    field,
    identity,
    is_installed,
    is_positive,
    is_url,
    read,
    read_file,
)
from tunnel.toolkit.forwarded import are_proxies
from tunnel.toolkit.secret_file import read_secret
from tunnel.toolkit.urls import is_private
from tunnel.toolkit.webhook_signature import standard_signature

__all__ = [
    "AgentListen",
    "AgentSection",
    "KasConfiguration",
    "Observability",
    "ObservabilityListen",
    "Web",
    "read_configuration",
    "read_configuration_file",
]


@attrs.frozen(kw_only=True)
class AgentListen(DrainingListen):
    """``agent.listen``: the listener for agentk."""

    IGNORED_KEYS: ClassVar[Mapping[str, str]] = gitlabs("max_connection_age")

    TLS_BY_DEFAULT: ClassVar[bool] = True

    address: str = field(default="127.0.0.1:8150", doc="host:port for agents")
    websocket: bool = field(
        default=False,
        doc="for files of GitLab's kas, no effect: the port always accepts both",
    )
    listen_grace_period: Duration = field(
        default=5.0,
        doc=(
            "minimum time to accept requests after the signal to stop, if the agents "
            "have other kas"
        ),
    )
    shutdown_grace_period: Duration = field(
        default=10.0,
        doc="how long running requests may continue after the signal to stop",
    )
    resume_grace_period: Duration = field(
        default=60.0,
        doc=(
            "how long exec, port-forward, logs -f and watches survive a broken path; "
            "0s disables this"
        ),
    )
    connections_per_token_per_minute: int = field(
        default=40000,
        doc="connections that one agent token may open in a minute",
        validator=is_positive,
    )


@attrs.frozen(kw_only=True)
class AgentSection:
    """
    ``agent``: the listener for agents, the lifetimes of cached responses from GitLab
    about agents, and sections of modules.
    """

    IGNORED_KEYS: ClassVar[Mapping[str, str]] = gitlabs(
        "redis_conn_info_ttl",
        "redis_conn_info_refresh",
        "redis_conn_info_gc",
        "receptive_agent",
        "remote_development",
    )

    listen: AgentListen = field(factory=AgentListen, doc="the listener for agentk")
    info_cache_ttl: Duration = field(
        default=300.0,
        doc=(
            "how long kas caches GitLab's response for an agent's token, and thus "
            "how long the tunnels of a revoked token stay; 0s: kas queries GitLab "
            "for each new connection, and each minute for open ones"
        ),
    )
    info_cache_error_ttl: Duration = field(
        default=60.0, doc="how long GitLab's refusal of a token is cached"
    )
    info_cache_outage_ttl: Duration = field(
        default=14400.0,
        doc=(
            "how long the last response of GitLab for an agent is used while GitLab "
            "does not respond"
        ),
    )
    modules: dict[str, Section] = field(
        factory=dict, others=True, doc="sections of modules below agent"
    )


@attrs.frozen(kw_only=True)
class ObservabilityListen(DrainingListen):
    """``observability.listen``: health, metrics and status."""

    address: str = field(default="127.0.0.1:8151", doc="host:port for probes, metrics")
    listen_grace_period: Duration = field(
        default=0.0,
        doc=(
            "minimum time to answer probes after the signal to stop; they are "
            "answered as long as anything else runs"
        ),
    )
    shutdown_grace_period: Duration = field(
        default=10.0, doc="how long responses in progress may take after that"
    )


@attrs.frozen(kw_only=True)
class Prometheus:
    """``observability.prometheus``."""

    url_path: str = field(default="/metrics", doc="metrics", validator=is_url_path)


@attrs.frozen(kw_only=True)
class LivenessProbe:
    """``observability.liveness_probe``."""

    url_path: str = field(
        default="/liveness", doc="200 while the process works", validator=is_url_path
    )


@attrs.frozen(kw_only=True)
class ReadinessProbe:
    """``observability.readiness_probe``."""

    url_path: str = field(
        default="/readiness",
        doc="200 while it can handle requests",
        validator=is_url_path,
    )


@attrs.frozen(kw_only=True)
class Logging:
    """``observability.logging``."""

    IGNORED_KEYS: ClassVar[Mapping[str, str]] = gitlabs("grpc_level")

    level: Literal["debug", "info", "warn", "error"] = field(
        default="info", doc="minimum level of logged events"
    )


def _is_ratio(instance: object, attribute: object, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError("write 0 for none, 1 for all, or a number in between")


@attrs.frozen(kw_only=True)
class KasTracing(Tracing):
    """``observability.tracing``: spans for OpenTelemetry."""

    sample_ratio: float = field(
        default=1.0,
        doc=(
            "fraction of the requests without a traceparent that kas traces; for other "
            "requests, the traceparent decides"
        ),
        validator=_is_ratio,
    )


#: Maximum number of exports of the audit log: each has a thread.
MAX_EXPORTS = 8


@attrs.frozen(kw_only=True)
class AuditExport:
    """An entry of ``observability.audit.exports``."""

    name: str = field(doc="name of the export in metrics, logs and file names")
    format: Literal["webhook", "otlp", "syslog"] = field(
        doc=(
            "webhook: the stored lines in signed POST requests (Standard Webhooks); "
            "otlp: logs of OpenTelemetry over HTTP; syslog: RFC 5424 over TLS"
        )
    )
    url: str = field(
        doc="https://…; for otlp, without a path, /v1/logs; for syslog tls://host:6514"
    )
    secret_file: ExistingFile | None = field(
        default=None,
        doc=(
            "for webhook: secrets that sign (whsec_…), one per line; for otlp: a token "
            "that is sent as Bearer"
        ),
    )
    ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc=(
            "PEM certificates that sign the receiver's, in addition to the usual ones; "
            "for syslog in place of them"
        ),
        validator=authorities,
    )
    certificate_file: ExistingFile | None = field(
        default=None, doc="for syslog: certificate of kas, if the receiver requires one"
    )
    key_file: ExistingFile | None = field(
        default=None, doc="private key for certificate_file"
    )

    def __attrs_post_init__(self) -> None:
        if re.fullmatch("[a-z0-9][a-z0-9-]{0,31}", self.name) is None:
            raise Invalid("use 1 to 32 characters of a-z, 0-9 and -", "name")
        self._check_url()
        is_syslog = self.format == "syslog"
        if is_syslog and self.secret_file is not None:
            raise Invalid("has no effect with syslog; remove it", "secret_file")
        if self.format == "webhook":
            if self.secret_file is None:
                raise Invalid("secret_file is missing; webhooks are signed")
            try:
                standard_signature(read_secret(self.secret_file), "", 0, b"")
            except ValueError as error:
                raise Invalid(str(error), "secret_file") from None
        if (self.certificate_file is None) != (self.key_file is None):
            there = "key_file" if self.certificate_file is None else "certificate_file"
            raise Invalid("certificate_file and key_file belong together", there)
        if self.certificate_file is not None and self.key_file is not None:
            if not is_syslog:
                raise Invalid("has an effect only with syslog", "certificate_file")
            identity(self.certificate_file, self.key_file)
        if self.format == "otlp":
            is_installed("opentelemetry", "tracing")

    def _check_url(self) -> None:
        if self.format == "syslog":
            if not _is_syslog_url(self.url):
                raise Invalid("write tls://HOST or tls://HOST:PORT", "url")
            return
        try:
            is_url(self, None, self.url)
        except ValueError as error:
            raise Invalid(str(error), "url") from None
        if not is_private(self.url):
            raise Invalid("use https, because events contain data about users", "url")


@attrs.frozen(kw_only=True)
class AuditKeep:
    """
    ``observability.audit.keep``: kas removes the oldest rotated files beyond a limit.
    """

    days: int | None = field(
        default=None,
        doc="age in days at which kas removes a file",
        validator=attrs.validators.optional(is_positive),
    )
    size: Size | None = field(
        default=None,
        doc="maximum bytes of all files, such as 50GiB",
        validator=attrs.validators.optional(is_positive),
    )

    def __attrs_post_init__(self) -> None:
        if self.days is None and self.size is None:
            raise ValueError("write days, size or both")


def _is_syslog_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        rest = url.path or url.query or url.fragment or "@" in url.netloc
        return url.scheme == "tls" and bool(url.hostname) and url.port != 0 and not rest
    except ValueError:
        return False


def _are_exports(
    instance: object, attribute: object, value: tuple[AuditExport, ...]
) -> None:
    if len(value) > MAX_EXPORTS:
        raise ValueError(f"at most {MAX_EXPORTS} exports are possible")
    names = [one.name for one in value]
    if len(set(names)) < len(names):
        raise ValueError("two exports have the same name; each needs its own")


@attrs.frozen(kw_only=True)
class Audit:
    """``observability.audit``."""

    file: Path = field(doc="file with one JSON object per line; SIGHUP reopens it")
    events: Literal["changes", "all"] = field(
        default="changes",
        doc=(
            "changes: requests that change an object or run a command, and refused "
            "requests; all: every request"
        ),
    )
    enforced: tuple[
        Literal["sessions", "changes", "secrets", "administration"], ...
    ] = field(
        default=("sessions",),
        doc=(
            "requests that kas forwards only after their first event is on disk, and "
            "refuses with 503 if the log cannot be written; sessions: exec, attach, "
            "port-forward, ephemeral containers and proxied requests; changes: "
            "requests that may change something; secrets: reads of Secrets; "
            "administration: changes by kasctl, and orders to GitOps"
        ),
    )
    exports: tuple[AuditExport, ...] = field(
        default=(),
        doc="other systems that get all lines of the log, from its files",
        validator=_are_exports,
    )
    keep: AuditKeep | None = field(
        default=None,
        doc="limits beyond which kas removes rotated files; none without it",
    )


@attrs.frozen(kw_only=True)
class Observability:
    """``observability``: health, metrics, logs and traces of kas."""

    IGNORED_KEYS: ClassVar[Mapping[str, str]] = gitlabs(
        "event_reporting_period",
        "google_profiler",
    )

    listen: ObservabilityListen = field(
        factory=ObservabilityListen, doc="health, metrics and status"
    )
    prometheus: Prometheus = field(factory=Prometheus, doc="metrics")
    liveness_probe: LivenessProbe = field(factory=LivenessProbe, doc="liveness")
    readiness_probe: ReadinessProbe = field(factory=ReadinessProbe, doc="readiness")
    logging: Logging = field(factory=Logging, doc="logs")
    profile: Profile = field(
        factory=Profile, doc="durations of the steps in kas, as traces; off by default"
    )
    tracing: KasTracing | None = field(
        default=None, doc="spans for OpenTelemetry; off by default"
    )
    sentry: Sentry = field(factory=Sentry, doc="failures for Sentry; off by default")
    usage_reporting_period: Duration = field(
        default=60.0,
        doc="interval of usage reports to GitLab; 0 for none",
    )
    audit: Audit | None = field(
        default=None, doc="the audit log of requests to clusters; enabled if present"
    )

    @property
    def enforces_administration(self) -> bool:
        """Whether changes by `kasctl` need an event on disk."""
        return self.audit is not None and "administration" in self.audit.enforced


@attrs.frozen(kw_only=True)
class SignedListen(Listen):
    """Listener whose clients authenticate themselves with signed tokens."""

    authentication_secret_file: ExistingFile = field(
        doc="secret for the tokens of clients, in base64", validator=is_secret
    )
    accepted_secret_files: tuple[ExistingFile, ...] = field(
        default=(),
        doc="additional secrets that are accepted, to replace the secret",
        validator=attrs.validators.deep_iterable(is_secret),
    )


@attrs.frozen(kw_only=True)
class ApiListen(SignedListen, DrainingListen):
    """``api.listen``: the listener for GitLab."""

    address: str = field(default="127.0.0.1:8153", doc="host:port for GitLab")
    # The issuer is not fixed, because GitLab names its host as the issuer, which
    # differs per installation. The secret and the audience identify the caller.
    issuer: str = field(
        default="", doc="the only issuer (iss) of tokens to accept; '' accepts any"
    )
    max_connection_age: Duration = field(
        default=7200.0,
        doc="age of a connection at which kas asks the client to reconnect",
        validator=is_positive,
    )


@attrs.frozen(kw_only=True)
class Api:
    """``api``."""

    listen: ApiListen = field(doc="the listener for GitLab")


@attrs.frozen(kw_only=True)
class PrivateApiListen(SignedListen):
    """
    ``private_api.listen``: the listener for other kas, whose calls end when this kas
    stops.
    """

    IGNORED_KEYS: ClassVar[Mapping[str, str]] = {
        **gitlabs("max_connection_age"),
        **dict.fromkeys(
            ("listen_grace_period", "shutdown_grace_period"),
            "no effect: agent.listen sets the periods for requests to agents",
        ),
    }

    address: str = field(default="127.0.0.1:8155", doc="host:port for other kas")
    ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc=(
            "PEM certificates of the CAs that sign the certificates of other kas; "
            "default: the system's"
        ),
        validator=authorities,
    )


@attrs.frozen(kw_only=True)
class PrivateApi:
    """``private_api``."""

    listen: PrivateApiListen = field(doc="the listener for other kas")


@attrs.frozen(kw_only=True)
class WebListen(DrainingListen):
    """``web.listen``: the listener for pages and webhooks of modules."""

    address: str = field(default="127.0.0.1:8156", doc="host:port for modules' pages")


@attrs.frozen(kw_only=True)
class Web:
    """``web``."""

    listen: WebListen = field(factory=WebListen, doc="the listener for modules' pages")
    request_timeout: Duration = field(
        default=30.0,
        doc="timeout for the head and the body of a request",
        validator=is_positive,
    )
    idle_timeout: Duration = field(
        default=60.0,
        doc=(
            "how long an idle connection is kept, how long the body of a request may "
            "pause, and how long a client may pause reading the response"
        ),
        validator=is_positive,
    )
    max_body_bytes: Size = field(
        default=4 * 1024 * 1024,
        doc="maximum size of the body of a request; larger ones get 413",
        validator=is_positive,
    )
    max_connections: int = field(
        default=1000,
        doc="maximum number of client connections; more are closed",
        validator=is_positive,
    )
    trusted_proxies: tuple[str, ...] = field(
        default=(),
        doc="networks and addresses of proxies whose X-Forwarded-For, -Host and -Proto "
        "name the client and the address that it uses; unix: clients of a Unix socket",
        validator=are_proxies,
    )


@attrs.frozen(kw_only=True)
class KasConfiguration:
    """
    The whole configuration; if no file is given, kas runs alone with these defaults.
    """

    IGNORED_KEYS: ClassVar[Mapping[str, str]] = gitlabs(
        "workspaces", "autoflow", "config"
    )
    # GitLab's Linux package writes 'config:' into every file.
    FOREIGN_KEYS: ClassVar[Mapping[str, str]] = {
        "config": (
            "a key of GitLab's kas whose command is not run here: copy the "
            "command's output into this file, and leave 'config' empty"
        )
    }

    agent: AgentSection = field(
        factory=AgentSection,
        doc="the listener for agents, and modules' settings for agents",
    )
    observability: Observability = field(
        factory=Observability, doc="health, metrics, logs and traces"
    )
    modules: dict[str, Section] = field(
        factory=dict, doc="one section for each feature module, by the module's name"
    )
    api: Api | None = field(default=None, doc="the API for GitLab; enabled if present")
    private_api: PrivateApi | None = field(
        default=None,
        doc="calls between several kas",
    )
    web: Web | None = field(
        default=None, doc="pages and webhooks of modules; enabled if present"
    )
    gitlab: GitLab | None = field(
        default=None,
        doc="GitLab authenticates agents; without it: the identity file",
    )
    gitaly: GitalyRateLimits = field(
        factory=GitalyRateLimits, doc="limits of requests to GitLab's Gitaly servers"
    )
    oidc: OpenIdConnect | None = field(
        default=None,
        doc="an identity provider for additional users; enabled if present",
    )
    redis: Redis | None = field(default=None, doc="storage that several kas share")
    workers: Workers = field(
        default=1,
        doc=(
            "number of processes that share the work of this kas; auto: one for each "
            "core"
        ),
    )

    def __attrs_post_init__(self) -> None:
        if self.redis is not None and self.private_api is None:
            raise Invalid(
                "kas that share a Redis reach each other through 'private_api': add "
                "that section, too",
                "redis",
            )


def read_configuration(
    text: str, file: str, remark: Remark | None = None
) -> KasConfiguration:
    """
    Parse the configuration in *text*.

    :param remark: called with each remark that is not an error.
    :raises tunnel.errors.ConfigurationError: with all errors.
    """
    return read(text, file, KasConfiguration, remark=remark)


def read_configuration_file(
    path: str | Path | None,
    remark: Remark | None = None,
    copy: str | Path | None = None,
) -> KasConfiguration:
    """
    Return the configuration in a file, or the defaults if *path* is None.

    :param copy: file that is read instead of *path*; see `read_file`.
    """
    if path is None:
        # Only this machine can reach the page.
        return KasConfiguration(web=Web())
    return read_file(path, KasConfiguration, remark=remark, copy=copy)
