"""
Objects of a Kubernetes API in memory, which requests read, change and watch as in a
real API.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any
from urllib.parse import parse_qsl, unquote

import attrs

from tunnel.api import KubernetesObject, KubernetesResource
from tunnel.toolkit.recent import Recent

__all__ = ["FakeObjects", "Refusal", "Watcher"]

_VERBS = frozenset("get list watch create update patch delete".split())

#: Initial kinds: group and version, and the kind for each plural; a slash after a kind
#: marks it as cluster-wide.
_KINDS = {
    "v1": "configmaps=ConfigMap secrets=Secret pods=Pod services=Service "
    "serviceaccounts=ServiceAccount events=Event namespaces=Namespace/ nodes=Node/",
    "apps/v1": "deployments=Deployment daemonsets=DaemonSet statefulsets=StatefulSet",
    "batch/v1": "jobs=Job cronjobs=CronJob",
    "coordination.k8s.io/v1": "leases=Lease",
    "rbac.authorization.k8s.io/v1": "roles=Role rolebindings=RoleBinding "
    "clusterroles=ClusterRole/ clusterrolebindings=ClusterRoleBinding/",
}

#: Maximum number of kept events, for watches that resume; etcd keeps its events for
#: some minutes.
MAX_EVENTS = 1000

#: Maximum number of lists that clients have begun and not read to their end.
MAX_LISTS = 100

_LABEL = re.compile(r"(!)?([^=!,() ]+)(?:(=|==|!=)([^=!,() ]*))?")

#: A label with one of several values: ``app in (a,b)``.
_LABEL_IN = re.compile(r"([^=!,() ]+) in \(([^=!()]*)\)")

#: A field within an object: the keys on the path to it.
_Field = tuple[str, ...]
_Key = tuple[str, str, str, str]

#: A field manager and its operation: the same manager may apply and update.
_Writer = tuple[str, str]


@attrs.frozen
class Refusal(Exception):
    """Raised if an API server would respond to the request with an error."""

    code: int
    reason: str
    message: str

    @property
    def status(self) -> KubernetesObject:
        """Return the body of the response."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "reason": self.reason,
            "message": self.message,
            "code": self.code,
        }


