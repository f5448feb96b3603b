"""The schemas of the telemetry of both programs: traces, failures, profiles."""

from __future__ import annotations

from importlib.util import find_spec

import attrs

from tunnel.config.certificates import authorities
from tunnel.config.schema import ExistingFile, Invalid, field
from tunnel.config.texts import Duration
from tunnel.config.urls import is_url

__all__ = ["MAX_PROFILE_SECONDS", "Profile", "Sentry", "Tracing", "is_installed"]

#: Maximum number of seconds of one profile, which occupies a connection of the
#: listener.
MAX_PROFILE_SECONDS = 60


def is_installed(package: str, extra: str) -> None:
    """
    Check that a package of an optional dependency is installed.

    :raises Invalid: if it is not.
    """
    if find_spec(package) is None:
        raise Invalid(
            f"this needs packages that are not installed: pip install 'txkas[{extra}]'"
        )


@attrs.frozen(kw_only=True)
class Tracing:
    """``observability.tracing``: spans for OpenTelemetry."""

    otlp_endpoint: str = field(
        doc="URL that receives spans by OTLP over HTTP; without a path, /v1/traces",
        validator=is_url,
    )
    otlp_token_secret_file: ExistingFile | None = field(
        default=None,
        doc="token for that server: from GitLab (glpat-), or sent as Bearer",
    )
    otlp_ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc="PEM certificates that sign the server's, in place of the usual ones",
        validator=authorities,
    )

    def __attrs_post_init__(self) -> None:
        is_installed("opentelemetry", "tracing")


@attrs.frozen(kw_only=True)
class Sentry:
    """``observability.sentry``: failures for Sentry."""

    dsn: str = field(
        default="",
        doc="address of Sentry, or of GitLab's error tracking",
        secret=True,
    )
    environment: str = field(default="", doc="name of the environment in Sentry")

    def __attrs_post_init__(self) -> None:
        if self.dsn:
            is_installed("sentry_sdk", "sentry")
            _check_dsn(self.dsn)


def _check_dsn(dsn: str) -> None:
    from sentry_sdk.utils import Dsn

    try:
        Dsn(dsn)
    except ValueError:
        # The value may contain a part of the key.
        raise Invalid(
            "this is not a DSN; copy the project's DSN from Sentry, such as "
            "https://KEY@sentry.example.com/1",
            "dsn",
        ) from None


def _is_duration(instance: object, attribute: object, value: float) -> None:
    if not 0 < value <= MAX_PROFILE_SECONDS:
        raise ValueError(f"must be more than 0s and at most {MAX_PROFILE_SECONDS}s")


@attrs.frozen(kw_only=True)
class Profile:
    """``observability.profile``: profiles of the running process."""

    enabled: bool = field(
        default=False,
        doc="serve /debug/profile on the observability listener, to all its clients",
    )
    duration: Duration = field(
        default=10.0,
        doc="duration of a profile, at most 60s",
        validator=_is_duration,
    )
