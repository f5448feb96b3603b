"""
`kasctl`: what an operator does beside kas, on the machine where kas runs.

    cli.py          the commands
    lazy.py         which are loaded when they are asked for
    common.py       options that every command has; output for people and as JSON
    secret_files.py  files with tokens, kubeconfigs among them: how they are written
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
    login.py        login, logout
    sign_in.py      how a person signs in, and how the tokens are renewed
    kept_tokens.py  the files in which they are kept
    asking.py       how a kas that runs is asked
    calls.py        how services of its modules are called
    gitops.py       gitops ...
    completion.py   names for the shell
"""

from __future__ import annotations

import gc

from kas.missing import not_installed


def main() -> None:
    """The entry point."""
    # What a command reads stays until its end: to look for garbage among a hundred
    # thousand agents every few hundred objects takes a fifth of its time.
    gc.set_threshold(100_000, 50, 50)
    try:
        from kas.ctl.cli import cli

        cli(prog_name="kasctl")
    except ModuleNotFoundError as error:
        not_installed("kasctl", error)
