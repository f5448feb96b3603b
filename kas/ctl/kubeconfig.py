"""``kasctl kubeconfig``: a file for kubectl, k9s and Helm to reach agents."""

from __future__ import annotations

import base64
import functools
import hmac
import ipaddress
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import yaml
from cryptography import x509

from kas.ctl import kubeconfig_file
from kas.ctl.agents import look
from kas.ctl.authority import (
    NoAuthority,
    given_authority,
    own_authority,
    refuse_wrong_name,
    system_cas_option,
)
from kas.ctl.common import (
    Ctl,
    command,
    no_token_made,
    pid_option,
)
from kas.ctl.completion import complete_agents, complete_users
from kas.ctl.identities import Rights, access_options, make_rights
from kas.ctl.secret_files import secret_file
from kas.identity.file import ALL_AGENTS, Agent, Identities, User
from kas.identity.store import (
    AGENT_PREFIX,
    MAX_TOKEN,
    IdentityError,
    bare_token,
    digest,
    find_agent,
    split_token,
)
from kas.state import pki
from kas.state.directory import StateDirectory
from kas.state.running import KUBERNETES_API, Running
from tunnel.errors import ConfigurationError
from tunnel.program.opened import Opened
from tunnel.toolkit.files import in_words
from tunnel.toolkit.urls import is_private

# The default is TLS, because client-go does not send tokens over plain HTTP.
DEFAULT_SERVER = "https://127.0.0.1:8154"


def declare(group: click.Group) -> None:
    """Add the command to *group*."""
    command(group, "kubeconfig")(_decorated)


def kubeconfig(
    ctl: Ctl,
    agents: tuple[str, ...],
    every: bool,
    user: str | None,
    server: str | None,
    ca_file: Path | None,
    system_cas: bool,
    token_file: Path | None,
    rotate: bool,
    output_file: Path | None,
    merge: bool,
    username: str | None,
    groups: tuple[str, ...],
    as_agent: bool,
    read_only: bool,
    secrets: bool,
    force: bool,
    expires: timedelta | None,
    pid: int | None,
    oidc_issuer: str | None,
    oidc_client_id: str | None,
    oidc_scopes: tuple[str, ...],
) -> None:
    """
    Print a kubeconfig, or merge it into kubectl's own file.

    kas keeps only hashes of tokens.  So a new user gets a token, and needs --as,
    --as-agent or --read-only; an existing user needs --rotate for a new token, or
    --token-file with the current token.  With --oidc-issuer the file contains no
    token: kubectl runs 'kasctl login' to get one.
    """
    if bool(agents) == every:
        raise click.UsageError("name the agents: --agent NAME, repeatable, or --all")
    rights = make_rights(username, groups, as_agent, read_only, secrets, force)
    plugin = _plugin(
        oidc_issuer, oidc_client_id, oidc_scopes, rights.given or rotate or token_file
    )
    store = ctl.store()
    identities = store.load()
    named = [_active(identities, agent) for agent in agents]
    if output_file is not None and output_file.exists() and not merge:
        # Do not replace the file, which may contain other clusters, or be in use.
        raise ConfigurationError(
            [
                f"{output_file} already exists; pass another file, remove it, or add "
                "to its content with --merge"
            ]
        )
    # A name that is probably mistyped is refused only if a new token is made for it.
    lenient = system_cas or plugin is not None or token_file is not None
    url, authority = _reached(ctl, store.state, server, ca_file, pid, lenient)
    if plugin is not None:
        people = user or "oidc"
        reached = _connected_first(ctl, named or _reachable(identities, None))
        found = _content(reached, people, plugin, url, authority)
        with _output(ctl, people, lambda _: found, output_file, merge) as write:
            write("")
        return
    who: User | None
    token: str | None = None
    if token_file is not None:
        who, token = _from_file(ctl, identities, token_file, user)
    else:
        user = user or _default_user(named)
        who = _known(identities, user, rotate, rights)
    name = user or "" if who is None else who.name
    chosen = _connected_first(ctl, named or _reachable(identities, who))
    if who is not None:
        _check_access(identities, who, chosen)

    def content(token: str) -> dict[str, Any]:
        return _content(chosen, name, functools.partial(_named, token), url, authority)

    with _output(ctl, name, content, output_file, merge) as write:
        if output_file is None and not merge:
            ctl.note(
                "# This output contains a token: keep it in a file only you can read."
            )

        def show(found: User, token: str) -> None:
            ends = found.token.expires_at
            shown = "never expires" if ends is None else f"expires on {ends:%Y-%m-%d}"
            ctl.note(f"# The token of {name} {shown}.")
            write(token)

        if token is not None:
            write(token)
        elif who is None:
            reach = [ALL_AGENTS] if every else [found.name for found in chosen]
            store.add_user(
                name,
                reach,
                rights.impersonation,
                expires,
                read_only=rights.read_only,
                secrets=rights.secrets,
                show=show,
            )
        else:
            store.renew_user(name, expires, show)


