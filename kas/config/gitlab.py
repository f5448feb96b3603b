"""
Section ``gitlab`` of the configuration: the GitLab server, and limits of requests to
it.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import attrs

from kas.identity.authenticators import FAILED_CHECKS_PER_MINUTE
from kas.identity.jwt import read_secret
from tunnel.config import ExistingFile, authorities, field, is_positive, is_url

__all__ = ["ApiRateLimit", "GitLab"]

#: Bytes of the decoded secret: GitLab accepts no other size.
SECRET_SIZE = 32


def _is_optional_url(instance: object, attribute: object, value: str) -> None:
    if value:
        is_url(instance, attribute, value)


def _is_gitlab_secret(instance: object, attribute: object, value: Path) -> None:
    size = len(read_secret(value))
    if size != SECRET_SIZE:
        raise ValueError(
            f"the secret in {value} has {size} bytes when decoded, but GitLab's has "
            f"{SECRET_SIZE}: use GitLab's own file (.gitlab_kas_secret)"
        )


@attrs.frozen(kw_only=True)
class ApiRateLimit:
    """``gitlab.api_rate_limit``: a token bucket."""

    refill_rate_per_second: float = field(
        default=50.0, doc="requests to GitLab per second", validator=is_positive
    )
    bucket_size: int = field(
        default=250, doc="burst of requests after a pause", validator=is_positive
    )


@attrs.frozen(kw_only=True)
class GitLab:
    """``gitlab``: the GitLab server that authenticates agents."""

    address: str = field(
        doc="URL of GitLab, such as https://gitlab.example.com", validator=is_url
    )
    authentication_secret_file: ExistingFile = field(
        doc="the secret that kas shares with GitLab, in base64",
        validator=_is_gitlab_secret,
    )
    external_url: str = field(
        default="",
        doc=(
            "URL of GitLab in browsers: only its pages may access the clusters of "
            "their users"
        ),
        validator=_is_optional_url,
    )
    ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc="PEM certificates of CAs for GitLab, in addition to the system's CAs",
        validator=authorities,
    )
    api_rate_limit: ApiRateLimit = field(
        factory=ApiRateLimit, doc="limit for the requests to GitLab"
    )
    failed_checks_per_address_per_minute: int = field(
        default=FAILED_CHECKS_PER_MINUTE,
        doc=(
            "tokens of one address that GitLab may refuse in a minute; further ones "
            "are not checked"
        ),
        validator=is_positive,
    )

    @property
    def origins(self) -> tuple[str, ...]:
        """
        Origins of GitLab's pages, as browsers write them; empty if ``external_url`` is
        not set.
        """
        if not self.external_url:
            return ()
        url = urlsplit(self.external_url.lower())
        host = url.hostname or ""
        if ":" in host:
            host = f"[{host}]"
        if url.port is not None and url.port != {"http": 80, "https": 443}[url.scheme]:
            host += f":{url.port}"
        return (f"{url.scheme}://{host}",)
