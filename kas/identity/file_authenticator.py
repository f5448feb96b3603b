"""
The authenticator for a kas without GitLab: which agents and users are in a file.

It follows the identity file in the state directory, which `kasctl` changes.  A
credential that is revoked ends what it opened: what holds tunnels or requests open
subscribes to `FileAuthenticator.on_revoked`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from kas.identity.file import ALL_AGENTS, Agent, Identities, User, parse
from kas.identity.store import (
    AGENT_PREFIX,
    USER_PREFIX,
    bare_token,
    split_token,
)
from kas.state.directory import MAX_FILE
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.interfaces import Access, AgentIdentity, IAuthenticator
from tunnel.util.files import WatchedFile, file_version
from tunnel.util.for_each import for_each

__all__ = ["POLL_INTERVAL", "FileAuthenticator"]

#: Seconds between two looks at the file: revoking has to work within two.
POLL_INTERVAL = 1.0

#: Answers that are kept for one user: where another authenticator knows the agents, a
#: client may name as many numbers as it likes.
MAX_KNOWN_ANSWERS = 1_000

_AGENT_ID = re.compile("[1-9][0-9]{0,18}")

_AGENT_REFUSED = (
    "the agent token is not valid: kas does not know it, or it was revoked; "
    "make a new one with 'kasctl agent add' or 'kasctl agent rotate'"
)
_USER_REFUSED = (
    "the token is not valid: kas does not know it, or it was revoked; "
    "ask for a new one ('kasctl kubeconfig --rotate')"
)


@attrs.frozen
class _AgentToken:
    digest: bytes = attrs.field(repr=False)
    identity: AgentIdentity
    expires_at: float


@attrs.frozen
class _UserToken:
    digest: bytes = attrs.field(repr=False)
    user: User
    #: None: all of them.
    agents: frozenset[str] | None
    expires_at: float
    #: What was answered before, by the agent that was named: every request needs it.
    #: Gone with the index, so never older than the file.
    answers: dict[str, Access] = attrs.field(factory=dict, repr=False, eq=False)

    @property
    def credential_id(self) -> str:
        return f"user:{self.user.name}"


@attrs.frozen
class _UserMeaning:
    """What a user's credential is good for."""

    #: None: all of them.
    agents: frozenset[str] | None
    rest: object

    def still(self, later: object) -> bool:
        """Whether that is still so later; more agents end nothing that is open."""
        if not isinstance(later, _UserMeaning) or self.rest != later.rest:
            return False
        if later.agents is None or self.agents is None:
            return later.agents is None
        return self.agents <= later.agents


@attrs.frozen(eq=False)
class _Index:
    """
    The file's content by what is asked for; only what is not revoked.

    Tokens are found by the SHA-256 of the whole: how long that takes tells a client
    nothing of those that it does not know.
    """

    agent_tokens: Mapping[bytes, _AgentToken]
    user_tokens: Mapping[bytes, _UserToken]
    #: By name and by id, which never meet: no name is a number.
    agents: Mapping[str, Agent]

    @classmethod
    def of(cls, identities: Identities) -> _Index:
        agents: dict[str, Agent] = {}
        agent_tokens: dict[bytes, _AgentToken] = {}
        user_tokens: dict[bytes, _UserToken] = {}
        for agent in identities.agents:
            if agent.revoked_at is not None:
                continue
            agents[agent.id] = agents[agent.name] = agent
            for token in agent.tokens:
                credential_id = f"agent:{agent.id}:{token.id}"
                key = bytes.fromhex(token.sha256)
                agent_tokens[key] = _AgentToken(
                    key,
                    AgentIdentity(
                        agent.id, agent.name, credential_id, agent.project_id
                    ),
                    _timestamp(token.expires_at),
                )
        for user in identities.users:
            if user.revoked_at is None:
                key = bytes.fromhex(user.token.sha256)
                user_tokens[key] = _UserToken(
                    key,
                    user,
                    None if ALL_AGENTS in user.agents else frozenset(user.agents),
                    _timestamp(user.token.expires_at),
                )
        return cls(agent_tokens, user_tokens, agents)

    def live(self, now: float) -> dict[str, object]:
        """Credential -> what it is good for, as something to compare."""
        live: dict[str, object] = {
            entry.identity.credential_id: (entry.digest, entry.identity)
            for entry in self.agent_tokens.values()
            if now < entry.expires_at
        }
        for user in self.user_tokens.values():
            if now < user.expires_at:
                who = user.user
                live[user.credential_id] = _UserMeaning(
                    user.agents, (user.digest, who.impersonation, who.read_only)
                )
        return live

    def next_expiry(self, now: float) -> float:
        """When the next credential ends by itself."""
        times = [entry.expires_at for entry in self.agent_tokens.values()]
        times += [entry.expires_at for entry in self.user_tokens.values()]
        return min((time for time in times if time > now), default=float("inf"))


