"""
Health of an object: whether it has reached the state of its specification.

The rules follow kstatus (kubernetes-sigs/cli-utils, pkg/kstatus/status), so that kpt,
Config Sync and kas agree about an object.  A rule differs only if the result of kstatus
would mislead an operator (a Job that runs, a Pod that failed); a comment then gives the
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

import attrs

from tunnel.api import KubernetesObject

__all__ = ["HealthStatus", "ObjectHealth", "health_of", "why_it_stays"]

#: Seconds during which an unschedulable Pod is still expected to run.  Adding a node
#: for the Pod takes longer, and the operator should then be informed.
UNSCHEDULABLE_SECONDS = 15.0

#: Value for Deployments without a deadline.
_NO_DEADLINE = 2**31 - 1


class HealthStatus(Enum):
    """State of an object compared with its specification."""

    CURRENT = "current"
    IN_PROGRESS = "in progress"
    #: The object will not become current without a change.
    FAILED = "failed"
    TERMINATING = "terminating"


@attrs.frozen
class ObjectHealth:
    """
    State of an object, and the reason for that state.

    :ivar reason: a text for operators, without values that could be secret.
    """

    status: HealthStatus
    reason: str = ""


_CURRENT = ObjectHealth(HealthStatus.CURRENT)


def _waiting(reason: str) -> ObjectHealth:
    return ObjectHealth(HealthStatus.IN_PROGRESS, reason)


def _failed(reason: str) -> ObjectHealth:
    return ObjectHealth(HealthStatus.FAILED, reason)


def health_of(found: KubernetesObject, now: float) -> ObjectHealth:
    """
    Return the health of a live object.

    :param now: the current time in seconds since 1970.
    """
    view = _View(found, now)
    general = _general(view)
    if general is not None:
        return general
    group = str(found.get("apiVersion", "")).rpartition("/")[0]
    rule = _RULES.get((group, found.get("kind", "")), _by_ready)
    return rule(view)


def why_it_stays(found: KubernetesObject, now: float) -> str:
    """
    Return why an object that is being deleted still exists.

    The conditions of a Namespace contain its remaining objects and the reasons.
    """
    if (found.get("apiVersion"), found.get("kind")) == ("v1", "Namespace"):
        view = _View(found, now)
        said = [
            str(one.get("message"))
            for one in view.conditions()
            if one.get("status") == "True" and one.get("message")
        ]
        if said:
            return "; ".join(said)
    return health_of(found, now).reason or "it still exists"


class _View:
    """View of an object whose fields may be missing or have unexpected types."""

    def __init__(self, found: KubernetesObject, now: float) -> None:
        self.found = found
        self.now = now
        self.spec = _mapping(found.get("spec"))
        self.status = _mapping(found.get("status"))

    def count(self, field: str, default: int = 0) -> int:
        """Return a number in the status."""
        return _number(self.status.get(field), default)

    @property
    def replicas(self) -> int:
        """Wanted number of replicas."""
        return _number(self.spec.get("replicas"), 1)

    def conditions(self) -> Iterator[Mapping[str, Any]]:
        """Yield the conditions in the status."""
        found = self.status.get("conditions")
        for one in found if isinstance(found, list) else ():
            if isinstance(one, dict):
                yield one

    def condition(self, kind: str) -> Mapping[str, Any]:
        """
        Return the condition of a type; an empty mapping if the condition is missing.
        """
        return next((one for one in self.conditions() if one.get("type") == kind), {})

    def is_true(self, kind: str) -> bool:
        """Return whether a condition exists and is true."""
        return self.condition(kind).get("status") == "True"


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _number(found: Any, default: int) -> int:
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def _said(condition: Mapping[str, Any]) -> str:
    """Return the text of a condition."""
    texts = [str(condition.get(key) or "") for key in ("reason", "message")]
    said = ": ".join(text for text in texts if text)[:400]
    return said or f"{condition.get('type')} is {condition.get('status')}"


def _general(view: _View) -> ObjectHealth | None:
    """Apply the rules that hold for all kinds."""
    metadata = _mapping(view.found.get("metadata"))
    if metadata.get("deletionTimestamp"):
        finalizers = metadata.get("finalizers") or ()
        waits = f"; its finalizers: {', '.join(map(str, finalizers))}"
        return ObjectHealth(
            HealthStatus.TERMINATING, "it is being deleted" + waits * bool(finalizers)
        )
    generation = _number(metadata.get("generation"), 0)
    if view.count("observedGeneration", generation) != generation:
        return _waiting("its controller has not seen the last change")
    if view.is_true("Reconciling"):
        return _waiting(_said(view.condition("Reconciling")))
    if view.is_true("Stalled"):
        return _failed(_said(view.condition("Stalled")))
    return None


def _by_ready(view: _View) -> ObjectHealth:
    ready = view.condition("Ready")
    if ready.get("status") in ("False", "Unknown"):
        return _waiting(_said(ready))
    return _CURRENT


def _always(view: _View) -> ObjectHealth:
    return _CURRENT


def _first_short(wanted: int, *counts: tuple[int, str]) -> ObjectHealth | None:
    """
    Return a waiting health for the first of *counts* that is below *wanted*; None if no
    count is.
    """
    for count, what in counts:
        if count < wanted:
            return _waiting(f"{what}: {count} of {wanted}")
    return None


def _deployment(view: _View) -> ObjectHealth:
    progressing = view.condition("Progressing")
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return _failed(_said(progressing))
    wanted, there = view.replicas, view.count("replicas")
    updated = view.count("updatedReplicas")
    short = _first_short(wanted, (there, "replicas"), (updated, "updated replicas"))
    if short is not None:
        return short
    if there > wanted:
        return _waiting(f"{there - wanted} old replicas still exist")
    short = _first_short(
        updated, (view.count("availableReplicas"), "available replicas")
    ) or _first_short(wanted, (view.count("readyReplicas"), "ready replicas"))
    if short is not None:
        return short
    deadline = _number(view.spec.get("progressDeadlineSeconds"), _NO_DEADLINE)
    rolled_out = deadline == _NO_DEADLINE or (
        progressing.get("reason") == "NewReplicaSetAvailable"
        and view.is_true("Progressing")
    )
    if not rolled_out:
        return _waiting("its ReplicaSet is not available")
    if not view.is_true("Available"):
        return _waiting("it is not available")
    return _CURRENT


def _stateful_set(view: _View) -> ObjectHealth:
    strategy = _mapping(view.spec.get("updateStrategy"))
    if strategy.get("type") == "OnDelete":
        return _CURRENT
    wanted, there = view.replicas, view.count("replicas")
    short = _first_short(
        wanted, (there, "replicas"), (view.count("readyReplicas"), "ready replicas")
    )
    if short is not None:
        return short
    if there > wanted:
        return _waiting(f"{there - wanted} surplus replicas still exist")
    partition = _mapping(strategy.get("rollingUpdate")).get("partition")
    if isinstance(partition, int) and partition > 0:
        updated = (view.count("updatedReplicas"), "updated replicas")
        return _first_short(wanted - partition, updated) or _CURRENT
    short = _first_short(wanted, (view.count("currentReplicas"), "current replicas"))
    if short is not None:
        return short
    if view.status.get("currentRevision") != view.status.get("updateRevision"):
        return _waiting("replicas of the previous revision still exist")
    return _CURRENT


def _daemon_set(view: _View) -> ObjectHealth:
    if "observedGeneration" not in view.status:
        return _waiting("its controller has not seen it")
    wanted = view.count("desiredNumberScheduled", -1)
    if wanted < 0:
        return _waiting("the number of nodes for it is not known")
    counts = {
        "currentNumberScheduled": "pods",
        "updatedNumberScheduled": "updated pods",
        "numberAvailable": "available pods",
        "numberReady": "ready pods",
    }
    found = [(view.count(field), what) for field, what in counts.items()]
    return _first_short(wanted, *found) or _CURRENT


def _replica_set(view: _View) -> ObjectHealth:
    if view.is_true("ReplicaFailure"):
        return _waiting(_said(view.condition("ReplicaFailure")))
    wanted = view.replicas
    counts = {
        "fullyLabeledReplicas": "labeled replicas",
        "availableReplicas": "available replicas",
        "readyReplicas": "ready replicas",
    }
    found = [(view.count(field), what) for field, what in counts.items()]
    short = _first_short(wanted, *found)
    if short is not None:
        return short
    if view.count("replicas") > wanted:
        return _waiting("surplus replicas still exist")
    return _CURRENT


def _job(view: _View) -> ObjectHealth:
    if view.is_true("Complete") or view.is_true("Suspended"):
        return _CURRENT
    if view.is_true("Failed"):
        return _failed(_said(view.condition("Failed")))
    if not view.status.get("startTime"):
        return _waiting("it has not started")
    # kstatus treats a running Job as current, but objects that wait for a Job need its
    # result.
    return _waiting(
        f"pods: {view.count('active')} run, {view.count('succeeded')} succeeded, "
        f"{view.count('failed')} failed"
    )


def _pod(view: _View) -> ObjectHealth:
    phase = view.status.get("phase")
    if phase == "Succeeded":
        return _CURRENT
    if phase == "Failed":
        # kstatus treats a failed Pod as current, because the Pod's state is final.
        return _failed(f"it failed: {view.status.get('reason') or 'no reason given'}")
    if phase == "Running":
        if view.is_true("Ready"):
            return _CURRENT
        crashing = sorted(_crashing(view))
        if crashing:
            return _failed(f"containers crash repeatedly: {', '.join(crashing)}")
        return _waiting("it is running but not ready")
    scheduled = view.condition("PodScheduled")
    if scheduled.get("status") == "False" and (
        scheduled.get("reason") == "Unschedulable"
    ):
        since = _seconds(scheduled.get("lastTransitionTime"))
        if since is not None and view.now - since > UNSCHEDULABLE_SECONDS:
            return _failed(_said(scheduled))
        return _waiting("no node has room for it yet")
    return _waiting("it has not started")


def _crashing(view: _View) -> Iterator[str]:
    for field in ("containerStatuses", "initContainerStatuses"):
        found = view.status.get(field)
        for one in found if isinstance(found, list) else ():
            state = _mapping(_mapping(one).get("state"))
            if _mapping(state.get("waiting")).get("reason") == "CrashLoopBackOff":
                yield str(one.get("name"))


def _seconds(text: Any) -> float | None:
    """Convert a time of the API server to seconds since 1970; None if it is invalid."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None


def _claim(view: _View) -> ObjectHealth:
    phase = view.status.get("phase")
    return _CURRENT if phase == "Bound" else _waiting("it is not bound to a volume")


def _service(view: _View) -> ObjectHealth:
    waits = view.spec.get("type") == "LoadBalancer" and not view.spec.get("clusterIP")
    return _waiting("it has no address in the cluster") if waits else _CURRENT


def _definition(view: _View) -> ObjectHealth:
    accepted, established = map(view.condition, ("NamesAccepted", "Established"))
    if accepted.get("status") == "False":
        return _failed(_said(accepted))
    if established.get("status") == "True":
        return _CURRENT
    if established.get("status") == "False" and (
        established.get("reason") != "Installing"
    ):
        return _failed(_said(established))
    return _waiting("its kind is not established")


_RULES: Mapping[tuple[str, str], Callable[[_View], ObjectHealth]] = {
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "Service"): _service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "CronJob"): _always,
    ("batch", "Job"): _job,
    ("policy", "PodDisruptionBudget"): _always,
}
