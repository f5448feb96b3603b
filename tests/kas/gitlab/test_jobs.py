"""GitLab says which agents a CI job may use, and as whom."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from kas.gitlab.cache import Lifetimes
from kas.gitlab.jobs import MAX_TOKEN, GitLabJobs
from tests.fakes.gitlab import job_answer
from tests.kas.gitlab.cases import GitLabCase
from tunnel.api import Access, IAuthenticator, Impersonation
from tunnel.errors import CallError, Status

LIFETIMES = Lifetimes(success=60, error=10, outage=3600)
TOKEN = "glcbt-64_abc"

AS_JOB: dict[str, Any] = {"access_as": {"ci_job": {}}}
ENVIRONMENT = {"slug": "review-1", "tier": "development"}


class JobsCase(GitLabCase):
    lifetimes = LIFETIMES

    def setUp(self) -> None:
        super().setUp()
        self.in_use: set[str] = set()
        self.revoked: list[str] = []
        self.jobs = GitLabJobs(
            self.client, self.lifetimes, lambda: self.in_use, self.clock
        )
        self.jobs.renewal.on_revoked(self.revoked.append)
        self.jobs.renewal.start()
        self.addCleanup(self.jobs.renewal.stop)

    def allow(self, configuration: Any = None, **rest: Any) -> None:
        """Let the job use agent 7."""
        self.gitlab.jobs[TOKEN] = job_answer({7: configuration}, **rest)

    def ask(self, agent: str = "7", token: str = TOKEN) -> Any:
        """The access, or the error."""
        try:
            answer = self.jobs.authorize_user(agent, token)
        except CallError as error:
            return error
        if not isinstance(answer, Deferred):
            return answer
        self.settle()
        found: list[Any] = []
        answer.addBoth(found.append)
        return getattr(found[0], "value", found[0])

    def open(self, agent: str = "7") -> Access:
        """Something stays open."""
        access = self.ask(agent)
        assert isinstance(access, Access), access
        self.in_use.add(access.credential_id)
        return access


class IdentityTests(JobsCase):
    """As whom."""

    def test_as_the_agent(self) -> None:
        """What is not said, or said so: with the agent's own rights."""
        self.assertTrue(verifyObject(IAuthenticator, self.jobs))
        configurations: tuple[Any, ...] = (
            None,
            {},
            {"default_namespace": "a"},
            {"access_as": None},
            {"access_as": {}},
            {"access_as": {"agent": {}}},
        )
        for configuration in configurations:
            self.allow(configuration)
            access = self.ask()
            self.assertEqual((access.agent_id, access.impersonation), ("7", None))
            self.assertFalse(access.read_only)
            self.wait(60, 1)
        self.assert_obeyed()

    def test_as_the_job(self) -> None:
        """Name, groups in their order, and extras."""
        self.allow(AS_JOB)
        self.assertEqual(
            self.ask().impersonation,
            Impersonation(
                "gitlab:ci_job:501",
                (
                    "gitlab:ci_job",
                    "gitlab:group:9",
                    "gitlab:group:8",
                    "gitlab:project:5",
                ),
                extra={
                    "agent.gitlab.com/id": ("7",),
                    "agent.gitlab.com/config_project_id": ("42",),
                    "agent.gitlab.com/project_id": ("5",),
                    "agent.gitlab.com/ci_pipeline_id": ("301",),
                    "agent.gitlab.com/ci_job_id": ("501",),
                    "agent.gitlab.com/username": ("dev",),
                },
            ),
        )

    def test_whose_budget(self) -> None:
        """The jobs of a project share one, because there may be any number of jobs."""
        self.allow(AS_JOB)
        access = self.ask()
        self.assertEqual(access.owner, "ci_job:501")
        self.assertEqual(access.budget_owner, "ci_project:5")

    def test_in_an_environment(self) -> None:
        self.allow(AS_JOB, environment=ENVIRONMENT)
        impersonation = self.ask().impersonation
        self.assertEqual(
            impersonation.groups,
            (
                "gitlab:ci_job",
                "gitlab:group:9",
                "gitlab:group_env_tier:9:development",
                "gitlab:group:8",
                "gitlab:group_env_tier:8:development",
                "gitlab:project:5",
                "gitlab:project_env:5:review-1",
                "gitlab:project_env_tier:5:development",
            ),
        )
        self.assertEqual(
            dict(list(impersonation.extra.items())[-2:]),
            {
                "agent.gitlab.com/environment_slug": ("review-1",),
                "agent.gitlab.com/environment_tier": ("development",),
            },
        )

    def test_as_another(self) -> None:
        """Exactly as configured."""
        said = {
            "username": "deployer",
            "uid": "7-7",
            "groups": ["one", "two"],
            "extra": [
                {"key": "acme.org/a", "val": ["1", "2"]},
                {"key": "b", "val": []},
            ],
        }
        self.allow({"access_as": {"impersonate": said}})
        self.assertEqual(
            self.ask().impersonation,
            Impersonation(
                "deployer",
                ("one", "two"),
                "7-7",
                {"acme.org/a": ("1", "2"), "b": ()},
            ),
        )

    def test_not_understood(self) -> None:
        """Never more rights because of it, and no harm for other agents."""
        wrong: tuple[Any, ...] = (
            {"ci_user": {}},
            {"agent": {}, "ci_job": {}},
            {"impersonate": {}},
            {"impersonate": {"username": ""}},
            {"impersonate": {"username": "a\r\nImpersonate-User: b"}},
            {"impersonate": {"username": " a"}},
            {"impersonate": {"username": "a", "groups": "system:masters"}},
            {"impersonate": {"username": "a", "groups": [""]}},
            {"impersonate": {"username": "a", "extra": [{"val": ["x"]}]}},
        )
        for access_as in wrong:
            self.gitlab.jobs[TOKEN] = job_answer(
                {7: {"access_as": access_as}, 8: AS_JOB}
            )
            error = self.ask()
            self.assertEqual(error.status, Status.PERMISSION_DENIED, access_as)
            self.assertIn("kas", error.message)
            self.assertEqual(self.ask("8").agent_id, "8")
            self.wait(60, 1)

    def test_not_readable(self) -> None:
        """An answer that lacks something says nothing of the job."""
        whole = job_answer({7: AS_JOB}, environment=ENVIRONMENT)
        for name, wrong in (
            ("job", {}),
            ("job", {"id": 0}),
            ("job", {"id": True}),
            ("job", {"id": 2**63}),
            ("pipeline", None),
            ("project", {"id": -1}),
            ("project", {"id": 5, "groups": [{}]}),
            ("user", {"id": 7}),
            ("user", {"id": 7, "username": "a\nb"}),
            ("allowed_agents", {}),
            ("allowed_agents", [{"id": 7}]),
            ("environment", {"slug": ""}),
        ):
            self.gitlab.jobs[TOKEN] = {**whole, name: wrong}
            self.assertEqual(self.ask().status, Status.INTERNAL, (name, wrong))
        self.gitlab.jobs[TOKEN] = whole
        self.assertIsInstance(self.ask(), Access)