_decorated: Any = kubeconfig
for _option in (
    access_options,
    pid_option,
    click.option(
        "--oidc-scope",
        "oidc_scopes",
        multiple=True,
        help="A scope to request from the provider, such as email; repeatable.",
    ),
    click.option("--oidc-client-id", help="The same as oidc.client_id of kas."),
    click.option(
        "--oidc-issuer",
        metavar="URL",
        help=(
            "Write no token: kubectl signs users in with this identity provider, "
            "oidc.issuer of kas."
        ),
    ),
    click.option(
        "--merge",
        is_flag=True,
        help=(
            "Add to an existing file, and keep its content: --output-file, or else "
            "$KUBECONFIG or ~/.kube/config."
        ),
    ),
    click.option(
        "--output-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write the kubeconfig to this file (mode 0600) instead of printing it.",
    ),
    click.option("--rotate", is_flag=True, help="Give an existing user a new token."),
    click.option(
        "--token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Take the user's token from this file instead of making one.",
    ),
    click.option(
        "--ca-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help=(
            "CA of the server's certificate  [default: kas' development CA if its "
            "certificate is valid for that server, or else the CAs of kubectl's "
            "machine]"
        ),
    ),
    system_cas_option,
    click.option(
        "--server",
        metavar="URL",
        help=(
            "URL of kas' Kubernetes API proxy  [default: the URL of the running kas, "
            f"or else {DEFAULT_SERVER}]"
        ),
    ),
    click.option(
        "--user",
        help="Name of the user  [default: kubectl-AGENT if there is one agent]",
        shell_complete=complete_users,
    ),
    click.option(
        "--all",
        "every",
        is_flag=True,
        help=(
            "All agents that the user may reach; a new user may reach all agents, "
            "including future ones."
        ),
    ),
    click.option(
        "--agent",
        "agents",
        multiple=True,
        help="Name or id of an agent, repeatable; each gets a context.",
        shell_complete=complete_agents,
    ),
):
    _decorated = _option(_decorated)


_Write = Callable[[str], object]


@contextmanager
def _output(
    ctl: Ctl,
    name: str,
    content: Callable[[str], dict[str, Any]],
    file: Path | None,
    merge: bool,
) -> Iterator[_Write]:
    """Provide a function that receives the token and writes the kubeconfig."""
    if merge:
        path = file or kubeconfig_file.default_path(os.environ)
        with _merged(ctl, name, content, path) as write:
            yield write
    elif file is not None:
        with secret_file(file) as put:
            yield lambda token: put(_yaml(content(token)))
        said = f"the kubeconfig of {name} is in {file}; try it with: "
        ctl.result(
            {"kubeconfig_file": str(file), "user": name},
            f"{said}kubectl --kubeconfig {file} version",
        )
    else:
        yield functools.partial(_print, ctl, content)
        ctl.note("# Try it with: kubectl --kubeconfig FILE version")


def _print(ctl: Ctl, content: Callable[[str], dict[str, Any]], token: str) -> None:
    found = content(token)
    with no_token_made():
        ctl.result(found, _yaml(found))


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False).rstrip()


