"""Components that many clusters have, and how kas recognizes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zope.interface import implementer

from tunnel.api import IKnownComponents, KnownComponent

__all__ = ["COMPONENTS", "MAX_COMPONENTS", "ComponentTable"]

#: Maximum number of components: kas compares each workload with all of them.
MAX_COMPONENTS = 500

#: The components that kas recognizes itself.
COMPONENTS = (
    KnownComponent("argocd", ("argoproj/argocd",), ("argocd-server",)),
    KnownComponent(
        "cert-manager", ("jetstack/cert-manager-controller",), ("cert-manager",)
    ),
    KnownComponent("cilium", ("cilium/cilium",), ("cilium-agent",)),
    KnownComponent("coredns", ("coredns",), ("coredns",)),
    KnownComponent("crossplane", ("crossplane/crossplane",), ("crossplane",)),
    KnownComponent("external-dns", ("external-dns/external-dns",), ("external-dns",)),
    KnownComponent(
        "external-secrets",
        ("external-secrets/external-secrets",),
        ("external-secrets",),
    ),
    KnownComponent(
        "flux",
        (
            "fluxcd/source-controller",
            "fluxcd/kustomize-controller",
            "fluxcd/helm-controller",
            "fluxcd/notification-controller",
        ),
    ),
    KnownComponent("gitlab-runner", ("gitlab-org/gitlab-runner",), ("gitlab-runner",)),
    KnownComponent("grafana", ("grafana/grafana",), ("grafana",)),
    KnownComponent("ingress-nginx", ("ingress-nginx/controller",), ("ingress-nginx",)),
    KnownComponent("istio", ("istio/pilot",), ("istiod",)),
    KnownComponent("kyverno", ("kyverno/kyverno",), ("kyverno",)),
    KnownComponent("loki", ("grafana/loki",), ("loki",)),
    KnownComponent(
        "metrics-server", ("metrics-server/metrics-server",), ("metrics-server",)
    ),
    KnownComponent("prometheus", ("prometheus/prometheus",), ("prometheus",)),
    KnownComponent(
        "prometheus-operator",
        ("prometheus-operator/prometheus-operator",),
        ("prometheus-operator",),
    ),
    KnownComponent(
        "sealed-secrets", ("sealed-secrets-controller",), ("sealed-secrets",)
    ),
    KnownComponent("traefik", ("traefik",), ("traefik",)),
    KnownComponent("velero", ("velero/velero",), ("velero",)),
    KnownComponent(
        "victoria-metrics",
        ("victoriametrics/victoria-metrics", "victoriametrics/vmselect"),
        ("vmsingle", "vmselect"),
    ),
)


@implementer(IKnownComponents)
class ComponentTable:
    """Implementation of `IKnownComponents`."""

    def __init__(self) -> None:
        self._components = list(COMPONENTS)

    def add(self, component: KnownComponent) -> Callable[[], None]:
        """See `IKnownComponents`."""

        def remove() -> None:
            if component in self._components:
                self._components.remove(component)

        if component in self._components:
            return remove
        if len(self._components) >= MAX_COMPONENTS:
            raise ValueError(f"there are {MAX_COMPONENTS} components already")
        self._components.append(component)
        return remove

    def recognize(
        self, labels: Mapping[str, str], images: Sequence[str]
    ) -> tuple[str, str] | None:
        """
        Return the name of a workload's component, and the image or label that
        identifies it; None for any other workload.
        """
        for component in self._components:
            for image in images:
                if any(_is_repository(image, one) for one in component.images):
                    return component.name, image
        label = "app.kubernetes.io/name"
        for component in self._components:
            if (name := labels.get(label)) in component.names:
                return component.name, f"{label}={name}"
        return None


def _is_repository(image: str, name: str) -> bool:
    """Return whether an image is from a repository, in whichever registry."""
    repository = image.partition("@")[0]
    folder, slash, last = repository.rpartition("/")
    repository = f"{folder}{slash}{last.partition(':')[0]}"
    return repository == name or repository.endswith(f"/{name}")
