"""``kasctl agent manifest``: all objects that a cluster needs to run agentk."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
import yaml

from kas.ctl.authority import (
    NoAuthority,
    given_authority,
    own_authority,
    refuse_wrong_name,
    system_cas_option,
)
from kas.ctl.common import DURATION, Ctl, command, no_token_made
from kas.ctl.completion import complete_agents
from kas.ctl.identities import GRACE
from kas.ctl.kubeconfig import port_of
from kas.ctl.secret_files import secret_file
from kas.identity.file import Agent
from kas.identity.store import IdentityError, IdentityStore, Show
from kas.state.running import (
    AGENTS,
    EXTERNAL_API,
    KUBERNETES_API,
    OBSERVABILITY,
    WEB,
    Running,
)
from tunnel.errors import ConfigurationError
from tunnel.plugin import AgentModule, installed
from tunnel.toolkit.texts import DNS_LABEL
from tunnel.transport.address import KasAddress, parse_kas_address

__all__ = [
    "CREDENTIAL",
    "AgentOptions",
    "agent_options",
    "check_options",
    "declare",
    "fill_in",
    "grace_option",
    "make_token",
    "prepare",
    "template",
]

_F = TypeVar("_F", bound=Callable[..., Any])

#: Files of deploy/kustomize/agentk; in a checkout, these are links to the files.
_TEMPLATES = [
    Path(__file__).with_name(name) for name in ("agentk.yaml", "agentk_rights.yaml")
]

NAMESPACE = "txkas"
#: Name of the Secret whose key ``token`` contains the agent's token.
CREDENTIAL = "agentk-token"
#: Default role of agentk in the cluster, which may not read Secrets and may not change
#: anything.
ROLE = "view"
_ROLE = re.compile(r"[^/%\s]{1,253}")
#: Module that keeps records in agentk's own namespace.
GITOPS = "gitops"

#: Name of the module for live data, which watches kinds that `ROLE` does not include.
CLUSTER_DATA = "cluster_data"

#: Name of the module for webhooks, which reads Services.
WEBHOOKS = "webhooks"

#: Name of the module for PromQL, which searches for Prometheus in the cluster.
PROMETHEUS = "prometheus"
#: Memory limit of agentk's pod with GitOps: agentk and three renderers of at most 1 GiB
#: each, which rarely need that much at the same time.  If the pod exceeds its limit,
#: the kernel may kill it.
GITOPS_MEMORY = "2Gi"
#: Usual ports of other listeners of kas, as documented.
_USUAL_PORTS = {
    8151: OBSERVABILITY,
    8153: EXTERNAL_API,
    8154: KUBERNETES_API,
    8156: WEB,
}
_MODULE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NAMESPACE = re.compile(DNS_LABEL)


@attrs.frozen(kw_only=True)
class AgentOptions:
    """Options of every command that makes a manifest."""

    image: str
    kas_address: str | None
    ca_file: Path | None
    system_cas: bool
    namespace: str
    cluster_role: str
    impersonate: bool
    modules: tuple[str, ...]
    force: bool


def agent_options(function: _F) -> _F:
    """Add the options of `AgentOptions`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS: Sequence[Callable[[Any], Any]] = (
    click.option(
        "--image",
        required=True,
        help="A container image with txkas, in a registry that the cluster reaches.",
    ),
    click.option(
        "--kas-address",
        metavar="URL",
        help=(
            "URL at which the cluster reaches kas: tls://HOST:8150 or "
            "wss://HOST/PATH  [default: the agents' listener of the running kas, if "
            "it has one address]"
        ),
    ),
    click.option(
        "--ca-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help=(
            "CA of kas' certificate  [default: kas' development CA if its "
            "certificate is valid for that address]"
        ),
    ),
    system_cas_option,
    click.option(
        "--namespace",
        default=NAMESPACE,
        show_default=True,
        help="The Namespace of agentk.",
    ),
    click.option(
        "--cluster-role",
        default=ROLE,
        show_default=True,
        metavar="ROLE",
        help="The ClusterRole of agentk; it limits what users may do through kas.",
    ),
    click.option(
        "--impersonate",
        is_flag=True,
        help="Let agentk act as other users and groups, except Kubernetes' own "
        "(system:): 'kasctl user add --as' and access_as need it.",
    ),
    click.option(
        "--module",
        "modules",
        multiple=True,
        metavar="MODULE",
        help=(
            "Enable a module of agentk that is off by default, such as gitops, with "
            "the permissions that it needs in agentk's own namespace; may be given "
            "several times."
        ),
    ),
    click.option(
        "--force",
        is_flag=True,
        help="Allow --kas-address to name the local machine, such as localhost.",
    ),
)