@contextmanager
def _merged(
    ctl: Ctl, name: str, content: Callable[[str], dict[str, Any]], path: Path
) -> Iterator[_Write]:
    contexts: list[str] = []
    moved: list[str] = []
    with kubeconfig_file.locked(path):
        there = kubeconfig_file.read(path)
        backup = kubeconfig_file.back_up(path)
        with secret_file(path) as put:

            def write(token: str) -> None:
                new = content(token)
                moved.extend(kubeconfig_file.moved(there, new))
                try:
                    contexts.extend(kubeconfig_file.merge(there, new))
                except kubeconfig_file.NameTaken as error:
                    raise ConfigurationError(
                        [f"{path}: {error}; no token was made"]
                    ) from None
                put(_yaml(there))

            yield write
    for text in moved:
        ctl.note(f"# {text}")
    before = f" (backup of the old file: {backup})" if backup is not None else ""
    ctl.result(
        {"kubeconfig_file": str(path), "user": name, "contexts": contexts},
        f"the kubeconfig {path}{before} now has {name} with the contexts: "
        f"{', '.join(contexts)}; try it with: kubectl --context {contexts[0]} version",
    )


def _reached(
    ctl: Ctl,
    state: StateDirectory,
    server: str | None,
    ca_file: Path | None,
    pid: int | None,
    lenient: bool,
) -> tuple[str, bytes | None]:
    """
    Return the URL of the API proxy, and the CA to write into the kubeconfig; None for
    no CA.
    """
    running = None if server is not None else ctl.running(pid)
    known = None if running is None else running.url(KUBERNETES_API)
    if running is not None and known is None:
        raise ConfigurationError(
            [
                f"kas {running} does not serve the Kubernetes API proxy on a port; "
                "pass its URL with --server"
            ]
        )
    url = _server(server or known)
    if server is not None:
        _check_server(url, ctl.all_running())
    elif _is_loopback(urlsplit(url).hostname or ""):
        ctl.note(
            f"# {url} leads to kas only on this machine; for kubectl on another "
            "machine, pass the URL of kas with --server."
        )
    if urlsplit(url).scheme == "http":
        ctl.note("# kubectl does not send tokens over http://; use an https:// server.")
        return url, None
    if ca_file is not None:
        return url, given_authority(ca_file)
    host = None if server is None else urlsplit(url).hostname or ""
    try:
        kas = ctl.all_running() if running is None else (running,)
        return url, own_authority(ctl, state, KUBERNETES_API, kas, host)
    except NoAuthority as error:
        if not lenient:
            refuse_wrong_name("--server", error)
        ctl.note(
            f"# The kubeconfig contains no CA: {error}.  kubectl's machine must "
            "trust the CA of that server; --ca-file FILE adds one."
        )
        return url, None


def _server(given: str | None) -> str:
    url = (given or DEFAULT_SERVER).rstrip("/")
    parts = urlsplit(url)
    try:
        usable = parts.port != 0
    except ValueError:
        usable = False
    known = parts.scheme in ("http", "https") and parts.hostname
    if not known or not usable or parts.query or parts.fragment or parts.username:
        raise click.UsageError(
            f"--server: {url!r} is not a URL such as {DEFAULT_SERVER}"
        )
    return url


def _check_server(url: str, kas: Sequence[Running]) -> None:
    """
    Refuse a URL at which the running kas do not respond.

    A proxy between kubectl and kas may use any port and path.

    :raises ConfigurationError: if no running kas listens at *url*; the text names the
        actual listener.
    """
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    found = [one for some in kas for one in some.listeners if port_of(one) == port]
    proxies = [one for one in found if one.what == KUBERNETES_API]
    if found and not proxies:
        there = [one.url(KUBERNETES_API) for one in kas]
        shown = ", ".join(one for one in there if one) or "not on a port"
        raise ConfigurationError(
            [
                f"--server: on port {port}, kas listens for {found[0].what}; its "
                f"Kubernetes API proxy is: {shown}"
            ]
        )
    here = [one for one in proxies if _is_at(one, parts.hostname or "")]
    scheme_of = {"http" if one.certificate_file is None else "https" for one in here}
    if here and parts.scheme not in scheme_of:
        does = "uses" if parts.scheme == "http" else "does not use"
        raise ConfigurationError(
            [f"--server: kas {does} TLS on port {port}; use {scheme_of.pop()}://"]
        )
    if here and parts.path not in {one.path for one in here}:
        path = here[0].path
        says = f"url_path_prefix is {path!r}" if path else "url_path_prefix is not set"
        raise ConfigurationError(
            [
                f"--server: kas does not accept the path {parts.path!r}, because "
                f"{says}; write {parts.scheme}://{parts.netloc}{path}"
            ]
        )


