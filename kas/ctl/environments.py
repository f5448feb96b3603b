"""``kasctl environment``: named groups of agents, selected by their labels."""

from __future__ import annotations

from typing import Any

import click

from kas.ctl.common import Ctl, command
from kas.ctl.completion import complete_environments
from kas.identity.environments import Environment
from kas.identity.file import Identities

__all__ = ["declare"]


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    group.add_command(environment)


@click.group()
def environment() -> None:
    """Named groups of agents, by their labels."""


def _agents(identities: Identities, found: Environment) -> list[str]:
    return [
        one.name
        for one in identities.agents
        if one.revoked_at is None and found.matches(one.labels)
    ]


def _users(identities: Identities, found: Environment) -> list[str]:
    return [
        one.name
        for one in identities.users
        if one.revoked_at is None and found.name in one.environments
    ]


def _content(identities: Identities, found: Environment) -> dict[str, Any]:
    return {
        "name": found.name,
        "selector": found.selector,
        "agents": _agents(identities, found),
        "users": _users(identities, found),
    }


@command(environment, "set")
@click.argument("name")
@click.argument("selector")
def set_environment(ctl: Ctl, name: str, selector: str) -> None:
    """
    Create an environment, or change its selector.

    SELECTOR is a label selector, such as 'env=prod,region in (eu, us)'.  If users have
    access to the environment, a change takes effect within two seconds.
    """
    store = ctl.store(create=True)
    found = store.set_environment(name, selector)
    content = _content(store.load(), found)
    shown = ", ".join(content["agents"]) or "none"
    ctl.result({"environment": content}, f"agents of environment {name}: {shown}")


@command(environment, "list")
def list_environments(ctl: Ctl) -> None:
    """Show every environment with its agents, and the users with access to it."""
    identities = ctl.store().load()
    listed = [_content(identities, one) for one in identities.environments]
    ctl.table(
        listed,
        ("NAME", "SELECTOR", "AGENTS", "USERS"),
        (
            (
                one["name"],
                one["selector"],
                ", ".join(one["agents"]) or "none",
                ", ".join(one["users"]) or "none",
            )
            for one in listed
        ),
    )


@command(environment, "remove")
@click.argument("name", shell_complete=complete_environments)
def remove_environment(ctl: Ctl, name: str) -> None:
    """Remove an environment, and the access that users have through it."""
    found = ctl.store().remove_environment(name)
    ctl.result(
        {"environment": {"name": found.name, "selector": found.selector}},
        f"environment {found.name} was removed",
    )
