"""``modules.webhooks`` in kas' configuration file: repositories, period of checks."""

from __future__ import annotations

import attrs

from tunnel.api import RepositorySettings, is_period
from tunnel.config import Duration, field

__all__ = ["WebhooksSettings"]


@attrs.frozen(kw_only=True)
class WebhooksSettings:
    """Section ``modules.webhooks``."""

    poll_period: Duration = field(
        default=300.0,
        doc="between two checks of a ref; a push notification causes one",
        validator=is_period,
    )
    repositories: dict[str, RepositorySettings] = field(
        factory=dict,
        doc="by their names in agents' configuration, in addition to the GitLab "
        "projects that agents are registered in",
    )
