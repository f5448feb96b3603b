"""Git repositories as a part of kas."""

from __future__ import annotations

from kas.config.gitaly import GitalyRateLimits
from kas.git.limits import GitLimits
from kas.git.metrics import GitCollector
from kas.git.repositories import Repositories
from kas.state.directory import StateDirectory
from tunnel.program.runtime import Runtime

__all__ = ["make_repositories"]


def make_repositories(
    settings: GitalyRateLimits, state: StateDirectory, runtime: Runtime
) -> Repositories:
    """Return the repositories that modules read, with their metrics."""
    every = settings.global_api_rate_limit
    each = settings.per_server_api_rate_limit
    limits = GitLimits(
        gitaly_rate=every.refill_rate_per_second,
        gitaly_burst=every.bucket_size,
        gitaly_server_rate=each.refill_rate_per_second,
        gitaly_server_burst=each.bucket_size,
    )
    repositories = Repositories(state, runtime, limits)
    runtime.metrics.register(GitCollector(repositories))
    return repositories
