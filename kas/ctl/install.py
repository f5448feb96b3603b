"""``kasctl agent install``: applies the manifest and waits for the connection."""

from __future__ import annotations

import base64
import binascii
import os
import shlex
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import click

from kas.ctl import agents
from kas.ctl.cluster_client import ClusterClient, ClusterError, connect
from kas.ctl.common import DURATION, Ctl, command, printable
from kas.ctl.completion import complete_agents
from kas.ctl.manifest import (
    CREDENTIAL,
    AgentOptions,
    agent_options,
    check_options,
    grace_option,
    make_token,
    prepare,
)
from kas.identity.file import Agent
from kas.identity.store import MAX_TOKEN, IdentityError, IdentityStore, digest
from tunnel.errors import ConfigurationError

__all__ = ["Waiting", "declare"]

TIMEOUT = "2m"
#: Seconds between two checks of kas and the cluster.
INTERVAL = 1.0
#: Placeholder for a token that does not exist yet, in a dry run.
PLACEHOLDER = "dry-run"

_DEPLOYMENT = "agentk"
_LABELS = "app=agentk"

Objects = Callable[[str], list[dict[str, Any]]]


def declare(group: click.Group) -> None:
    """Add the command to *group*."""
    command(group, "install")(_install)


@click.argument("name", shell_complete=complete_agents)
@click.option(
    "--context",
    required=True,
    metavar="NAME",
    help="The context of the kubeconfig for the cluster.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The kubeconfig  [default: $KUBECONFIG or ~/.kube/config]",
)
@agent_options
@click.option(
    "--rotate",
    is_flag=True,
    help="Give the agent a new token, and replace an unknown token in the cluster.",
)
@grace_option
@click.option(
    "--force-conflicts",
    is_flag=True,
    help="Take over fields that other programs set in objects of agentk.",
)
@click.option(
    "--timeout",
    type=DURATION,
    default=TIMEOUT,
    show_default=True,
    help="How long to wait until the agent is connected; 0 does not wait.",
)
def _install(
    ctl: Ctl,
    name: str,
    context: str,
    kubeconfig: Path | None,
    rotate: bool,
    grace: timedelta,
    force_conflicts: bool,
    timeout: timedelta,
    **options: Any,
) -> None:
    """
    Install agentk in the cluster of a kubeconfig context, and wait for its connection.

    This registers the agent and applies the objects of 'agent manifest'.  Repeating it
    changes only what differs, and keeps the token that the cluster has.
    """
    chosen = AgentOptions(**options)
    check_options(ctl, chosen)
    if timeout and not ctl.all_running():
        raise ConfigurationError(
            [
                f"{ctl.path()}: no kas runs with this state directory, so the agent "
                "cannot connect; start it, pass its state directory with "
                "--state-directory, or pass --timeout 0.  No token was made"
            ]
        )
    store, objects = prepare(ctl, chosen)
    with connect(kubeconfig, context, os.environ) as cluster:
        installation = _Installation(
            ctl, cluster, store, name, chosen.namespace, objects, force_conflicts
        )
        token = installation.known_token(rotate)
        installation.try_out(token)
        if token is None:
            make_token(store, name, rotate, grace, installation.hand_over)
        else:
            installation.hand_over(None, token)
        installation.finish()
        result = {
            "agent": name,
            "context": context,
            "namespace": chosen.namespace,
            "objects": installation.outcomes,
            "connected": None,
        }
        if not timeout:
            ctl.result(result, f"the objects of the agent {name} are in the cluster")
            return
        where = ["kubectl", "--context", context, "--namespace", chosen.namespace]
        if kubeconfig is not None:
            where[1:1] = ["--kubeconfig", str(kubeconfig)]
        waiting = Waiting(ctl, cluster, name, chosen.namespace, shlex.join(where))
        pod = waiting.wait(timeout.total_seconds())
    ctl.result(
        {**result, "connected": {"pod_name": pod}},
        f"the agent {name} is connected, from the pod {chosen.namespace}/{pod}",
    )


