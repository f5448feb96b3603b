"""The section ``prometheus`` of the agent's configuration in Git."""

from __future__ import annotations

import re
from typing import Literal

import attrs

from tunnel.config import field
from tunnel.toolkit.texts import DNS_LABEL

__all__ = ["MAX_PREFIX", "PrometheusSection", "PrometheusService", "is_prefix"]

_NAME = re.compile(DNS_LABEL)
_PORT = re.compile("[1-9][0-9]{0,4}|[a-z0-9](?:[-a-z0-9]{0,13}[a-z0-9])?")
_PATH = re.compile("(?:/[A-Za-z0-9._~:-]+)*")

#: Maximum number of characters of the prefix of a path.
MAX_PREFIX = 200


def is_prefix(path: str) -> bool:
    """
    Return whether *path* can be the prefix of an API: empty, or names after slashes,
    without any character that has a meaning in a URL or in HTTP.
    """
    return (
        len(path) <= MAX_PREFIX
        and _PATH.fullmatch(path) is not None
        and not {".", ".."} & set(path.split("/"))
    )


def _is_name(instance: object, attribute: object, value: str) -> None:
    if _NAME.fullmatch(value) is None:
        raise ValueError(
            "must be a name in Kubernetes: at most 63 lower-case letters, digits and "
            "'-'"
        )


def _is_port(instance: object, attribute: object, value: str) -> None:
    if value and (
        _PORT.fullmatch(value) is None or (value.isdecimal() and int(value) > 65535)
    ):
        raise ValueError("must be the name or the number of a port of the Service")


def _is_path(instance: object, attribute: object, value: str) -> None:
    if not is_prefix(value):
        raise ValueError(
            "must be empty, or begin with a slash and not end with one: /prometheus"
        )


@attrs.frozen(kw_only=True)
class PrometheusService:
    """``prometheus.service``."""

    namespace: str = field(validator=_is_name, doc="namespace of the Service")
    name: str = field(validator=_is_name, doc="name of the Service")
    port: str = field(
        default="",
        validator=_is_port,
        doc="name or number of the Service's port; default: a usual port of "
        "Prometheus, such as web or 9090, or the only port",
    )
    scheme: Literal["http", "https"] | None = field(
        default=None,
        doc="by default https if the name or protocol of the port says so; an https "
        "Service is queried through the API server",
    )
    path: str = field(
        default="",
        validator=_is_path,
        doc="prefix of the API, such as /prometheus; most have none",
    )


@attrs.frozen(kw_only=True)
class PrometheusSection:
    """``prometheus`` of the agent's configuration."""

    service: PrometheusService | None = field(
        default=None,
        doc="the Service to query; without it, agentk searches for Prometheus",
    )
