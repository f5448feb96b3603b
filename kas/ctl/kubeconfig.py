"""``kasctl kubeconfig``: a file with which kubectl, k9s and Helm reach an agent."""

from __future__ import annotations

import base64
import hmac
import ipaddress
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import yaml
from cryptography import x509

from kas import pki
from kas.ctl.common import Ctl, command, pid_option, token_target
from kas.ctl.identities import access_options, make_access
from kas.identity_file import ALL_AGENTS, Agent, Identities, User
from kas.identity_store import (
    MAX_TOKEN,
    USER_PREFIX,
    IdentityError,
    IdentityStore,
    digest,
    find_agent,
    split_token,
)
from kas.running import KUBERNETES_API
from kas.state import StateDirectory
from tunnel.errors import ConfigurationError
from tunnel.interfaces import Impersonation

# client-go sends no token over plain HTTP, so the default has to be TLS
DEFAULT_SERVER = "https://127.0.0.1:8154"


def declare(group: click.Group) -> None:
    """Add the command to *group*."""
    command(group, "kubeconfig")(_decorated)


def kubeconfig(
    ctl: Ctl,
    agent: str,
    user: str | None,
    server: str | None,
    ca_file: Path | None,
    token_file: Path | None,
    rotate: bool,
    output_file: Path | None,
    username: str | None,
    groups: tuple[str, ...],
    as_agent: bool,
    expires: timedelta | None,
    pid: int | None,
) -> None:
    """
    Print a kubeconfig.

    Only hashes of tokens are kept.  Therefore a user that is new gets a token, one that
    is there needs --rotate for a new one, or --token-file with the one it has.
    """
    access = make_access(username, groups, as_agent)
    store = ctl.store()
    found = find_agent(store.load(), agent)
    if found.revoked_at is not None:
        raise IdentityError(
            f"the agent {found.name!r} is revoked: nobody reaches it; remove it and "
            "add it again to let it connect"
        )
    if output_file is not None and output_file.exists():
        # Perhaps it has other clusters in it, or is in use.
        raise ConfigurationError(
            [f"{output_file}: is there already; name another file, or remove it"]
        )
    running = None if server is not None else ctl.running(pid)
    proxy = None if running is None else running.find(KUBERNETES_API)
    known = None if running is None else running.url(KUBERNETES_API)
    if running is not None and known is None:
        raise ConfigurationError(
            [
                f"kas {running} has no port for the Kubernetes API proxy: a socket, or "
                "none; say where it is reached with --server"
            ]
        )
    url = _server(server or known)
    development: bool | None = None
    if server is None:
        ours = store.state.file(pki.SERVER_CERTIFICATE).resolve()
        files = None if proxy is None else proxy.certificate_file
        development = proxy is None or (files is not None and files.resolve() == ours)
    authority = _authority(ctl, store.state, url, development, ca_file)
    with token_target(output_file) as write:
        if token_file is not None:
            name, token = _from_file(ctl, store.load(), token_file, user, found)
        else:
            name = user or f"kubectl-{found.name}"
            token = _make(ctl, store, name, found, rotate, access, expires)
        content = _content(found, name, token, url, authority)
        text = yaml.safe_dump(content, sort_keys=False).rstrip()
        write(text)
    if output_file is not None:
        ctl.result(
            {"kubeconfig_file": str(output_file), "user": name},
            f"the kubeconfig of {name} for the agent {found.name} is in {output_file}; "
            f"try it with: kubectl --kubeconfig {output_file} version",
        )
        return
    ctl.result(content, text)
    ctl.note(
        "# There is a token in it: keep it in a file that only you can read.  "
        "Try it with: kubectl --kubeconfig FILE version"
    )


_decorated: Any = kubeconfig
for _option in (
    access_options,
    pid_option,
    click.option(
        "--output-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write the kubeconfig to this file (mode 0600) instead of printing it.",
    ),
    click.option(
        "--rotate", is_flag=True, help="Give a user that is there a new token."
    ),
    click.option(
        "--token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Take the user's token from this file instead of making one.",
    ),
    click.option(
        "--ca-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="CA of the server's certificate  [default: kas' development CA, where "
        "its certificate is for that server; else the CAs of kubectl's machine]",
    ),
    click.option(
        "--server",
        metavar="URL",
        help="URL of kas' Kubernetes API proxy  [default: what the running kas says, "
        f"else {DEFAULT_SERVER}]",
    ),
    click.option("--user", help="Name of the user  [default: kubectl-<agent>]"),
    click.option("--agent", required=True, help="Name or id of the agent."),
):
    _decorated = _option(_decorated)


def _server(given: str | None) -> str:
    url = (given or DEFAULT_SERVER).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise click.UsageError(f"--server: {url!r} is not a URL like {DEFAULT_SERVER}")
    return url


