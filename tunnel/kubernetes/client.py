"""Requests of agent halves to the API server, each on behalf of one caller."""

from __future__ import annotations

import copy
import re
import ssl
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from typing import Any, Literal
from urllib.parse import quote, urlencode

from twisted.internet.defer import TimeoutError
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from zope.interface import implementer

from tunnel.api import (
    Access,
    ICluster,
    IKubernetes,
    IKubernetesClient,
    Impersonation,
    IOwnNamespace,
    KubernetesObject,
    KubernetesResource,
    KubernetesResponse,
    KubernetesShape,
    WatchEvent,
)
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.http1 import UpstreamError, UpstreamPool
from tunnel.kubernetes.access_review import Right
from tunnel.kubernetes.answers import (
    HOP,
    AnswerLines,
    ObjectPage,
    WholeAnswer,
    object_in,
    shallow,
    shaped_page,
    unavailable,
)
from tunnel.kubernetes.discovery import (
    AGGREGATED,
    Discovery,
    parse_discovery,
    parse_resources,
    path_of,
)
from tunnel.kubernetes.guard import (
    GuardedCluster,
    GuardedUpstream,
    Purpose,
    RequestGuard,
    RequestOrigin,
)
from tunnel.kubernetes.impersonation import impersonation_fields
from tunnel.kubernetes.own_namespace import OwnNamespaceRefusal
from tunnel.kubernetes.request_info import escapes_root, why_refused
from tunnel.kubernetes.services import service_address
from tunnel.kubernetes.shared_watches import SharedWatches, WatchClient
from tunnel.kubernetes.watch import (
    PAGE,
    InitialEvents,
    WatchRequests,
    watch_events,
)
from tunnel.toolkit.texts import json_for_yaml
from tunnel.transport.tls import ALPN_HTTP, client_context
from tunnel.transport.tlsio import TLSClientEndpoint

__all__ = ["KubernetesClient", "KubernetesClients"]

#: Default timeout of a response, in seconds; API servers give up after 60.
TIMEOUT = 30.0

_JSON = "application/json"

#: Media type that requests only the metadata of objects; API servers since 1.15 support
#: it.
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

#: Media types that request cells, which not every aggregated API server has.
_TABLE = f"application/json;as=Table;g=meta.k8s.io;v=v1,{_JSON}"

#: The content types for `IKubernetesClient.patch`, by kind of patch.
_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}

_TARGET = re.compile(r"/[!-~]*")
_METHOD = re.compile(r"[A-Z]{1,20}")
_CONTENT_TYPE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


