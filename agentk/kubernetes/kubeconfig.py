"""
The address of the Kubernetes API server, and credentials for it: kubeconfig and pod.

The `kubernetes` package reads the same data, which tests compare; docs/architecture.rst
gives the reasons why agentk does not use it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import attrs

from tunnel.config import Section, Text, field, nearest, read_file
from tunnel.errors import ConfigurationError

__all__ = ["ExecPlugin", "Target", "find_target", "in_cluster", "load_kubeconfig"]

#: Value of `Target.origin` in a pod.
IN_CLUSTER = "the service account of this pod"

#: Path of the service account in every pod.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

EXEC_VERSIONS = (
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
)

_TOKEN = re.compile(r"[\x21-\x7e]+")

T = TypeVar("T")


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise ValueError("that is not base64") from None


def _token(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise ValueError("a token has no spaces, line ends or special characters")
    return text


_Data = Annotated[bytes, Text(_base64, "base64")]
_Token = Annotated[str, Text(_token, "a token")]


@attrs.frozen(kw_only=True)
class _Cluster:
    server: str = field(default="", doc="URL of the API server")
    ca_file: Path | None = field(default=None, key="certificate-authority", doc="CA")
    ca_data: _Data | None = field(
        default=None, key="certificate-authority-data", doc="CA, base64 of PEM"
    )
    insecure: bool = field(
        default=False, key="insecure-skip-tls-verify", doc="do not verify certificates"
    )
    tls_server_name: str = field(default="", key="tls-server-name", doc="to check")
    proxy_url: str = field(default="", key="proxy-url", doc="proxy for the connection")


@attrs.frozen(kw_only=True)
class _Variable:
    name: str = field(doc="name")
    value: str = field(default="", doc="value", secret=True)


@attrs.frozen(kw_only=True)
class ExecPlugin:
    """A program that prints credentials, as in ``users[].user.exec``."""

    api_version: str = field(key="apiVersion", doc="format of its output")
    command: str = field(doc="the program")
    args: tuple[str, ...] = field(default=(), doc="its arguments", repr=False)
    env: tuple[_Variable, ...] = field(
        default=(), doc="additional environment variables"
    )
    install_hint: str = field(default="", key="installHint", doc="how to install it")
    provide_cluster_info: bool = field(
        default=False, key="provideClusterInfo", doc="pass the cluster to it"
    )
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = field(
        default="IfAvailable", key="interactiveMode", doc="whether it asks questions"
    )


@attrs.frozen(kw_only=True)
class _User:
    cert_file: Path | None = field(default=None, key="client-certificate", doc="PEM")
    cert_data: _Data | None = field(
        default=None, key="client-certificate-data", doc="base64 of PEM"
    )
    key_file: Path | None = field(default=None, key="client-key", doc="PEM")
    key_data: _Data | None = field(
        default=None, key="client-key-data", doc="base64 of PEM", secret=True
    )
    token: _Token | None = field(default=None, doc="bearer token", secret=True)
    token_file: Path | None = field(default=None, key="tokenFile", doc="bearer token")
    username: str = field(default="", doc="for basic authentication")
    password: str = field(default="", doc="for basic authentication", secret=True)
    exec: ExecPlugin | None = field(default=None, doc="prints credentials")
    impersonate: str = field(default="", key="as", doc="impersonation")
    auth_provider: Section | None = field(
        default=None, key="auth-provider", doc="removed from Kubernetes in 1.26"
    )


@attrs.frozen(kw_only=True)
class _Context:
    cluster: str = field(default="", doc="name of the cluster")
    user: str = field(default="", doc="name of the user")
    namespace: str = field(default="", doc="namespace")


@attrs.frozen(kw_only=True)
class _NamedCluster:
    name: str = field(doc="name")
    cluster: _Cluster = field(factory=_Cluster, doc="the cluster")


@attrs.frozen(kw_only=True)
class _NamedContext:
    name: str = field(doc="name")
    context: _Context = field(factory=_Context, doc="the context")


@attrs.frozen(kw_only=True)
class _NamedUser:
    name: str = field(doc="name")
    user: _User = field(factory=_User, doc="the user")


@attrs.frozen(kw_only=True)
class _File:
    clusters: tuple[_NamedCluster, ...] = field(default=(), doc="clusters")
    contexts: tuple[_NamedContext, ...] = field(default=(), doc="contexts")
    users: tuple[_NamedUser, ...] = field(default=(), doc="users")
    current_context: str = field(default="", key="current-context", doc="default")


@attrs.frozen(kw_only=True)
class Target:
    """One API server, with everything needed to use it."""

    #: Origin of the settings, for messages: ``context 'prod' of
    #: /home/me/.kube/config``.
    origin: str
    tls: bool
    host: str
    port: int
    #: The authority of the URL, for the Host header.
    authority: str
    path_prefix: str = ""
    namespace: str = ""
    ca_file: Path | None = None
    ca_data: bytes | None = None
    insecure: bool = False
    tls_server_name: str = ""
    cert_file: Path | None = None
    key_file: Path | None = None
    cert_data: bytes | None = attrs.field(default=None, repr=False)
    key_data: bytes | None = attrs.field(default=None, repr=False)
    token: str = attrs.field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = attrs.field(default="", repr=False)
    plugin: ExecPlugin | None = None
    #: Base folder of the plugin's relative path.
    plugin_folder: Path | None = None

    @property
    def url(self) -> str:
        """Return the URL, for messages."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{self.authority}{self.path_prefix}"

    @property
    def advice(self) -> str:
        """Return advice for an unreachable server."""
        if self.origin == IN_CLUSTER:
            return "check the network policies of this pod"
        return f"check --kubeconfig ({self.origin})"


