"""
Interfaces that a module implements, and interfaces that both programs offer to it.

A feature is one module with two halves: the server half runs in kas, the agent half in
agentk.  Each half is found by name through a dropin (`tunnel.plugin`), made with one
argument, the *module API*, and from then on can reach what that API lists and nothing
else.  docs/modules.rst walks through a complete one.

`IStream` and `IStreamReceiver` are the two faces of one stream: the first is what you
call, the second is what calls you.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from enum import Enum
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import attrs
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    IProtocolFactory,
    IPullProducer,
    IPushProducer,
    IReactorCore,
    IReactorTime,
    IStreamClientEndpoint,
    ITransport,
)
from zope.interface import Attribute, Interface

from tunnel.config import Listen
from tunnel.errors import AgentUnavailable

if TYPE_CHECKING:
    # agentk serves no pages: it does without twisted.web.
    from twisted.web.iweb import IAgent
    from twisted.web.resource import IResource

    # kasctl asks no upstream: it does without Twisted's transports.
    from tunnel.http1 import UpstreamPool

__all__ = [
    "CLIENT_ADDRESS",
    "OPERATOR",
    "SESSION_COOKIE",
    "Access",
    "AgentIdentity",
    "AgentProject",
    "AuditEvent",
    "AuditLevel",
    "ConnectedAgent",
    "GitAddress",
    "GitalyAddress",
    "HasPeer",
    "IAgentModule",
    "IAgentModuleApi",
    "IAgentModuleFactory",
    "IAuthenticator",
    "IClientCall",
    "ICluster",
    "IGitLab",
    "IGitLabResponse",
    "IKubernetesClient",
    "IOpening",
    "IPathReceiver",
    "IRepositories",
    "IRepository",
    "IServerModule",
    "IServerModuleApi",
    "IServerModuleFactory",
    "IServiceClient",
    "ISharedCount",
    "ISpan",
    "IStore",
    "IStream",
    "IStreamReceiver",
    "IWaitingStream",
    "Impersonation",
    "KubernetesObject",
    "KubernetesResource",
    "KubernetesResponse",
    "KubernetesVersion",
    "KubernetesWrite",
    "SpanKind",
    "StoreEvent",
    "StoreEventType",
    "StoredValue",
    "StreamOptions",
    "TreeEntry",
    "TreeEntryKind",
    "Usage",
    "WatchEvent",
    "WatchEventType",
]


#: The kind of credential that a browser has: its token is the CSRF token of a session
#: of GitLab, a space, and the cookie of that session.  No bearer token can name it.
SESSION_COOKIE = "session cookie"

#: In ``call.metadata`` of calls of the external API: the client's address, as kas sees
#: it; empty: the call came by a unix socket.
CLIENT_ADDRESS = "client-address"

#: Key of a call's metadata: the operating system's user of `kasctl`, according to
#: `kasctl`.
OPERATOR = "kasctl-operator"


@attrs.frozen
class Impersonation:
    """The user as whom the Kubernetes API server runs a request (`Impersonate-*`)."""

    username: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)


#: Names of counters, in the format of GitLab's usage reports.
_USAGE_NAME = re.compile("[a-z][a-z0-9_]{0,99}")


def _are_names(instance: object, attribute: object, names: tuple[str, ...]) -> None:
    for name in names:
        if _USAGE_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} cannot be counted: 1 to 100 of a-z, 0-9 and _")


@attrs.frozen
class Usage:
    """
    Counters that one use of a credential increments, for usage reports.

    :ivar counters: names of counters that each increase by one.
    :ivar unique: names, each with the id of a user: kas counts the different ids.
    """

    counters: tuple[str, ...] = attrs.field(default=(), validator=_are_names)
    unique: tuple[tuple[str, int], ...] = ()

    def __attrs_post_init__(self) -> None:
        _are_names(self, None, tuple(name for name, _ in self.unique))


#: Kinds of owners whose names in messages differ from their keys.
_KINDS: Final = {"oidc_user": "user", "gitlab_user": "user of GitLab"}


@attrs.frozen
class Access:
    """An accepted credential: its user, its agent, and the user to impersonate."""

    #: Stable, safe to log, never the token itself: ``user:alice``.
    credential_id: str
    #: The agent that the credential opens.
    agent_id: str
    agent_name: str
    #: None: requests run as agentk's own account, and may impersonate on their own.
    impersonation: Impersonation | None = None
    #: Only what changes nothing: no writing verb, no exec, attach, port-forward, proxy.
    read_only: bool = False
    #: Whether Secrets may be read, where it is read-only.
    secrets: bool = False
    #: Counters that a use of the credential increments.
    usage: Usage | None = None
    #: Share of a busy kas and agent in relation to others: 4 for users, 2 for CI jobs.
    weight: int = 4
    #: Owner of the credential.  Limits on concurrent requests count by owner, so that
    #: several credentials of one user, or successive ones, have one share together.
    owner: str = attrs.field(
        default=attrs.Factory(lambda self: self.credential_id, takes_self=True)
    )

    @property
    def who(self) -> str:
        """Return the owner as part of a sentence: ``user alice``."""
        kind, _, name = self.owner.partition(":")
        return f"{_KINDS.get(kind, kind)} {name}"


class AuditLevel(Enum):
    """Which events the operator wants in the audit log."""

    NONE = "none"
    #: Requests that change something or run a command, and refused requests.
    CHANGES = "changes"
    ALL = "all"


@attrs.frozen
class AuditEvent:
    """
    An entry of the audit log.

    :ivar action: a name that the module chooses, such as ``kubernetes.request``.
    :ivar access: the credential and its agent; None: kas accepted no credential.
    :ivar outcome: a status code, or a word.
    :ivar details: further fields for programs; never a secret.
    :ivar stranger: kas refused a client whose credential it did not accept.  Anyone can
        cause such events, so the audit log limits their number and size.
    """

    action: str
    access: Access | None = None
    outcome: str = ""
    details: Mapping[str, str | int | bool] = attrs.field(factory=dict)
    stranger: bool = False


@attrs.frozen
class AgentIdentity:
    """An accepted token of an agent: which agent it is."""

    agent_id: str
    agent_name: str
    #: Stable, safe to log, never the token itself: ``agent:<agent id>:<token id>``.
    credential_id: str
    #: The project that the agent belongs to; 0: none.
    project_id: int = 0


class HasPeer(Protocol):
    """A connection, as far as it has another end."""

    @property
    def peer_address(self) -> IAddress:
        """Of the other end."""


class IAuthenticator(Interface):
    """
    Checker of some kinds of credentials.

    It returns a known result at once, so that a request waits for nothing, and
    otherwise a Deferred, for which the request waits.  If the client leaves, kas
    cancels the Deferred, which must release its resources.  kas also cancels a Deferred
    that takes too long, and limits the number of checks and of refusals for each
    address.  kas may cancel a Deferred as soon as it is returned: send the query in the
    next turn of the reactor, so that such a check costs the queried server nothing.

    A refusal is a `tunnel.errors.CallError` with status UNAUTHENTICATED,
    PERMISSION_DENIED or NOT_FOUND, whose message the client sees.  Status UNAVAILABLE
    means that the credential cannot be checked now.
    """

    user_kinds: Sequence[str] = Attribute(
        "The kinds of users' credentials: the first part of <kind>:<agent>:<token>."
    )
    agent_prefixes: Sequence[bytes] = Attribute("Prefixes of agents' tokens.")

    def authenticate_agent(token: bytes) -> AgentIdentity | Deferred[AgentIdentity]:
        """Which agent a token belongs to."""

    def authorize_user(agent: str, token: str) -> Access | Deferred[Access]:
        """
        Return the rights of a token at an agent.

        :param agent: its id or name.
        """


@attrs.frozen
class KubernetesVersion:
    """Version of the API server next to an agent; empty where unknown."""

    major: str = ""
    minor: str = ""
    git_version: str = ""
    platform: str = ""


@attrs.frozen
class ConnectedAgent:
    """One connection of an agent, as a kas sees it."""

    agent_id: str
    agent_name: str
    instance_id: bytes
    generation: int
    #: Unix time in seconds.
    connected_at: float
    version: str = ""
    commit_id: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    kubernetes_version: KubernetesVersion = KubernetesVersion()
    #: The project that the agent belongs to; 0: none.
    project_id: int = 0
    services: frozenset[str] = frozenset()
    #: Why the agent cannot reach its cluster, as text for users; empty: it can.
    cluster_problem: str = ""
    #: Of its machine; known to the kas that it is connected to, as is *telemetry*: how
    #: it was installed, by GitLab's names.
    architecture: str = ""
    telemetry: tuple[tuple[str, str], ...] = ()


class IStream(Interface):
    """
    Our end of one stream: bytes and header blocks, in order, in both directions.

    It also provides Twisted's `IConsumer` (writing) and `IPushProducer` (reading), so
    back-pressure works as everywhere in Twisted: a registered streaming producer is
    paused while what we write cannot leave, and `pauseProducing` stops the peer once
    its credit is used up.
    """

    agent: ConnectedAgent | None = Attribute(
        "In kas: the `ConnectedAgent` at the other end, by its credential, or None "
        "while it is not connected.  In agentk: None."
    )

    def send_headers(block: bytes, fin: bool = False) -> None:
        """Send one header block (at most 64 KiB); with *fin*, nothing follows."""

    def write(data: bytes) -> None:
        """Send bytes.  Never blocks; register a producer for back-pressure."""

    def finish() -> None:
        """No more from this side (half-close).  Repeating it does nothing."""

    def reset(code: int = 5, message: str = "") -> None:
        """Abort both directions.  *code* is an `tunnel.errors.ErrorCode`."""

    def pauseProducing() -> None:
        """Stop calling the receiver; the peer may still use up its credit."""

    def resumeProducing() -> None:
        """Go on; what came meanwhile is delivered first."""

    def registerProducer(
        producer: IPushProducer | IPullProducer, streaming: bool
    ) -> None:
        """See `twisted.internet.interfaces.IConsumer`."""

    def unregisterProducer() -> None:
        """See `twisted.internet.interfaces.IConsumer`."""


class IWaitingStream(IStream):
    """A stream to an agent that may not be connected yet."""

    def absence() -> AgentUnavailable | None:
        """Why it waits for its agent; None: it does not."""


class IStreamReceiver(Interface):
    """
    Receiver of the events of a stream, for the owner of our end.

    An exception from any method resets this one stream with INTERNAL, is logged, and
    does not affect other streams.  Return values are ignored.
    """

    def headers_received(block: bytes) -> object:
        """One header block."""

    def data_received(data: bytes) -> object:
        """Bytes.  Returning means that they are consumed and credit goes back."""

    def fin_received() -> object:
        """Note that the peer sends no more; we still may."""

    def stream_closed(reason: Exception | None) -> object:
        """
        Handle the end of the stream; called exactly once, and nothing after it.

        :param reason: None when both sides finished, else a TunnelError.
        """


class IPathReceiver(IStreamReceiver):
    """A receiver that also follows the path of its stream."""

    def path_in_doubt() -> object:
        """Note that the other end did not answer a ping; it may still be there."""

    def path_missing() -> object:
        """
        Note that the agent's connection was closed, and that the agent has not come
        back within some seconds.  Only resumable streams call this.

        The agent may still come back.  A caller that can start again without a loss,
        such as a watch, should end the stream now.
        """


@attrs.frozen
class StreamOptions:
    """
    Options of a raw stream; create one instance for each kind of stream, and keep it.

    :ivar fin: nothing follows the metadata.
    :ivar timeout: seconds after which the stream is reset; 0: no timeout.
    :ivar idempotent: repeating the request is harmless: if the path breaks before the
        first response, kas sends the request again.  kas always repeats a request that
        the agent *refused*, because the agent did not process it.
    :ivar resumable: if the path breaks, both ends keep the stream and continue it on
        another path.  For long streams: it needs memory, and accepts push producers
        only.
    """

    fin: bool = False
    timeout: float = 0
    idempotent: bool = False
    resumable: bool = False


DEFAULT_OPTIONS = StreamOptions()


class IOpening(Interface):
    """How a raw stream was opened by the other side."""

    method: str = Attribute("``/package.Service/Method``.")
    metadata: bytes = Attribute("The first header block.")
    timeout_ms: int = Attribute("Milliseconds until it is reset; 0: no limit.")


class IClientCall(Interface):
    """One call under way: send requests, read responses, or give up."""

    metadata: Mapping[str, str] = Attribute("Of the answer, once it came.")

    def send(request: Message) -> Awaitable[None]:
        """Send one request, once there is room; :raises CallError: it is over."""

    def finish() -> None:
        """No more requests."""

    def response() -> Awaitable[Any]:
        """Return the response of a call that has exactly one."""

    def __aiter__() -> AsyncIterator[Any]:
        """Iterate over the responses."""

    def cancel() -> None:
        """Give up; does nothing once the call is over."""


class IServiceClient(Interface):
    """
    Calls the methods of one service.

    Responses are messages of the method's type.  Every way to fail is a
    `tunnel.errors.CallError`.
    """

    def call(
        method: str,
        request: Message,
        *,
        timeout: float = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> Awaitable[Any]:
        """
        One request, one response.

        :param timeout: seconds until DEADLINE_EXCEEDED; 0: as long as it takes.
        """

    def stream(
        method: str,
        request: Message,
        *,
        timeout: float = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Any, None]:
        """One request, the responses one by one; leaving the loop cancels the call."""

    def open(
        method: str,
        *,
        timeout: float = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> IClientCall:
        """Begin a call whose requests and responses are streams."""


@attrs.frozen
class StoredValue:
    """
    Value at a key of an `IStore`.

    :ivar version: differs after each change, and has no other meaning.
    """

    value: bytes = attrs.field(repr=lambda value: f"{len(value)} bytes")
    version: int


class StoreEventType(Enum):
    """Kinds of a `StoreEvent`."""

    #: Start of the changes: changes before it may be missing.
    RESET = "RESET"
    SET = "SET"
    #: Deleted, or expired.
    DELETED = "DELETED"


@attrs.frozen
class StoreEvent:
    """
    One event of a watch: that a key changed.  Read it for its value of now.

    :ivar key: empty for RESET.
    :ivar version: of the change; 0 for RESET.
    """

    type: StoreEventType
    key: str = ""
    version: int = 0


class ISharedCount(Interface):
    """Amounts that the workers of one kas have in progress together, by key."""

    elsewhere: Counter[str] = Attribute(
        """How much other workers have under way, but for a small step of each."""
    )

    def here(key: str, amount: int) -> None:
        """
        Set the amount that is in progress at this worker.

        Cheap: kas informs the other workers only when the amount crosses a step.
        """


class IStore(Interface):
    """
    Small durable values by key, in a namespace of one module.

    All kas that share Redis see the same values.  A key is text of 1 to 256 bytes in
    UTF-8 without control characters, a value at most 64 KiB; a namespace has at most
    10,000 keys and 16 MiB.

    Every failure is a `tunnel.errors.CallError`: INVALID_ARGUMENT for invalid keys and
    values; RESOURCE_EXHAUSTED for an exceeded limit; UNAVAILABLE while the store cannot
    be reached; DATA_LOSS when the file of the store is damaged.  After UNAVAILABLE a
    change may have happened or not.  An operation that was begun completes, even if its
    Deferred is cancelled.
    """

    def get(key: str) -> Awaitable[StoredValue | None]:
        """Return the value at *key*; None: it does not exist, or has expired."""

    def set(
        key: str,
        value: bytes,
        *,
        version: int | None = None,
        expires_after: float | None = None,
    ) -> Awaitable[int]:
        """
        Put *value* at *key*, and return its version.

        :param version: only if the key has this version (compare-and-set); 0: only if
            the key does not exist (create); None: always.
        :param expires_after: seconds until the key expires, at most ten years; None:
            never.
        :raises CallError: ABORTED, the key has another version: get it, and decide
            again.
        """

    def delete(key: str, *, version: int | None = None) -> Awaitable[bool]:
        """
        Delete *key*, and return whether it existed.

        :param version: only if the key has this version.
        :raises CallError: ABORTED, it has another version.
        """

    def keys(prefix: str = "", *, limit: int = 500) -> AsyncGenerator[list[str], None]:
        """
        Keys that begin with *prefix*, sorted, page by page.

        Of keys that change meanwhile a page may have the old state or the new one.

        :param limit: keys of one page, at most 1000.
        """

    def watch(prefix: str = "") -> AsyncGenerator[StoreEvent, None]:
        """
        Iterate over changes of keys that begin with *prefix*.

        The first event is RESET.  RESET comes again whenever changes may be missing:
        Redis was away or lost its contents, or 1000 events waited for the reader.  So
        one loop suffices: on RESET read all keys, on SET and DELETED read the key.  Own
        changes are events as well.  The iteration ends when the module stops; to end it
        earlier, close it (`contextlib.aclosing`) or cancel its reader.

        :raises CallError: RESOURCE_EXHAUSTED, the namespace has 100 watches.
        """


@attrs.frozen(kw_only=True)
class GitAddress:
    """
    Where a Git repository is: in a folder of this machine, or at a Git server.

    :ivar path: the folder, bare or with a working tree, which is not looked at.
    :ivar url: ``https://...`` or ``http://...``, without user name and password.
    :ivar credentials_file: one line, ``user:password``, for the server.
    :ivar ca_certificate_file: PEM certificates that sign the server's, in place of the
        system's.
    """

    path: Path | None = None
    url: str = ""
    credentials_file: Path | None = None
    ca_certificate_file: Path | None = None


@attrs.frozen(kw_only=True)
class GitalyAddress:
    """
    A repository of GitLab, and the Gitaly that has it: as GitLab says it.

    :ivar address: ``tcp://host:port``, ``tls://host:port`` or ``unix:/path``.
    :ivar features: names and values of metadata that each call has.
    """

    address: str
    token: str = attrs.field(default="", repr=False)
    features: tuple[tuple[str, str], ...] = ()
    storage_name: str = ""
    relative_path: str = ""
    git_object_directory: str = ""
    git_alternate_object_directories: tuple[str, ...] = ()
    gl_repository: str = ""
    gl_project_path: str = ""


@attrs.frozen(kw_only=True)
class AgentProject:
    """The project of GitLab that an agent is registered in."""

    #: Empty where GitLab does not say it.
    full_path: str
    default_branch: str
    repository: GitalyAddress


class TreeEntryKind(Enum):
    """Kinds of entries of a tree."""

    FILE = "file"
    FOLDER = "folder"
    #: A symbolic link: a repository follows none by itself.
    LINK = "link"
    SUBMODULE = "submodule"


@attrs.frozen
class TreeEntry:
    """
    One path of a tree.

    :ivar path: from the root of the tree, with ``/``.
    :ivar object_id: two files of one id have the same content.
    """

    path: str
    kind: TreeEntryKind
    object_id: str


class IRepository(Interface):
    """
    One Git repository, read without a working tree: nothing in it ever runs.

    All errors are a `tunnel.errors.CallError`: INVALID_ARGUMENT, for impossible refs,
    paths and ids; NOT_FOUND, the ref or path does not exist; OUT_OF_RANGE, the commit
    is not available any more: resolve again; FAILED_PRECONDITION, the path is not a
    file; RESOURCE_EXHAUSTED, a limit was exceeded; PERMISSION_DENIED, the Git server
    refuses kas; UNAVAILABLE, the Git server is unreachable; DEADLINE_EXCEEDED, a
    timeout.

    A commit from `resolve` can be read until many other commits have been resolved.
    """

    def resolve(ref: str = "HEAD") -> Awaitable[str]:
        """
        Return the current commit of *ref* at the repository's server.

        Callers that wait for the same ref share one fetch, which begins after the call.

        :param ref: a branch, a full name (``refs/tags/v1``), ``HEAD`` (the default
            branch), or the id of a commit; if it exists, it can be read from then on.
        """

    def default_branch() -> Awaitable[str]:
        """
        Return the whole name of the default branch (``refs/heads/main``).

        ``HEAD`` if the repository does not say which branch that is.
        """

    def tree(
        commit: str,
        path: str = "",
        *,
        recursive: bool = False,
        most: int | None = None,
    ) -> Awaitable[list[TreeEntry]]:
        """
        List the folder *path* of a commit, in Git's order.

        :param recursive: list all files, links and submodules below it, but no folders.
        :param most: entries that the caller can use: of a larger folder, only the first
            *most* + 1 are read and returned.
        """

    def read(commit: str, path: str, *, limit: int) -> Awaitable[bytes]:
        """
        Return the content of the file *path* of a commit.

        :param limit: bytes; a larger file is RESOURCE_EXHAUSTED, and not read.
        """

    def read_files(
        commit: str, files: Sequence[TreeEntry], *, limit: int, total: int
    ) -> Awaitable[list[bytes]]:
        """
        Return the contents of *files*, in their order.

        :param files: entries that `tree` returned for *commit*.
        :param limit: bytes of one file.
        :param total: bytes of all of them; neither is read beyond its limit.
        """

    def link(commit: str, path: str) -> Awaitable[str]:
        """
        Return the target of the symbolic link *path* of a commit, as written.

        This method does not follow it; a caller that does must check that it stays
        inside.
        """

    def changed(old: str, new: str, path: str = "") -> Awaitable[list[str]]:
        """
        Paths of the files below *path* that differ between two commits.

        :raises CallError: OUT_OF_RANGE, one of the two is not here any more: take
            everything for changed.
        """

    def contains(ref: str, commit: str) -> Awaitable[bool]:
        """
        Tell whether *commit* is in the history of *ref* now.

        A commit that the repository does not have is in no history.

        :param ref: as for `resolve`.
        :param commit: the whole id.
        """


class IRepositories(Interface):
    """Git repositories, which all modules share: each is fetched once for all."""

    def open(address: GitAddress | GitalyAddress) -> IRepository:
        """
        Return the repository at *address*; equal addresses return the same object, and
        no request is sent yet.
        """


#: See `IServerModuleApi.configuration_told`.
ConfigurationTold = Callable[
    [ConnectedAgent, GitAddress | GitalyAddress, str], Awaitable[bool]
]


class SpanKind(Enum):
    """Kind of a span, as in OpenTelemetry."""

    #: A request of another, answered here.
    SERVER = "server"
    #: A request to another.
    CLIENT = "client"
    INTERNAL = "internal"


class ISpan(Interface):
    """A span of OpenTelemetry: the work done here for one request."""

    traceparent: str = Attribute(
        "Value of the header ``traceparent`` for requests on its behalf."
    )

    def set(name: str, value: str | int | float | bool) -> None:
        """Say something of it, by OpenTelemetry's name for that; never a secret."""

    def rename(name: str) -> None:
        """Give the span another name."""

    def end(problem: str = "") -> None:
        """
        End the span; repeating it does nothing.

        :param problem: why it failed.
        """


