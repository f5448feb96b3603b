"""What GitLab is told of agents that register."""

from __future__ import annotations

from typing import Any
from unittest import mock

import attrs

from kas.gitlab import registrations as module
from kas.gitlab.client import Unprocessable
from kas.gitlab.registrations import MAX_SENT, Registrations
from tests.kas.gitlab.cases import GitLabCase
from tunnel.api import (
    AgentConnected,
    ConnectedAgent,
    KubernetesVersion,
)
from tunnel.errors import Status

PERIOD = 60.0

AGENT = ConnectedAgent(
    agent_id="7",
    agent_name="prod",
    instance_id=b"i",
    generation=1,
    connected_at=0.0,
    version="1.2.3",
    kubernetes_version=KubernetesVersion(git_version="v1.33.1"),
    project_id=42,
    architecture="arm64",
    telemetry=(("installation_method", "helm"), ("helm_chart_version", "2.0")),
)


class RegistrationsTests(GitLabCase):
    def setUp(self) -> None:
        super().setUp()
        self.registrations = Registrations(self.client.post, PERIOD, self.clock)
        self.registrations.start()
        self.addCleanup(self.registrations.stop)

    def test_one_that_is_refused(self) -> None:
        """It is dropped, and holds no other back."""
        posted: list[int] = []

        async def post(path: str, body: Any) -> None:
            numbers = [one["agent_id"] for one in body["events"][module.NAME]]
            posted.append(len(numbers))
            if 13 in numbers:
                raise Unprocessable(Status.UNAVAILABLE, "GitLab responded with 422")
            told.extend(numbers)

        told: list[int] = []
        self.registrations.stop()
        self.registrations = Registrations(post, PERIOD, self.clock)
        self.registrations.start()
        for number in range(40):
            self.registrations.connected(
                AgentConnected(attrs.evolve(AGENT, agent_id=str(number)))
            )
        self.wait(PERIOD, 1)
        self.assertEqual(told, [one for one in range(40) if one != 13])
        self.assertLess(len(posted), 20)

    def test_all_that_are_refused(self) -> None:
        """So many requests, and no more, until the next report."""
        posted: list[int] = []

        async def post(path: str, body: Any) -> None:
            posted.append(len(body["events"][module.NAME]))
            raise Unprocessable(Status.UNAVAILABLE, "GitLab responded with 400")

        self.registrations.stop()
        self.registrations = Registrations(post, PERIOD, self.clock)
        self.registrations.start()
        for number in range(40):
            self.registrations.connected(
                AgentConnected(attrs.evolve(AGENT, agent_id=str(number)))
            )
        self.wait(PERIOD, 1)
        self.assertEqual(len(posted), module.MAX_DROPPED + 6)

    def test_told(self) -> None:
        """As GitLab wants it, once for a process of an agent in a period."""
        self.registrations.connected(AgentConnected(AGENT))
        self.registrations.connected(AgentConnected(attrs.evolve(AGENT, generation=2)))
        self.registrations.connected(
            AgentConnected(
                attrs.evolve(AGENT, instance_id=b"j", architecture="", telemetry=())
            )
        )
        # Of the identity file: GitLab does not know it.
        self.registrations.connected(
            AgentConnected(attrs.evolve(AGENT, agent_id="8", project_id=0))
        )
        self.wait(PERIOD, 1)
        first = {
            "project_id": 42,
            "agent_id": 7,
            "agent_version": "1.2.3",
            "architecture": "arm64",
            "kubernetes_version": "v1.33.1",
            "extra_telemetry_data": {
                "installation_method": "helm",
                "helm_chart_version": "2.0",
            },
        }
        second = {**first, "architecture": "", "extra_telemetry_data": {}}
        self.assertEqual(self.gitlab.registered, [first, second])
        self.wait(PERIOD, 1)
        self.assertEqual(len(self.gitlab.registered), 2)
        self.assert_obeyed()

    def test_away(self) -> None:
        """It is told later, and that it was not is said once."""
        self.gitlab.mood = "down"
        self.registrations.connected(AgentConnected(AGENT))
        self.wait(3 * PERIOD, 1)
        self.gitlab.mood = "ok"
        self.wait(2 * PERIOD, 1)
        self.assertEqual(len(self.gitlab.registered), 1)

    def test_old_gitlab(self) -> None:
        """One without the path is not told, and nothing is kept for it."""
        self.gitlab.mood = "404"
        self.registrations.connected(AgentConnected(AGENT))
        self.wait(PERIOD, 1)
        self.gitlab.mood = "ok"
        self.wait(2 * PERIOD, 1)
        self.assertEqual(self.gitlab.registered, [])

    def test_many(self) -> None:
        """So many in one request, and so many in all."""
        with mock.patch.object(module, "MAX_EVENTS", 2 * MAX_SENT + 1):
            for number in range(1, 3 * MAX_SENT):
                agent = attrs.evolve(AGENT, agent_id=str(number))
                self.registrations.connected(AgentConnected(agent))
        self.wait(PERIOD, 1)
        self.assertEqual(len(self.gitlab.registered), 2 * MAX_SENT + 1)
        self.assertEqual(sum(self.gitlab.paths.values()), 3)
        self.assert_obeyed()
