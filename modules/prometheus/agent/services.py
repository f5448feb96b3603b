"""Services as candidates: port, scheme and path of the Prometheus behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from modules.prometheus.wire.settings import is_prefix
from tunnel.api import KubernetesObject, KubernetesResource
from tunnel.toolkit.texts import clean

__all__ = ["SERVICES", "ServiceTarget", "UnusableService", "name_of", "target_of"]

SERVICES: Final = KubernetesResource("", "v1", "Service", "services", True)

#: Names of the port for HTTP in the usual charts, the most specific first.  A sidecar's
#: port has another name.
_PORT_NAMES: Final = ("web", "http-web", "prometheus", "http-query", "http", "https")

#: Numbers of this port: Prometheus, Thanos, VictoriaMetrics.
_PORT_NUMBERS: Final = (9090, 10902, 8428, 8481)


@attrs.frozen
class ServiceTarget:
    """
    A Service to ask.

    :ivar port_name: empty for a Service whose only port has no name.
    :ivar port: number of the Service's port.
    :ivar path: prefix of the API, without a slash at its end.
    :ivar selector: labels of the Service's pods; empty for a Service without a
        selector.
    """

    namespace: str
    name: str
    port_name: str
    port: int
    scheme: str = "http"
    path: str = ""
    selector: frozenset[tuple[str, str]] = frozenset()
    headless: bool = False

    @property
    def service(self) -> str:
        """Return ``NAMESPACE/NAME``."""
        return f"{self.namespace}/{self.name}"

    @property
    def port_text(self) -> str:
        """Return the name of the port, or its number."""
        return self.port_name or str(self.port)


class UnusableService(Exception):
    """Error for a Service that agentk cannot ask; the text contains the reason."""


def name_of(service: KubernetesObject) -> str:
    """Return ``NAMESPACE/NAME`` of an object."""
    metadata = service["metadata"]
    return clean(f"{metadata.get('namespace', '')}/{metadata['name']}", 200)


def target_of(
    service: KubernetesObject,
    *,
    port: str = "",
    scheme: str | None = None,
    path: str = "",
    preferred: Sequence[str] = (),
) -> ServiceTarget:
    """
    Return how to ask a Service.

    :param port: name or number of the port; empty for a usual name or number.
    :param scheme: None to derive it from the port.
    :param path: prefix of the API, from any source; refused unless `is_prefix`.
    :param preferred: names of the port that count more than the usual ones.
    :raises UnusableService: with the reason.
    """
    metadata, spec = service["metadata"], service.get("spec") or {}
    if not is_prefix(path):
        raise UnusableService(f"{clean(path, 200)} is not the prefix of a path")
    if spec.get("type") == "ExternalName":
        raise UnusableService(
            "its type is ExternalName, so it may lead out of the cluster"
        )
    ports = [one for one in spec.get("ports") or () if one.get("port")]
    found = _port(ports, port, (*preferred, *_PORT_NAMES))
    if found is None:
        names = ", ".join(one.get("name") or str(one["port"]) for one in ports)
        what = f"no port {port}" if port else "no port with a usual name or number"
        raise UnusableService(
            f"it has {what}, but {clean(names, 200) or 'none'}; "
            "prometheus.service.port in the agent's configuration selects one"
        )
    headless = spec.get("clusterIP") == "None"
    number = found["port"]
    if headless and isinstance(found.get("targetPort"), int):
        # The name of a headless Service has the addresses of its pods.
        number = found["targetPort"]
    return ServiceTarget(
        metadata.get("namespace", ""),
        metadata["name"],
        found.get("name") or "",
        number,
        scheme or _scheme(found),
        path,
        frozenset((spec.get("selector") or {}).items()),
        headless,
    )


def _port(
    ports: Sequence[Mapping[str, Any]], wanted: str, names: Sequence[str]
) -> Mapping[str, Any] | None:
    if wanted:
        for one in ports:
            if wanted in (one.get("name"), str(one["port"])):
                return one
        return None
    for name in names:
        for one in ports:
            if name in (one.get("name"), one.get("targetPort")):
                return one
    for number in _PORT_NUMBERS:
        for one in ports:
            if one["port"] == number:
                return one
    return ports[0] if len(ports) == 1 else None


def _scheme(port: Mapping[str, Any]) -> str:
    said = (port.get("appProtocol") or "", port.get("name") or "")
    return "https" if any(one.startswith("https") for one in said) else "http"
