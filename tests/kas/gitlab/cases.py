"""kas' side of GitLab, joined with the fake in memory."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.config.gitlab import ApiRateLimit, GitLab
from kas.gitlab.client import GitLabClient
from tests.fakes.gitlab import FakeAgent, FakeGitLab

SECRET = bytes(range(32))
TOKEN = b"glagent-0123456789"
NOW = 1_700_000_000.0


class GitLabCase(SynchronousTestCase):
    """A `GitLabClient` of a `FakeGitLab` that knows one agent."""

    limit = ApiRateLimit()

    def setUp(self) -> None:
        self.clock = Clock()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.secret_file = Path(folder) / "secret"
        self.secret_file.write_text(base64.b64encode(SECRET).decode())
        self.secret_file.chmod(0o600)
        self.gitlab = FakeGitLab(SECRET, self.clock, lambda: NOW + self.clock.seconds())
        self.gitlab.agents[TOKEN.decode()] = FakeAgent(7, "prod", 42)
        self.traversal = RequestTraversalAgent(self.gitlab.app.resource())
        self.client = self.make_client()

    def make_client(self, address: str = "https://gitlab.example.com/") -> GitLabClient:
        settings = GitLab(
            address=address,
            authentication_secret_file=self.secret_file,
            api_rate_limit=self.limit,
        )
        return GitLabClient(
            settings,
            self.traversal,
            self.clock,
            lambda: NOW + self.clock.seconds(),
            jitter=lambda: 1.0,
        )

    def settle(self) -> None:
        """Let bytes move until nothing does."""
        for _ in range(5):
            self.traversal.flush()
            self.clock.advance(0)

    def wait(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.settle()

    def start(self, doing: Coroutine[Any, Any, Any]) -> Deferred[Any]:
        started = Deferred.fromCoroutine(doing)
        self.settle()
        return started

    def assert_obeyed(self) -> None:
        """kas did what GitLab expects."""
        self.assertEqual(self.gitlab.violations, [])