class ITracer(Interface):
    """Makes spans."""

    def begin(
        name: str,
        kind: SpanKind,
        parent: str | None = None,
    ) -> ISpan | None:
        """
        Begin a span now; None: the request is not traced.

        :param name: one of few different names: the method of a call, not its path.
        :param parent: the caller's ``traceparent``; an invalid one is ignored.
        """


class _IModule(Interface):
    name: str = Attribute("The name under which the module is configured.")

    def start() -> Awaitable[None]:
        """Begin.  Handlers were registered while the module was made; raise to fail."""

    def stop() -> Awaitable[None]:
        """Let go of everything `start` took."""


class IServerModule(_IModule):
    """The half of a feature that runs in kas."""


class IAgentModule(_IModule):
    """The half of a feature that runs in agentk."""


class IServerModuleFactory(Interface):
    """Makes the server half; usually the module's class itself."""

    configuration: type[Any] = Attribute(
        "An attrs class: the keys of the module's section (see `tunnel.config`)."
    )

    def __call__(api: IServerModuleApi) -> IServerModule:
        """Make the module.  Called once per start; must not wait for anything."""


class IAgentModuleFactory(Interface):
    """Makes the agent half; usually the module's class itself."""

    configuration: type[Any] = Attribute("As in `IServerModuleFactory`.")

    def __call__(api: IAgentModuleApi) -> IAgentModule:
        """Make the module.  Called once per start; must not wait for anything."""


