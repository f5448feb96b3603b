"""The Kubernetes API server next to agentk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunnel.api.users import Access

if TYPE_CHECKING:
    # kasctl sends no requests to an API server, and need not import Twisted's
    # transports.
    from tunnel.http1 import UpstreamPool

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Sequence,
)
from enum import Enum
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
import msgspec
from twisted.internet.interfaces import (
    IStreamClientEndpoint,
)
from zope.interface import Attribute, Interface

__all__ = [
    "ICluster",
    "IKubernetes",
    "IKubernetesClient",
    "IOwnNamespace",
    "KubernetesMetadata",
    "KubernetesObject",
    "KubernetesResource",
    "KubernetesResponse",
    "KubernetesShape",
    "KubernetesWrite",
    "OwnerReference",
    "PrintedObject",
    "WatchEvent",
    "WatchEventType",
]


class ICluster(Interface):
    """
    The Kubernetes API server next to agentk: its address, its TLS and agentk's
    credential.
    """

    host: str = Attribute("Host name or address.")
    port: int = Attribute("TCP port.")
    path_prefix: str = Attribute("Prefix of every path; usually empty.")
    host_header: bytes = Attribute("Value of the Host header.")

    def tls_context() -> SSLContext | None:
        """Return the TLS settings for the next connection; None for plain TCP."""

    def tls_server_name() -> str:
        """Return the server name to verify and to send as SNI."""

    def endpoint() -> IStreamClientEndpoint:
        """Return an endpoint for one new connection, including TLS."""

    def rejected() -> None:
        """Look for a newer credential, because the API server responded with 401."""

    def authorization() -> bytes | None:
        """
        Return the current Authorization value, which is renewed in the background.
        """


@attrs.frozen
class KubernetesResponse:
    """
    A response of the API server.

    :ivar content_type: empty if the response has none.
    """

    status: int
    body: bytes = attrs.field(repr=lambda body: f"{len(body)} bytes")
    content_type: str = ""


#: A Kubernetes object as parsed JSON: ``{"kind": "Pod", "metadata": ...}``.
KubernetesObject = dict[str, Any]


class OwnerReference(msgspec.Struct, rename="camel", gc=False):
    """Reference from an object to an object that owns it."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class KubernetesMetadata(msgspec.Struct, rename="camel"):
    """
    The part of an object's ``metadata`` that describes every object.

    :ivar creation_timestamp: a time in RFC 3339, as the API server writes it.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None


class KubernetesShape(msgspec.Struct, rename="camel"):
    """
    Base class for the fields that a watch reads of each object: see
    `IKubernetesClient.watch`.

    A subclass adds the fields that it needs.  Each field has a default, because the API
    server omits empty fields, and some may be None.
    """

    metadata: KubernetesMetadata = msgspec.field(default_factory=KubernetesMetadata)


@attrs.frozen
class KubernetesResource:
    """
    A kind of objects, as the API server's discovery lists it.

    :ivar group: empty for the core group.
    :ivar name: the plural, as in paths: ``pods``.
    :ivar verbs: ``get``, ``list``, ``watch``, ``patch`` ...
    """

    group: str
    version: str
    kind: str
    name: str
    namespaced: bool
    verbs: frozenset[str] = frozenset()

    @property
    def api_version(self) -> str:
        """Return the group and version, such as ``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


@attrs.frozen
class KubernetesWrite:
    """
    A request of a client of kas that changed an object, or may have changed it.

    :ivar credential_id: the client's credential, as in `Access`.
    :ivar manager: the field manager of the change.
    :ivar time: seconds since 1970, by the API server's clock, in whole seconds; without
        a response, the latest time at which the API server may have executed the
        request.
    :ivar seconds: the seconds from the start of the request to *time*.
    :ivar answered: whether the API server confirmed the change; False if agentk
        received no response, because the client left or a connection broke.
    """

    credential_id: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    subresource: str
    manager: str
    time: float
    seconds: float
    answered: bool = True


