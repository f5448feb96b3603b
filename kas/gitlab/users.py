"""
Authenticators of GitLab's users, by personal access token (``pat:<agent id>:<token>``)
or by the session of their browser.

GitLab determines whether a user may use an agent, and which user in the cluster this
is, from ``user_access`` in the agent's configuration: from the projects and groups
there, and the user's roles in them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from kas.gitlab.cache import Lifetimes, Refusals
from kas.gitlab.client import GitLabClient
from kas.gitlab.credentials import EXTRA, ONE_ANSWER, GitLabCredentials, key_of
from kas.gitlab.json_object import JsonObject
from kas.gitlab.usage import used_via
from tunnel.api import (
    SESSION_COOKIE,
    Access,
    IAuthenticator,
    Impersonation,
)
from tunnel.errors import CallError, Status

__all__ = ["PERSONAL_ACCESS_TOKENS", "SESSIONS", "CredentialKind", "GitLabUsers"]

#: Maximum characters of a token, or of a cookie with its CSRF token: browsers do not
#: keep cookies of more than 4096 bytes.
MAX_TOKEN = 8 * 1024

#: Statuses that become 401, so that no client learns which agents exist. kas treats
#: GitLab's status 400 as UNAUTHENTICATED, because it means that GitLab found no user.
_REFUSED = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.NOT_FOUND)


@attrs.frozen
class CredentialKind:
    """
    Kind of a user's credential for GitLab.

    :ivar kind: the name of the kind in `IAuthenticator.user_kinds`.
    :ivar access_type: the name of the kind in GitLab's API.
    :ivar counted_as: the name of the kind in usage reports.
    :ivar form: the form of the credential in a request to GitLab: its access key and
        CSRF token.
    """

    kind: str
    access_type: str
    counted_as: str
    form: re.Pattern[str]
    refused: str


PERSONAL_ACCESS_TOKENS = CredentialKind(
    "pat",
    "personal_access_token",
    "pat",
    re.compile(r"(?P<csrf>)(?P<key>[!-~]+)"),
    "GitLab does not permit this personal access token to use the agent: it needs "
    "the scope k8s_proxy, and the agent's configuration needs user_access for its "
    "user",
)

SESSIONS = CredentialKind(
    SESSION_COOKIE,
    "session_cookie",
    "user",
    re.compile(r"(?P<csrf>[!-~]+) (?P<key>[!-~]+)"),
    "GitLab does not permit this session to use the agent",
)


@attrs.frozen
class _Asked:
    agent_id: str
    token: str = attrs.field(repr=False)


@attrs.frozen
class _Answer:
    opens: Access
    weight: int

    def access(self, agent_id: str) -> Access:
        """
        Return the access; *agent_id* is ignored, because the response is about one
        agent.
        """
        return self.opens

    def problem(self, agent_id: str) -> str:
        """Return an empty text, because a response always grants access."""
        return ""


@implementer(IAuthenticator)
class GitLabUsers(GitLabCredentials[_Asked, _Answer]):
    """
    Authenticator that asks GitLab for a user's access to an agent
    (``authorize_proxy_user``).

    :param credential: the kind of credential that this authenticator checks.
    """

    def __init__(
        self,
        credential: CredentialKind,
        client: GitLabClient,
        lifetimes: Lifetimes,
        in_use: Callable[[], Collection[str]],
        clock: IReactorTime,
        refusals: Refusals | None = None,
    ) -> None:
        super().__init__(client, lifetimes, in_use, clock, refusals)
        self.user_kinds = (credential.kind,)
        self._credential = credential

    def subject(self, agent: str, token: str) -> tuple[bytes, _Asked]:
        """
        Return the key and the subject of a request; a response is about a single agent.
        """
        asked = _Asked(agent, token)
        return _key(asked), asked

    async def ask(self, asked: _Asked) -> _Answer:
        """See `GitLabCredentials.ask`."""
        credential = self._credential
        form = credential.form.fullmatch(asked.token)
        if form is None or len(asked.token) > MAX_TOKEN:
            raise CallError(Status.UNAUTHENTICATED, credential.refused)
        body = {
            "agent_id": int(asked.agent_id),
            "access_type": credential.access_type,
            "access_key": form["key"],
        }
        if form["csrf"]:
            body["csrf_token"] = form["csrf"]
        try:
            said = await self._client.post("authorize_proxy_user", body, explained=True)
        except CallError as error:
            if error.status not in _REFUSED:
                raise
            text = f"{credential.refused} ({error.message})"
            raise CallError(Status.UNAUTHENTICATED, text) from None
        return _read(said, asked, credential)


def _key(asked: _Asked) -> bytes:
    return key_of(f"{asked.agent_id} {asked.token}")


def _read(raw: dict[str, Any], asked: _Asked, credential: CredentialKind) -> _Answer:
    """
    Parse and check a response.

    :raises CallError: UNAVAILABLE if the response is malformed; PERMISSION_DENIED if
        kas does not support the response.
    """
    said = JsonObject(raw, "authorize_proxy_user")
    agent = said.object("agent")
    agent_id = agent.id("id")
    config_project_id = agent.object("config_project").id("id")
    user = said.object("user")
    user_id = user.id("id")
    username = user.text("username")
    access_as = said.optional("access_as")
    names = () if access_as is None else access_as.names
    impersonation = None
    if str(agent_id) != asked.agent_id:
        text = "cannot use GitLab: its response is about another agent"
        raise CallError(Status.UNAVAILABLE, text)
    if access_as is not None and names == ("user",):
        extra = {
            "id": asked.agent_id,
            "username": username,
            "access_type": credential.access_type,
            "config_project_id": str(config_project_id),
        }
        impersonation = Impersonation(
            username=f"gitlab:user:{username}",
            groups=("gitlab:user", *_roles(access_as.object("user"))),
            extra={EXTRA + name: (value,) for name, value in extra.items()},
        )
    elif names not in ((), ("agent",)):
        # Refuse an unknown kind: treating it as the default would grant the agent's
        # permissions.
        text = "kas does not support access_as in the agent's configuration"
        raise CallError(Status.PERMISSION_DENIED, text)
    token_id = _key(asked).hex()[:8]
    access = Access(
        credential_id=f"gitlab_user:{username}:{asked.agent_id}:{token_id}",
        agent_id=asked.agent_id,
        agent_name=asked.agent_id,
        impersonation=impersonation,
        usage=used_via(credential.counted_as, user_id, agent_id),
        owner=f"gitlab_user:{username}",
    )
    return _Answer(access, 1 + len(str(raw)) // ONE_ANSWER)


def _roles(user: JsonObject) -> list[str]:
    groups = []
    for where in ("project", "group"):
        for id_, roles in user.objects(
            f"{where}s", lambda one: (one.id("id"), one.texts("roles"))
        ):
            groups += [f"gitlab:{where}_role:{id_}:{role}" for role in roles]
    return groups
