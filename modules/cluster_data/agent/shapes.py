"""
The fields of objects that the cache reads; see `tunnel.api.KubernetesShape`.

Fields of a status that only `tunnel.kubernetes.health_of` reads are plain dictionaries,
because few objects of such kinds exist.  Pods are numerous, and so their fields have
types.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tunnel.api import KubernetesMetadata, KubernetesShape

__all__ = [
    "DeclaringObject",
    "Event",
    "LiveService",
    "Namespace",
    "Node",
    "Pod",
    "Workload",
    "images_of",
]


#: Maximum number of characters of an image: a registry, a path, a tag and a digest.
MAX_IMAGE = 512


class _Fields(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base class of the parts of an object; `to_builtins` omits empty fields."""


class Container(_Fields):
    """A container in the specification of a pod."""

    name: str = ""
    image: str = ""


class PodTemplateSpec(_Fields):
    """The specification of pods in a workload."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class PodTemplate(_Fields):
    """Template of the pods of a workload."""

    metadata: KubernetesMetadata | None = None
    spec: PodTemplateSpec | None = None


class JobTemplateSpec(_Fields):
    """The specification of Jobs in a CronJob."""

    template: PodTemplate | None = None


class JobTemplate(_Fields):
    """Template of the Jobs of a CronJob."""

    spec: JobTemplateSpec | None = None


class WorkloadSpec(_Fields):
    """Specification of a Deployment, StatefulSet, DaemonSet, Job or CronJob."""

    replicas: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    schedule: str = ""
    progress_deadline_seconds: int | None = None
    update_strategy: dict[str, Any] | None = None
    template: PodTemplate | None = None
    job_template: JobTemplate | None = None


class AnnotatedMetadata(KubernetesMetadata):
    """Metadata of kinds with few objects, whose annotations name a tool."""

    annotations: dict[str, str] | None = None


class Workload(KubernetesShape):
    """A Deployment, StatefulSet, DaemonSet, Job or CronJob."""

    metadata: AnnotatedMetadata = msgspec.field(default_factory=AnnotatedMetadata)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: dict[str, Any] | None = None


class LiveServicePort(_Fields):
    """A port of a Service."""

    name: str = ""
    port: int = 0
    protocol: str = ""


class IngressPoint(_Fields):
    """An address of a load balancer."""

    ip: str = ""
    hostname: str = ""


class LoadBalancer(_Fields):
    """The load balancer of a Service."""

    ingress: list[IngressPoint] | None = None


class ServiceSpec(_Fields):
    """Specification of a Service."""

    type: str = ""
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    selector: dict[str, str] | None = None
    ports: list[LiveServicePort] | None = None


class ServiceStatus(_Fields):
    """Status of a Service."""

    load_balancer: LoadBalancer | None = None


class LiveService(KubernetesShape):
    """A Service."""

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)
    status: ServiceStatus = msgspec.field(default_factory=ServiceStatus)


class DeclaringObject(KubernetesShape):
    """An object that declares an application; its kind may be any program's."""

    spec: Any = None
    status: Any = None


class Condition(_Fields):
    """A condition in a status."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class WaitingContainer(_Fields):
    """State of a container that does not run yet."""

    reason: str = ""


class TerminatedContainer(_Fields):
    """State of a container that has ended."""

    reason: str = ""
    exit_code: int = 0
    signal: int = 0


class ContainerState(_Fields):
    """State of a container."""

    waiting: WaitingContainer | None = None
    running: dict[str, Any] | None = None
    terminated: TerminatedContainer | None = None


class ContainerStatus(_Fields):
    """Status of a container of a pod."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState | None = None


class PodSpec(_Fields):
    """Specification of a pod."""

    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class PodStatus(_Fields):
    """Status of a pod."""

    phase: str = ""
    reason: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(KubernetesShape):
    """A pod."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeSpec(_Fields):
    """Specification of a node."""

    unschedulable: bool = False


class NodeInfo(_Fields):
    """Versions of the programs of a node."""

    kubelet_version: str = ""
    os_image: str = ""
    architecture: str = ""


class NodeStatus(_Fields):
    """Status of a node."""

    conditions: list[Condition] | None = None
    node_info: NodeInfo | None = None
    capacity: dict[str, Any] | None = None


class Node(KubernetesShape):
    """A node."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class NamespaceStatus(_Fields):
    """Status of a namespace."""

    phase: str = ""


class Namespace(KubernetesShape):
    """A namespace."""

    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


class InvolvedObject(_Fields):
    """The object that an event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(_Fields):
    """Repetitions of an event."""

    count: int = 0
    last_observed_time: str | None = None


class Event(KubernetesShape):
    """An event of the API ``v1``."""

    involved_object: InvolvedObject = msgspec.field(default_factory=InvolvedObject)
    type: str = ""
    reason: str | None = None
    message: str | None = None
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None


def images_of(spec: PodSpec | PodTemplateSpec | None) -> list[str]:
    """Return the different images of a pod's containers, in their order."""
    if spec is None:
        return []
    containers = (spec.init_containers or []) + (spec.containers or [])
    images = (one.image[:MAX_IMAGE] for one in containers if one.image)
    return list(dict.fromkeys(images))
