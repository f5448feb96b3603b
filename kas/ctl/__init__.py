"""
`kasctl`: the operator's commands, on the machine where kas runs.

    cli.py          the command group
    lazy.py         loading of a command's file on demand
    common.py       options of every command; output as tables and as JSON
    secret_files.py  files with tokens, including kubeconfigs
    agents.py       the list of agents, for several commands
    identities.py   commands ``agent ...`` and ``user ...``
    environments.py  commands ``environment ...``
    kubeconfig.py   command ``kubeconfig``
    kubeconfig_file.py  an existing kubeconfig, and merging into it
    manifest.py     command ``agent manifest``
    install.py      command ``agent install``
    cluster_client.py  client of the API server for ``agent install``
    authority.py    CA certificates for ``kubeconfig`` and ``agent manifest``
    checks.py       command ``config check``
    status.py       command ``status``
    doctor.py       command ``doctor``
    fleet.py        commands ``drain`` and ``rebalance``
    token.py        command ``token``
    login.py        commands ``login`` and ``logout``
    sign_in.py      sign-in with an identity provider, and renewal of tokens
    kept_tokens.py  the files with cached tokens
    control_client.py  client of the control socket of a running kas
    operator.py     the user who runs kasctl
    calls.py        calls of services of kas' modules
    gitops.py       commands ``gitops ...``
    live.py         commands that read live data: ``get``, ``problems`` and others
    top.py          ``top``: CPU and memory of nodes and pods
    audit.py        commands ``audit ...``
    sessions.py     commands ``session ...``
    webhooks.py     commands ``webhooks ...``
    prometheus.py   command ``prometheus``: the search for a cluster's Prometheus
    completion.py   names for completion in the shell
"""

from __future__ import annotations

import gc

from kas.missing import not_installed


def main() -> None:
    """Run `kasctl`."""
    # Collect garbage rarely, because objects that a command reads live until its end:
    # with a hundred thousand agents, frequent collections take a fifth of its time.
    gc.set_threshold(100_000, 50, 50)
    try:
        from kas.ctl.cli import cli

        cli(prog_name="kasctl")
    except ModuleNotFoundError as error:
        not_installed("kasctl", error)