class _IModuleApi(Interface):
    name: str = Attribute("The module's name.")
    configuration: Any = Attribute(
        "Its section, an instance of the class that the factory names."
    )
    clock: IReactorTime = Attribute("The only source of time.")
    reactor: IReactorCore = Attribute("For endpoints that the module dials itself.")
    metrics: CollectorRegistry = Attribute("Where its collectors go.")
    tracer: ITracer | None = Attribute("Makes spans for OpenTelemetry; None: no one.")
    write: Callable[[ITransport, bytes], None] = Attribute(
        "``write(transport, data)``: as ``transport.write``, but sent at once where "
        "possible; for a protocol that writes once per turn."
    )

    def handle(service: ServiceDescriptor, implementation: object) -> None:
        """
        Answer calls of the other side.

        :param implementation: has one method per method of the service, in snake_case.
            Unary: ``async def f(request, call) -> response``.  Streams are async
            iterators: ``requests`` in place of ``request``, ``yield`` to answer.
        """

    def handle_stream(
        method: str, accept: Callable[[IStream, IOpening], IStreamReceiver]
    ) -> None:
        """
        Answer raw streams of the other side that name *method*.

        :param accept: gets the stream and how it was opened, returns the receiver.
        """

    def publish(topic: str, event: Any) -> None:
        """Tell every subscriber in this process; none of them may wait."""

    def fail(reason: Exception) -> None:
        """
        Report that the module cannot go on: kas or agentk stops it alone, and starts it
        again with backoff.
        """


