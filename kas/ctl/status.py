"""``kasctl status``: the state of a running kas, and the agents that it knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from kas.config.schema import ApiListen, KasConfiguration, read_configuration_file
from kas.ctl import agents
from kas.ctl.calls import Server
from kas.ctl.checks import DEFAULT_URL, TIMEOUT, NoAnswer, fetch
from kas.ctl.common import (
    Ctl,
    ca_file_option,
    command,
    issuer_option,
    pid_option,
    printable,
    secret_option,
)
from kas.state.running import OBSERVABILITY
from tunnel.errors import ConfigurationError

__all__ = ["declare"]

_LIST = "txkas.agent_tracker.v1.Agents/List"


def declare(group: click.Group) -> None:
    """Add ``status`` to *group*."""
    command(group, "status")(_status)


@pid_option
@click.option(
    "--url",
    help=(
        "URL of kas' observability listener  [default: the listener of the running "
        f"kas, or else {DEFAULT_URL}]"
    ),
)
@click.option(
    "--server",
    metavar="URL",
    help="URL of the external API, which knows the agents of every kas.",
)
@secret_option()
@issuer_option
@ca_file_option
@click.option(
    "--configuration-file",
    type=click.Path(dir_okay=False),
    help="Read these settings from kas' configuration file.",
)
def _status(
    ctl: Ctl,
    pid: int | None,
    url: str | None,
    server: str | None,
    secret_file: Path | None,
    issuer: str,
    ca_file: Path | None,
    configuration_file: str | None,
) -> None:
    """
    Show the state of a running kas, and the agents of all kas.

    With --server, or with a --configuration-file that configures the external API (and
    no --url): show only the agents that are connected to any kas, as the external API
    lists them.
    """
    found: Server | None = None
    given = url or server or configuration_file
    if pid is not None and (server or configuration_file or url):
        raise ConfigurationError(
            ["--pid already selects a kas; pass only one of the two"]
        )
    if server is not None:
        if secret_file is None:
            raise ConfigurationError(["--server needs --secret-file"])
        found = Server(server, secret_file, issuer, ca_file)
    elif configuration_file is not None:
        configuration = read_configuration_file(configuration_file)
        if configuration.api is not None and url is None:
            found = _from_listen(ctl, configuration.api.listen, ca_file)
        url = url or _observability(configuration)
    if found is not None:
        _show_agents(ctl, found)
    else:
        running = ctl.running(pid) if url is None else None
        if running is None and given is None and len(leaving := ctl.leaving()) == 1:
            (running,) = leaving
            ctl.note(f"kas {running} is stopping, and finishes running requests")
        if running is not None:
            url = running.url(OBSERVABILITY)
            if url is None:
                raise ConfigurationError(
                    [
                        f"kas {running} does not serve its status on a port; pass "
                        "its URL with --url"
                    ]
                )
        whole = ctl.all_running() if given is None else ()
        known = agents.look(ctl, whole)
        if known is not None and running is not None and running.pid in known.hung:
            # Report this at once, because the other ports of kas would time out, too.
            raise ConfigurationError([known.hung[running.pid]])
        try:
            _show_process(ctl, url or DEFAULT_URL, known)
        except NoAnswer as error:
            if url is not None:
                raise
            raise NoAnswer(
                f"no kas runs with the state directory {ctl.path()} "
                f"(--state-directory sets another), and {error}"
            ) from None


def _show_process(ctl: Ctl, url: str, known: agents.Known | None) -> None:
    code, body = fetch(url, "/status")
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if code != 200 or not isinstance(content, dict):
        raise ConfigurationError(
            [f"{url}/status responded with {code} and without a status; is that kas?"]
        )
    if known is None or not known.answered:
        ctl.result(content, "\n".join(_lines(content)))
        return
    own = {key: value for key, value in content.items() if key != "agents"}
    lines = [*_lines(own), *known.problems, *known.clusters, ""]
    rows = [
        (printable(one["agent_name"]), number, *agents.row(one))
        for number, one in known.agents.items()
    ]
    whole = {**content, "every_agent": list(known.agents.values())}
    if not ctl.as_json:
        ctl.result(whole, "\n".join(lines))
    ctl.table(whole, ("AGENT", "ID", *agents.HEAD), rows)


def _lines(content: dict[str, Any]) -> list[str]:
    lines = []
    for key, value in content.items():
        name = key.replace("_", " ")
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {inner}: {_plain(shown)}" for inner, shown in value.items()]
        elif isinstance(value, list):
            lines.append(f"{name}: {len(value)}")
            for item in value:
                members = item.items() if isinstance(item, dict) else [("", item)]
                pairs = (f"{k}={_plain(v)}" for k, v in members if v != "")
                lines.append("  " + " ".join(pairs))
        else:
            lines.append(f"{name}: {_plain(value)}")
    return lines


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    # Clean the text, because agents choose it.
    return printable(str(value))


def _show_agents(ctl: Ctl, server: Server) -> None:
    found = server.call(_LIST, {}, TIMEOUT).get("agents", [])
    if not found:
        ctl.result({"agents": []}, "no agent is connected")
        return
    rows = []
    for agent in found:
        meta = agent.get("meta", {})
        pod = "/".join(filter(None, (meta.get("podNamespace"), meta.get("podName"))))
        kubernetes = meta.get("kubernetesVersion", {}).get("gitVersion", "")
        rows.append(
            [
                printable(agent.get("agentName", "")),
                printable(agent.get("agentId", "")),
                printable(pod) or "-",
                printable(meta.get("version", "-")),
                printable(kubernetes) or "-",
                agent.get("connectedAt", "-").partition(".")[0].rstrip("Z") + "Z",
            ]
        )
    head = ("AGENT", "ID", "POD", "VERSION", "KUBERNETES", "CONNECTED SINCE")
    ctl.table({"agents": found}, head, rows)


def _from_listen(ctl: Ctl, listen: ApiListen, ca_file: Path | None) -> Server:
    if listen.endpoint or listen.network == "unix":
        raise ConfigurationError(
            ["api.listen is not a host and port; give the address with --server"]
        )
    host, _, port = listen.address.rpartition(":")
    if host in ("", "0.0.0.0", "[::]"):  # noqa: S104 - compared, not listened on
        host = "127.0.0.1"
    scheme = "https" if listen.tls else "http"
    if ca_file is None and listen.own_certificate:
        ca_file = ctl.path() / "ca.crt"
    return Server(
        f"{scheme}://{host}:{port}",
        listen.authentication_secret_file,
        listen.issuer or "gitlab",
        ca_file,
    )


def _observability(configuration: KasConfiguration) -> str:
    listen = configuration.observability.listen
    if listen.endpoint or listen.network == "unix":
        return DEFAULT_URL
    scheme = "https" if listen.tls else "http"
    return f"{scheme}://{listen.address}"
