"""The Kubernetes API server next to agentk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunnel.api.users import Access

if TYPE_CHECKING:
    # kasctl sends no requests to an API server: it does without Twisted's transports.
    from tunnel.http1 import UpstreamPool

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Sequence,
)
from enum import Enum
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Literal

import attrs
from twisted.internet.interfaces import (
    IStreamClientEndpoint,
)
from zope.interface import Attribute, Interface

__all__ = [
    "ICluster",
    "IKubernetes",
    "IKubernetesClient",
    "IOwnNamespace",
    "KubernetesObject",
    "KubernetesResource",
    "KubernetesResponse",
    "KubernetesWrite",
    "WatchEvent",
    "WatchEventType",
]


class ICluster(Interface):
    """The Kubernetes API server next to agentk, and how to speak to it."""

    host: str = Attribute("Name or address.")
    port: int = Attribute("TCP port.")
    path_prefix: str = Attribute("Prefix of every path; usually empty.")
    host_header: bytes = Attribute("Value of the Host header.")

    def tls_context() -> SSLContext | None:
        """For the next connection; None for plain TCP."""

    def tls_server_name() -> str:
        """Return the name to verify, and to send as SNI."""

    def endpoint() -> IStreamClientEndpoint:
        """For one new connection, TLS included."""

    def rejected() -> None:
        """Look for a newer credential: the API server answered 401."""

    def authorization() -> bytes | None:
        """
        Return the current Authorization value, which stays fresh in the background.
        """


@attrs.frozen
class KubernetesResponse:
    """Response of the API server."""

    status: int
    body: bytes = attrs.field(repr=lambda body: f"{len(body)} bytes")


#: An object as the API server's JSON has it: ``{"kind": "Pod", "metadata": ...}``.
KubernetesObject = dict[str, Any]


@attrs.frozen
class KubernetesResource:
    """
    A kind of objects that the API server has, as its discovery says.

    :ivar group: empty for the core group.
    :ivar name: as in paths, the plural: ``pods``.
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
        """``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


@attrs.frozen
class KubernetesWrite:
    """
    A request of a client of kas that changed an object, or may have changed it.

    :ivar credential_id: whose, as `Access` has it.
    :ivar manager: as which field manager.
    :ivar time: seconds since 1970, by the API server's clock, to a second; without an
        answer, the latest time at which the API server may have executed the request.
    :ivar seconds: how long it took until then.
    :ivar answered: the API server said that it made the change; False: agentk did not
        get its answer, because the client left or a connection broke.
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

    #: All objects follow, each as ADDED, until SYNCED: what was known before is void.
    RESET = "RESET"
    SYNCED = "SYNCED"
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    #: Nothing has changed up to *resource_version*.
    BOOKMARK = "BOOKMARK"


@attrs.frozen
class WatchEvent:
    """
    One event of a watch.

    :ivar object: None for RESET, SYNCED and BOOKMARK.
    :ivar resource_version: how far the watch has come; empty for RESET, and for ADDED
        before SYNCED.
    """

    type: WatchEventType
    object: KubernetesObject | None = attrs.field(default=None, repr=False)
    resource_version: str = ""