class AnswerTests(JobsCase):
    """Who is refused, and how long a word counts."""

    def test_one_question(self) -> None:
        """... for all agents, and for the lifetime of the answer."""
        self.gitlab.jobs[TOKEN] = job_answer({7: None, 8: AS_JOB})
        self.assertEqual(self.ask().agent_id, "7")
        access = self.jobs.authorize_user("7", TOKEN)
        self.assertIs(access, self.jobs.authorize_user("7", TOKEN))
        self.assertEqual(self.ask("8").agent_id, "8")
        self.wait(59, 1)
        self.ask()
        self.assertEqual(self.gitlab.asked[TOKEN], 1)
        self.wait(1, 1)
        self.ask()
        self.assertEqual(self.gitlab.asked[TOKEN], 2)
        self.assertNotIn(TOKEN, repr(access))
        self.assert_obeyed()

    def test_foreign_agent(self) -> None:
        """GitLab's list decides."""
        self.allow()
        for agent in ("8", "70", str(2**63 - 1)):
            error = self.ask(agent)
            self.assertEqual(error.status, Status.PERMISSION_DENIED)
            self.assertEqual(error.message, "Forbidden: agentId is not allowed")

    def test_no_agent(self) -> None:
        """What is no id is not asked about."""
        for agent in (
            "0",
            "-7",
            "07",
            "7.0",
            "prod",
            "",
            "\u0667",
            "\u00b2",
            str(2**63),
            "1" * 100,
        ):
            self.assertEqual(self.ask(agent).status, Status.UNAUTHENTICATED, agent)
        self.assertEqual(self.gitlab.times, [])

    def test_no_token(self) -> None:
        """Neither is what is no token."""
        for token in ("", "a b", "a\r\nb: c", "\u00fc", "x" * (MAX_TOKEN + 1)):
            self.assertEqual(self.ask(token=token).status, Status.UNAUTHENTICATED)
        self.assertEqual(self.gitlab.times, [])

    def test_refused(self) -> None:
        """401, 403 and 404 are kept for their time, nothing else is."""
        for mood, status in (
            ("401", Status.UNAUTHENTICATED),
            ("403", Status.PERMISSION_DENIED),
            ("404", Status.NOT_FOUND),
        ):
            token = f"glcbt-{mood}"
            self.gitlab.mood = mood
            for _ in range(2):
                self.assertEqual(self.ask(token=token).status, status)
            self.assertEqual(self.gitlab.asked[token], 1)
            self.wait(10, 1)
            self.ask(token=token)
            self.assertEqual(self.gitlab.asked[token], 2)

    def test_away(self) -> None:
        """What GitLab does not say is no refusal."""
        for mood in ("html", "login", "moved", "partial", "501"):
            self.gitlab.mood = mood
            self.assertEqual(self.ask().status, Status.INTERNAL, mood)
        self.gitlab.mood = "ok"
        self.allow()
        self.assertIsInstance(self.ask(), Access)

    def test_outage(self) -> None:
        """A job that runs goes on, up to the bound."""
        self.allow(AS_JOB)
        self.open()
        self.gitlab.mood = "html"
        self.wait(3500, 10)
        self.assertIsInstance(self.ask(), Access)
        self.assertEqual(self.revoked, [])
        self.wait(200, 10)
        self.assertEqual(self.ask().status, Status.INTERNAL)


