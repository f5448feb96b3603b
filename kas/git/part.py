"""Git repositories as a part of kas."""

from __future__ import annotations

from kas.config.gitaly import GitalyRateLimits
from kas.git.limits import GitLimits
from kas.git.metrics import GitCollector
from kas.git.repositories import Repositories
from kas.state.directory import StateDirectory
from tunnel.program.parts import Part
from tunnel.program.runtime import Runtime

__all__ = ["GitPart"]


class GitPart(Part):
    """The repositories that modules read."""

    name = "repositories"

    def __init__(
        self, settings: GitalyRateLimits, state: StateDirectory, runtime: Runtime
    ) -> None:
        every = settings.global_api_rate_limit
        each = settings.per_server_api_rate_limit
        limits = GitLimits(
            gitaly_rate=every.refill_rate_per_second,
            gitaly_burst=every.bucket_size,
            gitaly_server_rate=each.refill_rate_per_second,
            gitaly_server_burst=each.bucket_size,
        )
        self.repositories = Repositories(
            state, runtime.reactor, limits, runtime.environ, runtime.now
        )
        runtime.metrics.register(GitCollector(self.repositories))

    def start(self) -> None:
        """Remove the copies of processes that no longer run."""
        self.repositories.start()

    def stop(self) -> None:
        """End what runs, and remove the copies."""
        self.repositories.stop()