grace_option = click.option(
    "--grace",
    type=DURATION,
    default=GRACE,
    show_default=True,
    help="With --rotate: how long the previous token stays valid; 0 ends it now.",
)


def declare(group: click.Group) -> None:
    """Add the command to *group*."""
    command(group, "manifest")(_manifest)


@click.argument("name", shell_complete=complete_agents)
@agent_options
@click.option("--rotate", is_flag=True, help="Give an existing agent a new token.")
@grace_option
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the manifest to this file (mode 0600) instead of printing it.",
)
def _manifest(
    ctl: Ctl,
    name: str,
    rotate: bool,
    grace: timedelta,
    output_file: Path | None,
    **options: Any,
) -> None:
    """
    Print a manifest for `kubectl apply -f -` that runs agentk in a cluster.

    The manifest contains the agent's token, and kas keeps only its hash.  So this
    command adds a new agent; an existing agent needs --rotate to get a new token.
    """
    chosen = AgentOptions(**options)
    check_options(ctl, chosen)
    if output_file is not None and output_file.exists():
        raise ConfigurationError(
            [f"{output_file} already exists; pass another file, or remove it"]
        )
    store, objects = prepare(ctl, chosen)

    def text(token: str) -> tuple[dict[str, Any], str]:
        documents = objects(token)
        whole = {"apiVersion": "v1", "kind": "List", "items": documents}
        return whole, yaml.safe_dump_all(documents, sort_keys=False).rstrip()

    if output_file is None:

        def show(found: Agent, token: str) -> None:
            with no_token_made():
                ctl.result(*text(token))

        make_token(store, name, rotate, grace, show)
        ctl.note(
            "# This manifest contains a token.  Pass it on with: | kubectl apply -f -"
        )
        return
    with secret_file(output_file) as write:
        make_token(
            store, name, rotate, grace, lambda found, token: write(text(token)[1])
        )
    ctl.result(
        {"manifest_file": str(output_file), "agent": name},
        f"the manifest of the agent {name} is in {output_file}; apply it with: "
        f"kubectl apply -f {output_file}",
    )


def check_options(ctl: Ctl, options: AgentOptions) -> None:
    """
    Refuse mistyped options.

    :raises click.UsageError: if an option is wrong; the text names the option.
    """
    if not _NAMESPACE.fullmatch(options.namespace):
        raise click.UsageError(
            f"--namespace: {options.namespace!r} is not the name of a namespace"
        )
    if not _ROLE.fullmatch(options.cluster_role):
        raise click.UsageError(
            f"--cluster-role: {options.cluster_role!r} cannot be the name of a "
            "ClusterRole"
        )
    for module in options.modules:
        if not _MODULE.fullmatch(module):
            raise click.UsageError(f"--module: {module!r} is not a valid module name")
        known = {one.name for one in installed(AgentModule)}
        # Report only names that are similar to a known module, because the image may
        # contain modules that this kas does not know.
        if module not in known and (near := get_close_matches(module, known, 1)):
            raise click.UsageError(
                f"--module: agentk has no module {module!r}; did you mean {near[0]}?"
            )
    if GITOPS in options.modules and options.cluster_role == ROLE:
        ctl.note(
            f"# GitOps applies objects with agentk's permissions, and {ROLE} is "
            "read-only: pass --cluster-role, or name a service_account in each "
            "project and let agentk impersonate it."
        )


