"""
The search for Prometheus in the cluster, step by step.

A setting decides alone.  Otherwise, agentk collects candidates from all other
strategies, because labels differ between versions of charts.  Our label selects a
Service among all of its namespace, but not of others, whose owners may differ.  It
never chooses silently between several candidates: users would read the data of a
Prometheus that somebody else installed for another purpose.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import attrs

from modules.prometheus.agent.services import (
    SERVICES,
    ServiceTarget,
    UnusableService,
    name_of,
    target_of,
)
from modules.prometheus.wire.settings import PrometheusService
from tunnel.api import (
    AgentScope,
    IKubernetesClient,
    KubernetesObject,
    KubernetesResource,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.texts import clean

__all__ = ["LABEL", "Probe", "PrometheusSearch", "SearchResult", "SearchStep"]

#: Label that the owner of a Service sets to select it.
LABEL: Final = "txkas/prometheus"

#: Key of the setting, for messages.
SETTING: Final = "prometheus.service in the agent's configuration"

_OPERATED: Final = KubernetesResource(
    "monitoring.coreos.com", "v1", "Prometheus", "prometheuses", True
)

#: Selectors of the Services of usual charts, by label.
_WELL_KNOWN: Final = {
    "app.kubernetes.io/name": (
        *("prometheus", "thanos-query", "thanos-query-frontend", "thanos-querier"),
        *("vmsingle", "vmselect", "victoria-metrics-single"),
    ),
    "app": (
        *("kube-prometheus-stack-prometheus", "prometheus-prometheus", "prometheus"),
        *("vmselect", "vmsingle"),
    ),
    "headlamp-prometheus": ("true",),
}

#: Components of a chart that are not Prometheus, although the chart's label is.
_OTHER_COMPONENTS: Final = frozenset(
    ("alertmanager", "node-exporter", "pushgateway", "kube-state-metrics")
)

#: Path of the API for the components of VictoriaMetrics' cluster.
_VMSELECT_PATH: Final = "/select/0/prometheus"

#: Maximum number of objects of one strategy, which users of the cluster create.
MAX_FOUND: Final = 50

#: Maximum number of candidates that agentk probes.
MAX_CANDIDATES: Final = 10

#: Maximum number of Services in the namespace of a Prometheus object that are compared
#: with its pods.
MAX_NEIGHBOURS: Final = 500

#: Maximum bytes of the response to a probe.
MAX_PROBE: Final = 64 * 1024

#: Sends a request to a Service, and returns status and body of at most `MAX_PROBE`
#: bytes: (target, path, form).
Probe = Callable[[ServiceTarget, str, str], Awaitable[tuple[int, bytes]]]


@attrs.frozen
class SearchStep:
    """
    One step of a search.

    :ivar strategy: ``setting``, ``label``, ``operator`` or ``well-known``.
    :ivar service: ``NAMESPACE/NAME``; empty if the step concerns no Service.
    :ivar outcome: ``taken``, ``candidate``, ``passed over``, ``failed`` or ``nothing``.
    """

    strategy: str
    service: str
    outcome: str
    reason: str


@attrs.frozen
class SearchResult:
    """
    Result of a search.

    :ivar target: the Service to ask; None if there is not exactly one.
    :ivar problem: why there is none, without names of objects.
    """

    steps: Sequence[SearchStep]
    target: ServiceTarget | None
    problem: str = ""
    status: Status = Status.NOT_FOUND


class _Found:
    """Candidates and steps of a search that runs."""

    def __init__(self) -> None:
        self.steps: list[SearchStep] = []
        self.candidates: list[tuple[str, ServiceTarget]] = []

    def note(self, strategy: str, service: str, outcome: str, reason: str) -> None:
        self.steps.append(SearchStep(strategy, service, outcome, reason))

    def add(self, strategy: str, target: ServiceTarget) -> None:
        """Add a candidate, unless it is another name for an earlier one."""
        for by, other in self.candidates:
            if other.service == target.service:
                return
            if by == "label" != strategy and other.namespace == target.namespace:
                reason = f"the label {LABEL} selects {other.service}"
                self.note(strategy, target.service, "passed over", reason)
                return
            same = other.selector and other.selector == target.selector
            if same and other.namespace == target.namespace:
                reason = f"it selects the same pods as {other.service}"
                self.note(strategy, target.service, "passed over", reason)
                return
        if len(self.candidates) == MAX_CANDIDATES:
            reason = f"{MAX_CANDIDATES} candidates precede it"
            self.note(strategy, target.service, "passed over", reason)
            return
        self.candidates.append((strategy, target))


class PrometheusSearch:
    """
    Searches with agentk's rights.

    :param probe: asks a candidate whether it is Prometheus.
    :param scope: the part of the cluster to search.
    """

    def __init__(
        self, client: IKubernetesClient, probe: Probe, scope: AgentScope
    ) -> None:
        self._client = client
        self._probe = probe
        self._scope = scope

    async def search(self, setting: PrometheusService | None) -> SearchResult:
        """
        Search, and return the Service and all steps.

        :raises CallError: UNAVAILABLE if the API server did not answer.
        """
        found = _Found()
        if setting is not None:
            return await self._by_setting(setting, found)
        found.note("setting", "", "nothing", f"{SETTING} is not set")
        await self._labelled(found, "label", LABEL, ("true",))
        await self._operated(found)
        for label, values in _WELL_KNOWN.items():
            await self._labelled(found, "well-known", label, values)
        return await self._chosen(found)

    async def _by_setting(
        self, setting: PrometheusService, found: _Found
    ) -> SearchResult:
        name = f"{setting.namespace}/{setting.name}"
        try:
            if outside := self._scope.why_outside(setting.namespace):
                raise UnusableService(outside)
            service = await self._client.get(SERVICES, setting.name, setting.namespace)
            target = target_of(
                service, port=setting.port, scheme=setting.scheme, path=setting.path
            )
        except CallError as error:
            if error.status not in (Status.NOT_FOUND, Status.PERMISSION_DENIED):
                raise
            reason = error.message
        except UnusableService as unusable:
            reason = str(unusable)
        else:
            _, said = await self._ask(target)
            found.note("setting", name, "taken", said)
            return SearchResult(found.steps, target)
        found.note("setting", name, "failed", clean(reason, 500))
        return SearchResult(
            found.steps,
            None,
            f"agentk cannot use the Service of {SETTING}",
            Status.FAILED_PRECONDITION,
        )

    async def _labelled(
        self, found: _Found, strategy: str, label: str, values: Sequence[str]
    ) -> None:
        """Add the Services whose *label* has one of *values* as candidates."""
        selector = f"{label} in ({','.join(values)})"
        shown = f"{label}={values[0]}" if len(values) == 1 else selector
        services = await self._list(
            found, strategy, SERVICES, "", selector, MAX_FOUND, shown
        )
        if services is None:
            return
        if not services:
            found.note(strategy, "", "nothing", f"no Service with {shown}")
        for one in services:
            labels = one["metadata"].get("labels") or {}
            component = labels.get("app.kubernetes.io/component") or labels.get(
                "component"
            )
            if component in _OTHER_COMPONENTS and strategy != "label":
                reason = f"its component is {component}"
                found.note(strategy, name_of(one), "passed over", reason)
                continue
            path = _VMSELECT_PATH if "vmselect" in labels.values() else ""
            try:
                target = target_of(one, path=path)
                if not target.selector:
                    # Only a setting selects such a Service.
                    raise UnusableService(
                        "it has no selector, so it may lead out of the cluster"
                    )
            except UnusableService as unusable:
                found.note(strategy, name_of(one), "passed over", str(unusable))
            else:
                found.add(strategy, target)

    async def _operated(self, found: _Found) -> None:
        """Add the Services in front of the pods of Prometheus objects."""
        kind = "Prometheus (monitoring.coreos.com)"
        objects = await self._list(
            found, "operator", _OPERATED, "", "", MAX_FOUND, f"objects of kind {kind}"
        )
        if objects is None:
            return
        if not objects:
            found.note("operator", "", "nothing", f"no object of kind {kind}")
        for one in objects:
            await self._in_front_of(found, one)

    async def _in_front_of(self, found: _Found, one: KubernetesObject) -> None:
        name, namespace = one["metadata"]["name"], one["metadata"].get("namespace", "")
        spec = one.get("spec") or {}
        services = await self._list(
            found, "operator", SERVICES, namespace, "", MAX_NEIGHBOURS, "its Services"
        )
        if services is None:
            return
        pods = {
            **((spec.get("podMetadata") or {}).get("labels") or {}),
            "app.kubernetes.io/name": "prometheus",
            "app.kubernetes.io/instance": name,
            "app.kubernetes.io/managed-by": "prometheus-operator",
            "operator.prometheus.io/name": name,
            "prometheus": name,
        }
        tls = (spec.get("web") or {}).get("tlsConfig")
        usable = []
        for service in services:
            selector = (service.get("spec") or {}).get("selector") or {}
            if not selector or not selector.items() <= pods.items():
                continue
            try:
                target = target_of(
                    service,
                    scheme="https" if tls else None,
                    path=str(spec.get("routePrefix") or "").rstrip("/"),
                    preferred=(spec.get("portName") or "web",),
                )
            except UnusableService as unusable:
                found.note("operator", name_of(service), "passed over", str(unusable))
            else:
                usable.append(target)
        # A headless Service has an address for each replica, and replicas differ.
        usable.sort(key=lambda target: (target.headless, target.name))
        if not usable:
            reason = "no Service selects the pods of this Prometheus object"
            found.note("operator", name_of(one), "failed", reason)
            return
        first, *rest = usable
        found.add("operator", first)
        for other in rest:
            reason = f"{first.service} selects pods of the same Prometheus object"
            found.note("operator", other.service, "passed over", reason)

    async def _list(
        self,
        found: _Found,
        strategy: str,
        resource: KubernetesResource,
        namespace: str,
        selector: str,
        most: int,
        what: str,
    ) -> list[KubernetesObject] | None:
        """
        Return at most *most* objects; None after a failure, which is noted.

        :param namespace: empty for the whole scope.
        """
        objects: list[KubernetesObject] = []
        try:
            for place in (namespace,) if namespace else self._scope.namespaces or ("",):
                pages: AsyncIterator[Any] = self._client.list(
                    resource, place, label_selector=selector, limit=most
                )
                async with aclosing(pages):  # type: ignore[type-var]
                    async for page in pages:
                        objects += page
                        break
        except CallError as error:
            if error.status is Status.NOT_FOUND:
                reason = "the cluster does not have this kind"
            elif error.status is Status.PERMISSION_DENIED:
                reason = f"agentk may not list {resource.name}"
                where = namespace or ", ".join(self._scope.namespaces)
                reason += f" in {where}" if where else " in all namespaces"
            else:
                raise
            absent = error.status is Status.NOT_FOUND
            outcome = "nothing" if absent else "failed"
            found.note(strategy, "", outcome, f"{what}: {reason}")
            return None
        return objects[:most]

    async def _chosen(self, found: _Found) -> SearchResult:
        """Probe the candidates, and choose if only one is left."""
        left: list[tuple[str, ServiceTarget, str]] = []
        for strategy, target in found.candidates:
            excluded, said = await self._ask(target)
            if excluded:
                found.note(strategy, target.service, "passed over", said)
            else:
                left.append((strategy, target, said))
        if len(left) == 1:
            ((strategy, target, said),) = left
            found.note(strategy, target.service, "taken", said)
            return SearchResult(found.steps, target)
        for strategy, target, said in left:
            found.note(strategy, target.service, "candidate", said)
        if left:
            return SearchResult(
                found.steps,
                None,
                f"the cluster has {len(left)} candidates for Prometheus, and agentk "
                f"does not choose: set {SETTING}, or label one Service {LABEL}=true",
                Status.FAILED_PRECONDITION,
            )
        return SearchResult(
            found.steps,
            None,
            f"agentk found no Prometheus in the cluster: set {SETTING}, or label its "
            f"Service {LABEL}=true",
        )

    async def _ask(self, target: ServiceTarget) -> tuple[bool, str]:
        """
        Ask a candidate who it is.

        A candidate that does not answer stays a candidate: it may only be starting, and
        then another candidate would be taken because of that.

        :return: whether it is certainly not Prometheus, and its answer as text.
        """
        try:
            status, body = await self._probe(target, "/api/v1/query", "query=1")
        except CallError as error:
            return False, f"port {target.port_text} does not answer: {error.message}"
        if status >= 500 or status in (401, 403, 429):
            return False, f"port {target.port_text} answers with {status}"
        if status != 200 or not _is_success(body):
            where = f"{target.path}/api/v1/query"
            return True, f"{where} at port {target.port_text} answers with {status}"
        version = ""
        try:
            status, body = await self._probe(target, "/api/v1/status/buildinfo", "")
            data = json.loads(body)["data"] if status == 200 else {}
            version = clean(str(data.get("version") or ""), 50)
        except (CallError, ValueError, LookupError, TypeError, AttributeError):
            # Some implementations have no such path.
            version = ""
        said = f"port {target.port_text} answers"
        return False, f"{said}, version {version}" if version else said


def _is_success(body: bytes) -> bool:
    try:
        found = json.loads(body)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("status") == "success"