class WatchEventType(Enum):
    """Type of a `WatchEvent`."""

    #: All objects follow, each as ADDED, until SYNCED; earlier events are obsolete.
    RESET = "RESET"
    SYNCED = "SYNCED"
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    #: Nothing has changed up to *resource_version*.
    BOOKMARK = "BOOKMARK"


_NOTHING: Final = msgspec.Raw()


@attrs.frozen
class PrintedObject:
    """
    An object as the API server sent it, with the cells that kubectl prints.

    Each field is JSON and refers to the memory of a whole response, so a caller that
    keeps it for longer must copy it.

    :ivar text: the object; objects of a list may lack ``apiVersion`` and ``kind``.
    :ivar cells: the array of the object's cells; empty if the API server has no Table
        of this kind.
    :ivar columns: the array of ``columnDefinitions``; empty like *cells*.
    """

    text: msgspec.Raw = _NOTHING
    cells: msgspec.Raw = _NOTHING
    columns: msgspec.Raw = _NOTHING


@attrs.frozen
class WatchEvent:
    """
    One event of a watch.

    :ivar object: None for RESET, SYNCED and BOOKMARK; an instance of the shape if the
        watch has one.
    :ivar resource_version: position of the watch after this event; empty for RESET, and
        for ADDED before SYNCED.
    :ivar printed: the object as it was sent, in a watch with a shape; without cells
        unless the watch has *printed*.  For SYNCED in a watch with *printed* only the
        columns; otherwise None.
    :ivar metadata: the object's ``metadata`` as JSON, for followers of metadata: see
        `IKubernetes.follow`; otherwise empty.
    """

    type: WatchEventType
    object: Any = attrs.field(default=None, repr=False)
    resource_version: str = ""
    printed: PrintedObject | None = attrs.field(default=None, repr=False)
    metadata: msgspec.Raw = attrs.field(default=_NOTHING, repr=False)


