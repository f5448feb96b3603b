"""Completion of names, which the shell requests at each Tab."""

from __future__ import annotations

import os
from collections.abc import Iterable

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


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def complete_agents(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the agents that may connect."""
    return _beginning(incomplete, (one.name for one in _identities(context).agents))


def complete_users(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the users that are not revoked."""
    users = _identities(context).users
    return _beginning(incomplete, (one.name for one in users if one.revoked_at is None))


def complete_environments(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the environments."""
    found = _identities(context).environments
    return _beginning(incomplete, (one.name for one in found))