def find_target(
    kubeconfig: str | None,
    context: str | None,
    environ: Mapping[str, str],
    *,
    service_account: Path = SERVICE_ACCOUNT,
) -> Target:
    """
    Find the cluster: the configured one, the pod's own, or the user's kubeconfig.

    :param kubeconfig: the value of ``--kubeconfig``; default: ``$KUBECONFIG``.
    :raises ConfigurationError: if no cluster can be used; the text names the file and
        the remedy.
    """
    if kubeconfig:
        return load_kubeconfig([Path(kubeconfig)], context, must_exist=True)
    if named := [Path(p) for p in environ.get("KUBECONFIG", "").split(":") if p]:
        return load_kubeconfig(named, context)
    if environ.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(environ, service_account)
    usual = Path(environ.get("HOME") or "/") / ".kube" / "config"
    if usual.exists():
        return load_kubeconfig([usual], context)
    raise ConfigurationError(
        [
            "no Kubernetes cluster: this is not a pod ($KUBERNETES_SERVICE_HOST is not "
            f"set) and {usual} does not exist; pass --kubeconfig FILE"
        ]
    )


def in_cluster(
    environ: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT
) -> Target:
    """Return the cluster of this pod, with the permissions of its service account."""
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    problems = []
    if not host or not port.isdecimal():
        problems.append(
            "$KUBERNETES_SERVICE_HOST and $KUBERNETES_SERVICE_PORT do not name the API "
            "server; Kubernetes sets them in every pod"
        )
    token, authority = service_account / "token", service_account / "ca.crt"
    problems += [
        f"{path} does not exist; does the pod have a service account "
        "(automountServiceAccountToken)?"
        for path in (token, authority)
        if not path.is_file()
    ]
    if problems:
        raise ConfigurationError(problems)
    try:
        namespace = (service_account / "namespace").read_text().strip()
    except OSError:
        namespace = ""
    return Target(
        origin=IN_CLUSTER,
        tls=True,
        host=host,
        port=int(port),
        authority=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        namespace=namespace,
        ca_file=authority,
        token_file=token,
    )