class IKubernetesClient(Interface):
    """
    Client of the API server next to agentk; all its requests act as the same user.

    *path* is percent-encoded, with its query: ``/api/v1/namespaces/a/pods?limit=500``.
    Every failure is a `tunnel.errors.CallError`; PERMISSION_DENIED can also mean that
    the access is read-only and the request is not.  Status codes of the API server are
    translated: 404 to NOT_FOUND, 409 to ABORTED, 410 to OUT_OF_RANGE, 429 to
    RESOURCE_EXHAUSTED.

    A response may be at most 16 MiB long.
    """

    def request(
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float = 30.0,
    ) -> Awaitable[KubernetesResponse]:
        """
        Send one request and return its response, of any status and at most 16 MiB.

        :param accept: the value of the field ``Accept``.
        :param timeout: seconds until DEADLINE_EXCEEDED.
        """

    def json(
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> Awaitable[Any]:
        """
        Send one request with an object, and return the object in the response.

        A status other than 2xx raises a `CallError` with the API server's message.
        """

    def check_right(
        verb: str,
        resource: str,
        *,
        group: str = "",
        subresource: str = "",
        namespace: str = "",
        name: str = "",
    ) -> None:
        """
        Check whether the policy of the cluster's owner permits a request.

        A module calls this before it forwards data that agentk already has.  Requests
        of this client are checked without it.

        :raises CallError: PERMISSION_DENIED with the rule, if the policy denies it.
        """

    def resources() -> Awaitable[Sequence[KubernetesResource]]:
        """Return every kind of objects that the API server's discovery lists now."""

    def resource(api_version: str, kind: str) -> Awaitable[KubernetesResource]:
        """
        Return a kind; discovery is repeated at most once in some seconds.

        :raises CallError: NOT_FOUND if the API server does not have this kind (yet).
        """

    def resource_named(api_version: str, name: str) -> Awaitable[KubernetesResource]:
        """
        Return a kind by its plural, such as ``pods``; otherwise like `resource`.

        :raises CallError: NOT_FOUND if the API server does not have this kind (yet).
        """

    def get(
        resource: KubernetesResource, name: str, namespace: str = ""
    ) -> Awaitable[KubernetesObject]:
        """Return one object."""

    def list(
        resource: KubernetesResource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        metadata_only: bool = False,
    ) -> AsyncGenerator[list[KubernetesObject], None]:
        """
        List objects, page by page; each has its ``apiVersion`` and ``kind``.

        :param namespace: empty for all namespaces.
        :param limit: number of objects per page.
        :param metadata_only: as in `watch`.
        :raises CallError: OUT_OF_RANGE if reading took so long that the API server no
            longer has the state of the first page; start again.
        """

    def watch(
        resource: KubernetesResource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        shape: type[KubernetesShape] | None = None,
        printed: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """
        Yield all objects, and then each change, for as long as the caller reads.

        The watch recovers by itself, with backoff, from closed connections, an
        unreachable API server, and expired resource versions; it reports the latter
        with a RESET.  A slow reader slows the API server down: at most 1 MiB is
        buffered.

        :param metadata_only: request only the ``metadata`` of each object, as a
            PartialObjectMetadata, which never contains the data of a Secret.
        :param shape: read only the fields of this class, and skip the others while
            parsing.  This takes a tenth of the time of parsing the whole object.  The
            watch omits an object whose fields have other types.
        :param printed: request a Table with whole objects, whose cells are in
            `WatchEvent.printed` of each event; needs a *shape*.
        :raises CallError: an error that a retry does not fix: PERMISSION_DENIED,
            NOT_FOUND, INVALID_ARGUMENT.
        """

    def apply(
        object: KubernetesObject,
        *,
        field_manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Awaitable[KubernetesObject]:
        """
        Apply *object* server-side; it has ``apiVersion``, ``kind`` and
        ``metadata.name``.

        :param force: take over fields that other managers own.
        :raises CallError: ABORTED if other managers own some of the fields; the message
            names the managers and the fields.
        """

    def patch(
        resource: KubernetesResource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        kind: Literal["merge", "json", "strategic"] = "merge",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> Awaitable[KubernetesObject]:
        """Change one object."""

    def delete(
        resource: KubernetesResource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        dry_run: bool = False,
    ) -> Awaitable[None]:
        """
        Delete one object; a missing object is not an error.

        :param uid: delete only the object with this uid, not another one with the same
            name.
        :param resource_version: delete the object only if it still has this version.
        :raises CallError: ABORTED if the object has another uid or another version.
        """


class IOwnNamespace(Interface):
    """
    agentk's own namespace, with its Lease, its token and the records of modules.

    In this namespace, clients that have agentk's own rights can only read, and cannot
    read Secrets.
    """

    name: str = Attribute("Name of the namespace.")

    def keep_records(other: str = "") -> str:
        """
        Restrict the requests of clients with agentk's rights in this namespace, even if
        agentk runs outside of the cluster.

        :param other: another namespace that the module uses for records.  Take it from
            agentk's own configuration file, never from kas: requests for records there
            need no rule of the cluster's owner.
        :return: the name of the namespace.
        """

    def acts_as_agentk(username: str) -> bool:
        """
        Tell whether a request as *username* has agentk's rights, or may have them.

        :param username: the user that the request impersonates; empty for none.
        """

    def checked(method: bytes, target: bytes, upgrade: bool = False) -> bytes:
        """
        Check a request of a client with agentk's rights.

        :param target: as in `tunnel.kubernetes.request_info`.
        :return: *target*; for a list of all Secrets of the cluster, a target that
            excludes this namespace.
        :raises tunnel.kubernetes.OwnNamespaceRefusal: the request is not permitted,
            with the reason.
        """

    def without_hidden(method: bytes, target: bytes) -> bytes:
        """
        Return the target to request in place of *target*: with a policy of the
        cluster's owner, a list of all Secrets or ConfigMaps excludes this namespace.

        :param target: as in `checked`.
        """


class IKubernetes(Interface):
    """Access to the API server: `IAgentModuleApi.kubernetes`."""

    own_namespace: IOwnNamespace = Attribute(
        "agentk's own namespace; a module that keeps records there calls "
        "`keep_records`."
    )

    cluster_as_agentk: ICluster = Attribute(
        "The API server with agentk's own credential, for a module that uses HTTP "
        "itself.  No request is checked: the module is responsible for each of them."
    )

    upstream: UpstreamPool = Attribute(
        "The connection pool, which all modules of agentk share.  A module ends its "
        "requests when it stops (`give_up`); it never closes the pool."
    )

    def acting_for(access: Access | None) -> IKubernetesClient:
        """
        Return a client with the rights of a caller: ``acting_for(call.access)``.

        Requests run as the user that *access* names (``Impersonate-*``).  If the access
        is read-only, requests that change something are refused.  The client is cheap;
        create one for each call.

        :raises CallError: PERMISSION_DENIED if *access* is None.
        """

    def check_service(namespace: str, name: str, port: int) -> None:
        """
        Check whether the policy of the cluster's owner permits connections to a
        Service.

        `service_endpoint` does so for each connection; a module that keeps connections
        calls this for each request.

        :raises CallError: PERMISSION_DENIED with the rule, if the policy denies it.
        """

    def service_endpoint(
        namespace: str, name: str, port: int, *, ca_certificate: bytes = b""
    ) -> Awaitable[IStreamClientEndpoint]:
        """
        Return an endpoint for one connection to a Service of the cluster.

        Use it for targets in a configuration.  Each call reads the Service with
        agentk's rights, and the connection goes to its ClusterIP, which only pods of
        the cluster reach.  The endpoint sends no credential.

        :param port: a TCP port of the Service.
        :param ca_certificate: PEM certificates of the CAs that sign the server's
            certificate for ``name.namespace.svc``; empty for plain TCP.
        :raises CallError: PERMISSION_DENIED if the policy of the cluster's owner denies
            it; NOT_FOUND if the Service does not exist; FAILED_PRECONDITION
            if it does not lead to pods (no selector, ExternalName, no ClusterIP, the
            API server), or if *ca_certificate* is not a certificate.
        """

    def as_service_account(namespace: str, name: str) -> IKubernetesClient:
        """
        Return a client with the rights of a ServiceAccount that agentk may impersonate.

        Use it for the operator's configuration, never for requests of a user.
        """

    def as_agentk() -> IKubernetesClient:
        """
        Return a client with all rights of agentk; never use it for requests of a user.
        """

    def for_records() -> IKubernetesClient:
        """
        Return a client with the rights of agentk, for records that the module keeps in
        ConfigMaps, and in Secrets of agentk's own namespace.

        The policy of the cluster's owner does not concern records in agentk's own
        namespace and in the namespace that the module gave to `keep_records`.
        Elsewhere, requests need rules as all others.  Never use the client for objects
        that kas, Git or a user names.
        """

    def follow(
        resource: KubernetesResource,
        namespace: str = "",
        *,
        shape: type[KubernetesShape] | None = None,
        printed: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """
        Yield all objects, and then each change, with the rights of agentk, from a watch
        that all modules share.

        Prefer this to `IKubernetesClient.watch` for the module's own work: a kind has
        one watch, or one in each namespace that modules name, however many modules
        follow it.  A follower gets the same events as from a watch of its own.  The
        watch begins again, with a RESET for all, when a follower with a shape joins.
        It is as fast as its slowest follower: handle each event without waiting.

        :param shape: the fields to read, as in `IKubernetesClient.watch`.  Without a
            shape, `WatchEvent.object` is a `KubernetesShape`, and
            `WatchEvent.metadata` is the text of all metadata.  If no follower has a
            shape, the API server sends only metadata.
        :param printed: as in `IKubernetesClient.watch`.
        :raises CallError: as in `IKubernetesClient.watch`; PERMISSION_DENIED also if
            the policy of the cluster's owner denies the watch to this module.
        """