def prepare(
    ctl: Ctl, options: AgentOptions
) -> tuple[IdentityStore, Callable[[str], list[dict[str, Any]]]]:
    """
    Check the address of kas and find its CA, before a token is made.

    :returns: the store of agents, and a function that returns all objects for a token.
    """
    address = parse_kas_address(options.kas_address or _listened(ctl))
    if not options.force and _is_local(address.host):
        raise click.UsageError(
            f"--kas-address: in a pod, {address.host!r} is the pod itself, where kas "
            "does not run; pass the address at which the cluster reaches kas "
            "(--force allows this one, for pods with hostNetwork).  No token was made"
        )
    if not options.system_cas:
        _check_port(address, ctl.all_running())
    store = ctl.store(create=True)
    # Ignore a wrong name in this case, because the address of a running kas cannot be
    # mistyped.
    lenient = options.system_cas or options.kas_address is None
    authority = _authority(ctl, store, address, options.ca_file, lenient)

    def objects(token: str) -> list[dict[str, Any]]:
        documents = fill_in(
            template(),
            options.image,
            str(address),
            options.namespace,
            token,
            authority,
            options.cluster_role,
        )
        if options.impersonate:
            documents += _right_to_impersonate(options.namespace)
        if options.modules:
            documents += _turned_on(documents, options.namespace, options.modules)
        return documents

    return store, objects


def make_token(
    store: IdentityStore, name: str, rotate: bool, grace: timedelta, show: Show[Agent]
) -> None:
    """
    Register the agent, or rotate its token.

    :param show: called with the token before it becomes valid.
    :raises IdentityError: if the agent exists, and *rotate* is false.
    """
    there = {one.name for one in store.load().agents}
    if name not in there:
        store.add_agent(name, show=show)
    elif rotate:
        store.rotate_agent(name, grace, show)
    else:
        raise IdentityError(
            f"the agent {name!r} already exists, and kas keeps only the hash of its "
            "token: pass --rotate for a new token, or another name"
        )


def _listened(ctl: Ctl) -> str:
    """
    Return the address at which agents reach the kas on this machine.

    :raises click.UsageError: if the address is valid only on this machine.
    """
    for one in ctl.all_running():
        found = one.find(AGENTS)
        if found is None:
            continue
        host = found.address.rpartition(":")[0].strip("[]")
        try:
            ipaddress.ip_address(host)
        except ValueError:
            continue
        if not _is_local(host):
            scheme = "tcp" if found.certificate_file is None else "tls"
            return f"{scheme}://{found.address}"
    raise click.UsageError(
        "--kas-address: pass the address at which the cluster reaches kas, such as "
        "tls://HOST:8150"
    )


