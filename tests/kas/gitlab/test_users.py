"""GitLab says what a person may do at an agent."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from kas.gitlab.cache import Lifetimes
from kas.gitlab.users import (
    MAX_TOKEN,
    PERSONAL_ACCESS_TOKENS,
    SESSIONS,
    CredentialKind,
    GitLabUsers,
)
from tests.fakes.gitlab import user_answer
from tests.kas.gitlab.cases import GitLabCase
from tunnel.api import Access, IAuthenticator, Impersonation
from tunnel.errors import CallError, Status

LIFETIMES = Lifetimes(success=60, error=10, outage=3600)
PAT = "glpat-abc"
COOKIE = "session+id/with=more"
AS_USER: dict[str, Any] = {
    "user": {
        "projects": [{"id": 5, "roles": ["reporter", "developer"]}],
        "groups": [{"id": 9, "roles": ["maintainer"]}, {"id": 8, "roles": []}],
    }
}


class UsersCase(GitLabCase):
    kind = PERSONAL_ACCESS_TOKENS
    secret = PAT

    def setUp(self) -> None:
        super().setUp()
        self.in_use: set[str] = set()
        self.revoked: list[str] = []
        self.users = self.make(self.kind)

    def make(self, kind: CredentialKind) -> GitLabUsers:
        users = GitLabUsers(
            kind, self.client, LIFETIMES, lambda: self.in_use, self.clock
        )
        users.renewal.on_revoked(self.revoked.append)
        users.renewal.start()
        self.addCleanup(users.renewal.stop)
        return users

    def allow(self, access_as: Any = None) -> None:
        """Let alice use agent 7."""
        self.gitlab.users[PAT] = self.gitlab.users[COOKIE] = user_answer(7, access_as)

    def ask(self, agent: str = "7", secret: str = "") -> Any:
        """The access, or the error."""
        try:
            answer = self.users.authorize_user(agent, secret or self.secret)
        except CallError as error:
            return error
        if not isinstance(answer, Deferred):
            return answer
        self.settle()
        found: list[Any] = []
        answer.addBoth(found.append)
        return getattr(found[0], "value", found[0])


class TokenTests(UsersCase):
    """Personal access tokens."""

    def test_as_the_user(self) -> None:
        self.assertTrue(verifyObject(IAuthenticator, self.users))
        self.allow(AS_USER)
        access = self.ask()
        self.assertEqual(
            access.impersonation,
            Impersonation(
                "gitlab:user:alice",
                (
                    "gitlab:user",
                    "gitlab:project_role:5:reporter",
                    "gitlab:project_role:5:developer",
                    "gitlab:group_role:9:maintainer",
                ),
                extra={
                    "agent.gitlab.com/id": ("7",),
                    "agent.gitlab.com/username": ("alice",),
                    "agent.gitlab.com/access_type": ("personal_access_token",),
                    "agent.gitlab.com/config_project_id": ("42",),
                },
            ),
        )
        self.assertIn("alice", access.who)
        self.assertNotIn(PAT, repr(access))
        self.assert_obeyed()

    def test_as_the_agent(self) -> None:
        said: tuple[Any, ...] = (None, {}, {"agent": {}})
        for access_as in said:
            self.allow(access_as)
            self.assertIsNone(self.ask().impersonation)
            self.wait(60, 1)

    def test_not_understood(self) -> None:
        """Never more rights because of it."""
        wrong: tuple[Any, ...] = (
            {"admin": {}},
            {"agent": {}, "user": {}},
        )
        for access_as in wrong:
            self.allow(access_as)
            self.assertEqual(self.ask().status, Status.PERMISSION_DENIED)
            self.wait(10, 1)
        unreadable: tuple[Any, ...] = (
            {"user": {"projects": [{"id": 0, "roles": ["x"]}]}},
            {"user": {"projects": [{"id": 1, "roles": ["a\r\nb: c"]}]}},
            {"user": {"groups": [{"id": 1, "roles": "owner"}]}},
            "agent",
        )
        for access_as in unreadable:
            self.allow(access_as)
            self.assertEqual(self.ask().status, Status.INTERNAL, access_as)

    def test_another_agent(self) -> None:
        """An answer that is not about what was asked is none."""
        self.allow()
        error = self.ask("8")
        self.assertEqual(error.status, Status.UNAUTHENTICATED)
        self.gitlab.users[PAT]["agent"]["config_project"]["id"] = 0
        self.assertEqual(self.ask().status, Status.INTERNAL)

    def test_refused(self) -> None:
        """Whatever GitLab refuses is 401: no client learns which agents there are."""
        for mood in ("400", "401", "403", "404"):
            self.gitlab.mood = mood
            secret = f"glpat-{mood}"
            for _ in range(2):
                error = self.ask(secret=secret)
                self.assertEqual(error.status, Status.UNAUTHENTICATED)
                self.assertIn(f"GitLab responded with {mood}", error.message)
                self.assertNotIn(secret, error.message)
            self.assertEqual(self.gitlab.asked[secret], 1)
            self.wait(10, 1)
            self.ask(secret=secret)
            self.assertEqual(self.gitlab.asked[secret], 2)

    def test_not_asked(self) -> None:
        """What can be no credential."""
        for secret in ("a b", "a\r\nb", "\u00fc", "x" * (MAX_TOKEN + 1)):
            self.assertEqual(self.ask(secret=secret).status, Status.UNAUTHENTICATED)
        for agent in ("0", "-1", "prod", str(2**63)):
            self.assertEqual(self.ask(agent).status, Status.UNAUTHENTICATED)
        self.assertEqual(self.gitlab.times, [])

    def test_each_agent_is_asked_about(self) -> None:
        self.allow()
        first = self.ask()
        self.assertIs(self.ask(), first)
        self.assertEqual(self.gitlab.asked[PAT], 1)
        self.ask("8")
        self.assertEqual(self.gitlab.asked[PAT], 2)

    def test_revoked(self) -> None:
        """A token that is gone (400), or means another user, ends what it opened."""
        for revoke in (
            lambda: self.gitlab.users.pop(PAT),
            lambda: self.allow(AS_USER),
        ):
            self.allow()
            access = self.ask()
            self.in_use.add(access.credential_id)
            revoke()
            self.wait(60, 1)
            self.assertEqual(self.revoked, [access.credential_id])
            self.revoked.clear()
            self.in_use.clear()
            self.wait(60, 1)

    def test_outage(self) -> None:
        """Up to the bound."""
        self.allow()
        self.in_use.add(self.ask().credential_id)
        self.gitlab.mood = "html"
        self.wait(3500, 10)
        self.assertIsInstance(self.ask(), Access)
        self.wait(200, 10)
        self.assertEqual(self.ask().status, Status.INTERNAL)
        self.assertEqual(self.revoked, [])


class SessionTests(UsersCase):
    """Cookies of browsers."""

    kind = SESSIONS
    secret = f"csrf-of-{COOKIE} {COOKIE}"

    def test_accepted(self) -> None:
        self.allow(AS_USER)
        extra = self.ask().impersonation.extra
        self.assertEqual(extra["agent.gitlab.com/access_type"], ("session_cookie",))
        self.assert_obeyed()

    def test_csrf(self) -> None:
        """Without the one that belongs to the session there is no access."""
        self.allow()
        error = self.ask(secret=f"csrf-of-another {COOKIE}")
        self.assertEqual(error.status, Status.UNAUTHENTICATED)
        self.assertIn("CSRF token does not match", error.message)
        asked = len(self.gitlab.times)
        for secret in (COOKIE, f" {COOKIE}", f"a b {COOKIE}", f"csrf-of-{COOKIE} "):
            self.assertEqual(self.ask(secret=secret).status, Status.UNAUTHENTICATED)
        self.assertEqual(len(self.gitlab.times), asked)
        self.assertIsInstance(self.ask(), Access)
        self.assert_obeyed()
