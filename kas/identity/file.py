"""
The identity file: agents and users, and the format of the file.

The file contains only the SHA-256 of each token.  A token has 256 random bits and
cannot be guessed, so a slow hash, which would protect short passwords, would only cost
time.  The file is JSON because only programs write it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import attrs

from kas.identity.environments import (
    MAX_ENVIRONMENTS,
    Environment,
    check_labels,
    check_selector,
)
from tunnel.api import Impersonation
from tunnel.errors import ConfigurationError

__all__ = [
    "ALL_AGENTS",
    "BACKUP_NAME",
    "FILE_NAME",
    "MAX_PROJECT_ID",
    "NEXT_ID_NAME",
    "SYSTEM",
    "Agent",
    "Identities",
    "IdentityReader",
    "Token",
    "User",
    "dump",
    "parse",
    "reach",
]

FILE_NAME = "identity.json"
#: Name of the file that contains the content before the last change.
BACKUP_NAME = "identity.json.bak"
#: Name of the file that contains the id of the next agent.  A backup of the identity
#: file does not restore it, so no agent gets the id and the data of another agent.
NEXT_ID_NAME = "next-agent-id"
#: Number of the file's format; an older kas refuses a newer format, which has another
#: number.
VERSION = 1
#: Value of a user's agents that means every agent, including future agents.
ALL_AGENTS = "*"

#: Prefix of the names of Kubernetes' own users and groups.
SYSTEM = "system:"

#: Maximum id of a project, because ids are sent as int64.
MAX_PROJECT_ID = 2**63 - 1

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TOKEN_ID = re.compile(r"[0-9a-f]{16}")

T = TypeVar("T")


@attrs.frozen
class Token:
    """Stored part of a token: enough to recognize the token, but not to recreate it."""

    #: Public part of the token, for finding its entry.
    id: str
    #: SHA-256 of the whole token, in hexadecimal.
    sha256: str = attrs.field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None

    def valid_at(self, now: datetime) -> bool:
        """Return whether the token has not expired."""
        return self.expires_at is None or now < self.expires_at


@attrs.frozen
class Agent:
    """Cluster that may connect as an agent."""

    id: str
    name: str
    created_at: datetime
    tokens: tuple[Token, ...] = ()
    revoked_at: datetime | None = None
    #: Id of the agent's project; 0 without a project.
    project_id: int = 0
    #: Labels, which only kasctl sets.
    labels: Mapping[str, str] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class User:
    """User or program that may access agents."""

    name: str
    #: Names of the agents that the user may access, or only `ALL_AGENTS`.
    agents: tuple[str, ...]
    token: Token
    created_at: datetime
    #: Kubernetes user that is impersonated; None to act as agentk's own account.
    impersonation: Impersonation | None = None
    revoked_at: datetime | None = None
    #: Whether the user may only read, even if the cluster would allow more.
    read_only: bool = False
    #: Whether a read-only user may read Secrets.
    secrets: bool = False
    #: Names of environments whose agents the user may access as well.
    environments: tuple[str, ...] = ()


@attrs.frozen
class Identities:
    """Content of the identity file."""

    agents: tuple[Agent, ...] = ()
    users: tuple[User, ...] = ()
    #: Id of the next agent.  Ids are never reused, so that an old credential cannot
    #: belong to a new agent.
    next_agent_id: int = 1
    environments: tuple[Environment, ...] = ()

    def members(self, environments: Collection[str]) -> dict[str, frozenset[str]]:
        """
        Return the names of the agents in each of these environments, including revoked
        agents.
        """
        labelled = [agent for agent in self.agents if agent.labels]
        return {
            one.name: frozenset(
                agent.name for agent in labelled if one.matches(agent.labels)
            )
            for one in self.environments
            if one.name in environments
        }

    def reach(self, user: User) -> frozenset[str] | None:
        """
        Return the names of the agents that a user may access; None for all agents.
        """
        return reach(user, self.members(user.environments))


def reach(user: User, members: Mapping[str, frozenset[str]]) -> frozenset[str] | None:
    """Return what `Identities.reach` returns, with the members of environments."""
    if ALL_AGENTS in user.agents:
        return None
    found = (members.get(name, frozenset()) for name in user.environments)
    return frozenset(user.agents).union(*found)


#: Pattern for the text around the lines of agents and users; each agent and user has
#: its own line.
_HEAD = re.compile(
    rb'\{\n "version": (0|[1-9][0-9]{0,8}),\n'
    rb' "next_agent_id": (0|[1-9][0-9]{0,18}),\n "agents": \[\n'
)
_BETWEEN = b'\n ],\n "users": [\n'
#: Text before the environments.  A file without environments does not contain it,
#: because an older kas refuses unknown members.
_ENVIRONMENTS = b'\n ],\n "environments": [\n'
_TAIL = b"\n ]\n}\n"


def dump(identities: Identities) -> bytes:
    """Return the content of the file."""
    return IdentityReader().dump(identities)


def parse(data: bytes, file: str) -> Identities:
    """
    Parse a file that `dump` or an older kas wrote.

    :raises ConfigurationError: if the file is invalid; the text of the error never
        quotes the content.
    """
    return IdentityReader().parse(data, file)


class IdentityReader:
    """
    Reader and writer of the file, which is fast if few of many lines change.

    The reader does not parse an unchanged line again, and returns the same object for
    this line.
    """

    def __init__(self) -> None:
        self._agents: dict[bytes, Agent] = {}
        self._users: dict[bytes, User] = {}

    def dump(self, identities: Identities) -> bytes:
        """
        See `dump`.

        :raises ValueError: if `parse` would return other identities.
        """
        _check(identities)
        agents, users = identities.agents, identities.users
        agent_lines = _lines(agents, self._agents, _dump_agent, _agent_of_line)
        user_lines = _lines(users, self._users, _dump_user, _user_of_line)
        head = (
            f'{{\n "version": {VERSION},\n "next_agent_id": {identities.next_agent_id},'
            '\n "agents": [\n'
        )
        parts = [head.encode(), agent_lines, _BETWEEN, user_lines]
        if identities.environments:
            lines = [
                _line({"name": one.name, "selector": one.selector})
                for one in identities.environments
            ]
            parts += [_ENVIRONMENTS, b",\n".join(lines)]
        return b"".join([*parts, _TAIL])

    def parse(self, data: bytes, file: str) -> Identities:
        """See `parse`."""
        try:
            identities = self._of_lines(data) or _of_json(data)
            _check(identities)
        except (ValueError, RecursionError) as error:
            # A JSONDecodeError contains line and column.
            message = f"{file} is not a valid identity file: {error}; {_backup(file)}"
            raise ConfigurationError([message]) from None
        return identities

    def _of_lines(self, data: bytes) -> Identities | None:
        """
        Parse a file line by line; return None if its layout differs from the output of
        `dump`.
        """
        head, between = _HEAD.match(data), data.find(_BETWEEN)
        if head is None or int(head[1]) != VERSION or not data.endswith(_TAIL):
            return None
        if between < head.end() - 1:
            return None
        try:
            text = data[head.end() : between]
            agents = _entries(text, self._agents, _agent_of_line)
            text = data[between + len(_BETWEEN) : -len(_TAIL)]
            text, _, last = text.partition(_ENVIRONMENTS)
            users = _entries(text, self._users, _user_of_line)
            environments = _entries(last, {}, _environment_of_line)
        except (ValueError, RecursionError):
            # Let the general parser report the error with its position in the file.
            return None
        self._agents, self._users = agents, users
        return Identities(
            tuple(agents.values()),
            tuple(users.values()),
            int(head[2]),
            tuple(environments.values()),
        )


def _entries(
    text: bytes, before: Mapping[bytes, T], of_line: Callable[[bytes], T]
) -> dict[bytes, T]:
    """Return the members in *text*, by their lines, in order."""
    lines = text.split(b",\n") if text else []
    found = {line: before.get(line) or of_line(line) for line in lines}
    if len(found) < len(lines):
        raise ValueError("a line is duplicated")
    return found


def _lines(
    members: Iterable[T],
    before: Mapping[bytes, T],
    content: Callable[[T], dict[str, Any]],
    of_line: Callable[[bytes], T],
) -> bytes:
    """
    Return one line for each of *members*.

    :raises ValueError: if a new line would be parsed as another member.
    """

    def new(one: T) -> bytes:
        line = _line(content(one))
        if of_line(line) != one:
            raise ValueError("it would be parsed as another member")
        return line

    known = dict(zip(map(id, before.values()), before, strict=True))
    return b",\n".join([known.get(id(one)) or new(one) for one in members])


#: Pattern for an agent with one token, as `dump` writes it; nearly all agents have this
#: form.
_USUAL_AGENT = re.compile(
    r'  \{"id": "([1-9][0-9]{0,17})", "name": "([a-z0-9-]+)", '
    r'"created_at": "([0-9T:.-]+\+00:00)", "revoked_at": null, '
    r'"tokens": \[\{"id": "([0-9a-f]{16})", "sha256": "([0-9a-f]{64})", '
    r'"created_at": "([0-9T:.-]+\+00:00)", "expires_at": null\}\]\}',
    re.ASCII,
)


def _agent_of_line(line: bytes) -> Agent:
    text = line.decode()
    if (usual := _USUAL_AGENT.fullmatch(text)) is None:
        return _of_line(text, _parse_agent)
    number, name, created, token_id, sha256, token_created = usual.groups()
    since = datetime.fromisoformat(created)
    # Omit the time of a token that was created together with its agent.
    token_since = (
        since if token_created == created else datetime.fromisoformat(token_created)
    )
    return Agent(number, name, since, (Token(token_id, sha256, token_since),))


def _user_of_line(line: bytes) -> User:
    return _of_line(line.decode(), _parse_user)


def _environment_of_line(line: bytes) -> Environment:
    return _of_line(line.decode(), _parse_environment)


def _of_line(text: str, item: Callable[[_Object], T]) -> T:
    raw = _Object(json.loads(text), "")
    found = item(raw)
    raw.done()
    return found


def _line(content: dict[str, Any]) -> bytes:
    return b"  " + json.dumps(content, ensure_ascii=False).encode()


def _dump_agent(agent: Agent) -> dict[str, Any]:
    content: dict[str, Any] = {
        "id": agent.id,
        "name": agent.name,
        "created_at": _dump_time(agent.created_at),
        "revoked_at": _dump_time(agent.revoked_at),
        "tokens": [_dump_token(token) for token in agent.tokens],
    }
    # Omit unnecessary members, because an older kas refuses unknown members.
    if agent.project_id:
        content["project_id"] = agent.project_id
    if agent.labels:
        content["labels"] = dict(agent.labels)
    return content


def _dump_user(user: User) -> dict[str, Any]:
    access: dict[str, Any] = {"as_agent": True}
    if (who := user.impersonation) is not None:
        access = {"user": who.username, "groups": list(who.groups)}
    if user.read_only:
        access["read_only"] = True
    if user.secrets:
        access["secrets"] = True
    content = {
        "name": user.name,
        "agents": list(user.agents),
        "access": access,
        "created_at": _dump_time(user.created_at),
        "revoked_at": _dump_time(user.revoked_at),
        "token": _dump_token(user.token),
    }
    if user.environments:
        content["environments"] = list(user.environments)
    return content


def _dump_token(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "sha256": token.sha256,
        "created_at": _dump_time(token.created_at),
        "expires_at": _dump_time(token.expires_at),
    }


def _dump_time(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat()


def _of_json(data: bytes) -> Identities:
    """
    Read a file with any layout.

    :raises ValueError: if the file is invalid.
    """
    top = _Object(json.loads(data), "")
    version = top.take("version", int)
    if version != VERSION:
        raise ValueError(
            f"version {version} is not supported; run the kas that wrote it"
        )
    identities = Identities(
        next_agent_id=top.take("next_agent_id", int),
        agents=top.many("agents", _parse_agent),
        users=top.many("users", _parse_user),
        environments=top.many("environments", _parse_environment)
        if top.has("environments")
        else (),
    )
    top.done()
    return identities


def _backup(file: str) -> str:
    """
    Return the end of an error message: the name of the backup that can replace the
    file.
    """
    path = Path(file).with_name(BACKUP_NAME)
    try:
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return "restore a backup"
    return (
        f"{path} has the content before the last change and was written at "
        f"{written:%Y-%m-%d %H:%M:%SZ}: copy it to {file}, or restore a backup"
    )


def _check(identities: Identities) -> None:
    agents, users = identities.agents, identities.users
    _once("agent id", [agent.id for agent in agents])
    _once("agent name", [agent.name for agent in agents])
    _once("user name", [user.name for user in users])
    _once("environment", [one.name for one in identities.environments])
    if len(identities.environments) > MAX_ENVIRONMENTS:
        raise ValueError(f"there are at most {MAX_ENVIRONMENTS} environments")
    tokens = [token.id for agent in agents for token in agent.tokens]
    _once("token id", tokens + [user.token.id for user in users])


def _once(what: str, values: list[str]) -> None:
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise ValueError(f"the {what} {twice!r} is duplicated")


class _Object:
    """
    JSON object all of whose members must be read, so that unknown members are errors.
    """

    def __init__(self, raw: object, path: str) -> None:
        if not isinstance(raw, dict):
            raise ValueError(f"{path or 'the file'} is not an object")
        self._raw: Mapping[str, Any] = raw
        self._path = path
        self._left = set(raw)

    def take(self, key: str, kind: type[T]) -> T:
        value = self._raw.get(key)
        # Compare the type, because bool is an int in Python, but not in JSON.
        if not isinstance(value, kind) or (kind is int and value is True):
            raise ValueError(f"{self._path}{key} is not of type {kind.__name__}")
        self._left.discard(key)
        return value

    def matching(self, key: str, pattern: re.Pattern[str]) -> str:
        value = self.take(key, str)
        if not pattern.fullmatch(value):
            raise ValueError(f"{self._path}{key} is malformed")
        return value

    def time(self, key: str) -> datetime:
        text = self.take(key, str)
        try:
            time = datetime.fromisoformat(text)
            # The time in UTC may be in a year that Python does not have.
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            raise ValueError(f"{self._path}{key} is not a time") from None

    def time_or_none(self, key: str) -> datetime | None:
        if self._raw.get(key) is None:
            self._left.discard(key)
            return None
        return self.time(key)

    def many(self, key: str, item: Callable[[_Object], T]) -> tuple[T, ...]:
        found = []
        for index, raw in enumerate(self.take(key, list)):
            member = _Object(raw, f"{self._path}{key}[{index}].")
            found.append(item(member))
            member.done()
        return tuple(found)

    def one(self, key: str, item: Callable[[_Object], T]) -> T:
        member = _Object(self.take(key, dict), f"{self._path}{key}.")
        value = item(member)
        member.done()
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise ValueError(f"{self._path}{key} is not a list of texts")
        return tuple(values)

    def has(self, key: str) -> bool:
        return key in self._raw

    def done(self) -> None:
        if self._left:
            raise ValueError(f"{self._path}{min(self._left)} is unknown")


def _parse_agent(raw: _Object) -> Agent:
    return Agent(
        id=raw.matching("id", re.compile("[1-9][0-9]{0,17}")),
        name=raw.take("name", str),
        created_at=raw.time("created_at"),
        revoked_at=raw.time_or_none("revoked_at"),
        tokens=raw.many("tokens", _parse_token),
        project_id=_parse_project(raw) if raw.has("project_id") else 0,
        labels=_parse_labels(raw) if raw.has("labels") else {},
    )


def _parse_labels(raw: _Object) -> dict[str, str]:
    labels = raw.take("labels", dict)
    if not all(isinstance(value, str) for value in labels.values()):
        raise ValueError("a label is not a text")
    check_labels(labels)
    return labels


def _parse_environment(raw: _Object) -> Environment:
    found = Environment(raw.take("name", str), raw.take("selector", str))
    check_selector(found.selector)
    return found


def _parse_project(raw: _Object) -> int:
    number = raw.take("project_id", int)
    if not 0 < number <= MAX_PROJECT_ID:
        raise ValueError(f"the project_id {number} is not a positive number")
    return number


def _parse_user(raw: _Object) -> User:
    impersonation, read_only, secrets = raw.one("access", _parse_access)
    return User(
        name=raw.take("name", str),
        agents=raw.texts("agents"),
        impersonation=impersonation,
        read_only=read_only,
        secrets=secrets,
        created_at=raw.time("created_at"),
        revoked_at=raw.time_or_none("revoked_at"),
        token=raw.one("token", _parse_token),
        environments=raw.texts("environments") if raw.has("environments") else (),
    )


def _parse_access(raw: _Object) -> tuple[Impersonation | None, bool, bool]:
    read_only = raw.take("read_only", bool) if raw.has("read_only") else False
    secrets = raw.take("secrets", bool) if raw.has("secrets") else False
    if raw.has("as_agent"):
        if raw.take("as_agent", bool) is not True:
            raise ValueError("as_agent can only be true")
        return None, read_only, secrets
    # Require a name: otherwise, the API server would treat the request as agentk's own.
    who = Impersonation(
        username=raw.matching("user", re.compile(r".+")), groups=raw.texts("groups")
    )
    return who, read_only, secrets


def _parse_token(raw: _Object) -> Token:
    return Token(
        id=raw.matching("id", _TOKEN_ID),
        sha256=raw.matching("sha256", _SHA256),
        created_at=raw.time("created_at"),
        expires_at=raw.time_or_none("expires_at"),
    )