@attrs.define(eq=False)
class _Installation:
    """
    Installation of the objects of one agent.

    :ivar outcomes: the outcome of each applied object, as JSON data.
    """

    _ctl: Ctl
    _cluster: ClusterClient
    _store: IdentityStore
    _name: str
    _namespace: str
    _objects: Objects
    _force: bool
    outcomes: list[dict[str, str]] = attrs.field(factory=list, init=False)
    _later: list[dict[str, Any]] = attrs.field(factory=list, init=False)

    def known_token(self, rotate: bool) -> str | None:
        """
        Return the agent's token from the cluster; None if a new token is needed.

        :raises IdentityError: if the agent exists and its token is not in the cluster,
            or the cluster has the token of another agent.
        """
        there = f"the Secret {self._namespace}/{CREDENTIAL} of {self._cluster.where}"
        found = self._cluster.find("v1", "Secret", CREDENTIAL, self._namespace)
        token = None if found is None else _token_of(found)
        known = self._store.load().agents
        owner, lasts = (None, False) if token is None else _owner(token, known)
        if owner is not None and owner.name != self._name:
            raise IdentityError(
                f"{there} belongs to the agent {owner.name!r}; pass another "
                "--namespace, or the name of that agent.  No token was made"
            )
        if rotate:
            return None
        if owner is not None and lasts:
            return token
        if any(one.name == self._name for one in known):
            raise IdentityError(
                f"the agent {self._name!r} already exists, and {there} does not "
                "contain its newest token: pass --rotate for a new one, or another "
                "name"
            )
        if found is not None:
            raise IdentityError(
                f"{there} has a token that this kas does not know; pass --rotate to "
                "replace it, or another --namespace.  No token was made"
            )
        return None

    def try_out(self, token: str | None) -> None:
        """
        Apply all objects in a dry run, except the namespace, which must already exist
        for the dry run of other objects.

        :param token: None if the token does not exist yet.
        :raises ClusterError: if the API server refuses an object.
        """
        hint = "No token was made"
        objects = self._objects(token or PLACEHOLDER)
        inside = [one for one in objects if "namespace" in one["metadata"]]
        for one in objects:
            if one not in inside:
                self._apply(one, hint, dry_run=True)
        for one in objects:
            if one["kind"] == "Namespace":
                self._apply(one, hint)
        for one in inside:
            self._apply(one, hint, hidden=token or "", dry_run=True)

    def hand_over(self, found: Agent | None, token: str) -> None:
        """
        Apply the Secret; if that fails, a new token does not become valid.

        :param found: None if the token is not new.
        """
        hint = "No token was made" if found is not None else "Repeat the command"
        self._later = []
        for one in self._objects(token):
            if one["kind"] == "Secret":
                self._apply(one, hint, hidden=token)
            elif one["kind"] != "Namespace":
                self._later.append(one)

    def finish(self) -> None:
        """Apply all objects except the Secret."""
        hint = "The cluster has the token: repeat the command to continue"
        for one in self._later:
            self._apply(one, hint)

    def _apply(
        self,
        body: dict[str, Any],
        hint: str,
        *,
        hidden: str = "",
        dry_run: bool = False,
    ) -> None:
        try:
            outcome = self._cluster.apply(body, force=self._force, dry_run=dry_run)
        except ClusterError as error:
            raise ClusterError(
                f"{_without(str(error), hidden)}.  {hint}", error.status
            ) from None
        if dry_run:
            return
        metadata = body["metadata"]
        self.outcomes.append(
            {
                "kind": body["kind"],
                "namespace": metadata.get("namespace", ""),
                "name": metadata["name"],
                "outcome": outcome,
            }
        )
        self._ctl.note(f"{body['kind']} {metadata['name']}: {outcome}")


def _owner(token: str, known: Sequence[Agent]) -> tuple[Agent | None, bool]:
    """Return the agent with a token, and whether the token never expires."""
    sha256 = digest(token.encode()).hex()
    for one in known:
        for kept in one.tokens:
            if kept.sha256 == sha256:
                return one, kept.expires_at is None
    return None, False


def _token_of(secret: dict[str, Any]) -> str | None:
    try:
        data = base64.b64decode(secret["data"]["token"], validate=True)
        token = data.decode("ascii").strip()
    except (KeyError, TypeError, binascii.Error, UnicodeDecodeError):
        return None
    return token if len(token) <= MAX_TOKEN else None


def _without(text: str, token: str) -> str:
    """
    Return a message from the API server without the token, because the message may
    quote the Secret.
    """
    if token:
        encoded = base64.b64encode(token.encode()).decode("ascii")
        for hidden in (token, encoded):
            text = text.replace(hidden, "...")
    return text


