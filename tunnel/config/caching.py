"""The schema of the section whose module users come to with their credentials."""

from __future__ import annotations

import attrs

from tunnel.config.schema import field
from tunnel.config.texts import Duration

__all__ = ["CredentialCaching"]


@attrs.frozen(kw_only=True)
class CredentialCaching:
    """How long another server's word on a user's credential counts."""

    allowed_agent_cache_ttl: Duration = field(
        default=60.0,
        doc="how long kas takes GitLab's word on a CI job or a user, and after which "
        "a revoked token ends what it has open",
    )
    allowed_agent_cache_error_ttl: Duration = field(
        default=10.0,
        doc="how long GitLab's refusal of a CI job or a user is remembered",
    )
    allowed_agent_cache_outage_ttl: Duration = field(
        default=3600.0,
        doc="how long GitLab's last word on a CI job or a user counts while GitLab "
        "does not answer",
    )
