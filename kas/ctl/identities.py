"""
``kasctl agent`` and ``kasctl user``: agents that may connect, and users that may access
them.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from kas.ctl import agents
from kas.ctl.common import (
    DURATION,
    Ctl,
    command,
    expires_option,
    no_token_made,
    printable,
    shown_time,
    token_file,
)
from kas.ctl.completion import (
    complete_agents,
    complete_environments,
    complete_users,
)
from kas.ctl.lazy import LazyGroup
from kas.ctl.secret_files import secret_file
from kas.identity.file import ALL_AGENTS, MAX_PROJECT_ID, SYSTEM, Agent, User
from kas.identity.store import Show, find_environment
from kas.state.pki import DevelopmentPki
from kas.state.running import AGENTS
from tunnel.api import Impersonation
from tunnel.errors import ConfigurationError
from tunnel.kubernetes import label_requirements

__all__ = ["Rights", "access_options", "declare", "make_rights"]

_T = TypeVar("_T", Agent, User)

# Default grace time for an old token: long enough to replace a Secret in a cluster by
# hand.
GRACE = "24h"


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    group.add_command(agent)
    group.add_command(user)


@click.group(cls=LazyGroup, files={"install": "install", "manifest": "manifest"})
def agent() -> None:
    """Clusters that may connect."""


@click.group()
def user() -> None:
    """Users who may reach agents."""


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _agent_content(found: Agent) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "project_id": found.project_id or None,
        "labels": dict(found.labels),
        "created_at": _time(found.created_at),
        "revoked_at": _time(found.revoked_at),
        "tokens": [
            {
                "id": token.id,
                "created_at": _time(token.created_at),
                "expires_at": _time(token.expires_at),
            }
            for token in found.tokens
        ],
    }


def _user_content(found: User) -> dict[str, Any]:
    who = found.impersonation
    return {
        "name": found.name,
        "agents": list(found.agents),
        "environments": list(found.environments),
        "as_agent": who is None,
        "read_only": found.read_only,
        "secrets": found.secrets,
        "as": None if who is None else who.username,
        "groups": [] if who is None else list(who.groups),
        "created_at": _time(found.created_at),
        "expires_at": _time(found.token.expires_at),
        "revoked_at": _time(found.revoked_at),
    }


@contextmanager
def _hand_over(
    ctl: Ctl, kind: str, content: Callable[[_T], dict[str, Any]], path: Path | None
) -> Iterator[Show[_T]]:
    """
    Provide a function that prints a new token, or writes it to a file.

    The token is delivered before the identity file changes, so that every valid token
    was delivered.
    """
    if path is None:
        yield functools.partial(_print_token, ctl, kind, content)
        ctl.note(
            "This token is shown only once.  Keep it in a file that only its user "
            "can read (mode 0600; --token-file FILE makes one)."
        )
        return
    shown: dict[str, Any] = {}
    with secret_file(path) as write:

        def keep(found: _T, token: str) -> None:
            shown.update(content(found))
            write(token)

        yield keep
    name = shown["name"]
    number = f" has the id {shown['id']}; its" if "id" in shown else ": the"
    ctl.result(
        {kind: shown, "token_file": str(path)},
        f"{kind} {name}{number} token is in {path}",
    )


def _print_token(
    ctl: Ctl, kind: str, content: Callable[[_T], dict[str, Any]], found: _T, token: str
) -> None:
    shown = content(found)
    if "id" in shown:
        ctl.note(f"agent {shown['name']} has the id {shown['id']}; its token:")
    with no_token_made():
        ctl.result({kind: shown, "token": token}, token)


def _explain_start(ctl: Ctl, path: Path | None) -> None:
    authority = _authority(ctl)
    running = next(iter(ctl.all_running()), None)
    here = None if running is None else running.find(AGENTS)
    port = 8150 if here is None else here.address.rpartition(":")[2]
    ctl.note(
        f"Start the agent with:\n  agentk --kas-address tls://<kas>:{port} "
        f"--token-file {path or 'FILE'}"
        + (
            f" \\\n    --ca-cert-file {authority}\n"
            "(the CA only while kas uses its development certificate)"
            if authority is not None
            else ""
        )
    )


def _authority(ctl: Ctl) -> Path | None:
    """
    Return the CA of the development certificate, for the output of a new token, because
    agentk may start before kas.
    """
    try:
        files = DevelopmentPki(ctl.state(), socket.gethostname(), ctl.now).ensure()
    except ConfigurationError as error:
        # Continue with a note: the token was already made, and kas will refuse to start
        # for the same reason.
        ctl.note(str(error))
        return None
    return files.ca_file


@command(agent, "add")
@click.argument("name")
@click.option(
    "--project-id",
    type=click.IntRange(1, MAX_PROJECT_ID),
    default=None,
    metavar="N",
    help="The project that the agent belongs to, for modules that ask for it.",
)
@token_file
def add_agent(
    ctl: Ctl, name: str, project_id: int | None, token_file: Path | None
) -> None:
    """Allow a cluster to connect, and print its token."""
    if token_file is not None and os.path.lexists(token_file):
        # Another agent may read the file, and would then connect with the new token.
        raise ConfigurationError(
            [f"{token_file} already exists; pass another file, or remove it"]
        )
    with _hand_over(ctl, "agent", _agent_content, token_file) as show:
        ctl.store(create=True).add_agent(name, project_id or 0, show)
    _explain_start(ctl, token_file)


@command(agent, "list")
@click.option(
    "-l",
    "--selector",
    default="",
    help="Only agents with these labels, such as 'env=prod,region!=eu'.",
)
@click.option("--environment", default="", help="Only agents of this environment.")
def list_agents(ctl: Ctl, selector: str, environment: str) -> None:
    """Show every agent, and its connections to any kas."""
    identities = ctl.store().load()
    listed = identities.agents
    selectors = [selector] if selector else []
    if environment:
        selectors.append(find_environment(identities, environment).selector)
    try:
        required = [one for text in selectors for one in label_requirements(text)]
    except ValueError as error:
        raise ConfigurationError([str(error)]) from None
    listed = tuple(
        one for one in listed if all(each.matches(one.labels) for each in required)
    )
    labels = ("LABELS",) if any(one.labels for one in listed) else ()
    now = ctl.now()
    known = agents.look(ctl, ctl.all_running())
    found = {} if known is None else known.agents

    def state(one: Agent) -> tuple[str, ...]:
        cells = agents.row(found.get(one.id))
        return ("revoked", *cells[1:]) if one.revoked_at else cells

    ours = {one.id for one in identities.agents}
    others = [
        one
        for agent_id, one in found.items()
        # Agents of GitLab have no labels here.
        if agent_id not in ours and not selectors
    ]
    ctl.table(
        [
            *(
                {**_agent_content(one), **_connected(found.get(one.id))}
                for one in listed
            ),
            *(
                {"id": one["agent_id"], "name": one["agent_name"], **_connected(one)}
                for one in others
            ),
        ],
        ("ID", "NAME", *agents.HEAD, "TOKENS", "PROJECT", "CREATED", *labels),
        [
            *(
                (
                    one.id,
                    one.name,
                    *state(one),
                    sum(token.valid_at(now) for token in one.tokens),
                    one.project_id or "none",
                    shown_time(one.created_at),
                    *(_labels(one) for _ in labels),
                )
                for one in listed
            ),
            # Only GitLab has the other data of these agents.
            *(
                (
                    one["agent_id"],
                    printable(one["agent_name"]),
                    *agents.row(one),
                    "GitLab's",
                    "GitLab's",
                    "",
                    *("" for _ in labels),
                )
                for one in others
            ),
        ],
    )
    if known is None:
        ctl.note("No kas runs here that could report which agents are connected.")
        return
    for text in (*known.problems, *known.clusters):
        ctl.note(text)


def _connected(found: dict[str, Any] | None) -> dict[str, Any]:
    """
    Return the connection details of an agent; each is None if no kas could tell them.
    """
    keys = ("connected", "last_seen", "connections")
    return {key: None if found is None else found[key] for key in keys}


def _labels(found: Agent) -> str:
    return ",".join(f"{key}={value}" for key, value in found.labels.items())


@command(agent, "label")
@click.argument("name", shell_complete=complete_agents)
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE|KEY-...")
def label_agent(ctl: Ctl, name: str, changes: tuple[str, ...]) -> None:
    """
    Set labels of an agent; KEY- removes one.

    Environments select agents by their labels, so a label may change which agents users
    can reach.  An agent cannot set its own labels.
    """
    labels: dict[str, str] = {}
    removed: list[str] = []
    for change in changes:
        key, separator, value = change.partition("=")
        if separator:
            labels[key] = value
        elif change.endswith("-"):
            removed.append(change[:-1])
        else:
            raise ConfigurationError(
                [f"{change!r} is neither KEY=VALUE, which sets a label, nor KEY-"]
            )
    found = ctl.store().label_agent(name, labels, removed)
    shown = _labels(found) or "none"
    ctl.result(
        {"agent": _agent_content(found)}, f"labels of agent {found.name}: {shown}"
    )


@command(agent, "rotate")
@click.argument("name", shell_complete=complete_agents)
@click.option(
    "--grace",
    type=DURATION,
    default=GRACE,
    show_default=True,
    help="How long the previous token stays valid; 0 ends it now.",
)
@token_file
def rotate_agent(
    ctl: Ctl, name: str, grace: timedelta, token_file: Path | None
) -> None:
    """
    Print a new token; the previous one stays valid for a grace time, older ones end
    now.
    """
    with _hand_over(ctl, "agent", _agent_content, token_file) as show:
        ctl.store().rotate_agent(name, grace, show)
    _explain_start(ctl, token_file)


@command(agent, "revoke")
@click.argument("name", shell_complete=complete_agents)
def revoke_agent(ctl: Ctl, name: str) -> None:
    """End every token of an agent; kas closes its tunnels within two seconds."""
    found = ctl.store().revoke_agent(name)
    ctl.result({"agent": _agent_content(found)}, f"agent {found.name} was revoked")


@command(agent, "remove")
@click.argument("name", shell_complete=complete_agents)
def remove_agent(ctl: Ctl, name: str) -> None:
    """Remove an agent, and all permissions to reach it."""
    found = ctl.store().remove_agent(name)
    ctl.result({"agent": _agent_content(found)}, f"agent {found.name} was removed")


agents_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    help=f"Name or id of an agent, repeatable; '{ALL_AGENTS}' is every one.",
    shell_complete=complete_agents,
)

environments_option = click.option(
    "--environment",
    "environments",
    multiple=True,
    help="Name of an environment, repeatable: all agents with its labels, now and "
    "later.",
    shell_complete=complete_environments,
)


def _require_reach(agents: Sequence[str], environments: Sequence[str]) -> None:
    if not (agents or environments):
        raise click.UsageError("Missing option '--agent' or '--environment'.")


def access_options(function: Any) -> Any:
    """Add ``--as``, ``--group``, ``--as-agent``, ``--read-only`` and their options."""
    for option in (
        expires_option,
        click.option(
            "--read-only",
            is_flag=True,
            help=(
                "Allow only requests that change nothing: no Secrets, no exec, "
                "attach or port-forward.  Without --as, with agentk's permissions."
            ),
        ),
        click.option(
            "--secrets", is_flag=True, help="With --read-only: allow reading Secrets."
        ),
        click.option(
            "--force",
            is_flag=True,
            help=(
                "Allow --as and --group to name Kubernetes' own users and groups, "
                "which begin with 'system:'."
            ),
        ),
        click.option(
            "--as-agent",
            is_flag=True,
            help="Act with the permissions of agentk itself.",
        ),
        click.option(
            "--group",
            "groups",
            multiple=True,
            help="With --as: a Kubernetes group to act as, repeatable.",
        ),
        click.option("--as", "username", help="The Kubernetes user to act as."),
    ):
        function = option(function)
    return function


@attrs.frozen
class Rights:
    """Permissions that the options of a command give to a user."""

    impersonation: Impersonation | None
    read_only: bool
    secrets: bool
    #: Whether any of these options was given.
    given: bool

    def require(self, name: str) -> None:
        """
        Require that the permissions of a new user were given.

        :raises click.UsageError: if no permissions were given.
        """
        if not self.given:
            raise click.UsageError(
                f"specify the permissions of the new user {name!r}: --as USER [--group "
                "GROUP] for the permissions of a Kubernetes user, --as-agent for all "
                "permissions of agentk, or --read-only to read without changing "
                "anything"
            )


def make_rights(
    username: str | None,
    groups: tuple[str, ...],
    as_agent: bool,
    read_only: bool,
    secrets: bool,
    force: bool,
) -> Rights:
    """
    Return the permissions that these options describe together, after checking them.
    """
    if secrets and not read_only:
        raise click.UsageError("--secrets needs --read-only")
    named = (username or "", *groups)
    if not force and (system := [one for one in named if one.startswith(SYSTEM)]):
        raise click.UsageError(
            f"{system[0]!r} is one of Kubernetes' own users or groups, which can have "
            "all permissions in a cluster; --force allows it"
        )
    if as_agent and (username or groups):
        raise click.UsageError("--as-agent excludes --as and --group")
    if groups and not username:
        raise click.UsageError("--group needs --as USER")
    who = Impersonation(username, groups) if username else None
    given = bool(username or as_agent or read_only)
    return Rights(who, read_only, secrets, given)


@command(user, "add")
@click.argument("name")
@agents_option
@environments_option
@access_options
@token_file
def add_user(
    ctl: Ctl,
    name: str,
    agents: tuple[str, ...],
    environments: tuple[str, ...],
    username: str | None,
    groups: tuple[str, ...],
    as_agent: bool,
    expires: timedelta | None,
    read_only: bool,
    secrets: bool,
    force: bool,
    token_file: Path | None,
) -> None:
    """Allow a user to reach agents, and print the token."""
    _require_reach(agents, environments)
    rights = make_rights(username, groups, as_agent, read_only, secrets, force)
    rights.require(name)
    with _hand_over(ctl, "user", _user_content, token_file) as show:
        ctl.store(create=True).add_user(
            name,
            agents,
            rights.impersonation,
            expires,
            read_only=rights.read_only,
            secrets=rights.secrets,
            environments=environments,
            show=show,
        )
    ctl.note(
        "For kubectl, create a kubeconfig with 'kasctl kubeconfig --agent NAME "
        "--token-file FILE'."
    )


@command(user, "list")
def list_users(ctl: Ctl) -> None:
    """Show every user."""
    users = ctl.store().load().users
    now = ctl.now()

    def state(found: User) -> str:
        if found.revoked_at:
            return "revoked"
        return "active" if found.token.valid_at(now) else "expired"

    ctl.table(
        [_user_content(found) for found in users],
        ("NAME", "STATE", "AGENTS", "ACTS AS", "EXPIRES"),
        (
            (
                found.name,
                state(found),
                ", ".join(_reached(found)) or "none",
                _acts_as(found),
                "never" if (end := found.token.expires_at) is None else shown_time(end),
            )
            for found in users
        ),
    )


def _acts_as(found: User) -> str:
    who = found.impersonation
    words = ["agentk itself"] if who is None else [who.username]
    words += [] if who is None else [f"group {group}" for group in who.groups]
    if found.read_only:
        words.append("read-only with Secrets" if found.secrets else "read-only")
    return ", ".join(words)


@command(user, "revoke")
@click.argument("name", shell_complete=complete_users)
def revoke_user(ctl: Ctl, name: str) -> None:
    """End the token of a user; kas closes the user's connections within two seconds."""
    found = ctl.store().revoke_user(name)
    ctl.result({"user": _user_content(found)}, f"user {found.name} was revoked")


