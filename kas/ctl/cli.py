"""All commands together."""

from __future__ import annotations

import click

from kas.ctl import checks, doctor, fleet, kubeconfig, login, manifest, status, token
from kas.ctl.gitops import gitops
from kas.ctl.identities import agent, user
from tunnel import __version__

__all__ = ["cli"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kasctl")
def cli() -> None:
    """
    Work beside a running kas: agents, users, kubeconfigs, checks.

    It changes the state directory of kas on this machine, and kas notices within two
    seconds.
    """


cli.add_command(agent)
manifest.declare(agent)
cli.add_command(user)
cli.add_command(checks.config)
cli.add_command(gitops)
kubeconfig.declare(cli)
status.declare(cli)
doctor.declare(cli)
fleet.declare(cli)
token.declare(cli)
login.declare(cli)
