"""The section ``gitaly`` of the configuration: limits of requests to Gitaly."""

from __future__ import annotations

import attrs

from tunnel.config import field, is_positive

__all__ = ["GitalyRateLimits", "GlobalGitalyRate", "ServerGitalyRate"]


@attrs.frozen(kw_only=True)
class GlobalGitalyRate:
    """``gitaly.global_api_rate_limit``: a token bucket for all servers together."""

    refill_rate_per_second: float = field(
        default=30.0, doc="calls to Gitaly in a second", validator=is_positive
    )
    bucket_size: int = field(
        default=70, doc="of them, at once after a pause", validator=is_positive
    )


@attrs.frozen(kw_only=True)
class ServerGitalyRate:
    """``gitaly.per_server_api_rate_limit``: a token bucket for each server."""

    refill_rate_per_second: float = field(
        default=15.0, doc="calls to one server in a second", validator=is_positive
    )
    bucket_size: int = field(
        default=40, doc="of them, at once after a pause", validator=is_positive
    )


@attrs.frozen(kw_only=True)
class GitalyRateLimits:
    """``gitaly``."""

    global_api_rate_limit: GlobalGitalyRate = field(
        factory=GlobalGitalyRate, doc="how often all servers are asked at most"
    )
    per_server_api_rate_limit: ServerGitalyRate = field(
        factory=ServerGitalyRate, doc="how often each of them is"
    )