@attrs.define(eq=False)
class Waiting:
    """
    Polling of kas and the cluster until the new pods are connected.

    :param kubectl: the kubectl command at the beginning of the advice.
    """

    _ctl: Ctl
    _cluster: ClusterClient
    _name: str
    _namespace: str
    _kubectl: str
    _seconds: Callable[[], float] = time.monotonic
    _sleep: Callable[[float], object] = time.sleep
    _connected: list[str] = attrs.field(factory=list, init=False)

    def wait(self, timeout: float) -> str:
        """
        Return the name of a connected pod of the newest revision.

        :raises ConfigurationError: if no pod is connected in time; the text contains
            advice.
        """
        began = self._seconds()
        shown = ""
        while True:
            pod, state = self._look()
            if pod is not None:
                return pod
            if state != shown:
                self._ctl.note(f"waiting for the agent {self._name}: {state}")
                shown = state
            if self._seconds() - began >= timeout:
                raise ConfigurationError(self._advice(timeout, state))
            self._sleep(INTERVAL)

    def _look(self) -> tuple[str | None, str]:
        """
        Return the name of a connected pod, or None and a description of the state.
        """
        known = agents.look(self._ctl, self._ctl.all_running())
        if known is None:
            return None, "no kas runs here"
        self._connected = [
            str(connection.get("pod_name") or "")
            for one in known.agents.values()
            if one["agent_name"] == self._name
            for connection in one["connections"]
            if connection.get("pod_namespace") == self._namespace
        ]
        try:
            newest = self._newest()
            if newest is None:
                return None, "the cluster has not begun to create pods"
            for pod in self._connected:
                if pod.startswith(f"{newest}-"):
                    return pod, ""
            pods = [
                one
                for one in self._cluster.select("v1", "Pod", self._namespace, _LABELS)
                if one["metadata"]["name"].startswith(f"{newest}-")
            ]
        except ClusterError as error:
            return None, str(error)
        problems = list(known.problems)
        return None, "; ".join([*dict.fromkeys(map(_state_of, pods)), *problems]) or (
            "no pods"
        )

    def _newest(self) -> str | None:
        """Return the name of the newest ReplicaSet of the Deployment."""
        place = (self._namespace,)
        deployment = self._cluster.find("apps/v1", "Deployment", _DEPLOYMENT, *place)
        if deployment is None:
            return None
        uid, wanted = deployment["metadata"]["uid"], _template(deployment)
        for one in self._cluster.select("apps/v1", "ReplicaSet", *place, _LABELS):
            owners = one["metadata"].get("ownerReferences") or []
            # Compare the templates: neither the revision nor the observed generation is
            # enough, because the controller scales the old pods before it creates new
            # pods.
            if _template(one) == wanted and uid in [owner["uid"] for owner in owners]:
                return str(one["metadata"]["name"])
        return None

    def _advice(self, timeout: float, state: str) -> list[str]:
        old = ", ".join(sorted(one for one in self._connected if one))
        more = f"; the agent is connected only from older pods: {old}" if old else ""
        return [
            f"the agent {self._name} is not connected after {timeout:g} s: "
            f"{state}{more}",
            f"look at: {self._kubectl} describe pods --selector {_LABELS}",
            f"look at: {self._kubectl} logs deployment/{_DEPLOYMENT}",
            "look at: kasctl doctor, and the log of kas",
            "the objects stay in the cluster; repeat the command to wait again",
        ]


def _template(found: dict[str, Any]) -> dict[str, Any]:
    """Return a pod template without the label that distinguishes ReplicaSets."""
    template: dict[str, Any] = dict(found["spec"]["template"])
    metadata = dict(template.get("metadata") or {})
    labels = dict(metadata.get("labels") or {})
    labels.pop("pod-template-hash", None)
    return {**template, "metadata": {**metadata, "labels": labels}}


def _state_of(pod: dict[str, Any]) -> str:
    """Return why a pod does not run; if it runs, return that it is not connected."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        for found in (state.get("waiting"), state.get("terminated")):
            if found:
                return _reason_of(name, found)
        last = (container.get("lastState") or {}).get("terminated")
        if last and not container.get("ready"):
            return _reason_of(name, last)
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition["status"] != "True":
            return _reason_of(name, condition)
    if status.get("phase") == "Running":
        return f"the pod {name} is running but has not connected to kas"
    return f"the pod {name} is {printable(str(status.get('phase') or 'new'))}"


def _reason_of(name: str, found: dict[str, Any]) -> str:
    """Return a line with a reason from Kubernetes, its message and an exit status."""
    texts = [found.get("reason"), found.get("message")]
    if "exitCode" in found:
        texts.append(f"exit status {found['exitCode']}")
    text = ": ".join(" ".join(str(one).split()) for one in texts if one)
    return f"the pod {name}: {printable(text) or 'not running'}"
