"""
Bundles of manifests as people run them: twelve, of what a cluster usually has.

They are written for these tests; sizes and kinds are those of the real ones: an
operator whose definitions have hundreds of fields, a monitoring stack with a hundred
rules, an API of another server, charts with parts, overlays on overlays.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import attrs
import yaml

__all__ = ["BUNDLES", "Bundle"]

Object = dict[str, Any]


@attrs.frozen
class Bundle:
    """
    One repository.

    :ivar source: what a project says of it; plain files without.
    """

    name: str
    files: dict[str, str]
    source: dict[str, Any] = attrs.field(factory=dict)


def _object(
    kind: str, name: str, api_version: str = "v1", namespace: str = "", **fields: Any
) -> Object:
    metadata: Object = {"name": name, **fields.pop("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _pod(name: str, **spec: Any) -> Object:
    container = {
        "name": name,
        "image": f"registry.example.org/{name}:1.2.3",
        "args": ["--log-level=info", f"--name={name}"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {
            "requests": {"cpu": "0.1", "memory": "1024Mi"},
            "limits": {"memory": "2Gi"},
        },
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "EMPTY", "value": ""},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
    }
    # Nothing of it needs to run here.
    selector = {"example.org/no-such-node": "true"}
    return {"containers": [container], "nodeSelector": selector, **spec}


def _workload(kind: str, name: str, space: str, **more: Any) -> Object:
    labels = {"app.kubernetes.io/name": name}
    spec: Object = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod(name)},
        **more,
    }
    return _object(kind, name, "apps/v1", space, spec=spec)


def _service(name: str, space: str, **more: Any) -> Object:
    ports = [
        {"name": "http", "port": 80, "targetPort": "http"},
        {"name": "metrics", "port": 9090, "protocol": "TCP"},
    ]
    selector = {"app.kubernetes.io/name": name}
    spec = {"selector": selector, "ports": ports, **more}
    return _object("Service", name, namespace=space, spec=spec)


def _rights(name: str, space: str) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "watch"]},
        {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]
    account = {"kind": "ServiceAccount", "name": name, "namespace": space}
    of_cluster = {"apiGroup": group, "kind": "ClusterRole", "name": f"system:{name}"}
    of_space = {"apiGroup": group, "kind": "Role", "name": name}
    return [
        _object("ServiceAccount", name, namespace=space),
        _object("ClusterRole", f"system:{name}", f"{group}/v1", rules=rules),
        _object(
            "ClusterRoleBinding",
            f"system:{name}",
            f"{group}/v1",
            roleRef=of_cluster,
            subjects=[account],
        ),
        _object("Role", name, f"{group}/v1", space, rules=rules[:2]),
        _object(
            "RoleBinding",
            name,
            f"{group}/v1",
            space,
            roleRef=of_space,
            subjects=[account],
        ),
    ]


def _schema(width: int, depth: int) -> Object:
    """As long as those of operators, which describe whole pods."""
    properties: Object = {}
    for number in range(width):
        about = f"Field {number} says how the workload behaves. " * 3
        kind = ("string", "integer", "boolean")[number % 3]
        properties[f"field{number}"] = {"type": kind, "description": about}
    if depth:
        inner = _schema(width, depth - 1)
        properties["one"] = inner
        properties["many"] = {"type": "array", "items": inner}
        properties["named"] = {"type": "object", "additionalProperties": inner}
    properties["size"] = {"type": "integer", "minimum": 0, "default": 3}
    properties["port"] = {"x-kubernetes-int-or-string": True}
    return {"type": "object", "properties": properties}


def _definition(group: str, kind: str, width: int = 5, depth: int = 1) -> Object:
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "properties": {
            "spec": _schema(width, depth),
            "status": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
        ],
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    spec = {"group": group, "scope": "Namespaced", "names": names}
    return _object(
        "CustomResourceDefinition",
        f"{plural}.{group}",
        "apiextensions.k8s.io/v1",
        spec={**spec, "versions": [version]},
    )


def _webhooks(kind: str, name: str, space: str) -> Object:
    """Of objects with a label that none has: nobody answers here."""
    where = {"name": name, "namespace": space, "path": "/admit"}
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    webhook = {
        "name": f"{name}.example.org",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "clientConfig": {"service": where},
        "objectSelector": {"matchLabels": {"example.org/admitted": "yes"}},
        "rules": [rule],
    }
    return _object(kind, name, "admissionregistration.k8s.io/v1", webhooks=[webhook])


def _plain(name: str, *objects: Object) -> Bundle:
    """In several files, as people have them, and not in the order that is needed."""
    files = {
        f"all/{begin:03}.yaml": yaml.safe_dump_all(objects[begin : begin + 10])
        for begin in reversed(range(0, len(objects), 10))
    }
    return Bundle(name, files)


def _operator() -> Bundle:
    space, group = "operator", "databases.example.org"
    kinds = ("Cluster", "Backup", "Pooler", "Publication")
    custom = [
        _object(
            kind,
            f"{kind.lower()}-{number}",
            f"{group}/v1",
            space,
            spec={"field0": "x", "port": "http" if number else 80, "many": [{}]},
        )
        for kind in kinds
        for number in range(3)
    ]
    return _plain(
        "operator",
        *custom,
        _workload("Deployment", "manager", space, replicas=1),
        _service("manager", space),
        _webhooks("ValidatingWebhookConfiguration", "manager", space),
        _webhooks("MutatingWebhookConfiguration", "manager", space),
        *_rights("manager", space),
        *(_definition(group, kind, width=40, depth=2) for kind in kinds),
        _object("Namespace", space, metadata={"labels": {"team": "data"}}),
    )


def _ingress() -> Bundle:
    space = "ingress"
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "ingress"}}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "controller"}
    usage = {"type": "Utilization", "averageUtilization": 60}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": usage}}
    scaler = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9}
    policy = {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "controller"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": 8080}]}],
    }
    backend = {"service": {"name": "controller", "port": {"name": "http"}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    rule = {"host": "shop.example.org", "http": {"paths": paths}}
    return _plain(
        "ingress",
        _object("Namespace", space),
        _workload("Deployment", "controller", space),
        _service(
            "controller", space, type="LoadBalancer", externalTrafficPolicy="Local"
        ),
        _object(
            "IngressClass",
            "shop",
            "networking.k8s.io/v1",
            spec={"controller": "example.org/ingress"},
        ),
        _object(
            "Ingress",
            "shop",
            "networking.k8s.io/v1",
            space,
            spec={"ingressClassName": "shop", "rules": [rule]},
        ),
        _object(
            "ConfigMap",
            "controller",
            namespace=space,
            data={"use-gzip": "true", "a": ""},
        ),
        _object("PodDisruptionBudget", "controller", "policy/v1", space, spec=budget),
        _object(
            "HorizontalPodAutoscaler",
            "controller",
            "autoscaling/v2",
            space,
            spec={**scaler, "metrics": [metric]},
        ),
        _object(
            "NetworkPolicy", "controller", "networking.k8s.io/v1", space, spec=policy
        ),
        *_rights("controller", space),
    )


def _monitoring() -> Bundle:
    space, group = "monitoring", "rules.example.org"
    rules = [
        _object(
            "Rule",
            f"rule-{number:03}",
            f"{group}/v1",
            space,
            metadata={"labels": {"severity": "page" if number % 2 else "info"}},
            spec={"field0": f"rate(errors{{job='{number}'}}[5m]) > 0.{number}"},
        )
        for number in range(100)
    ]
    dashboards = [
        _object(
            "ConfigMap",
            f"dashboard-{number:02}",
            namespace=space,
            data={"board.json": '{"panels": [' + '{"type": "graph"},' * 200 + "{}]}"},
        )
        for number in range(25)
    ]
    return _plain(
        "monitoring",
        *rules,
        *dashboards,
        _definition(group, "Rule"),
        _definition(group, "Monitor"),
        _workload("StatefulSet", "prometheus", space, serviceName="prometheus"),
        _workload("DaemonSet", "exporter", space),
        _service("prometheus", space, clusterIP="None"),
        *_rights("prometheus", space),
        _object("Namespace", space),
    )


def _aggregated() -> Bundle:
    space = "aggregated"
    spec = {
        "group": "usage.example.org",
        "version": "v1beta1",
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"name": "usage", "namespace": space, "port": 443},
    }
    return _plain(
        "aggregated",
        _object("Namespace", space),
        # Nobody answers there: discovery goes on without it.
        _object(
            "APIService",
            "v1beta1.usage.example.org",
            "apiregistration.k8s.io/v1",
            spec=spec,
        ),
        _workload("Deployment", "usage", space),
        _service("usage", space),
        *_rights("usage", space),
        _object("PriorityClass", "usage-first", "scheduling.k8s.io/v1", value=100_000),
    )


def _mesh() -> Bundle:
    space, group = "mesh", "net.mesh.example.org"
    kinds = (
        "Gateway",
        "Route",
        "Filter",
        "Sidecar",
        "Policy",
        "Entry",
        "Group",
        "Rule",
    )
    return _plain(
        "mesh",
        _object("Namespace", space, metadata={"labels": {"mesh": "off"}}),
        *(_definition(group, kind, width=20) for kind in kinds),
        *(
            _object(kind, "default", f"{group}/v1", space, spec={"field1": 1})
            for kind in kinds
        ),
        _webhooks("MutatingWebhookConfiguration", "sidecars", space),
        _workload("Deployment", "pilot", space),
        _service("pilot", space),
        *_rights("pilot", space),
    )


def _stateful() -> Bundle:
    space = "stateful"
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "slow",
    }
    template = {"metadata": {"name": "data"}, "spec": claim}
    return _plain(
        "stateful",
        _object("Namespace", space),
        _object(
            "StorageClass",
            "slow",
            "storage.k8s.io/v1",
            provisioner="example.org/slow",
            volumeBindingMode="WaitForFirstConsumer",
        ),
        _workload(
            "StatefulSet",
            "db",
            space,
            serviceName="db",
            replicas=3,
            podManagementPolicy="Parallel",
            volumeClaimTemplates=[template],
        ),
        _service("db", space, clusterIP="None", publishNotReadyAddresses=True),
        _object("PersistentVolumeClaim", "backup", namespace=space, spec=claim),
        _object("Secret", "db", namespace=space, stringData={"password": "a\nb"}),
        _object(
            "ConfigMap",
            "db",
            namespace=space,
            data={"my.cnf": "[mysqld]\nmax_connections = 100\n"},
            binaryData={"key": base64.b64encode(bytes(range(256))).decode()},
        ),
    )


def _tenants() -> Bundle:
    objects: list[Object] = []
    for number in range(20):
        space = f"tenant-{number:02}"
        limit = {"type": "Container", "default": {"cpu": "500m", "memory": "0.5Gi"}}
        objects += [
            _object("Namespace", space),
            *_rights("tenant-" + space, space),
            _object(
                "ResourceQuota",
                "all",
                namespace=space,
                spec={
                    "hard": {"pods": "50", "requests.cpu": 4, "limits.memory": "8Gi"}
                },
            ),
            _object("LimitRange", "all", namespace=space, spec={"limits": [limit]}),
            _object(
                "NetworkPolicy",
                "none",
                "networking.k8s.io/v1",
                space,
                spec={"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
            ),
        ]
    return _plain("tenants", *objects)


def _kinds() -> Bundle:
    """Of many kinds one each."""
    space = "kinds"
    labels = {"app": "one"}
    template = {"metadata": {"labels": labels}, "spec": _pod("one")}
    never = {**template, "spec": _pod("one", restartPolicy="Never")}
    slice_ = {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"]}],
        "ports": [{"name": "http", "port": 80}],
    }
    check = {"expression": "object.spec.replicas <= 5", "message": "at most five"}
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["deployments"],
    }
    spec = {"validations": [check], "matchConstraints": {"resourceRules": [rule]}}
    job = {"template": never, "backoffLimit": 2, "suspend": True}
    return _plain(
        "kinds",
        _object("Namespace", space),
        _object("Pod", "one", namespace=space, spec=_pod("one")),
        _object("PodTemplate", "one", namespace=space, template=template),
        _object(
            "ReplicationController",
            "one",
            namespace=space,
            spec={"replicas": 0, "selector": labels, "template": template},
        ),
        _workload("ReplicaSet", "one", space, replicas=0),
        _object("Job", "one", "batch/v1", space, spec=job),
        _object(
            "CronJob",
            "one",
            "batch/v1",
            space,
            spec={
                "schedule": "*/5 * * * *",
                "suspend": True,
                "jobTemplate": {"spec": job},
            },
        ),
        _object("EndpointSlice", "one", "discovery.k8s.io/v1", space, **slice_),
        _object("RuntimeClass", "one", "node.k8s.io/v1", handler="runc"),
        _object(
            "CSIDriver",
            "one.example.org",
            "storage.k8s.io/v1",
            spec={"podInfoOnMount": True},
        ),
        _object(
            "ValidatingAdmissionPolicy",
            "few.example.org",
            "admissionregistration.k8s.io/v1",
            spec=spec,
        ),
        _object(
            "Lease",
            "one",
            "coordination.k8s.io/v1",
            space,
            spec={"holderIdentity": "a"},
        ),
    )


_HELM = "apiVersion: v2\nname: {}\nversion: 1.0.0\n"

_NAMES = """\
{{- define "lib.labels" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | trunc 20 }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
"""

_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}-{{ .Chart.Name }}
  labels: {{- include "lib.labels" . | nindent 4 }}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Chart.Name }}}}
  template:
    metadata:
      labels: {app: {{ .Chart.Name }}}
      annotations:
        checksum/config: {{ .Values.config | toYaml | sha256sum }}
    spec:
      nodeSelector: {example.org/no-such-node: "true"}
      containers:
      - name: main
        image: "{{ .Values.image | default "example.org/main" }}:{{ .Chart.Version }}"
        env:
        {{- range $name, $value := .Values.config }}
        - {name: {{ $name | upper }}, value: {{ $value | quote }}}
        {{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-{{ .Chart.Name }}}
data:
  {{- range $name, $value := .Values.config }}
  {{ $name }}: {{ $value | quote }}
  {{- end }}
{{- if .Capabilities.APIVersions.Has "apps/v1/Deployment" }}
  has: deployments
{{- end }}
"""

_HOOK = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-migrate
  annotations: {helm.sh/hook: pre-upgrade, helm.sh/hook-weight: "5"}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}