@implementer(IKubernetes)
class KubernetesClients:
    """
    See `tunnel.api.IKubernetes`.

    :param cluster: the API server, and agentk's credential for it.
    :param pool: the connections to the API server; the creator of the pool closes it.
    :param jitter: returns a number between 0 and 1, for pauses and for the duration of
        watches.
    :param own_namespace: agentk's own namespace; None if agentk has no namespace.
    :param reach: returns an endpoint for TCP connections to a host and port of the
        cluster's network.
    :param guard: the policy of the cluster's owner, which concerns the clients that
        `of_module` returns; None without a policy.
    """

    def __init__(
        self,
        cluster: ICluster,
        pool: UpstreamPool,
        clock: IReactorTime,
        jitter: Callable[[], float],
        own_namespace: IOwnNamespace | None = None,
        reach: Callable[[str, int], IStreamClientEndpoint] | None = None,
        guard: RequestGuard | None = None,
    ) -> None:
        self._reach = reach
        self._guard = guard
        self._module = ""
        #: The guarded connections of a module, by the purpose of requests.
        self._upstreams: dict[Purpose, GuardedUpstream] = {}
        self._pool = pool
        self.cluster_as_agentk: Any = cluster
        self.own_namespace: Any = own_namespace
        self.upstream: Any = pool
        self.clock = clock
        self.jitter = jitter
        #: Kinds of objects, which are the same for every caller.
        self.discovery = Discovery(clock.seconds)
        #: API groups without streamed initial objects, which are also the same for
        #: every caller.
        self.initial_events = InitialEvents()
        #: Watches with agentk's rights, which the clients of all modules share.
        self._shared = SharedWatches(self._client_of_modules, clock, jitter)

    def of_module(self, module: str) -> KubernetesClients:
        """Return the clients for a module, which the policy guards if there is one."""
        guard = self._guard
        if guard is None:
            return self
        found = copy.copy(self)
        found._module = module
        found._upstreams = {
            one: GuardedUpstream(self._pool, guard, (RequestOrigin(module, one),))
            for one in Purpose
        }
        found.upstream = found._upstreams[Purpose.CALLER]
        found.cluster_as_agentk = GuardedCluster(self.cluster_as_agentk)
        return found

    def _client_of_modules(self, origins: Collection[RequestOrigin]) -> WatchClient:
        """
        Return a client for requests that several modules share.

        :param origins: the modules, which may change.
        """
        found = copy.copy(self)
        if self._guard is not None:
            guarded = GuardedUpstream(self._pool, self._guard, origins)
            found._upstreams = {Purpose.MODULE: guarded}
        return KubernetesClient(found, None)

    def follow(
        self,
        resource: KubernetesResource,
        namespace: str = "",
        *,
        shape: type[KubernetesShape] | None = None,
        printed: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield all objects, and then each change, from a shared watch."""
        guarded = self._upstreams.get(Purpose.MODULE)
        return self._shared.follow(
            self.as_agentk(),
            () if guarded is None else guarded.origins,
            resource,
            namespace,
            shape,
            printed,
        )

    def upstream_for(self, purpose: Purpose) -> Any:
        """Return the connections for requests with a purpose."""
        return self._upstreams.get(purpose, self._pool)

    def acting_for(self, access: Access | None) -> KubernetesClient:
        """
        Return a client with the permissions of *access* only.

        :raises CallError: PERMISSION_DENIED if *access* is None: the caller is unknown,
            or the server half did not forward the access.
        """
        if access is None:
            raise CallError(
                Status.PERMISSION_DENIED,
                "the call does not name a user; the server half forwards it with "
                "api.calls.client(service, agent_id, access=access)",
            )
        return KubernetesClient(self, access, Purpose.CALLER)

    def as_service_account(self, namespace: str, name: str) -> KubernetesClient:
        """
        Return a client with the permissions of a ServiceAccount, which agentk
        impersonates.
        """
        username = f"system:serviceaccount:{namespace}:{name}"
        # The API server adds the groups of these accounts by itself.
        return KubernetesClient(
            self, Access(username, "", "", impersonation=Impersonation(username))
        )

    def as_agentk(self) -> KubernetesClient:
        """Return a client with the permissions of agentk's own account."""
        return KubernetesClient(self, None)

    def for_records(self) -> KubernetesClient:
        """Return a client with agentk's permissions for records of the module."""
        return KubernetesClient(self, None, Purpose.RECORDS)

    def check_service(self, namespace: str, name: str, port: int) -> None:
        """Check whether the policy permits connections to a Service."""
        if self._guard is not None and self._module:
            origin = RequestOrigin(self._module, Purpose.MODULE)
            self._guard.check_service(origin, namespace, name, port)

    def check_right(self, purpose: Purpose, fields: bytes, right: Right) -> None:
        """
        Check a right of a client.

        :param fields: the fields of impersonation.
        :raises CallError: PERMISSION_DENIED if the policy denies it.
        """
        if self._guard is not None and self._module:
            self._guard.check_right(RequestOrigin(self._module, purpose), fields, right)

    @property
    def is_guarded(self) -> bool:
        """Whether a policy guards the clients."""
        return bool(self._upstreams)

    async def service_endpoint(
        self, namespace: str, name: str, port: int, *, ca_certificate: bytes = b""
    ) -> IStreamClientEndpoint:
        """Return an endpoint for one connection to a Service of the cluster."""
        if self._reach is None:
            raise CallError(Status.UNIMPLEMENTED, "no connections to Services here")
        self.check_service(namespace, name, port)
        # The address of a Service is part of the connection, so it needs no other rule.
        reader = copy.copy(self)
        reader._upstreams = {}
        address = await service_address(
            reader.as_agentk(), namespace, name, port, self.cluster_as_agentk.host
        )
        endpoint = self._reach(address, port)
        if not ca_certificate:
            return endpoint
        try:
            context = client_context(
                ca_data=ca_certificate,
                alpn=(ALPN_HTTP,),
                # The server determines the version of TLS.
                minimum_version=ssl.TLSVersion.TLSv1_2,
                system_pool=False,
            )
        except ConfigurationError as error:
            text = f"Service {namespace}/{name}: {error.problems[0]}"
            raise CallError(Status.FAILED_PRECONDITION, text) from None
        # Certificates of Services contain this name, as users of the cluster's DNS
        # write it.
        host = f"{name}.{namespace}.svc"
        return TLSClientEndpoint(endpoint, lambda: context, host, self.clock)


@implementer(IKubernetesClient)
class KubernetesClient:
    """
    See `tunnel.api.IKubernetesClient`.

    :param access: the user whose rights the requests have; None for agentk's own
        rights.
    :param purpose: whether the requests are made for a caller, or for agentk's own work
        or records.
    """

    def __init__(
        self,
        clients: KubernetesClients,
        access: Access | None,
        purpose: Purpose = Purpose.MODULE,
    ) -> None:
        self._clients = clients
        self._access = access
        self._purpose = purpose
        self._upstream = clients.upstream_for(purpose)
        self._own_namespace: IOwnNamespace | None = None
        own = clients.own_namespace
        if purpose is Purpose.CALLER and own is not None and access is not None:
            username = access.impersonation.username if access.impersonation else ""
            if own.acts_as_agentk(username):
                self._own_namespace = own
        self._impersonation = b""
        if access is not None and access.impersonation is not None:
            try:
                self._impersonation = impersonation_fields(access.impersonation)
            except ValueError as error:
                raise CallError(
                    Status.PERMISSION_DENIED, f"{access.credential_id}: {error}"
                ) from None

    def _head(
        self, method: str, path: str, accept: str, content_type: str = ""
    ) -> tuple[bytes, bytes, bytes]:
        """
        Return method, target and fields of a permitted request.

        :raises ValueError: if the request is invalid.
        :raises CallError: PERMISSION_DENIED if the access does not permit the request,
            or if agentk's own namespace is protected from it.
        """
        if _TARGET.fullmatch(path) is None:
            raise ValueError(f"{path[:200]!r} is not a path; percent-encode its parts")
        if escapes_root(path.partition("?")[0].encode("ascii")):
            raise ValueError(f"{path[:200]!r} leads out of the API server's root")
        if _METHOD.fullmatch(method) is None:
            raise ValueError(f"{method[:20]!r} is not a method")
        access = self._access
        verb, target = method.encode("ascii"), path.encode("ascii")
        if access is not None and access.read_only:
            why = why_refused(access, verb, target)
            if why is not None:
                raise CallError(Status.PERMISSION_DENIED, why)
        if self._own_namespace is not None:
            try:
                target = self._own_namespace.checked(verb, target)
            except OwnNamespaceRefusal as refused:
                raise CallError(Status.PERMISSION_DENIED, str(refused)) from None
        elif self._purpose is Purpose.MODULE and self._clients.is_guarded:
            # Lists for a module's own work exclude what the policy protects.
            own = self._clients.own_namespace
            target = target if own is None else own.without_hidden(verb, target)
        cluster = self._clients.cluster_as_agentk
        fields = b"\r\nHost: %b\r\nAccept: %b" % (
            cluster.host_header,
            accept.encode("ascii"),
        )
        if content_type:
            fields += b"\r\nContent-Type: " + content_type.encode("ascii")
        authorization = cluster.authorization()
        if authorization is not None:
            fields += b"\r\nAuthorization: " + authorization
        prefix = cluster.path_prefix.rstrip("/").encode("ascii")
        return verb, prefix + target, fields + self._impersonation

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout: float = TIMEOUT,
    ) -> KubernetesResponse:
        """Send one request and return any response of the API server."""
        for one in (content_type, accept):
            if _CONTENT_TYPE.fullmatch(one) is None:
                raise ValueError(f"{one[:200]!r} is not a content type")
        return await self._request(method, path, body, content_type, timeout, accept)

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str,
        timeout: float,
        accept: str,
    ) -> KubernetesResponse:
        verb, target, fields = self._head(
            method, path, accept, content_type if body else ""
        )
        answer = WholeAnswer()
        pool = self._upstream
        answer.begin(pool.request(verb, target, fields, answer, length=len(body)), body)
        try:
            response = await answer.done.addTimeout(timeout, self._clients.clock)
        except TimeoutError:
            raise CallError(
                Status.DEADLINE_EXCEEDED,
                f"{HOP}no response within {timeout:g} s",
            ) from None
        except UpstreamError as error:
            raise unavailable(error) from error
        if response.status == 401:
            self._clients.cluster_as_agentk.rejected()
        return response

    async def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = _JSON,
        timeout: float = TIMEOUT,
    ) -> Any:
        """Send one request and return the object in its response."""
        # JSON that is also YAML suits every content type: the API server reads a body
        # of application/apply-patch+yaml as YAML.
        data = b"" if body is None else json_for_yaml(body).encode()
        response = await self.request(
            method, path, data, content_type=content_type, timeout=timeout
        )
        return shallow(object_in(response))

    def check_right(
        self,
        verb: str,
        resource: str,
        *,
        group: str = "",
        subresource: str = "",
        namespace: str = "",
        name: str = "",
    ) -> None:
        """See `tunnel.api.IKubernetesClient`."""
        self._clients.check_right(
            self._purpose,
            self._impersonation,
            Right(verb, resource, group, subresource, namespace, name),
        )

    # -- Kinds

    async def resources(self) -> Sequence[KubernetesResource]:
        """Return every kind of objects that the API server has now."""
        found: list[KubernetesResource] = []
        for root in ("/api", "/apis"):
            response = await self._request(
                "GET", root, b"", "", TIMEOUT, f"{AGGREGATED},{_JSON}"
            )
            answer = object_in(response)
            if answer.get("kind") == "APIGroupDiscoveryList":
                found += parse_discovery(answer)
                continue
            # These requests are for Kubernetes before 1.30, and for programs that only
            # imitate an API server.
            versions = [f"{root}/{one}" for one in answer.get("versions", ())]
            versions += [
                f"{root}/{version['groupVersion']}"
                for group in answer.get("groups", ())
                for version in group["versions"]
            ]
            for path in versions:
                found += parse_resources(await self.json("GET", path))
        self._clients.discovery.learn(found)
        return found

    async def resource(self, api_version: str, kind: str) -> KubernetesResource:
        """Return a kind, querying the API server if it is unknown."""
        discovery = self._clients.discovery
        found = discovery.find(api_version, kind)
        if found is None:
            await self.resources()
            found = discovery.find(api_version, kind)
        # After `learn`, `find` returns the kind, or raises an exception.
        assert found is not None
        return found

    async def resource_named(self, api_version: str, name: str) -> KubernetesResource:
        """Return a kind by its plural, querying the API server if it is unknown."""
        discovery = self._clients.discovery
        found = discovery.find_named(api_version, name)
        if found is None:
            await self.resources()
            found = discovery.find_named(api_version, name)
        assert found is not None
        return found

    # -- Objects

    async def get(
        self, resource: KubernetesResource, name: str, namespace: str = ""
    ) -> KubernetesObject:
        found: KubernetesObject = await self.json(
            "GET", path_of(resource, namespace, name)
        )
        return found

    async def list(
        self,
        resource: KubernetesResource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
        metadata_only: bool = False,
    ) -> AsyncGenerator[list[KubernetesObject], None]:
        """Yield objects, page by page."""
        query = _selected(label_selector, field_selector)
        accept = _METADATA_LIST if metadata_only else _JSON
        async for page in self._pages(resource, namespace, query, limit, accept):
            yield page.objects

    async def _pages(
        self,
        resource: KubernetesResource,
        namespace: str,
        query: Mapping[str, str],
        limit: int = PAGE,
        accept: str = _JSON,
        shape: type[KubernetesShape] | None = None,
    ) -> AsyncGenerator[ObjectPage, None]:
        path, going_on = path_of(resource, namespace), ""
        while True:
            asked = {**query, "limit": str(limit)}
            if going_on:
                asked["continue"] = going_on
            response = await self._request(
                "GET", _with(path, asked), b"", "", TIMEOUT, accept
            )
            if shape is None or not 200 <= response.status < 300:
                answer = object_in(response)
                objects = answer.get("items") or []
                for one in objects:
                    # A list contains the version and kind only once, for all its
                    # objects.
                    one.setdefault("apiVersion", resource.api_version)
                    one.setdefault("kind", resource.kind)
                metadata = answer.get("metadata", {})
                version = metadata.get("resourceVersion", "")
                going_on = metadata.get("continue", "")
                page = ObjectPage(objects, version)
            else:
                page, going_on = shaped_page(response.body, shape)
            yield page
            if not going_on:
                return

    def watch(
        self,
        resource: KubernetesResource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        shape: type[KubernetesShape] | None = None,
        printed: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield all objects, and then each change."""
        listed, watched = (
            (_METADATA_LIST, _METADATA) if metadata_only else (_JSON, _JSON)
        )
        query = selected = _selected(label_selector, field_selector)
        if printed:
            listed = watched = _TABLE
            query = {**selected, "includeObject": "Object"}
        path = path_of(resource, namespace)

        def changes(asked: Mapping[str, str]) -> AnswerLines:
            verb, target, fields = self._head(
                "GET", _with(path, {**query, **asked}), watched
            )
            lines = AnswerLines()
            lines.begin(self._upstream.request(verb, target, fields, lines))
            return lines

        async def newest() -> str:
            pages = self._pages(resource, namespace, selected, 1, _METADATA_LIST)
            async with aclosing(pages):
                async for page in pages:
                    return page.resource_version
            return ""

        requests = WatchRequests(
            resource.group,
            lambda: self._pages(resource, namespace, query, accept=listed, shape=shape),
            changes,
            newest,
            self._clients.cluster_as_agentk.rejected,
            shape,
            printed,
        )
        clients = self._clients
        return watch_events(
            requests, clients.initial_events, clients.clock, clients.jitter
        )

    def metadata_pages(
        self, resource: KubernetesResource, namespace: str
    ) -> AsyncGenerator[ObjectPage, None]:
        """List the metadata of all objects, page by page."""
        return self._pages(
            resource, namespace, {}, accept=_METADATA_LIST, shape=KubernetesShape
        )

    def check_watch(self, resource: KubernetesResource, namespace: str) -> None:
        """
        Check whether the policy permits a watch.

        :raises CallError: the policy denies it.
        """
        if isinstance(self._upstream, GuardedUpstream):
            path = _with(path_of(resource, namespace), {"watch": "true"})
            self._upstream.check(*self._head("GET", path, _JSON))

    async def apply(
        self,
        object: KubernetesObject,
        *,
        field_manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> KubernetesObject:
        metadata = object.get("metadata", {})
        resource = await self.resource(object["apiVersion"], object["kind"])
        path = path_of(resource, metadata.get("namespace", ""), metadata["name"])
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        # JSON is also YAML, and the only content type that servers of all versions
        # accept.
        applied: KubernetesObject = await self.json(
            "PATCH",
            _with(path, query | _dry(dry_run)),
            object,
            content_type="application/apply-patch+yaml",
        )
        return applied

    async def patch(
        self,
        resource: KubernetesResource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        kind: Literal["merge", "json", "strategic"] = "merge",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> KubernetesObject:
        query = _dry(dry_run)
        if field_manager:
            query["fieldManager"] = field_manager
        path = _with(path_of(resource, namespace, name), query)
        changed: KubernetesObject = await self.json(
            "PATCH", path, patch, content_type=_PATCHES[kind]
        )
        return changed

    async def delete(
        self,
        resource: KubernetesResource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        dry_run: bool = False,
    ) -> None:
        """Delete one object, if it still exists."""
        conditions = {"uid": uid, "resourceVersion": resource_version}
        options: dict[str, Any] = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": propagation,
            "preconditions": {name: one for name, one in conditions.items() if one},
        }
        if dry_run:
            options["dryRun"] = ["All"]
        try:
            await self.json("DELETE", path_of(resource, namespace, name), options)
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                raise


def _selected(label_selector: str, field_selector: str) -> dict[str, str]:
    given = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: one for name, one in given.items() if one}


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _with(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path