def load_kubeconfig(
    files: Sequence[Path], context: str | None, *, must_exist: bool = False
) -> Target:
    """
    Return the cluster and the user of one context; the first of several files takes
    precedence.

    :param must_exist: if False, skip files that do not exist, as kubectl does.
    """
    where = ":".join(str(file) for file in files)
    present = [file for file in files if must_exist or file.exists()]
    if not present:
        raise ConfigurationError([f"{where} does not exist; correct the path"])
    read = [read_file(file, _File, unknown_keys="skip") for file in present]
    pairs = list(zip(read, present, strict=True))
    name = context or next((f.current_context for f in read if f.current_context), "")
    contexts = _first((c.name, c.context) for f in read for c in f.contexts)
    clusters = _first((c.name, c.cluster) for f in read for c in f.clusters)
    users = _first((u.name, (u.user, p)) for f, p in pairs for u in f.users)
    if not name:
        known = ", ".join(sorted(contexts)) or "none"
        message = f"{where} has no current-context; pass --context (available: {known})"
        raise ConfigurationError([message])
    origin = f"context {name!r} of {where}"
    chosen = _named(contexts, name, f"{where}: has no context")
    cluster = _named(clusters, chosen.cluster, f"{origin} has no cluster")
    user, file = _User(), present[0]
    if chosen.user:
        user, file = _named(users, chosen.user, f"{origin} has no user")
    return _target(origin, chosen, cluster, user, file)


def _first(pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def _named(known: dict[str, Any], name: str, message: str) -> Any:
    if name in known:
        return known[name]
    raise ConfigurationError([f"{message} {name!r}; {nearest(name, known)}"])


def _target(
    origin: str, context: _Context, cluster: _Cluster, user: _User, file: Path
) -> Target:
    problems = list(_unusable(cluster, user))
    for path in (cluster.ca_file, user.cert_file, user.key_file, user.token_file):
        if path is not None and not path.is_file():
            problems.append(f"{path} does not exist; correct the path")
    url = urlsplit(cluster.server)
    try:
        port = url.port or (80 if url.scheme == "http" else 443)
        host = url.hostname or ""
    except ValueError:
        port, host = 0, ""
    if url.scheme not in ("http", "https") or not host or url.query or url.fragment:
        problems.append(
            f"server {cluster.server!r} is not a URL such as https://host:6443"
        )
    if url.username is not None:
        problems.append("server contains a user name; move it to the user's section")
    if problems:
        raise ConfigurationError([f"{origin}: {problem}" for problem in problems])
    return Target(
        origin=origin,
        tls=url.scheme == "https",
        host=host,
        port=port,
        authority=url.netloc,
        path_prefix=url.path.rstrip("/"),
        namespace=context.namespace,
        ca_file=None if cluster.ca_data else cluster.ca_file,
        ca_data=cluster.ca_data,
        insecure=cluster.insecure,
        tls_server_name=cluster.tls_server_name,
        cert_file=None if user.cert_data else user.cert_file,
        key_file=None if user.key_data else user.key_file,
        cert_data=user.cert_data,
        key_data=user.key_data,
        token=user.token or "",
        token_file=user.token_file,
        username=user.username,
        password=user.password,
        plugin=user.exec,
        plugin_folder=file.absolute().parent,
    )


def _unusable(cluster: _Cluster, user: _User) -> list[str]:
    problems = []
    if cluster.proxy_url:
        problems.append("proxy-url is not supported; remove it, or use a direct route")
    if cluster.insecure and (cluster.ca_file or cluster.ca_data):
        problems.append(
            "insecure-skip-tls-verify and certificate-authority contradict each other; "
            "remove insecure-skip-tls-verify"
        )
    if user.auth_provider is not None:
        problems.append(
            "auth-provider is no longer part of Kubernetes; use an exec plugin"
        )
    if user.impersonate:
        problems.append("'as' is not supported; use credentials of the user it names")
    has_cert = bool(user.cert_file or user.cert_data)
    if has_cert != bool(user.key_file or user.key_data):
        problems.append("client-certificate and client-key require each other")
    if (plugin := user.exec) is not None:
        if plugin.api_version not in EXEC_VERSIONS:
            problems.append(
                f"exec: apiVersion {plugin.api_version!r} is not supported; "
                f"supported versions: {' and '.join(EXEC_VERSIONS)}"
            )
        if plugin.interactive_mode == "Always":
            problems.append(
                "exec: interactiveMode is Always, but agentk has no terminal; "
                "use credentials that need no questions"
            )
        if not plugin.command:
            problems.append("exec: command is empty")
    return problems