"""


def _chart(name: str, values: Object) -> dict[str, str]:
    return {
        "Chart.yaml": _HELM.format(name),
        "values.yaml": yaml.safe_dump({"replicas": 1, "config": {}, **values}),
        "templates/all.yaml": _DEPLOYMENT,
    }


def _below(folder: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{folder}/{path}": text for path, text in files.items()}


def _subcharts() -> Bundle:
    """A chart of charts, one of which is switched off, and values for all of them."""
    files = _chart("shop", {"config": {"a": "1"}, "cart": {"replicas": 2}})
    parts = ("cart", "stock", "mail")
    files["Chart.yaml"] += "dependencies:\n" + "".join(
        f"- {{name: {part}, version: 1.0.0, condition: {part}.enabled}}\n"
        for part in parts
    )
    files["templates/_names.tpl"] = _NAMES
    for part in parts:
        files |= _below(f"charts/{part}", _chart(part, {"config": {"of": part}}))
    return Bundle(
        "subcharts",
        {**_below("shop", files), "prod.yaml": "mail: {enabled: false}\n"},
        {
            "kind": "helm",
            "path": "shop",
            "values_files": ["prod.yaml"],
            "values": "stock: {config: {level: 7}}\nconfig: {b: 'yes'}\n",
            "release_name": "shop",
        },
    )


def _library() -> Bundle:
    """A chart with a library, definitions of its own, and a hook that is left out."""
    files = _chart("app", {"config": {"a": "x: y"}})
    files["templates/migrate.yaml"] = _HOOK
    files["crds/one.yaml"] = yaml.safe_dump(_definition("lib.example.org", "Thing"))
    files["templates/thing.yaml"] = (
        "apiVersion: lib.example.org/v1\nkind: Thing\n"
        "metadata: {name: {{ .Release.Name }}}\nspec: {size: {{ .Values.replicas }}}\n"
    )
    files["Chart.yaml"] += "dependencies:\n- {name: lib, version: 1.0.0}\n"
    library = {
        "Chart.yaml": _HELM.format("lib") + "type: library\n",
        "templates/_names.tpl": _NAMES,
    }
    return Bundle(
        "library",
        _below("app", {**files, **_below("charts/lib", library)}),
        {"kind": "helm", "path": "app", "hooks": "skip", "release_name": "app"},
    )


def _overlays() -> Bundle:
    """A base, an overlay of it, one of that, and a component."""
    web = _workload("Deployment", "web", "", replicas=1)
    patch = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    files: dict[str, Any] = {
        "base/kustomization.yaml": {
            "resources": ["web.yaml", "service.yaml"],
            "configMapGenerator": [{"name": "app", "literals": ["level=info", "a=1"]}],
        },
        "base/web.yaml": web,
        "base/service.yaml": _service("web", ""),
        "staging/kustomization.yaml": {
            "resources": ["../base"],
            "nameSuffix": "-v2",
            "commonAnnotations": {"team": "shop"},
            "configMapGenerator": [
                {"name": "app", "behavior": "merge", "literals": ["level=debug"]}
            ],
        },
        "parts/kustomization.yaml": {
            "apiVersion": "kustomize.config.k8s.io/v1alpha1",
            "kind": "Component",
            "secretGenerator": [
                {"name": "login", "literals": ["user=a", "password=b"]}
            ],
        },
        "prod/kustomization.yaml": {
            "resources": ["../staging", "space.yaml"],
            "components": ["../parts"],
            "namespace": "overlays",
            "images": [{"name": "registry.example.org/web", "newTag": "9.9"}],
            "patches": [
                {"target": {"kind": "Deployment"}, "patch": yaml.safe_dump(patch)}
            ],
        },
        "prod/space.yaml": _object("Namespace", "overlays"),
    }
    texts = {path: yaml.safe_dump(one) for path, one in files.items()}
    return Bundle("overlays", texts, {"kind": "kustomize", "path": "prod"})


def _jobs() -> Bundle:
    """Waves of Argo and what depends on what, jobs that are never run, many small."""
    space = "jobs"
    wave = "argocd.argoproj.io/sync-wave"
    pod = {"spec": _pod("job", restartPolicy="OnFailure")}
    objects = [_object("Namespace", space, metadata={"annotations": {wave: "-1"}})]
    for number in range(30):
        spec = {"template": pod, "suspend": True, "ttlSecondsAfterFinished": 600}
        metadata = {"annotations": {wave: str(number % 5)}}
        name = f"job-{number:02}"
        objects.append(
            _object("Job", name, "batch/v1", space, spec=spec, metadata=metadata)
        )
    return _plain("jobs", *objects)


_ALL: tuple[Callable[[], Bundle], ...] = (
    *(_operator, _ingress, _monitoring, _aggregated, _mesh, _stateful),
    *(_jobs, _subcharts, _library, _overlays, _tenants, _kinds),
)

#: All of them.
BUNDLES = tuple(make() for make in _ALL)
