"""
Changes to the identity file that `kasctl` makes: one at a time, while it holds the
lock.

A running kas notices each change by itself
(`kas.identity.file_authenticator.FileAuthenticator`).
"""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
)
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import attrs

from kas.identity.environments import (
    MAX_ENVIRONMENTS,
    Environment,
    check_labels,
    check_selector,
)
from kas.identity.file import (
    ALL_AGENTS,
    BACKUP_NAME,
    FILE_NAME,
    MAX_PROJECT_ID,
    NEXT_ID_NAME,
    Agent,
    Identities,
    IdentityReader,
    Token,
    User,
    parse,
)
from kas.state.directory import MAX_FILE, StateDirectory
from tunnel.api import Impersonation
from tunnel.config import nearest
from tunnel.errors import ConfigurationError, TunnelError
from tunnel.toolkit.texts import DNS_LABEL, SUBJECT_RULE, is_subject

__all__ = [
    "AGENT_PREFIX",
    "USER_PREFIX",
    "Change",
    "IdentityError",
    "IdentityStore",
    "Show",
    "bare_token",
    "digest",
    "find_environment",
    "split_token",
]

_T = TypeVar("_T")

#: Function that receives a new agent or user and its token.  It is called after the new
#: identity file was written to disk, and before the file takes effect.  If the function
#: raises an exception, the change does not take effect.  Therefore every valid token
#: was handed over, and no token is handed over if the file cannot be written.
Show = Callable[[_T, str], object]

# Prefixes of tokens, so that scanners for leaked secrets recognize them.
AGENT_PREFIX = "kasagent"
USER_PREFIX = "kasuser"
#: Maximum characters of a token: real tokens have at most 69, and tokens that exceed
#: the maximum are not even hashed.
MAX_TOKEN = 128

# Pattern for the name of an agent: an RFC 1123 label, as in GitLab and Kubernetes.
_AGENT_NAME = re.compile(DNS_LABEL)
# The rule of this pattern, for messages.
_AGENT_RULE = (
    "at most 63 characters of a-z, 0-9 and '-', neither beginning nor ending with '-'"
)
# Pattern for the name of a user: long enough for the name of an agent, and for an
# e-mail address.
_USER_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._@]{0,126}[A-Za-z0-9])?")
# Pattern for the content of `NEXT_ID_NAME`.
_NEXT_ID = re.compile(rb"[1-9][0-9]{0,17}\n?")
_IN_KUBECONFIG = re.compile(rb"user:[^:]{1,128}:([^:]+)")
# Maximum number of tokens of an agent: the previous token may stay valid while it is
# being replaced, but older tokens may not.
_TOKENS_PER_AGENT = 2


class IdentityError(TunnelError):
    """
    Error for a change that cannot be made; the message contains the reason and the
    remedy.
    """


def digest(token: bytes) -> bytes:
    """Return the stored form of a token."""
    return hashlib.sha256(token).digest()


def bare_token(token: bytes) -> bytes:
    """
    Return the token itself; it may be wrapped as ``user:<agent id>:<token>``, as in a
    kubeconfig.
    """
    found = _IN_KUBECONFIG.fullmatch(token)
    return token if found is None else found[1]


def split_token(token: bytes) -> tuple[str, str] | None:
    """
    Return the prefix and the id of a token; None if *token* does not have the form of a
    token.
    """
    if len(token) > MAX_TOKEN:
        return None
    parts = token.decode("latin-1").split("-", 2)
    return (parts[0], parts[1]) if len(parts) == 3 else None


def _check(pattern: re.Pattern[str], what: str, value: str, rule: str) -> None:
    if not pattern.fullmatch(value):
        raise IdentityError(f"{value!r} cannot be {what}: {rule}")