def _is_local(host: str) -> bool:
    """Return whether *host* always means the local machine."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        name = host.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or mapped.is_unspecified


def _check_port(address: KasAddress, kas: Sequence[Running]) -> None:
    """
    Check that the address of kas does not have the port of another listener, before a
    token is made.

    :raises ConfigurationError: if *address* has such a port; the text names the actual
        listener.
    """
    if address.scheme == "unix":
        return
    found = [
        one for some in kas for one in some.listeners if port_of(one) == address.port
    ]
    agents = [one.find(AGENTS) for one in kas]
    shown = ", ".join(one.address for one in agents if one) or "not on a port"
    if found:
        if all(one.what != AGENTS for one in found):
            raise ConfigurationError(
                [
                    f"--kas-address: on port {address.port}, kas listens for "
                    f"{found[0].what}; it listens for agents on: {shown}.  No token "
                    "was made"
                ]
            )
    elif not any(agents) and (what := _USUAL_PORTS.get(address.port)):
        raise ConfigurationError(
            [
                f"--kas-address: port {address.port} is usually for {what}, and 8150 "
                "for agents; pass --system-cas if another server answers there.  No "
                "token was made"
            ]
        )


def _authority(
    ctl: Ctl,
    store: IdentityStore,
    address: KasAddress,
    given: Path | None,
    lenient: bool,
) -> bytes | None:
    if not address.secure:
        ctl.note(f"# {address} is not encrypted: the token could be read in transit.")
        return None
    if given is not None:
        return given_authority(given)
    try:
        return own_authority(ctl, store.state, AGENTS, ctl.all_running(), address.host)
    except NoAuthority as error:
        if not lenient:
            refuse_wrong_name("--kas-address", error)
        ctl.note(
            f"# The manifest contains no CA: {error}.  agentk trusts the CAs of its "
            "image; --ca-file FILE adds another."
        )
        return None


def template() -> list[dict[str, Any]]:
    """Return the objects that run agentk in a cluster, as in deploy/kustomize."""
    return [
        document
        for file in _TEMPLATES
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]


def fill_in(
    documents: list[dict[str, Any]],
    image: str,
    address: str,
    namespace: str,
    token: str,
    authority: bytes | None,
    role: str = ROLE,
) -> list[dict[str, Any]]:
    """
    Return the template with the values of one cluster, including its secrets.

    :param authority: None if agentk trusts the CAs of its image.
    :param role: the ClusterRole of agentk in the whole cluster.
    """
    found = {one["kind"]: one for one in documents}
    for one in documents:
        if "namespace" in one["metadata"]:
            one["metadata"]["namespace"] = namespace
    found["Namespace"]["metadata"]["name"] = namespace
    binding = found["ClusterRoleBinding"]
    # Give the binding a name of its own, because it is cluster-wide, and several agents
    # may be in one cluster.
    binding["metadata"]["name"] = f"{namespace}-agentk"
    binding["roleRef"]["name"] = role
    for subject in (*binding["subjects"], *found["RoleBinding"]["subjects"]):
        subject["namespace"] = namespace
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["image"] = image
    container["command"] = [
        f"--kas-address={address}" if one.startswith("--kas-address=") else one
        for one in container["command"]
        if authority is not None or not one.startswith("--ca-cert-file=")
    ]
    secrets: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": CREDENTIAL, "namespace": namespace},
            "data": {"token": base64.b64encode(token.encode()).decode("ascii")},
        }
    ]
    if authority is not None:
        secrets.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "agentk-ca", "namespace": namespace},
                "data": {"ca.crt": authority.decode("ascii")},
            }
        )
    else:
        for key, where in (("volumes", pod), ("volumeMounts", container)):
            where[key] = [one for one in where[key] if one["name"] != "ca"]
    first, *rest = documents
    return [first, *secrets, *rest]


def _turned_on(
    documents: list[dict[str, Any]], namespace: str, modules: Collection[str]
) -> list[dict[str, Any]]:
    """
    Change *documents* so that agentk reads a configuration file that enables *modules*.

    :returns: the objects with the configuration file, and with the permissions that the
        modules need in agentk's own namespace.
    """
    deployment = next(one for one in documents if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["command"].append("--configuration-file=/config/file/agentk.yaml")
    mount = {"name": "file", "mountPath": "/config/file", "readOnly": True}
    container["volumeMounts"].append(mount)
    pod["volumes"].append({"name": "file", "configMap": {"name": "agentk-file"}})
    text = yaml.safe_dump({"modules": {name: {} for name in sorted(modules)}})
    made: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "agentk-file", "namespace": namespace},
            "data": {"agentk.yaml": text},
        }
    ]
    if GITOPS in modules:
        container["resources"]["limits"]["memory"] = GITOPS_MEMORY
        api = "rbac.authorization.k8s.io"
        metadata = {"name": "agentk-gitops", "namespace": namespace}
        subject = {"kind": "ServiceAccount", "name": "agentk", "namespace": namespace}
        made += [
            {
                "apiVersion": f"{api}/v1",
                "kind": "Role",
                "metadata": metadata,
                "rules": [
                    {
                        "apiGroups": [""],
                        "resources": ["configmaps"],
                        "verbs": ["get", "create", "update", "delete"],
                    },
                    {
                        "apiGroups": [""],
                        "resources": ["secrets"],
                        "verbs": ["get", "create", "update"],
                    },
                ],
            },
            {
                "apiVersion": f"{api}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": api, "kind": "Role", "name": "agentk-gitops"},
                "subjects": [subject],
            },
        ]
    if CLUSTER_DATA in modules:
        made += _right_to_watch(namespace)
    if WEBHOOKS in modules:
        made += _right_to_find_services(namespace)
    if PROMETHEUS in modules:
        made += _right_to_search(namespace)
    return made


def _right_to_watch(namespace: str) -> list[dict[str, Any]]:
    """
    Return a role for the objects of live data that `view` does not include, and its
    binding.
    """
    verbs = ["get", "list", "watch"]
    rules = [
        {
            "apiGroups": [""],
            "resources": ["nodes", "namespaces", "pods", "services", "events"],
            "verbs": verbs,
        },
        {
            "apiGroups": ["apps"],
            "resources": ["deployments", "statefulsets", "daemonsets"],
            "verbs": verbs,
        },
        {"apiGroups": ["batch"], "resources": ["jobs", "cronjobs"], "verbs": verbs},
        {
            "apiGroups": ["app.k8s.io", "argoproj.io"],
            "resources": ["applications"],
            "verbs": verbs,
        },
        {
            "apiGroups": ["kustomize.toolkit.fluxcd.io"],
            "resources": ["kustomizations"],
            "verbs": verbs,
        },
        {
            "apiGroups": ["helm.toolkit.fluxcd.io"],
            "resources": ["helmreleases"],
            "verbs": verbs,
        },
        # To notice changes of users' rights.
        {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": [
                "roles",
                "rolebindings",
                "clusterroles",
                "clusterrolebindings",
            ],
            "verbs": ["list", "watch"],
        },
    ]
    return _cluster_role(namespace, "cluster-data", rules)


def _right_to_find_services(namespace: str) -> list[dict[str, Any]]:
    """
    Return a role for the Services that receive webhooks, and its binding.

    The owner of each Secret permits agentk to read it.
    """
    rules = [{"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}]
    return _cluster_role(namespace, "webhooks", rules)


def _right_to_search(namespace: str) -> list[dict[str, Any]]:
    """
    Return a role for the search for Prometheus, and its binding.

    agentk connects to Prometheus itself, so it does not need services/proxy.
    """
    rules = [
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]},
        {
            "apiGroups": ["monitoring.coreos.com"],
            "resources": ["prometheuses"],
            "verbs": ["list"],
        },
    ]
    return _cluster_role(namespace, "prometheus", rules)


def _cluster_role(
    namespace: str, purpose: str, rules: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return a ClusterRole of agentk, and its binding."""
    api = "rbac.authorization.k8s.io"
    metadata = {"name": f"{namespace}-agentk-{purpose}"}
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": rules,
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", **metadata},
            "subjects": [
                {"kind": "ServiceAccount", "name": "agentk", "namespace": namespace}
            ],
        },
    ]


def _right_to_impersonate(namespace: str) -> list[dict[str, Any]]:
    """Return a role that lets agentk impersonate users and groups, and its binding."""
    api = "rbac.authorization.k8s.io"
    metadata = {"name": f"{namespace}-agentk-impersonate"}
    resources = {
        "": ["users", "groups"],
        "authentication.k8s.io": ["uids", "userextras/*"],
    }
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": [
                {"apiGroups": [group], "resources": names, "verbs": ["impersonate"]}
                for group, names in resources.items()
            ],
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", **metadata},
            "subjects": [
                {"kind": "ServiceAccount", "name": "agentk", "namespace": namespace}
            ],
        },
    ]