class RevokedTests(JobsCase):
    """What is open ends with the right to it."""

    def test_ended(self) -> None:
        """Within the lifetime of the answer."""
        self.allow()
        access = self.open()
        self.wait(30, 1)
        self.ask()
        del self.gitlab.jobs[TOKEN]
        self.wait(30, 1)
        self.assertEqual(self.revoked, [access.credential_id])
        self.assertEqual(self.ask().status, Status.UNAUTHENTICATED)

    def test_one_agent_less(self) -> None:
        """The others stay."""
        self.gitlab.jobs[TOKEN] = job_answer({7: None, 8: None})
        access = self.open("7")
        self.open("8")
        self.gitlab.jobs[TOKEN] = job_answer({8: None})
        self.wait(60, 1)
        self.assertEqual(self.revoked, [access.credential_id])

    def test_as_another(self) -> None:
        """Rights that changed are other rights."""
        self.allow(AS_JOB)
        access = self.open()
        self.allow(AS_JOB, environment=ENVIRONMENT)
        self.wait(60, 1)
        self.assertEqual(self.revoked, [access.credential_id])

    def test_learned_elsewhere(self) -> None:
        """A later question that was answered ends what an earlier answer opened."""
        self.allow(AS_JOB)
        access = self.open()
        self.jobs.renewal.stop()
        self.wait(61, 1)
        self.jobs.renewal.start()
        self.allow()
        self.assertIsNone(self.ask().impersonation)
        self.in_use = {access.credential_id}
        self.wait(60, 1)
        self.assertEqual(self.revoked, [access.credential_id])

    def test_long_after(self) -> None:
        """A request that begins later is watched over as the first."""
        self.allow()
        access = self.ask()
        self.wait(10, 1)
        self.in_use.add(access.credential_id)
        self.assertIs(self.ask(), access)
        del self.gitlab.jobs[TOKEN]
        self.wait(60, 1)
        self.assertEqual(self.revoked, [access.credential_id])

    def test_not_in_use(self) -> None:
        """A job that has nothing open costs nothing."""
        self.allow()
        self.ask()
        self.wait(600, 5)
        self.assertEqual(self.gitlab.asked[TOKEN], 1)


class NotKeptTests(JobsCase):
    lifetimes = Lifetimes(success=0, error=0, outage=0)

    def test_not_kept(self) -> None:
        """Each request is asked for, and what is open once a minute."""
        self.allow()
        access = self.open()
        self.ask()
        self.assertEqual(self.gitlab.asked[TOKEN], 2)
        self.wait(120, 1)
        self.assertEqual(self.gitlab.asked[TOKEN], 4)
        del self.gitlab.jobs[TOKEN]
        self.wait(60, 1)
        self.assertEqual(self.revoked, [access.credential_id])