class IKubernetesClient(Interface):
    """
    Requests to the API server next to agentk, all in one name.

    *path* is percent-encoded, with its query: ``/api/v1/namespaces/a/pods?limit=500``.
    Every way to fail is a `tunnel.errors.CallError`; PERMISSION_DENIED says, too, that
    the access is read-only and the request is not.  Of the API server's own refusals
    404 is NOT_FOUND, 409 ABORTED, 410 OUT_OF_RANGE, 429 RESOURCE_EXHAUSTED.

    Objects have at most 16 MiB together in one answer.
    """

    def request(
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> Awaitable[KubernetesResponse]:
        """
        One request, whatever its status; an answer has at most 16 MiB.

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
        One request with an object, and the object in the answer.

        A status other than 2xx is a `CallError` with the API server's message.
        """

    def resources() -> Awaitable[Sequence[KubernetesResource]]:
        """Every kind of objects, as the API server's discovery says it now."""

    def resource(api_version: str, kind: str) -> Awaitable[KubernetesResource]:
        """
        Return a kind, looked up again at most once in some seconds.

        :raises CallError: NOT_FOUND, the API server does not have this kind (yet).
        """

    def get(
        resource: KubernetesResource, name: str, namespace: str = ""
    ) -> Awaitable[KubernetesObject]:
        """One object."""

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

        :param namespace: empty: all namespaces.
        :param limit: objects of one page.
        :param metadata_only: as in `watch`.
        :raises CallError: OUT_OF_RANGE, reading took so long that the API server no
            longer has the state of the first page: start again.
        """

    def watch(
        resource: KubernetesResource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """
        Yield all objects, and then each change, for as long as the caller reads.

        It handles closed connections, an unreachable API server, and expired resource
        versions by itself, with growing pauses, and reports the last by a RESET.  A
        slow reader slows the API server down: at most 1 MiB waits.

        :param metadata_only: only the ``metadata`` of each object, as a
            PartialObjectMetadata: never the data of a Secret.
        :raises CallError: errors that a retry does not fix: PERMISSION_DENIED,
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
        Server-side apply; *object* has ``apiVersion``, ``kind`` and ``metadata.name``.

        :param force: take fields that other managers own, too.
        :raises CallError: ABORTED, they own some; the message says who and which.
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

        :param uid: delete only the object with this uid, not another one of the same
            name.
        :raises CallError: ABORTED, it is another object, or has changed.
        """


class IOwnNamespace(Interface):
    """
    agentk's own namespace, where its Lease is, its token, and the records of modules.

    Clients that have agentk's own rights only read there, and no Secrets.
    """

    name: str = Attribute("Its name.")

    def keep_records() -> str:
        """
        Close the namespace to such clients, wherever agentk runs.

        :return: its name.
        """

    def acts_as_agentk(username: str) -> bool:
        """
        Tell whether a request as *username* has agentk's rights, or may have.

        :param username: that it impersonates; empty: none.
        """

    def checked(method: bytes, target: bytes, upgrade: bool = False) -> bytes:
        """
        Check a client's request with agentk's rights.

        :param target: as in `tunnel.kubernetes.request_info`.
        :return: *target*, or for all Secrets of the cluster a target without the
            Secrets of this namespace.
        :raises tunnel.kubernetes.OwnNamespaceRefusal: the request is not permitted,
            with the reason.
        """


class IKubernetes(Interface):
    """Access to the API server: `IAgentModuleApi.kubernetes`."""

    own_namespace: IOwnNamespace = Attribute(
        "agentk's own; a module that keeps records there calls `keep_records`."
    )

    cluster_as_agentk: ICluster = Attribute(
        "The API server with agentk's own credential, for a module that "
        "speaks HTTP itself.  Nothing is checked: who uses it answers for each request."
    )

    upstream: UpstreamPool = Attribute(
        "The connection pool, which all of agentk shares.  A module ends its requests "
        "there when it stops (`give_up`); it never closes the pool."
    )

    def acting_for(access: Access | None) -> IKubernetesClient:
        """
        Return a client with the rights of a caller: ``acting_for(call.access)``.

        Requests run as the user that *access* names (``Impersonate-*``).  If the access
        is read-only, requests that change something are refused.  Cheap; create one for
        each call.

        :raises CallError: PERMISSION_DENIED, *access* is None.
        """

    def as_service_account(namespace: str, name: str) -> IKubernetesClient:
        """
        Return a client with the rights of a ServiceAccount that agentk may impersonate.

        For an operator's configuration, never for requests of a user.
        """

    def as_agentk() -> IKubernetesClient:
        """Return a client with all rights of agentk: never for requests of a user."""
