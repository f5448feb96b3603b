"""
`kasctl`: what an operator does beside kas, on the machine where kas runs.

    cli.py          the commands, and how errors are shown
    common.py       options that every command has; output for people and as JSON
    agents.py       which agents there are, for several commands
    identities.py   agent ..., user ...
    kubeconfig.py   kubeconfig
    kubeconfig_file.py  the file that it merges into
    manifest.py     agent manifest
    authority.py    the CA that goes into both
    checks.py       config check
    status.py       status
    doctor.py       doctor
    fleet.py        drain, rebalance
    token.py        token
    asking.py       how a kas that runs is asked
    completion.py   names for the shell
"""

from __future__ import annotations

from kas.missing import not_installed


def main() -> None:
    """The entry point."""
    try:
        from kas.ctl.cli import cli
    except ModuleNotFoundError as error:
        not_installed("kasctl", error)
    cli(prog_name="kasctl")
