"""Completion of names, which the shell requests at each Tab."""

from __future__ import annotations

import os

import click

from kas.ctl.common import Ctl
from kas.identity.file import Identities
from kas.identity.store import IdentityStore
from kas.state.directory import StateDirectory, locate
from tunnel.errors import TunnelError

__all__ = ["complete_agents", "complete_environments", "complete_users"]


def _identities(context: click.Context) -> Identities:
    """
    Read the identity file; return empty identities on an error, because a shell waits.
    """
    try:
        path = locate(context.params.get("state_directory"), os.environ)
        state = StateDirectory.open(path, create=False)
        return IdentityStore(state, Ctl.now).load()
    except (TunnelError, OSError):
        return Identities()


def complete_agents(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the agents that may connect."""
    return [
        agent.name
        for agent in _identities(context).agents
        if agent.name.startswith(incomplete)
    ]


def complete_users(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the users that are not revoked."""
    return [
        user.name
        for user in _identities(context).users
        if user.revoked_at is None and user.name.startswith(incomplete)
    ]


def complete_environments(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the environments."""
    return [
        one.name
        for one in _identities(context).environments
        if one.name.startswith(incomplete)
    ]