@command(user, "grant")
@click.argument("name", shell_complete=complete_users)
@agents_option
@environments_option
def grant_user(
    ctl: Ctl, name: str, agents: tuple[str, ...], environments: tuple[str, ...]
) -> None:
    """Let a user reach more agents; open connections stay open."""
    _require_reach(agents, environments)
    _show_reach(ctl, ctl.store().grant_user(name, agents, environments))


@command(user, "ungrant")
@click.argument("name", shell_complete=complete_users)
@agents_option
@environments_option
def ungrant_user(
    ctl: Ctl, name: str, agents: tuple[str, ...], environments: tuple[str, ...]
) -> None:
    """
    Take agents from a user; kas closes the user's connections to them within two
    seconds.
    """
    _require_reach(agents, environments)
    _show_reach(ctl, ctl.store().ungrant_user(name, agents, environments))


def _reached(found: User) -> list[str]:
    within = [f"environment {one}" for one in found.environments]
    return [*found.agents, *within]


def _show_reach(ctl: Ctl, found: User) -> None:
    reach = ", ".join(_reached(found)) or "none"
    if ALL_AGENTS in found.agents:
        reach = "every agent"
    ctl.result({"user": _user_content(found)}, f"user {found.name} may reach: {reach}")


@command(user, "remove")
@click.argument("name", shell_complete=complete_users)
def remove_user(ctl: Ctl, name: str) -> None:
    """Remove a user; kas closes the user's connections within two seconds."""
    found = ctl.store().remove_user(name)
    ctl.result({"user": _user_content(found)}, f"user {found.name} was removed")
