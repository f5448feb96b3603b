"""The `kasctl` command group with all commands."""

from __future__ import annotations

import click

from kas.ctl.lazy import LazyGroup
from tunnel import __version__
from tunnel.compiled import build_name

__all__ = ["cli"]

_FILES = {
    "agent": "identities",
    "applications": "live",
    "audit": "audit",
    "clusters": "live",
    "components": "live",
    "config": "checks",
    "doctor": "doctor",
    "drain": "fleet",
    "environment": "environments",
    "events": "live",
    "get": "live",
    "gitops": "gitops",
    "kubeconfig": "kubeconfig",
    "login": "login",
    "logout": "login",
    "problems": "live",
    "prometheus": "prometheus",
    "rebalance": "fleet",
    "session": "sessions",
    "status": "status",
    "token": "token",
    "top": "top",
    "user": "identities",
    "webhooks": "webhooks",
}


@click.group(
    cls=LazyGroup,
    files=_FILES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(f"{__version__} ({build_name()})", prog_name="kasctl")
def cli() -> None:
    """
    Work beside a running kas: agents, users, kubeconfigs, checks.

    It changes the state directory of kas on this machine, and kas notices within two
    seconds.
    """