@attrs.frozen
class Change:
    """
    Description of a change to the identity file, for the audit log.

    :ivar action: the kind of change, such as ``user.revoke``.
    :ivar name: the name of the changed agent or user.
    :ivar details: the new permissions, by the names of kasctl's options; never a token.
    """

    action: str
    name: str
    details: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class IdentityStore:
    """
    Editor of the identity file in a state directory.

    :param now: returns the time of day, with a time zone.
    :param random: a source of secret bytes.

    Methods that create a token call *show*; see `Show`.  Each change copies the
    previous content to `BACKUP_NAME`.
    """

    state: StateDirectory
    now: Callable[[], datetime]
    random: Callable[[int], bytes] = secrets.token_bytes
    #: Function that returns a context manager for each change, which is entered before
    #: the change is written, and left when the change is in effect.  If entering it
    #: fails, nothing is changed.
    recording: Callable[[Change], AbstractContextManager[object]] = lambda change: (
        nullcontext()
    )

    def load(self) -> Identities:
        """Return the current content of the file; empty if the file does not exist."""
        data = self.state.read(FILE_NAME)
        if data is None:
            return Identities()
        return parse(data, str(self.state.file(FILE_NAME)))

    def add_agent(
        self, name: str, project_id: int = 0, show: Show[Agent] | None = None
    ) -> tuple[Agent, str]:
        """
        Add an agent, and return the agent with its token, which kas does not store.

        :param project_id: the id of the agent's project; 0 for no project.
        """
        return self.add_agents([name], project_id, show)[0]

    def add_agents(
        self,
        names: Sequence[str],
        project_id: int = 0,
        show: Show[Agent] | None = None,
    ) -> list[tuple[Agent, str]]:
        """Add many agents as `add_agent` does: either all of them, or none."""
        if not 0 <= project_id <= MAX_PROJECT_ID:
            raise IdentityError(f"{project_id} cannot be the id of a project")
        for name in names:
            _check(_AGENT_NAME, "the name of an agent", name, _AGENT_RULE)
            if name.isdigit():
                number = "a number would be treated as the id of an agent; add a letter"
                raise IdentityError(
                    f"{name!r} cannot be the name of an agent: {number}"
                )
        with self._editing(*(Change("agent.add", name) for name in names)) as edit:
            identities = edit.identities
            taken = {agent.name for agent in identities.agents}
            added = []
            for offset, name in enumerate(names):
                if name in taken:
                    raise IdentityError(
                        f"an agent {name!r} already exists; for a new token use "
                        f"'kasctl agent rotate {name}'"
                    )
                taken.add(name)
                token, text = self._mint(AGENT_PREFIX, None)
                agent = Agent(
                    str(identities.next_agent_id + offset),
                    name,
                    token.created_at,
                    (token,),
                    project_id=project_id,
                )
                added.append((agent, text))
            edit.identities = attrs.evolve(
                identities,
                agents=(*identities.agents, *(agent for agent, _ in added)),
                next_agent_id=identities.next_agent_id + len(added),
            )
            if show:
                edit.shows += [partial(show, agent, text) for agent, text in added]
        return added

    def rotate_agent(
        self, name: str, grace: timedelta, show: Show[Agent] | None = None
    ) -> tuple[Agent, str]:
        """
        Create a new token for an agent.  The newest old token stays valid for *grace*;
        other old tokens end now.

        The tunnels of an old token end with the token, so agentk must use the new token
        by then.
        """
        with self._editing(Change("agent.rotate", name)) as edit:
            agent = find_agent(edit.identities, name)
            if agent.revoked_at is not None:
                raise IdentityError(
                    f"the agent {name!r} was revoked; remove it and add it again"
                )
            token, text = self._mint(AGENT_PREFIX, None)
            now = token.created_at
            kept = [
                attrs.evolve(old, expires_at=min(old.expires_at or end, end))
                for end in (now + grace,)
                for old in agent.tokens
                if old.valid_at(now) and grace
            ]
            agent = attrs.evolve(
                agent, tokens=(*kept[-(_TOKENS_PER_AGENT - 1) :], token)
            )
            edit.replace_agent(agent)
            if show:
                edit.shows.append(partial(show, agent, text))
        return agent, text

    def label_agent(
        self, name: str, labels: Mapping[str, str], removed: Collection[str] = ()
    ) -> Agent:
        """
        Set labels of an agent, which may change the agents that users reach.

        :param removed: the names of labels to remove.
        """
        said = {
            "labels": ", ".join(f"{key}={value}" for key, value in labels.items()),
            "removed": ", ".join(removed),
        }
        details = {key: text for key, text in said.items() if text}
        with self._editing(Change("agent.label", name, details)) as edit:
            agent = find_agent(edit.identities, name)
            kept = {k: v for k, v in agent.labels.items() if k not in removed}
            found = kept | dict(labels)
            try:
                check_labels(found)
            except ValueError as error:
                raise IdentityError(str(error)) from None
            agent = attrs.evolve(agent, labels=dict(sorted(found.items())))
            edit.replace_agent(agent)
        return agent

    def set_environment(self, name: str, selector: str) -> Environment:
        """Create an environment, or change the selector of an existing one."""
        _check(_AGENT_NAME, "the name of an environment", name, _AGENT_RULE)
        try:
            check_selector(selector)
        except ValueError as error:
            raise IdentityError(str(error)) from None
        change = Change("environment.set", name, {"selector": selector})
        with self._editing(change) as edit:
            environment = Environment(name, selector)
            others = [one for one in edit.identities.environments if one.name != name]
            if len(others) >= MAX_ENVIRONMENTS:
                raise IdentityError(
                    f"kas has at most {MAX_ENVIRONMENTS} environments; remove one"
                )
            found = sorted((*others, environment), key=lambda one: one.name)
            edit.identities = attrs.evolve(edit.identities, environments=tuple(found))
        return environment

    def remove_environment(self, name: str) -> Environment:
        """Remove an environment, and the access that users have through it."""
        with self._editing(Change("environment.remove", name)) as edit:
            identities = edit.identities
            environment = find_environment(identities, name)
            edit.identities = attrs.evolve(
                identities,
                environments=tuple(
                    one for one in identities.environments if one != environment
                ),
                users=tuple(
                    attrs.evolve(
                        user,
                        environments=tuple(
                            one for one in user.environments if one != name
                        ),
                    )
                    if name in user.environments
                    else user
                    for user in identities.users
                ),
            )
        return environment

    def revoke_agent(self, name: str) -> Agent:
        """
        Revoke every token of an agent, which stays in the list until it is removed.
        """
        with self._editing(Change("agent.revoke", name)) as edit:
            agent = find_agent(edit.identities, name)
            agent = attrs.evolve(
                agent, tokens=(), revoked_at=agent.revoked_at or self.now()
            )
            edit.replace_agent(agent)
        return agent

    def remove_agent(self, name: str) -> Agent:
        """Remove an agent from the file, and from every user who may access it."""
        with self._editing(Change("agent.remove", name)) as edit:
            agent = find_agent(edit.identities, name)
            edit.identities = attrs.evolve(
                edit.identities,
                agents=tuple(a for a in edit.identities.agents if a != agent),
                # Remove the agent from users, too: otherwise these users could access a
                # later agent of the same name.
                users=tuple(
                    attrs.evolve(
                        u, agents=tuple(n for n in u.agents if n != agent.name)
                    )
                    for u in edit.identities.users
                ),
            )
        return agent

    def add_user(
        self,
        name: str,
        agents: Sequence[str],
        impersonation: Impersonation | None,
        lifetime: timedelta | None = None,
        *,
        read_only: bool = False,
        secrets: bool = False,
        environments: Sequence[str] = (),
        show: Show[User] | None = None,
    ) -> tuple[User, str]:
        """
        Add a user, and return the user with the user's token, which kas does not store.
        A revoked user may be added again.

        :param agents: names or ids of the agents that the user may access, or only
            `ALL_AGENTS`.
        :param impersonation: the Kubernetes user to impersonate; None to act as
            agentk's own account.
        :param secrets: whether a read-only user may read Secrets.
        :param environments: environments whose agents the user may access as well.
        """
        rule = "at most 128 letters, digits and '-._@', a letter or digit at both ends"
        _check(_USER_NAME, "the name of a user", name, rule)
        if impersonation is not None:
            for subject in (impersonation.username, *impersonation.groups):
                if not is_subject(subject):
                    text = f"{subject!r} cannot be a Kubernetes user or group"
                    raise IdentityError(f"{text}: {SUBJECT_RULE}")
        details = {
            "agents": ", ".join(agents),
            "environments": ", ".join(environments),
            "as": "agentk" if impersonation is None else impersonation.username,
            "groups": "" if impersonation is None else ", ".join(impersonation.groups),
            "rights": "read-only" if read_only else "",
        }
        change = Change("user.add", name, {k: v for k, v in details.items() if v})
        with self._editing(change) as edit:
            identities = edit.identities
            same = [u for u in identities.users if u.name == name]
            if same and same[0].revoked_at is None:
                raise IdentityError(
                    f"a user {name!r} already exists; choose another name, or first "
                    f"use 'kasctl user revoke {name}'"
                )
            names = _names(identities, agents)
            within = _environments(identities, environments)
            if not (names or within):
                raise IdentityError(
                    "a user needs at least one agent or environment to reach"
                )
            token, text = self._mint(USER_PREFIX, lifetime)
            user = User(
                name,
                names,
                token,
                token.created_at,
                impersonation,
                read_only=read_only,
                secrets=secrets,
                environments=within,
            )
            others = (u for u in identities.users if u.name != name)
            edit.identities = attrs.evolve(identities, users=(*others, user))
            if show:
                edit.shows.append(partial(show, user, text))
        return user, text

    def grant_user(
        self, name: str, agents: Sequence[str], environments: Sequence[str] = ()
    ) -> User:
        """
        Give a user access to more agents.

        :param agents: names or ids of the agents, or `ALL_AGENTS`.
        :param environments: environments whose agents the user may access.
        """
        details = _reach(agents, environments)
        with self._editing(Change("user.grant", name, details)) as edit:
            user = find_user(edit.identities, name)
            if user.revoked_at is not None:
                raise IdentityError(f"the user {name!r} was revoked; add it again")
            names = _names(edit.identities, agents)
            if ALL_AGENTS in (*user.agents, *names):
                names = (ALL_AGENTS,)
            else:
                names = tuple(dict.fromkeys((*user.agents, *names)))
            within = (*user.environments, *_environments(edit.identities, environments))
            user = attrs.evolve(
                user, agents=names, environments=tuple(dict.fromkeys(within))
            )
            edit.replace_user(user)
        return user

    def ungrant_user(
        self, name: str, agents: Sequence[str], environments: Sequence[str] = ()
    ) -> User:
        """
        Remove a user's access to agents or environments; the user may be left without
        any agent.
        """
        details = _reach(agents, environments)
        with self._editing(Change("user.ungrant", name, details)) as edit:
            user = find_user(edit.identities, name)
            names = _names(edit.identities, agents)
            for agent in () if ALL_AGENTS in names else names:
                if ALL_AGENTS in user.agents:
                    raise IdentityError(
                        f"the user {name!r} may reach every agent, and single agents "
                        f"cannot be excluded: 'kasctl user ungrant {name} --agent "
                        f"{ALL_AGENTS!r}' removes all, and 'grant' adds some"
                    )
                if agent not in user.agents:
                    raise IdentityError(
                        f"the user {name!r} cannot reach the agent {agent!r} anyway"
                    )
            kept = tuple(
                agent
                for agent in user.agents
                if agent not in names and ALL_AGENTS not in names
            )
            for one in _environments(edit.identities, environments):
                if one not in user.environments:
                    raise IdentityError(
                        f"the user {name!r} has no access to the environment {one!r}"
                    )
            within = tuple(one for one in user.environments if one not in environments)
            user = attrs.evolve(user, agents=kept, environments=within)
            edit.replace_user(user)
        return user

    def remove_user(self, name: str) -> User:
        """Remove a user."""
        with self._editing(Change("user.remove", name)) as edit:
            user = find_user(edit.identities, name)
            edit.identities = attrs.evolve(
                edit.identities,
                users=tuple(u for u in edit.identities.users if u.name != user.name),
            )
        return user

    def renew_user(
        self,
        name: str,
        lifetime: timedelta | None = None,
        show: Show[User] | None = None,
    ) -> tuple[User, str]:
        """Replace the token of a user; the old token stops working at once."""
        with self._editing(Change("user.renew", name)) as edit:
            user = find_user(edit.identities, name)
            if user.revoked_at is not None:
                raise IdentityError(f"the user {name!r} was revoked; add it again")
            token, text = self._mint(USER_PREFIX, lifetime)
            user = attrs.evolve(user, token=token)
            edit.replace_user(user)
            if show:
                edit.shows.append(partial(show, user, text))
        return user, text

    def revoke_user(self, name: str) -> User:
        """Revoke the token of a user."""
        with self._editing(Change("user.revoke", name)) as edit:
            user = find_user(edit.identities, name)
            user = attrs.evolve(user, revoked_at=user.revoked_at or self.now())
            edit.replace_user(user)
        return user

    @contextmanager
    def _editing(self, *changes: Change) -> Iterator[_Edit]:
        with ExitStack() as events, self.state.lock():
            before = self.state.read(FILE_NAME)
            if before is None and self.state.read(BACKUP_NAME) is not None:
                file, backup = map(self.state.file, (FILE_NAME, BACKUP_NAME))
                # Fail instead of creating a new file, which would use old ids again.
                raise ConfigurationError(
                    [
                        f"{file} is missing although {backup} exists; copy the "
                        "backup to it, or remove the backup to start without any "
                        "agent"
                    ]
                )
            # Use one reader for both steps: few of many lines change, and the other
            # lines are neither parsed nor written again.
            reader = IdentityReader()
            edit = _Edit(Identities())
            if before is not None:
                edit = _Edit(reader.parse(before, str(self.state.file(FILE_NAME))))
            known = self._known_next_id()
            if known > edit.identities.next_agent_id:
                edit.identities = attrs.evolve(edit.identities, next_agent_id=known)
            yield edit
            for change in changes:
                events.enter_context(self.recording(change))
            self._write(before, reader, edit)

    def _known_next_id(self) -> int:
        """
        Return the id of the next agent as of the last change, even if an older identity
        file was restored since; 0 if it is unknown.
        """
        data = self.state.read(NEXT_ID_NAME)
        if data is None:
            return 0
        if not _NEXT_ID.fullmatch(data):
            raise ConfigurationError(
                [
                    f"{self.state.file(NEXT_ID_NAME)} does not contain the id of the "
                    "next agent; write a number that is larger than the id of any "
                    "agent that ever existed"
                ]
            )
        return int(data)

    def _write(self, before: bytes | None, reader: IdentityReader, edit: _Edit) -> None:
        file = self.state.file(FILE_NAME)
        try:
            data = reader.dump(edit.identities)
        except ValueError:
            raise ConfigurationError(
                [f"{file}: the new content could not be read back; nothing was changed"]
            ) from None
        if len(data) > MAX_FILE:
            raise ConfigurationError(
                [
                    f"{file} would be larger than {MAX_FILE // 2**20} MiB, too "
                    "large for kas; remove agents or users that are not needed"
                ]
            )
        contents = {FILE_NAME: data}
        if before is not None:
            contents = {BACKUP_NAME: before, **contents}
        next_id = edit.identities.next_agent_id
        if next_id > self._known_next_id():
            # Replace this file first, so that no agent exists whose id is unknown here.
            contents = {NEXT_ID_NAME: b"%d\n" % next_id, **contents}
        with ExitStack() as stack:
            replacements = []
            for name, content in contents.items():
                replacement = stack.enter_context(self.state.replacement(name))
                replacements.append(replacement)
                replacement.write(content)
            for show in edit.shows:
                show()
            for replacement in replacements:
                replacement.commit()

    def _mint(self, prefix: str, lifetime: timedelta | None) -> tuple[Token, str]:
        number = self.random(8).hex()
        text = f"{prefix}-{number}-{_urlsafe(self.random(32))}"
        now = self.now()
        expires = None if lifetime is None else now + lifetime
        return Token(number, digest(text.encode()).hex(), now, expires), text