def _authority(
    ctl: Ctl,
    state: StateDirectory,
    url: str,
    development: bool | None,
    given: Path | None,
) -> bytes | None:
    """
    The CA to write into the file, if any.

    :param development: whether the server has the development certificate, if known.
    """
    parts = urlsplit(url)
    if parts.scheme == "http":
        ctl.note("# kubectl sends no token over http://; use an https:// server.")
        return None
    if given is not None:
        try:
            data = given.read_bytes()
            x509.load_pem_x509_certificate(data)
        except (OSError, ValueError) as error:
            message = f"{given}: is not a PEM certificate ({error})"
            raise ConfigurationError([message]) from None
        return data
    if development:
        # the same as kas does on its first start, should that be still to come
        files = pki.DevelopmentPki(state, socket.gethostname(), ctl.now).ensure()
        return None if files.ca_file is None else files.ca_file.read_bytes()
    if development is not None:
        return None
    authority = state.read(pki.CA_CERTIFICATE)
    server = state.read(pki.SERVER_CERTIFICATE)
    if authority is None or server is None:
        return None
    certificate = x509.load_pem_x509_certificate(server)
    if not pki.signed_by(certificate, x509.load_pem_x509_certificate(authority)):
        return None
    return authority if parts.hostname in _names(certificate) else None


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except x509.ExtensionNotFound:
        return set()
    addresses: list[Any] = names.get_values_for_type(x509.IPAddress)
    return {
        *names.get_values_for_type(x509.DNSName),
        *(str(ipaddress.ip_address(address)) for address in addresses),
    }


def _from_file(
    ctl: Ctl, identities: Identities, file: Path, user: str | None, agent: Agent
) -> tuple[str, str]:
    try:
        with file.open("rb") as source:
            token = source.read(2 * MAX_TOKEN).strip()
    except OSError as error:
        message = f"{file}: cannot be read ({error.strerror})"
        raise ConfigurationError([message]) from None
    parts = split_token(token)
    wanted = digest(token).hex()
    for found in identities.users:
        if hmac.compare_digest(found.token.sha256, wanted) and parts is not None:
            if user is not None and found.name != user:
                message = f"{file}: is the token of {found.name!r}, not of {user!r}"
                raise IdentityError(message)
            _check_access(found, agent)
            if not found.token.valid_at(ctl.now()):
                raise IdentityError(
                    f"{file}: the token of {found.name!r} has expired; --rotate makes "
                    "a new one"
                )
            return found.name, token.decode("ascii")
    kind = "an agent's token" if parts and parts[0] != USER_PREFIX else "no valid token"
    raise IdentityError(f"{file}: there is {kind} of a user in it; see 'kasctl user'")


def _make(
    ctl: Ctl,
    store: IdentityStore,
    name: str,
    agent: Agent,
    rotate: bool,
    access: Impersonation | None,
    expires: timedelta | None,
) -> str:
    for found in store.load().users:
        if found.name != name:
            continue
        if found.revoked_at is not None:
            raise IdentityError(
                f"the user {name!r} was revoked; to let somebody of that name in "
                f"again say with which rights: 'kasctl user add {name} ...'"
            )
        if not rotate:
            raise IdentityError(
                f"the user {name!r} is there already, and only the hash of its token "
                "is kept: pass --rotate for a new token, --token-file FILE with the "
                "one it has, or another --user"
            )
        if access is not None:
            raise IdentityError(
                f"the user {name!r} keeps the rights it has; for others revoke it first"
            )
        _check_access(found, agent)
        return store.renew_user(name, expires)[1]
    if access is None:
        ctl.note(
            f"# The new user {name} acts with the rights of agentk itself; "
            "--as USER [--group GROUP] gives it others."
        )
    return store.add_user(name, [agent.name], access, expires)[1]


def _check_access(user: User, agent: Agent) -> None:
    if user.revoked_at is not None:
        raise IdentityError(f"the user {user.name!r} is revoked")
    if ALL_AGENTS not in user.agents and agent.name not in user.agents:
        raise IdentityError(
            f"the user {user.name!r} may not reach the agent {agent.name!r}; it may "
            f"reach: {', '.join(user.agents) or 'none'}"
        )


def _content(
    agent: Agent, user: str, token: str, url: str, authority: bytes | None
) -> dict[str, Any]:
    cluster = {"server": url}
    if authority is not None:
        encoded = base64.b64encode(authority).decode("ascii")
        cluster["certificate-authority-data"] = encoded
    # names that do not meet those of other files when they are merged
    cluster_name, user_name = f"kas-{agent.name}", f"{user}@kas-{agent.name}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster_name, "cluster": cluster}],
        "users": [
            {"name": user_name, "user": {"token": f"user:{agent.id}:{token}"}},
        ],
        "contexts": [
            {
                "name": agent.name,
                "context": {"cluster": cluster_name, "user": user_name},
            }
        ],
        "current-context": agent.name,
    }
