"""
`kasctl`: the operator's commands, on the machine where kas runs.

    cli.py          the commands
    lazy.py         loads a command's file on demand
    common.py       options of every command; output for users and as JSON
    secret_files.py  writes files with tokens, including kubeconfigs
    agents.py       the list of agents, for several commands
    identities.py   agent ..., user ...
    kubeconfig.py   kubeconfig
    kubeconfig_file.py  the file that it merges into
    manifest.py     agent manifest
    install.py      agent install
    cluster_client.py  client of the API server for it
    authority.py    the CA for both
    checks.py       config check
    status.py       status
    doctor.py       doctor
    fleet.py        drain, rebalance
    token.py        token
    login.py        login, logout
    sign_in.py      sign-in with an identity provider, and renewal of tokens
    kept_tokens.py  the files with cached tokens
    control_client.py  client of the control socket of a running kas
    operator.py     the user who runs kasctl
    calls.py        calls of services of its modules
    gitops.py       gitops ...
    completion.py   names for the shell
"""

from __future__ import annotations

import gc

from kas.missing import not_installed


def main() -> None:
    """Run `kasctl`."""
    # Objects that a command reads live until its end: with a hundred thousand agents,
    # frequent garbage collection takes a fifth of its time.
    gc.set_threshold(100_000, 50, 50)
    try:
        from kas.ctl.cli import cli

        cli(prog_name="kasctl")
    except ModuleNotFoundError as error:
        not_installed("kasctl", error)