class IServerModuleApi(_IModuleApi):
    """API of a server half in kas."""

    count_usage: Callable[[Usage], None] | None = Attribute(
        "Counts a use, for reports to GitLab; None: there are none."
    )

    page_origins: Collection[str] = Attribute(
        "Origins of pages that may send requests from a user's browser: GitLab's."
    )

    audit_level: AuditLevel = Attribute("Which events `audit` is called with.")

    repositories: IRepositories = Attribute("Git repositories.")

    def agent_project(agent_id: str) -> AgentProject | None:
        """Return GitLab's last information on an agent's project; None without any."""

    def register_configuration(agent_id: str, configuration: Mapping[str, Any]) -> None:
        """Tell GitLab, where it has the agent, how the agent is configured."""

    def tells_configurations(told: ConfigurationTold) -> None:
        """
        Say that this module tells agents their configuration, until it stops.

        :param told: what `configuration_told` asks.
        """

    def configuration_told(
        agent: ConnectedAgent, address: GitAddress | GitalyAddress, commit: str
    ) -> Awaitable[bool]:
        """
        Wait until an agentk has its configuration at *commit* of a repository.

        A sender of other content from this commit waits, so that both take effect
        together.

        :return: False: its file is in this repository, on a branch at another commit;
            True: agentk has the configuration, or its file is not in this repository.
        :raises CallError: the configuration cannot be sent now.
        """

    def show_problem(agent_id: str, agent_name: str, problem: str) -> None:
        """Have ``kasctl status`` show what is wrong with an agent; empty: nothing."""

    def audit(event: AuditEvent) -> None:
        """Write one event to the audit log; never waits."""

    def handle_external(service: ServiceDescriptor, implementation: object) -> None:
        """
        Answer calls of GitLab and others, who come to the external API with a token.

        As `handle`, and the same object may be given to both; here ``call.agent`` is
        None.  Where the external API is not configured, no client can call.
        """

    def client(
        service: ServiceDescriptor, agent_id: str, access: Access | None = None
    ) -> IServiceClient:
        """
        Return a client of *service* at an agent.

        :param access: the caller: the result of `authorize` for this agent.  The agent
            half gets it as ``call.access``, and passes it to
            `IAgentModuleApi.kubernetes_for`.
        :raises ValueError: *access* is for another agent.
        """

    def open_stream(
        agent_id: str,
        method: str,
        receiver: IStreamReceiver,
        metadata: bytes = b"",
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> IStream:
        """
        Open a raw stream to an agent at any kas.

        It returns at once.  While no instance of the agent is connected, the stream
        waits, up to the routing timeout; then the receiver's `stream_closed` gets an
        `tunnel.errors.AgentUnavailable`.

        :param receiver: an `IPathReceiver` is notified of the path, too.
        :param metadata: the first header block, at most 64 KiB.
        """

    def connected_agents() -> list[ConnectedAgent]:
        """Every connection that this kas holds now."""

    def agents(
        agent_id: str = "", project_id: int = 0
    ) -> Awaitable[list[ConnectedAgent]]:
        """
        Return the connections of an agent, of a project's agents, or all, at any kas.

        :raises CallError: UNAVAILABLE, no kas can know.
        """

    def authorize(
        kind: str, agent: str, token: str, peer: HasPeer | None = None
    ) -> Access | Deferred[Access]:
        """
        Check a credential of a user.

        It returns a known result at once, and otherwise a Deferred, which the caller
        should cancel when the client leaves.  ``await maybeDeferred(api.authorize, …)``
        handles both.

        :param kind: which authenticator checks it: ``user`` for the identity file;
            empty if the client named none.
        :param agent: id or name of the requested agent.
        :param peer: the client's connection: kas limits the refused credentials of its
            address, and further ones get RESOURCE_EXHAUSTED.
        :raises tunnel.errors.CallError: UNAUTHENTICATED or PERMISSION_DENIED, whose
            message may be shown, or UNAVAILABLE; at once, or as the failure of the
            Deferred.
        """

    def holds_credentials(look: Callable[[], Collection[str]]) -> None:
        """
        Say which credentials hold something open, until the module stops.

        kas asks again whether they are still good, and publishes
        ``credential.revoked`` where one is not.

        :param look: the ids of now (`Access.credential_id`).
        """

    def add_authenticator(authenticator: IAuthenticator) -> None:
        """
        Check credentials of further kinds with it, until the module stops.

        :raises ValueError: one of its kinds is checked already.
        """

    def subscribe(topic: str, callback: Callable[[Any], None]) -> Callable[[], None]:
        """
        Call *callback* for each published event; call the result to unsubscribe.

        kas itself publishes ``agent.connected``, ``agent.disconnected``,
        ``agent.changed`` when an agent reports new data about itself (all with a
        `ConnectedAgent`), ``credential.revoked`` (a credential id), ``git.pushed`` (the
        full path of a project, or the name of a repository), ``agent.moved`` (the id of
        an agent whose `agent_project` has changed), and ``kas.draining`` when kas
        stops: finish running work, begin nothing.
        """

    def listen(
        endpoint: Listen | str, factory: IProtocolFactory, path: str = ""
    ) -> Deferred[IListeningPort]:
        """
        Listen until the module stops.

        :param endpoint: a section, or a Twisted endpoint string.
        :param path: what precedes every path there; `kasctl` tells clients of it.
        """

    def count_together(limit: str, most: int) -> ISharedCount | None:
        """
        Count with the other workers of this kas what a limit allows *most* of.

        :param limit: names it within this module.
        :return: None: this process is the whole kas.
        """

    def store(namespace: str) -> IStore:
        """
        Small durable values of this module, which no other module reaches.

        They are in a file of kas' state directory, or in Redis where that is
        configured, and outlive the module.  Cheap; the same namespace gives the same
        store.

        :param namespace: at most 63 of ``a-z 0-9 - _``; a module has at most 32.
        :raises ValueError: it cannot be a namespace, or is one too many.
        """

    def http_agent(
        setting: str, ca_certificate_file: Path | None = None, *, connections: int = 2
    ) -> IAgent:
        """
        Return an HTTP client for another server; it follows no redirect.

        It keeps connections, and uses the proxy in the environment of kas.

        :param setting: the key in the configuration, for the log.
        :param ca_certificate_file: PEM certificates of CAs to trust in addition to the
            system's.  Read again after a change.
        :param connections: maximum number of kept connections.
        :raises tunnel.errors.ConfigurationError: the file or the proxy cannot be used.
        """

    def web(prefix: str, resource: IResource) -> None:
        """
        Serve *resource* below *prefix* on kas' listener for pages and webhooks.

        Until the module stops.  Where ``web`` is not configured, no client can ask.
        kas checks no credential there: the resource does, with `authorize` or its own.

        :param prefix: ``/name`` or deeper, without a slash at its end.
        :raises ValueError: it cannot be one, or a module has it, or one above or below
            it, already.
        """


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


class IGitLabResponse(Interface):
    """
    Response of GitLab, whose body is read part by part, while GitLab waits.

    ``async for part in response`` yields all of it; close a response that you do not
    read to its end.  Reading fails with a `tunnel.errors.CallError`.
    """

    status: int = Attribute("Of the answer; redirects (3xx) are not followed.")
    headers: Mapping[str, tuple[str, ...]] = Attribute(
        "By name in lower case, without cookies and connection fields."
    )

    def __aiter__() -> AsyncIterator[bytes]:
        """Iterate over the parts of the body."""

    def read(limit: int = 1024 * 1024) -> Awaitable[bytes]:
        """
        Return the rest of the body.

        :raises CallError: RESOURCE_EXHAUSTED, it has more than *limit* bytes.
        """

    def close() -> None:
        """Read no more; does nothing after the end."""


class IGitLab(Interface):
    """GitLab, asked through kas: what it has for this module, and nothing else."""

    def request(
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterable[bytes] = b"",
        timeout: float = 60.0,
    ) -> Awaitable[IGitLabResponse]:
        """
        Send a request to ``/api/v4/internal/kubernetes/modules/<module>`` and *path*.

        It returns a response of any status.  kas adds its signature and the agent's
        token; it does not forward credentials, cookies and upgrades in *headers*.

        :param path: empty, or beginning with ``/``; percent-encoded, without a query.
        :param body: bytes have a known length for GitLab.
        :param timeout: seconds until DEADLINE_EXCEEDED, at most an hour, including the
            response's body.
        :raises CallError: GitLab did not respond, and the message names the place:
            FAILED_PRECONDITION, kas has no ``gitlab`` in its configuration;
            UNAVAILABLE, kas cannot reach GitLab, or agentk cannot reach kas;
            RESOURCE_EXHAUSTED, too many requests of this agent; INVALID_ARGUMENT, the
            request is invalid; DEADLINE_EXCEEDED.
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


class IAgentModuleApi(_IModuleApi):
    """API of an agent half in agentk."""

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

    def kubernetes_for(access: Access | None) -> IKubernetesClient:
        """
        Return a client with the rights of a caller: ``kubernetes_for(call.access)``.

        Requests run as the user that *access* names (``Impersonate-*``).  If the access
        is read-only, requests that change something are refused.  Cheap; create one for
        each call.

        :raises CallError: PERMISSION_DENIED, *access* is None.
        """

    def kubernetes_as_service_account(namespace: str, name: str) -> IKubernetesClient:
        """
        Return a client with the rights of a ServiceAccount that agentk may impersonate.

        For an operator's configuration, never for requests of a user.
        """

    def kubernetes_as_agentk() -> IKubernetesClient:
        """Return a client with all rights of agentk: never for requests of a user."""

    gitlab: IGitLab = Attribute(
        "GitLab's endpoints for this module, through kas: see `IGitLab`."
    )

    agent_id: str = Attribute("Ours, as kas said it; empty before that.")

    agent_name: str = Attribute("Likewise.")

    def follow_section(
        section: str, schema: type[Any], apply: Callable[[Any], None]
    ) -> None:
        """
        Call *apply* with a section of the agent's configuration in Git, until the
        module stops: now with the current section, and after each change of the
        section.

        A configuration takes effect as a whole or not at all: agentk first reads every
        module's section with its schema, and if one is invalid, no module gets any.
        *apply* must not fail.  agentk skips keys that an older schema does not have.

        :param section: its key in the file, such as ``gitops``.
        :param schema: an attrs class in which every attribute has a default; without
            the section, all defaults apply.
        """

    def apply_sections(texts: Mapping[str, str]) -> None:
        """
        Put a configuration into effect: the JSON text of each section that there is.

        :raises ConfigurationError: a module refuses its section; nothing has changed.
        """

    def handle_as_leader(service: ServiceDescriptor, implementation: object) -> None:
        """
        As `handle`, where only the agentk that leads can answer.

        Another refuses the call, and kas tries the next one; for as long as none leads
        the call waits, up to the routing time limit.
        """

    leads: bool = Attribute(
        "Whether this agentk leads now, of all that connect as this agent.  Look again "
        "before each change that two must not make: a process may have been frozen."
    )

    lease: str = Attribute(
        "``namespace/name`` of the Lease that says which agentk leads: those with "
        "another one do not know of this.  Empty: it is not known yet which agent this "
        "is."
    )

    def lead(run: Callable[[], Awaitable[None]]) -> None:
        """
        Run *run* whenever this agentk leads, until the module stops.

        It is cancelled when another agentk may lead, which waits for it: let it end
        soon then.  Where it fails, it is run again with growing pauses.
        """

    def client(service: ServiceDescriptor) -> IServiceClient:
        """Return a client of *service* at kas."""

    def subscribe(topic: str, callback: Callable[[Any], None]) -> Callable[[], None]:
        """
        Call *callback* for each event: ``tunnel.connected``, ``tunnel.disconnected``,
        and ``agentk.draining`` when agentk stops: finish running work.  The module
        ``kubernetes_api`` publishes ``kubernetes.written`` (`KubernetesWrite`), and
        ``agent_configuration`` ``configuration.refused``: the reasons why the file in
        Git is not in effect, one text each; empty: it is.

        Call the result to unsubscribe.
        """
