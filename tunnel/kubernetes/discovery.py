"""Discovery of the kinds of objects of an API server, and the paths of objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import attrs

from tunnel.api import KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["AGGREGATED", "Discovery", "parse_discovery", "parse_resources", "path_of"]

#: Media type of a request for all kinds at once; Kubernetes 1.30 and newer accept it.
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

#: Seconds for which a missing kind is not looked up again: a loop over a hundred
#: objects of a missing kind causes a single query.
MISSING_SECONDS = 5.0


def path_of(resource: KubernetesResource, namespace: str = "", name: str = "") -> str:
    """
    Return the path of the objects of a kind, or of one object.

    :raises ValueError: a part is missing, or cannot be part of a path.
    """
    if name and resource.namespaced and not namespace:
        raise ValueError(f"{resource.kind} {name}: the namespace is missing")
    parts = ["apis", resource.group] if resource.group else ["api"]
    parts.append(resource.version)
    if namespace and resource.namespaced:
        parts += ["namespaces", namespace]
    parts.append(resource.name)
    if name:
        parts.append(name)
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{resource.kind} {namespace}/{name} is not a valid name")
    return "/" + "/".join(quote(part, safe="") for part in parts)


def parse_discovery(answer: Any) -> Iterator[KubernetesResource]:
    """Yield the resources of an APIGroupDiscoveryList without subresources."""
    for group in answer["items"]:
        name = group.get("metadata", {}).get("name", "")
        for version in group.get("versions", ()):
            for one in version.get("resources", ()):
                # The aggregated API server of this group is unavailable.
                if "responseKind" not in one:
                    continue
                yield KubernetesResource(
                    name,
                    version["version"],
                    one["responseKind"]["kind"],
                    one["resource"],
                    one.get("scope") == "Namespaced",
                    frozenset(one.get("verbs", ())),
                )


def parse_resources(answer: Any) -> Iterator[KubernetesResource]:
    """
    Yield the resources of an APIResourceList, the older form, without subresources.
    """
    group, _, version = answer["groupVersion"].rpartition("/")
    for one in answer.get("resources", ()):
        if "/" not in one["name"]:
            yield KubernetesResource(
                group,
                version,
                one["kind"],
                one["name"],
                bool(one.get("namespaced")),
                frozenset(one.get("verbs", ())),
            )


@attrs.define(eq=False)
class Discovery:
    """
    A cache of an API server's resources, which is read again if a resource is missing.
    """

    _seconds: Callable[[], float]
    _known: dict[tuple[str, str], KubernetesResource] = attrs.field(factory=dict)
    #: The same kinds by their plurals.
    _named: dict[tuple[str, str], KubernetesResource] = attrs.field(factory=dict)
    _looked_at: float = attrs.field(default=float("-inf"))

    def learn(self, resources: list[KubernetesResource]) -> None:
        """Replace the known resources by *resources*."""
        self._looked_at = self._seconds()
        self._known = {(one.api_version, one.kind): one for one in resources}
        self._named = {(one.api_version, one.name): one for one in resources}

    def find(self, api_version: str, kind: str) -> KubernetesResource | None:
        """
        Return a kind; None if the API server must be queried.

        :raises CallError: NOT_FOUND if the API server was queried a moment ago, and
            does not have this kind.
        """
        return self._check(self._known.get((api_version, kind)), api_version, kind)

    def find_named(self, api_version: str, name: str) -> KubernetesResource | None:
        """Return a kind by its plural; otherwise like `find`."""
        return self._check(self._named.get((api_version, name)), api_version, name)

    def _check(
        self, found: KubernetesResource | None, api_version: str, kind: str
    ) -> KubernetesResource | None:
        if found is None and self._seconds() - self._looked_at < MISSING_SECONDS:
            raise CallError(
                Status.NOT_FOUND,
                f"API server: it has no kind {kind} in {api_version}",
            )
        return found
