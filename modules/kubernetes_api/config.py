"""Configuration of the module: its sections in the files of kas and of agentk."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs

from tunnel.config import (
    CredentialCaching,
    Duration,
    ExistingFile,
    Listen,
    Size,
    field,
    is_positive,
)
from tunnel.http1 import HttpServerLimits
from tunnel.toolkit.files import read_base64_secret
from tunnel.toolkit.forwarded import are_proxies

__all__ = [
    "KubernetesApiAgentConfiguration",
    "KubernetesApiConfiguration",
    "KubernetesApiListen",
    "websocket_secret",
]

#: Minimum bytes of a decoded secret.
MIN_SECRET = 32

_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/?")


_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def _path(instance: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if _PREFIX.fullmatch(value) is None or "." in value.split("/"):
        raise ValueError("must be a path such as / or /k8s-proxy/")


def websocket_secret(path: Path) -> bytes:
    """
    Read ``websocket_token_secret_file``.

    :raises ValueError: if its content is invalid.
    """
    return read_base64_secret(path, MIN_SECRET)


def _websocket_secret(instance: object, attribute: object, value: Path | None) -> None:
    if value is not None:
        websocket_secret(value)


def _headers(
    instance: object, attribute: attrs.Attribute[Any], value: tuple[str, ...]
) -> None:
    for name in value:
        if _TOKEN.fullmatch(name) is None:
            raise ValueError(f"{name!r} cannot be the name of a header field")


@attrs.frozen(kw_only=True)
class KubernetesApiListen(Listen):
    """``agent.kubernetes_api.listen``."""

    TLS_BY_DEFAULT: ClassVar[bool] = True
    IGNORED_KEYS: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("listen_grace_period", "shutdown_grace_period"),
        "no effect: agent.listen sets the periods for requests to agents",
    )

    address: str = field(
        default="127.0.0.1:8154", doc="host:port for kubectl and other clients"
    )


@attrs.frozen(kw_only=True)
class KubernetesApiConfiguration(CredentialCaching):
    """``agent.kubernetes_api`` of kas."""

    listen: KubernetesApiListen = field(
        factory=KubernetesApiListen, doc="listener for kubectl and other clients"
    )
    url_path_prefix: str = field(
        default="/",
        validator=_path,
        doc="prefix of every path, if kas shares a host with others",
    )
    trusted_proxies: tuple[str, ...] = field(
        default=(),
        validator=are_proxies,
        doc="networks and addresses of proxies whose X-Forwarded-For names the client; "
        "unix: clients of a Unix socket",
    )
    extra_allowed_response_headers: tuple[str, ...] = field(
        default=(),
        validator=_headers,
        doc="names of response header fields of a cluster that GitLab's pages may "
        "read, in addition to the API server's usual ones",
    )
    websocket_token_secret_file: ExistingFile | None = field(
        default=None,
        validator=_websocket_secret,
        doc=(
            "a secret in base64 that encrypts tokens for WebSockets of browsers; the "
            "same for each kas"
        ),
    )
    header_timeout: Duration = field(
        default=10.0,
        validator=is_positive,
        doc="timeout for the head of a request",
    )
    idle_timeout: Duration = field(
        default=60.0,
        validator=is_positive,
        doc="how long an idle connection is kept between two requests",
    )
    body_timeout: Duration = field(
        default=60.0,
        validator=is_positive,
        doc="timeout of a pause in the body of a request",
    )
    max_header_bytes: Size = field(
        default=64 * 1024,
        validator=is_positive,
        doc="maximum size of the head of a request",
    )
    max_header_count: int = field(
        default=200,
        validator=is_positive,
        doc="maximum number of header lines of a request",
    )
    # Enough for 2,000 watches through one agent, and for other requests.
    max_requests_per_agent: int = field(
        default=5_000, validator=is_positive, doc="requests in progress at one agent"
    )
    # One controller watches a few hundred kinds; a thousand requests indicate a loop.
    max_requests_per_credential: int = field(
        default=1_000,
        validator=is_positive,
        doc="requests in progress of one credential",
    )
    # The limit on running requests already restrains a loop, and a burst is harmless.
    max_requests_per_second: int | None = field(
        default=None,
        validator=attrs.validators.optional(is_positive),
        doc="requests that one credential may begin in a second; default: any number",
    )
    max_connections: int = field(
        default=20_000,
        validator=is_positive,
        doc="maximum number of client connections",
    )

    def front_limits(self) -> HttpServerLimits:
        """Return the limits for `tunnel.http1.HttpServerFactory`."""
        return HttpServerLimits(
            max_header_bytes=self.max_header_bytes,
            max_header_count=self.max_header_count,
            header_seconds=self.header_timeout,
            idle_seconds=self.idle_timeout,
            body_seconds=self.body_timeout,
            max_connections=self.max_connections,
        )


@attrs.frozen(kw_only=True)
class KubernetesApiAgentConfiguration:
    """``kubernetes_api`` of agentk."""

    # RBAC can list the users that agentk may impersonate, but cannot exclude some.
    allow_system_names: bool = field(
        default=False,
        doc=(
            "let requests act as users and groups whose names begin with system:, "
            "which are Kubernetes' own; service accounts, system:anonymous and "
            "system:authenticated are always allowed"
        ),
    )

    FOREIGN_KEYS: ClassVar[Mapping[str, str]] = {
        name: (
            f"moved to kubernetes.{name}, where it applies to all modules: move it "
            "there"
        )
        for name in ("max_connections", "max_idle_connections")
    }