def _timestamp(time: datetime | None) -> float:
    return float("inf") if time is None else time.astimezone(UTC).timestamp()


_NOT_AN_AGENTS = (
    "this is the token of a user, and agentk needs the one of its agent: 'kasctl agent "
    "add NAME' makes it, 'kasctl agent rotate NAME' a new one"
)
_NOT_A_USERS = (
    "this is the token of an agent, and kubectl needs the one of a user: 'kasctl "
    "kubeconfig --agent NAME --user USER' makes it"
)


def _refused(message: str) -> CallError:
    return CallError(Status.UNAUTHENTICATED, message)


def _kind(token: bytes) -> str:
    """What a token begins with, which says what it was made for."""
    parts = split_token(token)
    return "" if parts is None else parts[0]


# Only a client with the right token learns that it expired.


def _expired_agent(entry: _AgentToken) -> str:
    name = entry.identity.agent_name
    return (
        f"this token of the agent {name} expired at {_shown(entry.expires_at)}; use "
        f"the one that replaced it, or make one with 'kasctl agent rotate {name}'"
    )


def _expired_user(entry: _UserToken) -> str:
    name = entry.user.name
    return (
        f"the token of {name} expired at {_shown(entry.expires_at)}; an administrator "
        f"of kas makes a new one: 'kasctl kubeconfig --user {name} --rotate ...'"
    )


