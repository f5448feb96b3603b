"""The schema of the section of the module that receives users' credentials."""

from __future__ import annotations

import attrs

from tunnel.config.schema import field
from tunnel.config.texts import Duration

__all__ = ["CredentialCaching"]


@attrs.frozen(kw_only=True)
class CredentialCaching:
    """Lifetimes of cached responses from another server about a user's credential."""

    allowed_agent_cache_ttl: Duration = field(
        default=60.0,
        doc=(
            "how long kas caches GitLab's response for a CI job or a user, and thus "
            "how long the requests of a revoked token continue"
        ),
    )
    allowed_agent_cache_error_ttl: Duration = field(
        default=10.0,
        doc="how long kas caches GitLab's refusal of a CI job or a user",
    )
    allowed_agent_cache_outage_ttl: Duration = field(
        default=3600.0,
        doc=(
            "how long kas uses GitLab's last response for a CI job or a user while "
            "GitLab does not respond"
        ),
    )
