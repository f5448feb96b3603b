"""
Authenticator for a kas without GitLab, whose agents and users are in a file.

The authenticator follows the identity file in the state directory, which `kasctl`
changes.  When a credential is revoked, all its tunnels and requests must end; therefore
the owners of tunnels and requests subscribe to `FileAuthenticator.on_revoked`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from kas.identity.file import Agent, Identities, IdentityReader, User, reach
from kas.identity.store import (
    AGENT_PREFIX,
    USER_PREFIX,
    bare_token,
    split_token,
)
from kas.state.directory import MAX_FILE
from tunnel.api import (
    Access,
    AgentIdentity,
    IListingAuthenticator,
    Reach,
    ReachableAgent,
)
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.program.runtime import Runtime
from tunnel.toolkit.files import FileVersion, WatchedFile, file_version, in_words
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.repeated import Repeated

__all__ = ["POLL_INTERVAL", "FileAuthenticator"]

#: Seconds between two checks of the file: a revocation must take effect within two
#: seconds.
POLL_INTERVAL = 1.0

#: Size in bytes above which a thread reads the file: a file with three thousand agents,
#: which takes some hundredths of a second to read.
LARGE = 1024 * 1024

#: Maximum number of cached results for one user: if another authenticator knows the
#: agents, a client may name any number of them.
MAX_KNOWN_ANSWERS = 1_000

_NEVER = float("inf")

_T = TypeVar("_T")

#: Errors after which the previous content of the file remains in effect: any, because
#: a file that kas cannot read must not end its checks.
_UNUSABLE = Exception

_AGENT_ID = re.compile("[1-9][0-9]{0,18}")

_AGENT_REFUSED = (
    "the agent token is not valid: it was revoked or replaced, or belongs to another "
    "kas; create a new one with 'kasctl agent add' or 'kasctl agent rotate'"
)
_USER_REFUSED = (
    "the token is not valid: it was revoked or replaced, or belongs to another kas; "
    "ask an administrator of kas for a new kubeconfig"
)


@attrs.frozen
class _AgentToken:
    digest: bytes = attrs.field(repr=False)
    identity: AgentIdentity
    expires_at: float

    @property
    def credential_id(self) -> str:
        return self.identity.credential_id

    def still(self, later: object) -> bool:
        """Return whether the credential has the same meaning in the entry *later*."""
        return isinstance(later, _AgentToken) and self.identity == later.identity


@attrs.frozen
class _UserToken:
    digest: bytes = attrs.field(repr=False)
    user: User
    #: Agents that the user may access; None for all agents.
    agents: frozenset[str] | None
    expires_at: float
    #: Earlier results by the agent that the client named, because every request needs a
    #: result.  The results are part of the index, so that they are never older than the
    #: file.
    answers: dict[str, Access] = attrs.field(factory=dict, repr=False, eq=False)

    @property
    def credential_id(self) -> str:
        return f"user:{self.user.name}"

    def still(self, later: object) -> bool:
        """
        Return whether the credential has the same meaning in the entry *later*; agents
        that were added are ignored.
        """
        if not isinstance(later, _UserToken):
            return False
        mine, theirs = (
            (
                one.user.name,
                one.user.impersonation,
                one.user.read_only,
                one.user.secrets,
            )
            for one in (self, later)
        )
        if mine != theirs:
            return False
        if later.agents is None or self.agents is None:
            return later.agents is None
        return self.agents <= later.agents


@attrs.frozen(eq=False)
class _Index:
    """
    Index of the file's content, without revoked entries.

    Tokens are found by the SHA-256 of the whole token: the time of a lookup reveals
    nothing about other tokens.
    """

    agent_tokens: Mapping[bytes, _AgentToken]
    user_tokens: Mapping[bytes, _UserToken]
    #: Agents by name and by id; names and ids never collide, because a name is never a
    #: number.
    agents: Mapping[str, Agent]
    #: Entries of tokens that expire.
    expiring: Sequence[_AgentToken | _UserToken]

    @classmethod
    def of(cls, identities: Identities, before: _Index | None = None) -> _Index:
        """
        Build the index.

        :param before: the index of the previous content, which is mostly reused.
        """
        agents: dict[str, Agent] = {}
        agent_tokens: dict[bytes, _AgentToken] = {}
        user_tokens: dict[bytes, _UserToken] = {}
        known = {} if before is None else before.agents
        known_tokens = {} if before is None else before.agent_tokens
        for agent in identities.agents:
            if agent.revoked_at is not None:
                continue
            agents[agent.id] = agents[agent.name] = agent
            is_known = known.get(agent.id) is agent
            for token in agent.tokens:
                key = bytes.fromhex(token.sha256)
                if is_known:
                    agent_tokens[key] = known_tokens[key]
                    continue
                credential_id = f"agent:{agent.id}:{token.id}"
                agent_tokens[key] = _AgentToken(
                    key,
                    AgentIdentity(
                        agent.id, agent.name, credential_id, agent.project_id
                    ),
                    _timestamp(token.expires_at),
                )
        # These include revoked agents: the end of an agent must not end what a user
        # does with others.
        members = identities.members(
            {name for user in identities.users for name in user.environments}
        )
        for user in identities.users:
            if user.revoked_at is None:
                key = bytes.fromhex(user.token.sha256)
                user_tokens[key] = _UserToken(
                    key,
                    user,
                    reach(user, members),
                    _timestamp(user.token.expires_at),
                )
        expiring: list[_AgentToken | _UserToken] = [
            one for one in agent_tokens.values() if one.expires_at != _NEVER
        ]
        expiring += [one for one in user_tokens.values() if one.expires_at != _NEVER]
        return cls(agent_tokens, user_tokens, agents, expiring)

    def ended(self, later: _Index, then: float, now: float) -> list[str]:
        """
        Return the ids of credentials that were valid at the time *then*, and at the
        time *now* are invalid or have another meaning.

        :param later: the index that is in effect now.
        """
        ended: dict[str, None] = {}
        for before, after in (
            (self.agent_tokens, later.agent_tokens),
            (self.user_tokens, later.user_tokens),
        ):
            changed = [
                (entry, after.get(key))
                for key, entry in before.items()
                if after.get(key) is not entry
            ]
            for entry, found in changed:
                kept = found is not None and now < found.expires_at
                if then < entry.expires_at and not (kept and entry.still(found)):
                    ended[entry.credential_id] = None
        for entry in later.expiring:
            if then < entry.expires_at <= now:
                ended[entry.credential_id] = None
        return list(ended)

    def next_expiry(self, now: float) -> float:
        """
        Return the time when the next credential expires; infinite if none expires.
        """
        times = (entry.expires_at for entry in self.expiring)
        return min((time for time in times if time > now), default=_NEVER)


def _timestamp(time: datetime | None) -> float:
    return _NEVER if time is None else time.astimezone(UTC).timestamp()


_NOT_AN_AGENTS = (
    "this is the token of a user, but agentk needs the token of its agent: create "
    "one with 'kasctl agent add NAME' or 'kasctl agent rotate NAME'"
)
_NOT_A_USERS = (
    "this is the token of an agent, but clients need the token of a user: create "
    "one with 'kasctl kubeconfig --agent NAME --user USER'"
)


def _refused(message: str) -> CallError:
    return CallError(Status.UNAUTHENTICATED, message)


def _kind(token: bytes) -> str:
    """Return the beginning of a token, which shows its kind."""
    parts = split_token(token)
    return "" if parts is None else parts[0]


# Messages that only clients with the correct token receive, so that no other client
# learns that the token has expired.


def _expired_agent(entry: _AgentToken) -> str:
    name = entry.identity.agent_name
    return (
        f"this token of the agent {name} expired at {_shown(entry.expires_at)}; use "
        f"its successor, or create a new token with 'kasctl agent rotate {name}'"
    )


def _expired_user(entry: _UserToken) -> str:
    name = entry.user.name
    return (
        f"the token of {name} expired at {_shown(entry.expires_at)}; an "
        "administrator of kas can create a new one: 'kasctl kubeconfig --user "
        f"{name} --rotate ...'"
    )


def _shown(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


@implementer(IListingAuthenticator)
class FileAuthenticator:
    """
    Authenticator that checks tokens against the identity file, and follows the file.

    Each result is returned at once, except for a token that may be in a large file that
    has just changed.

    :param elsewhere: whether another authenticator knows the agents.  If so, the agents
        in the file are ignored, because their ids are numbers, too; users in the file
        with access to all agents may name any agent by its id.
    """

    user_kinds = ("user",)

    _log = Logger()

    def __init__(
        self,
        path: Path,
        runtime: Runtime,
        *,
        elsewhere: bool = False,
    ) -> None:
        self.path = path
        self._elsewhere = elsewhere
        self.agent_prefixes = () if elsewhere else (f"{AGENT_PREFIX}-".encode(),)
        self._now = runtime.now
        self._index = _Index.of(Identities())
        self._reader = IdentityReader()
        #: Read of a large file that is running in a thread; None if no such read is
        #: running.
        self._reading: Deferred[Any] | None = None
        self._waiting: list[Deferred[None]] = []
        #: Result of the read in a thread: the version of the file, and its index or an
        #: error.
        self._prepared: tuple[FileVersion, _Index | Exception] | None = None
        #: Time of the last check for credentials that have ended.
        self._judged = 0.0
        self._next_expiry = _NEVER
        self._file: WatchedFile[_Index] | None = None
        self._callbacks: list[Callable[[str], object]] = []
        self._loop = Repeated(runtime.reactor, "watching the identity file", self._poll)

    def start(self) -> None:
        """
        Read the file, if it exists, and follow it.

        :raises ConfigurationError: if the file exists and is invalid.
        """
        self._file = WatchedFile(
            partial(file_version, self.path),
            self._read,
            self._refused,
            unusable=_UNUSABLE,
            # The interval is 0, because `_poll` ensures the interval.
            seconds=self._now,
            interval=0.0,
            changed=self._changed,
        )
        # Begin with the current time, because this kas never accepted tokens that had
        # expired earlier.
        self._judged = self._now()
        self._end_changed(self._file.content)
        if self._elsewhere and self.agents():
            self._log.warn(
                "GitLab determines which agents may connect ('gitlab'): agents of "
                "the identity file cannot connect"
            )
        self._loop.start(POLL_INTERVAL)

    def stop(self) -> None:
        """Stop following the file."""
        self._loop.stop()

    def on_revoked(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """
        Call *callback* with the id of every credential that ended or changed; return a
        function that removes *callback*.

        Call the result to end that.
        """
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def authenticate_agent(
        self, token: bytes
    ) -> AgentIdentity | Deferred[AgentIdentity]:
        """
        Return the agent of a token.

        :raises CallError: UNAUTHENTICATED, with a message for the operator of agentk.
        """
        key = sha256(token).digest()
        if key not in self._index.agent_tokens and _kind(token) == AGENT_PREFIX:
            if (reading := self._read_again()) is not None:
                return reading.addCallback(lambda _: self._agent_of(token, key))
        return self._agent_of(token, key)

    def _agent_of(self, token: bytes, key: bytes) -> AgentIdentity:
        entry = self._index.agent_tokens.get(key)
        if entry is None:
            # Recognize a wrapped token, too, because users may copy it from a
            # kubeconfig.
            users = _kind(bare_token(token)) == USER_PREFIX
            raise _refused(_NOT_AN_AGENTS if users else _AGENT_REFUSED)
        if self._now() >= entry.expires_at:
            raise _refused(_expired_agent(entry))
        return entry.identity

    def authorize_user(self, agent: str, token: str) -> Access | Deferred[Access]:
        """
        Return the access of *token* to *agent* (a name or an id).

        :raises CallError: UNAUTHENTICATED or PERMISSION_DENIED, with a message that may
            be shown to the client.
        """
        return self._with_entry(token, partial(self._access_of, agent))

    def reach_of(self, token: str) -> Reach | Deferred[Reach]:
        """
        Return the agents that *token* gives access to.

        :raises CallError: UNAUTHENTICATED, with a message that may be shown to the
            client.
        """
        return self._with_entry(token, self._reach_of)

    def _with_entry(
        self, token: str, answer: Callable[[_UserToken], _T]
    ) -> _T | Deferred[_T]:
        """Return the answer for the entry of a token."""
        sent = token.encode("utf-8", "surrogateescape")
        key = sha256(sent).digest()
        if key not in self._index.user_tokens and _kind(sent) == USER_PREFIX:
            if (reading := self._read_again()) is not None:
                return reading.addCallback(lambda _: answer(self._entry(sent, key)))
        return answer(self._entry(sent, key))

    def _entry(self, sent: bytes, key: bytes) -> _UserToken:
        entry = self._index.user_tokens.get(key)
        if entry is None:
            agents = _kind(sent) == AGENT_PREFIX
            raise _refused(_NOT_A_USERS if agents else _USER_REFUSED)
        if self._now() >= entry.expires_at:
            raise _refused(_expired_user(entry))
        return entry

    def _reach_of(self, entry: _UserToken) -> Reach:
        known = self.reachable()
        return Reach(
            entry.credential_id,
            entry.credential_id,
            tuple(
                one
                for one in known or ()
                if entry.agents is None or one.agent_name in entry.agents
            ),
            is_complete=known is not None or entry.agents is not None,
        )

    def _access_of(self, agent: str, entry: _UserToken) -> Access:
        known = entry.answers.get(agent)
        if known is not None:
            return known
        found = self._found(entry, agent)
        # Use one message for both cases, so that a client cannot find out which agents
        # exist.
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
            secrets=entry.user.secrets,
        )
        return access

    def _found(self, entry: _UserToken, agent: str) -> tuple[str, str] | None:
        """
        Return the id and name of an agent if the user may access it; otherwise None.
        """
        if self._elsewhere and entry.agents is not None:
            return None
        found = self.find_agent(agent)
        if found is None or entry.agents is None:
            return found
        return found if found[1] in entry.agents else None

    def find_agent(self, agent: str) -> tuple[str, str] | None:
        """
        Return the id and name of the agent whose id or name is *agent*; None if it is
        unknown.
        """
        if self._elsewhere:
            return (agent, agent) if _AGENT_ID.fullmatch(agent) is not None else None
        found = self._index.agents.get(agent)
        return None if found is None else (found.id, found.name)

    def reachable(self) -> list[ReachableAgent] | None:
        """
        Return all agents that are not revoked, sorted by name; None if another
        authenticator knows the agents.
        """
        if self._elsewhere:
            return None
        agents = sorted(self.agents(), key=lambda one: one.name)
        return [ReachableAgent(one.id, one.name, one.labels) for one in agents]

    def _read(self) -> _Index:
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[0] != file_version(self.path):
            return self._load()
        if isinstance(prepared[1], Exception):
            raise prepared[1]
        return prepared[1]

    def _prepare(self) -> tuple[FileVersion, _Index | Exception]:
        """Read the file and build its index; called in a thread."""
        # Determine the version before the file is read, so that a file that changes in
        # the meantime is read again.
        version = file_version(self.path)
        try:
            return version, self._load()
        except _UNUSABLE as error:
            return version, error

    def _load(self) -> _Index:
        try:
            with self.path.open("rb") as source:
                data = source.read(MAX_FILE + 1)
        except FileNotFoundError:
            if self._file is None:
                return _Index.of(Identities())  # kasctl creates the file
            raise
        except OSError as error:
            raise ConfigurationError([in_words(error)]) from None
        if len(data) > MAX_FILE:
            raise ConfigurationError([f"{self.path} is larger than {MAX_FILE} bytes"])
        identities = self._reader.parse(data, str(self.path))
        return _Index.of(identities, self._index)

    def _refused(self, error: Exception) -> None:
        # The last valid content remains in effect, so that a mistake does not
        # disconnect every cluster.
        self._log.error(
            "the identity file is invalid; the previous content stays in effect: "
            "{problem}",
            problem=str(error),
        )

    def _changed(self) -> None:
        assert self._file is not None
        self._log.info("identity file read again")
        self._end_changed(self._file.content)

    def may_connect(self, agent_id: str) -> bool:
        """Return whether the agent is not revoked."""
        return self._elsewhere or agent_id in self._index.agents

    def agent(self, agent_id: str) -> Agent | None:
        """Return an agent that is not revoked, by its id."""
        found = self._index.agents.get(agent_id)
        return found if found is not None and found.id == agent_id else None

    def agents(self) -> list[Agent]:
        """Return the agents that are not revoked."""
        return [agent for key, agent in self._index.agents.items() if key == agent.id]

    def _read_again(self) -> Deferred[None] | None:
        """
        Read the file if it has changed, because an unknown token may have just been
        added.

        :returns: a Deferred that fires when a large file has been read in a thread;
            None if no read is in progress.
        """
        if self._loop.running:
            self._poll()
        if self._reading is None:
            return None
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def _look(self) -> None:
        """Read the file if it has changed; a large file is read in a thread."""
        file = self._file
        if file is None or self._reading is not None or not file.is_changed():
            return
        version = file_version(self.path)
        if version is None or version[2] < LARGE:
            file.look()
            return
        self._reading = reading = deferToThread(self._prepare)
        reading.addBoth(self._has_read)

    def _has_read(self, prepared: Any) -> None:
        self._reading = None
        try:
            if isinstance(prepared, Failure):
                self._log.failure("reading the identity file failed", prepared)
            elif self._loop.running and self._file is not None:
                if prepared[0] == file_version(self.path):
                    self._prepared = prepared
                    self._file.look()
                else:
                    # Check again, because the file may have changed in the meantime.
                    self._look()
        finally:
            if self._reading is None:
                waiting, self._waiting = self._waiting, []
                for one in waiting:
                    if not one.called:
                        one.callback(None)

    def _poll(self) -> None:
        self._look()
        if self._now() >= self._next_expiry:
            self._end_changed(self._index)

    def _end_changed(self, index: _Index) -> None:
        """
        Report the credentials that ended or changed with *index*, which is in effect
        now.
        """
        now = self._now()
        before, self._index = self._index, index
        then, self._judged = self._judged, now
        self._next_expiry = index.next_expiry(now)
        for credential_id in before.ended(index, then, now):
            self._log.info("credential {id} ended", id=credential_id)
            self._ended(credential_id)

    def _ended(self, credential_id: str) -> None:
        for_each(
            tuple(self._callbacks),
            lambda end: end(credential_id),
            "ending {id}",
            id=credential_id,
        )