@attrs.define(eq=False)
class _Edit:
    """
    Change of the file that is in progress.

    :ivar shows: functions that are called when the new content is on disk, before it
        takes effect.
    """

    identities: Identities
    shows: list[Callable[[], object]] = attrs.Factory(list)

    def replace_agent(self, agent: Agent) -> None:
        agents = (agent if a.id == agent.id else a for a in self.identities.agents)
        self.identities = attrs.evolve(self.identities, agents=tuple(agents))

    def replace_user(self, user: User) -> None:
        users = (user if u.name == user.name else u for u in self.identities.users)
        self.identities = attrs.evolve(self.identities, users=tuple(users))


def _names(identities: Identities, agents: Sequence[str]) -> tuple[str, ...]:
    """
    Return the names of *agents* (names or ids) without duplicates, or only
    `ALL_AGENTS`.
    """
    if ALL_AGENTS in agents:
        return (ALL_AGENTS,)
    found = [find_agent(identities, agent).name for agent in agents]
    return tuple(dict.fromkeys(found))


def _environments(identities: Identities, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of environments without duplicates."""
    return tuple(
        dict.fromkeys(find_environment(identities, name).name for name in names)
    )


def _reach(agents: Sequence[str], environments: Sequence[str]) -> dict[str, str]:
    """Return the details of a change of the agents that a user may access."""
    found = {"agents": ", ".join(agents), "environments": ", ".join(environments)}
    return {name: text for name, text in found.items() if text}


def _urlsafe(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def find_agent(identities: Identities, name: str) -> Agent:
    """
    Return the agent with this name or id.

    :raises IdentityError: if the agent does not exist; the text suggests a similar
        name.
    """
    for agent in identities.agents:
        if name in (agent.name, agent.id):
            return agent
    hint = nearest(name, [agent.name for agent in identities.agents])
    raise IdentityError(f"no agent has the name {name!r}; {hint}")


def find_environment(identities: Identities, name: str) -> Environment:
    """
    Return the environment with this name.

    :raises IdentityError: if the environment does not exist; the text suggests a
        similar name.
    """
    for one in identities.environments:
        if one.name == name:
            return one
    hint = nearest(name, [one.name for one in identities.environments])
    raise IdentityError(f"no environment has the name {name!r}; {hint}")


def find_user(identities: Identities, name: str) -> User:
    """
    Return the user with this name.

    :raises IdentityError: if the user does not exist; the text suggests a similar name.
    """
    for user in identities.users:
        if user.name == name:
            return user
    hint = nearest(name, [user.name for user in identities.users])
    raise IdentityError(f"no user has the name {name!r}; {hint}")
