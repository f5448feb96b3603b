"""
Fields that controllers of the control plane write, regardless of their value in Git.

agentk neither applies nor compares these fields: otherwise agentk and the controller
would revert each other.  Users have such fields in their files because the
documentation shows them (``rules: []`` with an ``aggregationRule``), or because
``kubectl get -o yaml`` printed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["without", "without_owned"]

_Path = tuple[str, ...]


def _annotations(*names: str) -> tuple[_Path, ...]:
    return tuple(("metadata", "annotations", name) for name in names)


#: Fields by group and kind.
_OWNED: Mapping[tuple[str, str], tuple[_Path, ...]] = {
    # The volume binder, the scheduler and the provisioner set and remove these
    # annotations.
    ("", "PersistentVolumeClaim"): _annotations(
        "pv.kubernetes.io/bind-completed",
        "pv.kubernetes.io/bound-by-controller",
        "volume.beta.kubernetes.io/storage-provisioner",
        "volume.kubernetes.io/selected-node",
        "volume.kubernetes.io/storage-provisioner",
    ),
    ("", "PersistentVolume"): (
        *_annotations("pv.kubernetes.io/bound-by-controller"),
        ("spec", "claimRef", "resourceVersion"),
        ("spec", "claimRef", "uid"),
    ),
    # The controllers of these kinds count in these annotations.
    ("apps", "Deployment"): _annotations("deployment.kubernetes.io/revision"),
    ("apps", "DaemonSet"): _annotations("deprecated.daemonset.template.generation"),
    # These annotations contain the status of newer versions, as represented in version
    # 1.
    ("autoscaling", "HorizontalPodAutoscaler"): _annotations(
        "autoscaling.alpha.kubernetes.io/conditions",
        "autoscaling.alpha.kubernetes.io/current-metrics",
    ),
}

#: Type of the Secrets whose content the token controller writes.  The controller
#: deletes a Secret with the uid of another service account.
_OF_ACCOUNT = "kubernetes.io/service-account-token"
_OF_TOKENS: tuple[_Path, ...] = (
    *_annotations("kubernetes.io/service-account.uid"),
    *((place, "token") for place in ("data", "stringData")),
    *((place, "ca.crt") for place in ("data", "stringData")),
    *((place, "namespace") for place in ("data", "stringData")),
)


def without_owned(found: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the fields that the control plane writes."""
    for path in _owned(found):
        found = without(found, path)
    return found


def _owned(found: Mapping[str, Any]) -> Iterator[_Path]:
    group = str(found.get("apiVersion", "")).rpartition("/")[0]
    kind = str(found.get("kind", ""))
    yield from _OWNED.get((group, kind), ())
    if (group, kind) == ("rbac.authorization.k8s.io", "ClusterRole"):
        if found.get("aggregationRule") is not None:
            # The controller computes the rules from all roles that the
            # ``aggregationRule`` selects.
            yield ("rules",)
    elif (group, kind) == ("", "Secret") and found.get("type") == _OF_ACCOUNT:
        yield from _OF_TOKENS


def without(found: Any, path: _Path | list[str]) -> Any:
    """
    Return a value without the part at *path*.

    :returns: the value itself if the path does not exist.
    """
    name, rest = path[0], path[1:]
    if isinstance(found, dict) and name in found:
        if not rest:
            return {key: one for key, one in found.items() if key != name}
        inner = without(found[name], rest)
        return found if inner is found[name] else {**found, name: inner}
    if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
        number = int(name)
        if not rest:
            return [*found[:number], *found[number + 1 :]]
        inner = without(found[number], rest)
        if inner is found[number]:
            return found
        return [*found[:number], inner, *found[number + 1 :]]
    return found