def _shown(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


@implementer(IAuthenticator)
class FileAuthenticator:
    """
    Checks tokens against the identity file, and follows the file.

    It has every answer at once.

    :param clock: paces the looks at the file.
    :param now: the time of day in seconds since 1970, for expiry.
    :param elsewhere: another authenticator says which agents there are.  Those of the
        file do not count then, since their ids are numbers as well; its users may name
        any agent by its id, where they have access to all.
    """

    user_kinds = ("user",)

    _log = Logger()

    def __init__(
        self,
        path: Path,
        clock: IReactorTime,
        now: Callable[[], float],
        *,
        elsewhere: bool = False,
    ) -> None:
        self.path = path
        self._elsewhere = elsewhere
        self.agent_prefixes = () if elsewhere else (f"{AGENT_PREFIX}-".encode(),)
        self._now = now
        self._index = _Index.of(Identities())
        self._live: dict[str, object] = {}
        self._next_expiry = float("inf")
        self._file: WatchedFile[_Index] | None = None
        self._callbacks: list[Callable[[str], object]] = []
        self._loop = LoopingCall(self._poll)
        self._loop.clock = clock

    def start(self) -> None:
        """
        Read the file, which need not be there yet, and follow it.

        :raises ConfigurationError: the file is there and cannot be used.
        """
        self._file = WatchedFile(
            partial(file_version, self.path),
            self._read,
            self._refused,
            unusable=(ConfigurationError, FileNotFoundError),
            # `_poll` has the interval.
            seconds=self._now,
            interval=0.0,
            changed=self._changed,
        )
        self._index = self._file.content
        self._end_changed()
        running: Deferred[LoopingCall] = self._loop.start(POLL_INTERVAL, now=False)
        running.addErrback(
            lambda failure: self._log.failure("while watching {path}", failure)
        )

    def stop(self) -> None:
        """Follow the file no longer."""
        if self._loop.running:
            self._loop.stop()

    def on_revoked(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """
        Call *callback* with the id of every credential that ended or changed.

        Call the result to end that.
        """
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def authenticate_agent(self, token: bytes) -> AgentIdentity:
        """
        Which agent a token belongs to.

        :raises CallError: UNAUTHENTICATED, with a message for the operator of agentk.
        """
        key = sha256(token).digest()
        entry = self._index.agent_tokens.get(key)
        if entry is None and _kind(token) == AGENT_PREFIX and self._read_again():
            entry = self._index.agent_tokens.get(key)
        if entry is None:
            # People copy it from a kubeconfig, too.
            users = _kind(bare_token(token)) == USER_PREFIX
            raise _refused(_NOT_AN_AGENTS if users else _AGENT_REFUSED)
        if self._now() >= entry.expires_at:
            raise _refused(_expired_agent(entry))
        return entry.identity

    def authorize_user(self, agent: str, token: str) -> Access:
        """
        What *token* may do at *agent* (a name or an id).

        :raises CallError: UNAUTHENTICATED or PERMISSION_DENIED, with a message that may
            be shown to the client.
        """
        sent = token.encode("utf-8", "surrogateescape")
        key = sha256(sent).digest()
        entry = self._index.user_tokens.get(key)
        if entry is None and _kind(sent) == USER_PREFIX and self._read_again():
            entry = self._index.user_tokens.get(key)
        if entry is None:
            agents = _kind(sent) == AGENT_PREFIX
            raise _refused(_NOT_A_USERS if agents else _USER_REFUSED)
        if self._now() >= entry.expires_at:
            raise _refused(_expired_user(entry))
        known = entry.answers.get(agent)
        if known is not None:
            return known
        found = self._found(entry, agent)
        # the same answer for both: a client cannot find out which agents there are
        if found is None:
            message = f"{entry.user.name} has no access to an agent {agent[:63]!r}"
            raise CallError(Status.PERMISSION_DENIED, message)
        agent_id, agent_name = found
        if len(entry.answers) >= MAX_KNOWN_ANSWERS:
            entry.answers.clear()
        access = entry.answers[agent] = Access(
            credential_id=entry.credential_id,
            agent_id=agent_id,
            agent_name=agent_name,
            impersonation=entry.user.impersonation,
            read_only=entry.user.read_only,
        )
        return access

    def _found(self, entry: _UserToken, agent: str) -> tuple[str, str] | None:
        """Id and name of an agent that the user has access to."""
        if self._elsewhere and entry.agents is not None:
            return None
        found = self.find_agent(agent)
        if found is None or entry.agents is None:
            return found
        return found if found[1] in entry.agents else None

    def find_agent(self, agent: str) -> tuple[str, str] | None:
        """Id and name of the agent that has *agent* as one of both."""
        if self._elsewhere:
            return (agent, agent) if _AGENT_ID.fullmatch(agent) is not None else None
        found = self._index.agents.get(agent)
        return None if found is None else (found.id, found.name)

    def _read(self) -> _Index:
        try:
            with self.path.open("rb") as source:
                data = source.read(MAX_FILE + 1)
        except FileNotFoundError:
            if self._file is None:
                return _Index.of(Identities())  # no agent yet: kasctl makes the file
            raise
        except OSError as error:
            message = f"{self.path}: cannot be read ({error.strerror})"
            raise ConfigurationError([message]) from None
        if len(data) > MAX_FILE:
            raise ConfigurationError([f"{self.path}: larger than {MAX_FILE} bytes"])
        return _Index.of(parse(data, str(self.path)))

    def _refused(self, error: Exception) -> None:
        # The last good one stays: a slip must not cut off every cluster.
        self._log.error(
            "the identity file cannot be used, what it said before stays in "
            "force: {problem}",
            problem=str(error),
        )

    def _changed(self) -> None:
        assert self._file is not None
        self._index = self._file.content
        self._log.info("identity file read again")
        self._end_changed()

    def may_connect(self, agent_id: str) -> bool:
        """The agent is not revoked."""
        return self._elsewhere or agent_id in self._index.agents

    def agent(self, agent_id: str) -> Agent | None:
        """One that is not revoked, by its id."""
        found = self._index.agents.get(agent_id)
        return found if found is not None and found.id == agent_id else None

    def agents(self) -> list[Agent]:
        """Those that are not revoked."""
        return [agent for key, agent in self._index.agents.items() if key == agent.id]

    def _read_again(self) -> bool:
        """Look at the file: a token that is not known may have been added just now."""
        if self._loop.running:
            self._poll()
        return self._loop.running

    def _poll(self) -> None:
        if self._file is not None:
            self._file.look()
        if self._now() >= self._next_expiry:
            self._end_changed()

    def _end_changed(self) -> None:
        now = self._now()
        before, self._live = self._live, self._index.live(now)
        self._next_expiry = self._index.next_expiry(now)
        for credential_id, meant in before.items():
            now_means = self._live.get(credential_id)
            kept = now_means == meant or (
                isinstance(meant, _UserMeaning) and meant.still(now_means)
            )
            if not kept:
                self._log.info("credential {id} ended", id=credential_id)
                self._ended(credential_id)

    def _ended(self, credential_id: str) -> None:
        for_each(
            tuple(self._callbacks),
            lambda end: end(credential_id),
            "ending {id}",
            id=credential_id,
        )
