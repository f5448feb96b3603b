"""``kasctl agent`` and ``kasctl user``: who may connect, and who may ask."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from kas.ctl.common import DURATION, Ctl, command, token_file, token_target
from kas.identity_file import ALL_AGENTS, MAX_PROJECT_ID, Agent, User
from kas.pki import DevelopmentPki
from kas.running import AGENTS
from tunnel.errors import ConfigurationError
from tunnel.interfaces import Impersonation

__all__ = ["access_options", "agent", "make_access", "user"]

# Long enough to replace a Secret in a cluster by hand, short enough to be the end.
GRACE = "24h"


@click.group()
def agent() -> None:
    """Clusters that may connect."""


@click.group()
def user() -> None:
    """Who may reach them."""


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _agent_content(found: Agent) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "project_id": found.project_id or None,
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
        "as_agent": who is None,
        "read_only": found.read_only,
        "as": None if who is None else who.username,
        "groups": [] if who is None else list(who.groups),
        "created_at": _time(found.created_at),
        "expires_at": _time(found.token.expires_at),
        "revoked_at": _time(found.revoked_at),
    }


def _show_token(ctl: Ctl, kind: str, content: Any, token: str, path: Any) -> None:
    if path:
        name = content["name"]
        number = f" has the id {content['id']}; its" if "id" in content else ": the"
        ctl.result(
            {kind: content, "token_file": str(path)},
            f"{kind} {name}{number} token is in {path}",
        )
    else:
        if "id" in content:
            ctl.note(f"agent {content['name']} has the id {content['id']}; its token:")
        ctl.result({kind: content, "token": token}, token)
        ctl.note(
            "This token is shown only this once.  Keep it in a file that only its user "
            "can read (mode 0600; --token-file FILE makes one)."
        )


def _show_agent(ctl: Ctl, found: Agent, token: str, path: Path | None) -> None:
    _show_token(ctl, "agent", _agent_content(found), token, path)
    authority = _authority(ctl)
    running = next(iter(ctl.all_running()), None)
    here = None if running is None else running.find(AGENTS)
    port = 8150 if here is None else here.address.rpartition(":")[2]
    ctl.note(
        f"Start the agent with:\n  twistd -n agentk --kas-address tls://<kas>:{port} "
        f"--token-file {path or 'FILE'}"
        + (
            f" \\\n    --ca-cert-file {authority}\n"
            "(the CA only while kas uses its development certificate)"
            if authority is not None
            else ""
        )
    )


def _authority(ctl: Ctl) -> Path | None:
    """The CA of the development certificate: agentk may be started before kas."""
    try:
        files = DevelopmentPki(ctl.state(), socket.gethostname(), ctl.now).ensure()
    except ConfigurationError as error:
        # The token is made, and kas will refuse to start for the same reason.
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
    if token_file is not None and token_file.exists():
        # Perhaps another agent reads it, and would be this one from then on.
        raise ConfigurationError(
            [f"{token_file}: is there already; name another file, or remove it"]
        )
    with token_target(token_file) as write:
        found, token = ctl.store(create=True).add_agent(name, project_id or 0)
        write(token)
    _show_agent(ctl, found, token, token_file)


@command(agent, "list")
def list_agents(ctl: Ctl) -> None:
    """Show every agent."""
    agents = ctl.store().load().agents
    now = ctl.now()
    ctl.table(
        [_agent_content(found) for found in agents],
        ("ID", "NAME", "PROJECT", "STATE", "TOKENS", "CREATED"),
        (
            (
                found.id,
                found.name,
                found.project_id or "none",
                "revoked" if found.revoked_at else "active",
                sum(token.valid_at(now) for token in found.tokens),
                _time(found.created_at),
            )
            for found in agents
        ),
    )


@command(agent, "rotate")
@click.argument("name")
@click.option(
    "--grace",
    type=DURATION,
    default=GRACE,
    show_default=True,
    help="How long the token before stays valid; 0 ends it now.",
)
@token_file
def rotate_agent(
    ctl: Ctl, name: str, grace: timedelta, token_file: Path | None
) -> None:
    """Print a new token; the one before ends after a grace time, older ones now."""
    with token_target(token_file) as write:
        found, token = ctl.store().rotate_agent(name, grace)
        write(token)
    _show_agent(ctl, found, token, token_file)


@command(agent, "revoke")
@click.argument("name")
def revoke_agent(ctl: Ctl, name: str) -> None:
    """End every token of an agent; kas cuts its tunnels within two seconds."""
    found = ctl.store().revoke_agent(name)
    ctl.result({"agent": _agent_content(found)}, f"agent {found.name} is revoked")


@command(agent, "remove")
@click.argument("name")
def remove_agent(ctl: Ctl, name: str) -> None:
    """Forget an agent, and that any user could reach it."""
    found = ctl.store().remove_agent(name)
    ctl.result({"agent": _agent_content(found)}, f"agent {found.name} is removed")


agents_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    required=True,
    help=f"Name or id of an agent, repeatable; '{ALL_AGENTS}' is every one.",
)


def access_options(function: Any) -> Any:
    """``--as``, ``--group``, ``--as-agent``, ``--expires``."""
    for option in (
        click.option("--expires", type=DURATION, help="How long the token is valid."),
        click.option(
            "--as-agent", is_flag=True, help="Act with the rights of agentk itself."
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


def make_access(
    username: str | None, groups: tuple[str, ...], as_agent: bool
) -> Impersonation | None:
    """What those options mean together."""
    if as_agent and (username or groups):
        raise click.UsageError("--as-agent goes without --as and --group")
    if groups and not username:
        raise click.UsageError("--group needs --as USER")
    return Impersonation(username, groups) if username else None


@command(user, "add")
@click.argument("name")
@agents_option
@click.option(
    "--read-only",
    is_flag=True,
    help="Let through only what changes nothing; no exec, attach or port-forward.",
)
@access_options
@token_file
def add_user(
    ctl: Ctl,
    name: str,
    agents: tuple[str, ...],
    username: str | None,
    groups: tuple[str, ...],
    as_agent: bool,
    expires: timedelta | None,
    read_only: bool,
    token_file: Path | None,
) -> None:
    """Allow somebody to reach agents, and print the token."""
    access = make_access(username, groups, as_agent)
    if access is None and not as_agent:
        raise click.UsageError(
            "say with whose rights: --as USER [--group GROUP], or --as-agent for those "
            "of agentk itself"
        )
    with token_target(token_file) as write:
        found, token = ctl.store(create=True).add_user(
            name, agents, access, expires, read_only=read_only
        )
        write(token)
    _show_token(ctl, "user", _user_content(found), token, token_file)
    ctl.note(
        "For kubectl, 'kasctl kubeconfig --agent NAME --token-file FILE' makes a file."
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

    def acts_as(found: User) -> str:
        if (who := found.impersonation) is None:
            return "agentk itself"
        return ", ".join((who.username, *(f"group {group}" for group in who.groups)))

    ctl.table(
        [_user_content(found) for found in users],
        ("NAME", "STATE", "AGENTS", "ACTS AS", "EXPIRES"),
        (
            (
                found.name,
                state(found),
                ", ".join(found.agents) or "none",
                acts_as(found),
                _time(found.token.expires_at) or "never",
            )
            for found in users
        ),
    )


@command(user, "revoke")
@click.argument("name")
def revoke_user(ctl: Ctl, name: str) -> None:
    """End the token of a user; kas cuts what it has open within two seconds."""
    found = ctl.store().revoke_user(name)
    ctl.result({"user": _user_content(found)}, f"user {found.name} is revoked")


@command(user, "grant")
@click.argument("name")
@agents_option
def grant_user(ctl: Ctl, name: str, agents: tuple[str, ...]) -> None:
    """Let a user reach more agents; what it has open goes on."""
    _show_reach(ctl, ctl.store().grant_user(name, agents))


@command(user, "ungrant")
@click.argument("name")
@agents_option
def ungrant_user(ctl: Ctl, name: str, agents: tuple[str, ...]) -> None:
    """Take agents from a user; kas cuts what the user has open within two seconds."""
    _show_reach(ctl, ctl.store().ungrant_user(name, agents))


def _show_reach(ctl: Ctl, found: User) -> None:
    reach = ", ".join(found.agents) or "none"
    if ALL_AGENTS in found.agents:
        reach = "every agent"
    ctl.result({"user": _user_content(found)}, f"user {found.name} may reach: {reach}")


@command(user, "remove")
@click.argument("name")
def remove_user(ctl: Ctl, name: str) -> None:
    """Forget a user; kas cuts what it has open within two seconds."""
    found = ctl.store().remove_user(name)
    ctl.result({"user": _user_content(found)}, f"user {found.name} is removed")