def port_of(listener: Opened) -> int | None:
    """Return the port of a listener; None for a Unix socket."""
    port = listener.address.rpartition(":")[2]
    return int(port) if port.isdecimal() else None


def _is_at(listener: Opened, host: str) -> bool:
    """Return whether a host is certainly the address of a listener."""
    if _is_loopback(host) or listener.address.rpartition(":")[0].strip("[]") == host:
        return True
    try:
        data = (listener.certificate_file or Path(os.devnull)).read_bytes()
        return pki.is_for(x509.load_pem_x509_certificate(data), host)
    except (OSError, ValueError):
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _active(identities: Identities, name: str) -> Agent:
    found = find_agent(identities, name)
    if found.revoked_at is not None:
        raise IdentityError(
            f"the agent {found.name!r} was revoked, and no user can reach it; remove "
            "it and add it again to let it connect"
        )
    return found


def _default_user(agents: Sequence[Agent]) -> str:
    if len(agents) != 1:
        raise click.UsageError(
            "--user: name the user, because there are several agents"
        )
    return f"kubectl-{agents[0].name}"


def _reachable(identities: Identities, user: User | None) -> list[Agent]:
    """Return all agents that a user may reach."""
    names = None if user is None else identities.reach(user)
    found = [
        agent
        for agent in identities.agents
        if agent.revoked_at is None and (names is None or agent.name in names)
    ]
    if not found:
        raise IdentityError("no agent exists yet; add one with 'kasctl agent add'")
    return found


def _connected_first(ctl: Ctl, agents: Sequence[Agent]) -> list[Agent]:
    """
    Return *agents* with connected agents first, because the first agent is used in the
    example and as the current context.
    """
    known = look(ctl, ctl.all_running()) if len(agents) > 1 else None
    connected = () if known is None else known.connected
    return sorted(agents, key=lambda agent: agent.name not in connected)


def _from_file(
    ctl: Ctl, identities: Identities, file: Path, user: str | None
) -> tuple[User, str]:
    try:
        with file.open("rb") as source:
            token = bare_token(source.read(2 * MAX_TOKEN).strip())
    except OSError as error:
        raise ConfigurationError([f"{in_words(error)}"]) from None
    parts = split_token(token)
    wanted = digest(token).hex()
    for found in identities.users:
        if hmac.compare_digest(found.token.sha256, wanted) and parts is not None:
            if user is not None and found.name != user:
                message = (
                    f"{file} contains the token of {found.name!r}, not of {user!r}"
                )
                raise IdentityError(message)
            _check_revoked(found)
            if not found.token.valid_at(ctl.now()):
                raise IdentityError(
                    f"{file}: the token of {found.name!r} has expired; create a new "
                    f"one with --user {found.name} --rotate"
                )
            return found, token.decode("ascii")
    if parts is not None and parts[0] == AGENT_PREFIX:
        raise IdentityError(
            f"{file} contains the token of an agent, which agentk needs; for "
            "kubectl, pass a file with a user's token, or omit --token-file to "
            "create one"
        )
    raise IdentityError(
        f"{file} does not contain a valid token of a user; see 'kasctl user'"
    )