@attrs.define(eq=False)
class Watcher:
    """A watch request."""

    seconds: float
    _wanted: Callable[[KubernetesResource, KubernetesObject], bool]
    _partial: bool = False
    _send: Callable[[bytes], None] | None = None
    _early: list[bytes] = attrs.field(factory=list)

    def begin(self, send: Callable[[bytes], None]) -> None:
        """Send events, one on each line, beginning with past ones."""
        self._send = send
        for line in self._early:
            send(line)

    def tell(
        self, kind: str, resource: KubernetesResource, found: KubernetesObject
    ) -> None:
        """Send the change of an object to the client of the watch."""
        if self._wanted(resource, found):
            self._write(kind, _metadata_of(found) if self._partial else found)

    def mark(self, version: int) -> None:
        """Mark the end of the initial objects, at a version."""
        metadata = {
            "resourceVersion": str(version),
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
        self._write("BOOKMARK", {"metadata": metadata})

    def _write(self, kind: str, found: KubernetesObject) -> None:
        line = json.dumps({"type": kind, "object": found}).encode() + b"\n"
        if self._send is None:
            self._early.append(line)
        else:
            self._send(line)


@attrs.define(eq=False)
class _Stored:
    object: KubernetesObject
    resource: KubernetesResource
    #: The fields that each writer has set.
    owners: dict[_Writer, set[_Field]] = attrs.field(factory=dict)
    #: The time of each writer's last write.
    writes: dict[_Writer, str] = attrs.field(factory=dict)


class FakeObjects:
    """
    Objects that requests create, apply, patch, delete, list and watch.

    Supported are versions, managed fields and their conflicts, preconditions,
    finalizers, pages, dry runs, and events since a version. Unlike a real API server,
    this class does not check objects against schemas, treats lists within objects as
    one field each, sets no defaults, runs neither controllers nor garbage collection,
    and only accepts JSON merge patches and server-side apply.

    :param seconds: returns the time of the test's clock.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._kinds: dict[tuple[str, str], KubernetesResource] = {}
        self._stored: dict[_Key, _Stored] = {}
        self._version = 0
        self._events: deque[tuple[int, str, KubernetesResource, KubernetesObject]]
        self._events = deque()
        self._forgotten = 0
        #: Whether watches may begin with all objects, as in Kubernetes 1.34 and later.
        self.streams = True
        #: Remaining pages of lists that clients have begun, by ``continue`` token.
        self._pages: Recent[str, list[KubernetesObject]] = Recent(MAX_LISTS)
        self._lists = 0
        self.watchers: set[Watcher] = set()
        for api_version, kinds in _KINDS.items():
            group, _, version = api_version.rpartition("/")
            for one in kinds.split():
                name, _, kind = one.partition("=")
                wide = kind.endswith("/")
                self.add_kind(
                    KubernetesResource(
                        group, version, kind.rstrip("/"), name, not wide, _VERBS
                    )
                )

    # Methods for tests.

    def add_kind(self, resource: KubernetesResource) -> None:
        """Add a kind, as a CustomResourceDefinition does."""
        self._kinds[resource.api_version, resource.name] = resource

    def put(self, found: KubernetesObject) -> KubernetesObject:
        """Store an object on behalf of another client of the API server."""
        resource = self._resource_of(found)
        key = _key(resource, found["metadata"].get("namespace", ""), _name(found))
        return self._write(resource, key, deepcopy(found), "test")

    def find(
        self, api_version: str, kind: str, name: str, namespace: str = ""
    ) -> KubernetesObject | None:
        """Return the current object; None if it does not exist."""
        resource = self._resource_of({"apiVersion": api_version, "kind": kind})
        stored = self._stored.get(_key(resource, namespace, name))
        return None if stored is None else deepcopy(stored.object)

    def remove(
        self, api_version: str, kind: str, name: str, namespace: str = ""
    ) -> None:
        """
        Delete an object on behalf of another client, regardless of its finalizers.
        """
        resource = self._resource_of({"apiVersion": api_version, "kind": kind})
        self._drop(_key(resource, namespace, name))

    def forget(self) -> None:
        """
        Forget all earlier versions, so that watches cannot resume from them (410).
        """
        self._events.clear()
        self._forgotten = self._version
        self._pages.clear()

    def _resource_of(self, found: Mapping[str, Any]) -> KubernetesResource:
        for one in self._kinds.values():
            if (one.api_version, one.kind) == (found["apiVersion"], found["kind"]):
                return one
        raise KeyError(f"{found['apiVersion']} {found['kind']}: see `add_kind`")

    # Methods for requests.

    def respond(
        self,
        method: str,
        target: str,
        content_type: str,
        body: bytes,
        partial: bool = False,
    ) -> tuple[int, Any] | Watcher | None:
        """
        Return the status and object of the response, or a watch; None for an unknown
        path.

        :param partial: whether lists and watches should only contain metadata.
        :raises Refusal: if an API server would respond with an error.
        """
        path, _, text = target.partition("?")
        query = dict(parse_qsl(text, keep_blank_values=True))
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if path in ("/api", "/apis"):
            return 200, self._discovery(path == "/api")
        if parts[0] == "api":
            api_version, parts = "/".join(parts[1:2]), parts[2:]
        elif parts[0] == "apis":
            api_version, parts = "/".join(parts[1:3]), parts[3:]
        else:
            return None
        namespace = ""
        if (
            len(parts) > 2
            and parts[0] == "namespaces"
            and (api_version, parts[2]) in self._kinds
        ):
            namespace, parts = parts[1], parts[2:]
        resource = self._kinds.get((api_version, parts[0])) if parts else None
        if resource is None or len(parts) > 3 or parts[2:] not in ([], ["status"]):
            return None
        if len(parts) == 1:
            return self._collection(method, resource, namespace, query, body, partial)
        key = _key(resource, namespace, parts[1])
        return self._one(method, resource, key, query, content_type, body)

    def _discovery(self, core: bool) -> Any:
        groups: dict[str, dict[str, list[Any]]] = {}
        for one in self._kinds.values():
            if (one.group == "") is core:
                groups.setdefault(one.group, {}).setdefault(one.version, []).append(
                    {
                        "resource": one.name,
                        "responseKind": {"kind": one.kind},
                        "scope": "Namespaced" if one.namespaced else "Cluster",
                        "verbs": sorted(one.verbs),
                    }
                )
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "items": [
                {
                    "metadata": {"name": group},
                    "versions": [
                        {"version": version, "resources": resources}
                        for version, resources in versions.items()
                    ],
                }
                for group, versions in groups.items()
            ],
        }

    def _collection(
        self,
        method: str,
        resource: KubernetesResource,
        namespace: str,
        query: dict[str, str],
        body: bytes,
        partial: bool,
    ) -> tuple[int, Any] | Watcher:
        if method == "POST":
            made = json.loads(body)
            metadata = made.setdefault("metadata", {})
            if resource.namespaced:
                metadata.setdefault("namespace", namespace)
            name = metadata.get("name")
            if not name or not isinstance(name, str):
                raise Refusal(422, "Invalid", "metadata.name: Required value")
            key = _key(resource, namespace, name)
            if key in self._stored:
                raise _refused(resource, key, 409, "AlreadyExists", "already exists")
            return 201, self._write(resource, key, made, *_how(query))
        if method != "GET":
            raise Refusal(
                405,
                "MethodNotAllowed",
                f"this fake API server does not support {method} on a collection",
            )

        def wanted(kind: KubernetesResource, one: KubernetesObject) -> bool:
            metadata = one["metadata"]
            return (
                kind == resource
                and namespace in ("", metadata.get("namespace", ""))
                and _labelled(query.get("labelSelector", ""), metadata)
                and _fielded(query.get("fieldSelector", ""), one)
            )

        if query.get("watch") in ("true", "1"):
            return self._watch(wanted, query, partial)
        going_on = query.get("continue", "")
        if going_on:
            if going_on not in self._pages:
                raise Refusal(410, "Expired", "The provided continue parameter is old")
            found = self._pages.pop(going_on)
        else:
            found = [
                deepcopy(stored.object)
                for _, stored in sorted(self._stored.items())
                if wanted(stored.resource, stored.object)
            ]
        limit = int(query.get("limit") or 0) or len(found)
        metadata = {"resourceVersion": str(self._version)}
        if len(found) > limit:
            self._lists += 1
            metadata["continue"] = str(self._lists)
            self._pages[metadata["continue"]] = found[limit:]
        return 200, {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": [_metadata_of(one) if partial else one for one in found[:limit]],
        }

    def _watch(
        self,
        wanted: Callable[[KubernetesResource, KubernetesObject], bool],
        query: dict[str, str],
        partial: bool,
    ) -> Watcher:
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.streams:
            message = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden"
            raise Refusal(422, "Invalid", message)
        since = 0 if initial else int(query.get("resourceVersion") or 0)
        if 0 < since < self._forgotten:
            message = f"too old resource version: {since} ({self._version})"
            raise Refusal(410, "Expired", message)
        seconds = int(query.get("timeoutSeconds") or 1800)
        watcher = Watcher(seconds, wanted, partial)
        if not since:
            since = self._version
            for _, stored in sorted(self._stored.items()):
                watcher.tell("ADDED", stored.resource, stored.object)
        if initial:
            watcher.mark(self._version)
        for version, kind, resource, found in self._events:
            if version > since:
                watcher.tell(kind, resource, found)
        return watcher

    def _one(
        self,
        method: str,
        resource: KubernetesResource,
        key: _Key,
        query: dict[str, str],
        content_type: str,
        body: bytes,
    ) -> tuple[int, Any]:
        stored = self._stored.get(key)
        said = json.loads(body) if body else {}
        uid = said.get("metadata", {}).get("uid") if isinstance(said, dict) else None
        if stored is not None and uid not in (None, stored.object["metadata"]["uid"]):
            raise _refused(resource, key, 409, "Conflict", f"the UID {uid} is not its")
        if method == "PATCH" and content_type == "application/apply-patch+yaml":
            new = 201 if stored is None else 200
            return new, self._apply(resource, key, said, query)
        if stored is None:
            raise _refused(resource, key, 404, "NotFound", "not found")
        if method == "GET":
            return 200, deepcopy(stored.object)
        if method == "DELETE":
            return 200, self._delete(key, stored, said)
        if method == "PUT":
            changed = said
        elif method == "PATCH" and content_type == "application/merge-patch+json":
            changed = _merged(stored.object, said)
        else:
            message = f"there is no {method} of {content_type} in FakeObjects"
            raise Refusal(415, "UnsupportedMediaType", message)
        version = said.get("metadata", {}).get("resourceVersion")
        if version not in (None, stored.object["metadata"]["resourceVersion"]):
            raise _refused(resource, key, 409, "Conflict", "has been modified")
        return 200, self._write(resource, key, changed, *_how(query))

    def _delete(self, key: _Key, stored: _Stored, options: Any) -> Any:
        metadata = stored.object["metadata"]
        for name, expected in options.get("preconditions", {}).items():
            if metadata[name] != expected:
                message = f"the precondition {name} {expected} is not met"
                raise _refused(stored.resource, key, 409, "Conflict", message)
        if "All" not in options.get("dryRun", ()):
            if metadata.get("finalizers"):
                going = deepcopy(stored.object)
                going["metadata"].setdefault("deletionTimestamp", self._time())
                return self._write(stored.resource, key, going, "test")
            self._drop(key)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _apply(
        self,
        resource: KubernetesResource,
        key: _Key,
        applied: KubernetesObject,
        query: dict[str, str],
    ) -> KubernetesObject:
        manager, dry = _how(query)
        writer = manager, "Apply"
        fields = dict(_fields(applied))
        # The fields inside an object count separately; an empty object has none.
        mine = {field for field, value in fields.items() if value != {}}
        stored = self._stored.get(key)
        if stored is None:
            return self._write(resource, key, applied, manager, dry, mine)
        version = applied.get("metadata", {}).get("resourceVersion")
        if version not in (None, stored.object["metadata"]["resourceVersion"]):
            raise _refused(resource, key, 409, "Conflict", "has been modified")
        taken = {
            (owner, field)
            for owner, owned in stored.owners.items()
            if owner != writer
            for field in owned & mine
            if _get(stored.object, field) != fields[field]
        }
        if taken and query.get("force") != "true":
            each = [
                f'conflict with "{owner}": .{".".join(field)}'
                for (owner, _), field in sorted(taken)
            ]
            count = f"{len(each)} conflict{'s' * (len(each) > 1)}"
            message = f"Apply failed with {count}: {', '.join(each)}"
            raise Refusal(409, "Conflict", message)
        changed = deepcopy(stored.object)
        others = set[_Field]().union(
            *(owned for owner, owned in stored.owners.items() if owner != writer)
        )
        for field in stored.owners.get(writer, set()) - mine - others:
            _remove(changed, field)
        for field, value in fields.items():
            if field in mine or not isinstance(_get(changed, field), dict):
                _set(changed, field, value)
        return self._write(resource, key, changed, manager, dry, mine)

    # Storage.

    def _write(
        self,
        resource: KubernetesResource,
        key: _Key,
        found: KubernetesObject,
        manager: str,
        dry: bool = False,
        applied: set[_Field] | None = None,
    ) -> KubernetesObject:
        """
        Store *found*.

        :param applied: the fields that *manager* owns from now on; None to add the
            changed fields to the fields that *manager* already owns.
        """
        stored = self._stored.get(key)
        before = stored.object if stored is not None else {"metadata": {}}
        old, new = dict(_fields(before)), dict(_fields(found))
        changes = {field for field in new if old.get(field) != new[field]}
        _validate(resource, key, before, found)
        if dry:
            return found
        writer = manager, "Update" if applied is None else "Apply"
        owners = stored.owners if stored is not None else {}
        for owner, owned in owners.items():
            owned &= set(new)
            if owner != writer:
                owned -= changes
        if applied is None:
            owners.setdefault(writer, set()).update(changes)
        else:
            owners[writer] = applied
        if stored is not None and old == new:
            return deepcopy(before)
        writes = stored.writes if stored is not None else {}
        writes[writer] = self._time()
        kept = before["metadata"]
        found["apiVersion"], found["kind"] = resource.api_version, resource.kind
        self._version += 1
        metadata = found["metadata"]
        metadata.update(
            name=key[3],
            uid=kept.get("uid", f"uid-{self._version}"),
            creationTimestamp=kept.get("creationTimestamp", self._time()),
            resourceVersion=str(self._version),
        )
        if resource.namespaced:
            metadata["namespace"] = key[2]
        if "spec" in found:
            again = found["spec"] != before.get("spec")
            metadata["generation"] = kept.get("generation", 0) + again
        metadata["managedFields"] = [
            {
                "manager": owner[0],
                "operation": owner[1],
                "apiVersion": resource.api_version,
                "time": writes[owner],
                "fieldsType": "FieldsV1",
                "fieldsV1": _fields_v1(owned),
            }
            for owner, owned in sorted(owners.items())
            if owned and owner in writes
        ]
        self._stored[key] = _Stored(found, resource, owners, writes)
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            self._drop(key)
        else:
            event = "ADDED" if stored is None else "MODIFIED"
            self._tell(event, resource, found)
        return deepcopy(found)

    def _drop(self, key: _Key) -> None:
        stored = self._stored.pop(key)
        self._version += 1
        last = deepcopy(stored.object)
        last["metadata"]["resourceVersion"] = str(self._version)
        self._tell("DELETED", stored.resource, last)

    def _tell(
        self, kind: str, resource: KubernetesResource, found: KubernetesObject
    ) -> None:
        found = deepcopy(found)
        self._events.append((self._version, kind, resource, found))
        if len(self._events) > MAX_EVENTS:
            self._forgotten = self._events.popleft()[0]
        for watcher in tuple(self.watchers):
            watcher.tell(kind, resource, found)

    def _time(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._seconds()))


def _key(resource: KubernetesResource, namespace: str, name: str) -> _Key:
    return (
        resource.group,
        resource.name,
        namespace if resource.namespaced else "",
        name,
    )


def _metadata_of(found: KubernetesObject) -> KubernetesObject:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": found["metadata"],
    }


def _name(found: KubernetesObject) -> str:
    name: str = found["metadata"]["name"]
    return name


def _validate(
    resource: KubernetesResource,
    key: _Key,
    before: KubernetesObject,
    found: KubernetesObject,
) -> None:
    """
    Check ConfigMaps and Secrets as API servers do.

    :raises Refusal: *found* is invalid, or the change from *before* is not permitted.
    """
    if resource.group or resource.kind not in ("ConfigMap", "Secret"):
        return
    why = ""
    for name in found.get("data") or ():
        if _DATA_KEY.fullmatch(name) is None:
            why = f'data[{name}]: Invalid value: "{name}": a valid config key must ...'
    if before.get("immutable") and before.get("data") != found.get("data"):
        why = why or "data: Forbidden: field is immutable when `immutable` is set"
    if why:
        message = f'{resource.kind} "{key[3]}" is invalid: {why}'
        raise Refusal(422, "Invalid", message)


#: Valid key of ``data``.
_DATA_KEY = re.compile("[-._a-zA-Z0-9]{1,253}")


def _how(query: Mapping[str, str]) -> tuple[str, bool]:
    """Return the field manager, and whether the request is a dry run."""
    return query.get("fieldManager") or "unknown", query.get("dryRun") == "All"


def _refused(
    resource: KubernetesResource, key: _Key, code: int, reason: str, what: str
) -> Refusal:
    kind = f"{resource.name}.{resource.group}" if resource.group else resource.name
    return Refusal(code, reason, f'{kind} "{key[3]}" {what}')


#: Fields that identify an object, or that only the API server sets.
_NOBODYS = {("apiVersion",), ("kind",)} | {
    ("metadata", name)
    for name in (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
    )
}


def _fields(found: Any, path: _Field = ()) -> Iterator[tuple[_Field, Any]]:
    """Yield each field that a manager can own, and its value."""
    for name, value in found.items():
        field = (*path, name)
        if isinstance(value, dict) and value:
            yield from _fields(value, field)
        elif field not in _NOBODYS:
            yield field, value


def _fields_v1(owned: set[_Field]) -> Any:
    """Return fields in the form of ``managedFields``."""
    found: dict[str, Any] = {}
    for field in owned:
        inner = found
        for name in field:
            inner = inner.setdefault(f"f:{name}", {})
    return found


def _get(found: Any, field: _Field) -> Any:
    for name in field:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _set(found: Any, field: _Field, value: Any) -> None:
    for name in field[:-1]:
        inner = found.get(name)
        if not isinstance(inner, dict):
            inner = found[name] = {}
        found = inner
    found[field[-1]] = value


def _remove(found: Any, field: _Field) -> None:
    inner = _get(found, field[:-1])
    if isinstance(inner, dict):
        inner.pop(field[-1], None)


def _merged(old: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = deepcopy(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def _labelled(selector: str, metadata: Mapping[str, Any]) -> bool:
    labels = metadata.get("labels") or {}
    for part in filter(None, re.split(r",(?![^(]*\))", selector)):
        among = _LABEL_IN.fullmatch(part.strip())
        if among is not None:
            if labels.get(among[1]) not in re.split(", *", among[2]):
                return False
            continue
        found = _LABEL.fullmatch(part.strip())
        if found is None or (found[1] and found[3]):
            raise Refusal(400, "BadRequest", f"FakeObjects cannot select by {part!r}")
        without, name, relation, value = found.groups()
        if relation:
            if (labels.get(name) == value) is (relation == "!="):
                return False
        elif (name in labels) is bool(without):
            return False
    return True


def _fielded(selector: str, one: KubernetesObject) -> bool:
    for part in filter(None, selector.split(",")):
        name, _, value = part.replace("==", "=").partition("=")
        differs = name.endswith("!")
        found = _get(one, tuple(name.rstrip("!").split(".")))
        if ((found or "") == value) is differs:
            return False
    return True
