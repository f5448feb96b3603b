"""Section ``gitaly`` of the configuration: limits of requests to Gitaly."""

from __future__ import annotations

import attrs

from tunnel.config import field, is_positive

__all__ = ["GitalyRateLimits", "GlobalGitalyRate", "ServerGitalyRate"]


@attrs.frozen(kw_only=True)
class GlobalGitalyRate:
    """``gitaly.global_api_rate_limit``: a token bucket for all servers together."""

    refill_rate_per_second: float = field(
        default=30.0, doc="calls to Gitaly per second", validator=is_positive
    )
    bucket_size: int = field(
        default=70, doc="burst of calls after a pause", validator=is_positive
    )


@attrs.frozen(kw_only=True)
class ServerGitalyRate:
    """``gitaly.per_server_api_rate_limit``: a token bucket for each server."""

    refill_rate_per_second: float = field(
        default=15.0, doc="calls to one server per second", validator=is_positive
    )
    bucket_size: int = field(
        default=40, doc="burst of calls after a pause", validator=is_positive
    )


@attrs.frozen(kw_only=True)
class GitalyRateLimits:
    """``gitaly``."""

    global_api_rate_limit: GlobalGitalyRate = field(
        factory=GlobalGitalyRate, doc="limit for the requests to all servers together"
    )
    per_server_api_rate_limit: ServerGitalyRate = field(
        factory=ServerGitalyRate, doc="limit for the requests to each server"
    )