def _known(
    identities: Identities, name: str, rotate: bool, rights: Rights
) -> User | None:
    """
    Return an existing user who may get a new token; None if the user does not exist.
    """
    for found in identities.users:
        if found.name != name:
            continue
        if found.revoked_at is not None:
            raise IdentityError(
                f"the user {name!r} was revoked; to use that name again, specify its "
                f"permissions: 'kasctl user add {name} ...'"
            )
        if not rotate:
            raise IdentityError(
                f"the user {name!r} already exists, and kas keeps only the hash of its "
                "token: pass --rotate for a new token, --token-file FILE with the "
                "current token, or another --user"
            )
        has = found.impersonation, found.read_only, found.secrets
        asked = rights.impersonation, rights.read_only, rights.secrets
        if rights.given and has != asked:
            raise IdentityError(
                f"the user {name!r} keeps its permissions; to change them, revoke it "
                "first"
            )
        return found
    rights.require(name)
    return None


def _check_revoked(user: User) -> None:
    if user.revoked_at is not None:
        raise IdentityError(f"the user {user.name!r} was revoked")


def _check_access(identities: Identities, user: User, agents: Sequence[Agent]) -> None:
    _check_revoked(user)
    names = identities.reach(user)
    for agent in agents:
        if names is not None and agent.name not in names:
            raise IdentityError(
                f"the user {user.name!r} may not reach the agent {agent.name!r}; it "
                f"may reach: {', '.join(sorted(names)) or 'none'}"
            )


#: Function that returns the "user" section of a kubeconfig for an agent.
_Credential = Callable[[str], dict[str, Any]]


def _named(token: str, agent: str) -> dict[str, Any]:
    # Name the agent in the token, because some commands (kubectl proxy, get --raw) omit
    # the path of the server's URL.
    return {"token": f"user:{agent}:{token}"}


def _plugin(
    issuer: str | None, client_id: str | None, scopes: tuple[str, ...], other: object
) -> _Credential | None:
    """
    Return a function that returns the plugin for signing in with an identity provider;
    None if the plugin was not requested.

    :param other: whether options for a token of kas were given.
    """
    if issuer is None and client_id is None and not scopes:
        return None
    if not issuer or not client_id:
        raise click.UsageError("--oidc-issuer and --oidc-client-id require each other")
    if other:
        raise click.UsageError(
            "--oidc-issuer: the identity provider and 'oidc.access' of kas determine "
            "users and permissions; omit --as, --group, --as-agent, --read-only, "
            "--rotate and --token-file"
        )
    if not is_private(issuer):
        raise click.UsageError(f"--oidc-issuer: {issuer!r} is not an https:// URL")
    arguments = ["login", "--exec", "--issuer", issuer, "--client-id", client_id]
    for scope in scopes:
        arguments += ["--scope", scope]

    def credential(agent: str) -> dict[str, Any]:
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "kasctl",
                "args": [*arguments, "--agent", agent],
                "interactiveMode": "IfAvailable",
                "installHint": "to sign in with kasctl: pip install 'txkas[server]'",
            }
        }

    return credential


def _content(
    agents: Sequence[Agent],
    user: str,
    credential: _Credential,
    url: str,
    authority: bytes | None,
) -> dict[str, Any]:
    trust = {}
    if authority is not None:
        encoded = base64.b64encode(authority).decode("ascii")
        trust["certificate-authority-data"] = encoded
    content: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    clusters, users, contexts = [], [], []
    for agent in agents:
        # Use names that do not collide with names from other files if the kubeconfig is
        # merged.
        cluster_name = f"kas-{agent.name}"
        user_name = f"{user}@{cluster_name}"
        # Give each agent its own URL, because kubectl caches data of an API server by
        # its URL.
        cluster = {"server": f"{url}/agents/{agent.name}", **trust}
        clusters.append({"name": cluster_name, "cluster": cluster})
        users.append({"name": user_name, "user": credential(agent.name)})
        contexts.append(
            {
                "name": agent.name,
                "context": {"cluster": cluster_name, "user": user_name},
            }
        )
    return {
        **content,
        "clusters": clusters,
        "users": users,
        "contexts": contexts,
        "current-context": agents[0].name,
    }
