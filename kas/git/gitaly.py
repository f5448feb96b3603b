"""Repositories of GitLab, read through Gitaly's gRPC services."""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import attrs
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import (
    IDelayedCall,
    IReactorTime,
    IStreamClientEndpoint,
)
from zope.interface import implementer

from kas.git.limits import GitLimits
from kas.git.names import MAX_NAME, check_commit, check_path, full_ref, is_commit
from kas.git.outcomes import Outcomes
from kas.git.pieces import in_pieces
from kas.git.ref_resolver import RefResolver
from kas.request_queue import RequestQueue
from tunnel.api import GitalyAddress, IRepository, TreeEntry, TreeEntryKind
from tunnel.errors import CallError, Status
from tunnel.gitaly import gitaly_pb2 as pb
from tunnel.grpc.client import GrpcChannel
from tunnel.transport.tls import client_context
from tunnel.transport.tlsio import TLSClientEndpoint

__all__ = ["GitalyRepository", "GitalyServers"]

_SERVICES = pb.DESCRIPTOR.services_by_name

#: Maximum number of Gitaly servers, each with one connection.  GitLab's largest
#: installations have hundreds.
MAX_SERVERS = 1000

#: Seconds until a connection without calls is closed: kas checks the
#: repositories of a server twice in this time.
IDLE = 600.0

#: Bits of a file's mode that contain the type of the entry, and their value for a
#: symbolic link.
_TYPE, _LINK = 0o170000, 0o120000

#: Pattern for the bytes before the name in a pkt-line: optionally a flush, then the
#: length, and an id of SHA-1 or SHA-256.
_OBJECT_ID = re.compile(rb"(?:^|\n)(?:0000)?[0-9a-f]{4}([0-9a-f]{40}|[0-9a-f]{64})\Z")

#: Pattern for the capability that names the branch of HEAD.
_SYMREF = re.compile(rb"[\0 ]symref=HEAD:(refs/heads/[^ \0\n]+)")

#: Gitaly's statuses for a path or a revision that does not exist: the status depends on
#: the call, on whether the call is recursive, and on Gitaly's version.
_MISSING = (Status.NOT_FOUND, Status.INVALID_ARGUMENT)

#: Gitaly's statuses for a commit that does not exist or no longer exists.
_GONE = (Status.NOT_FOUND, Status.FAILED_PRECONDITION, Status.INVALID_ARGUMENT)


@attrs.define(eq=False)
class _Server:
    """Gitaly server in use: the channel to it, and the queue and number of calls."""

    channel: GrpcChannel
    queue: RequestQueue
    calls: int = 0


class GitalyServers:
    """
    Table of the channels to all Gitaly servers that are in use or were used recently.

    :param now: returns the time of day, for tokens.
    """

    def __init__(
        self, reactor: Any, limits: GitLimits, now: Callable[[], float]
    ) -> None:
        self.limits = limits
        self.now = now
        self.clock: IReactorTime = reactor
        self._reactor = reactor
        self._queue = RequestQueue(
            limits.gitaly_rate, limits.gitaly_burst, reactor, "calls to Gitaly"
        )
        #: The outcomes of calls, by method.
        self.outcomes = Outcomes(reactor.seconds)
        self._servers: dict[str, _Server] = {}
        #: Timers that close idle connections, by server; the server with the oldest
        #: call is first.
        self._idle: dict[str, IDelayedCall] = {}

    def __len__(self) -> int:
        """Return the number of servers that have a channel."""
        return len(self._servers)

    @property
    def waiting(self) -> int:
        """Number of calls that wait for their turn."""
        of_servers = sum(one.queue.waiting for one in self._servers.values())
        return of_servers + self._queue.waiting

    @asynccontextmanager
    async def channel(self, address: str) -> AsyncIterator[GrpcChannel]:
        """
        Provide the channel to the Gitaly at *address* for one call, when it is this
        call's turn.

        :raises CallError: UNAVAILABLE if the address is invalid, or there are too many
            servers; RESOURCE_EXHAUSTED if too many calls wait.
        """
        server = self._servers.get(address) or self._add(address)
        server.calls += 1
        if (idle := self._idle.pop(address, None)) is not None:
            idle.cancel()
        try:
            # Wait in the queue of the server first, so that a slow server does not take
            # turns from other servers.
            await server.queue.passed()
            await self._queue.passed()
            yield server.channel
        finally:
            server.calls -= 1
            if not server.calls and self._servers.get(address) is server:
                self._idle[address] = self._reactor.callLater(IDLE, self._end, address)

    def close(self) -> None:
        """Cancel all calls."""
        for call in self._idle.values():
            call.cancel()
        self._idle.clear()
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.channel.close()

    def _add(self, address: str) -> _Server:
        endpoint, authority = self._endpoint(address)
        if len(self._servers) >= MAX_SERVERS:
            if not self._idle:
                text = f"kas already uses {MAX_SERVERS} Gitaly servers"
                raise CallError(Status.UNAVAILABLE, text)
            longest = next(iter(self._idle))
            self._idle[longest].cancel()
            self._end(longest)
        channel = GrpcChannel(endpoint, self._reactor, authority=authority)
        limits = self.limits
        queue = RequestQueue(
            limits.gitaly_server_rate,
            limits.gitaly_server_burst,
            self._reactor,
            f"calls to the Gitaly at {authority}",
        )
        server = self._servers[address] = _Server(channel, queue)
        return server

    def _end(self, address: str) -> None:
        del self._idle[address]
        self._servers.pop(address).channel.close()

    def _endpoint(self, address: str) -> tuple[IStreamClientEndpoint, str]:
        try:
            url = urlsplit(address)
            host, port = url.hostname, url.port
        except ValueError:
            url, host, port = urlsplit(""), None, None
        if url.scheme == "unix" and url.path:
            return UNIXClientEndpoint(self._reactor, url.path), "localhost"
        if url.scheme not in ("tcp", "tls") or not host or not port:
            text = f"{address[:200]!r} is not the address of a Gitaly server"
            raise CallError(Status.UNAVAILABLE, text)
        endpoint: IStreamClientEndpoint = HostnameEndpoint(self._reactor, host, port)
        if url.scheme == "tls":
            endpoint = TLSClientEndpoint(endpoint, _tls_context, host, self._reactor)
        return endpoint, f"{host}:{port}"


def _tls_context() -> ssl.SSLContext:
    return client_context(alpn=("h2",), minimum_version=ssl.TLSVersion.TLSv1_2)


@implementer(IRepository)
class GitalyRepository:
    """Repository of GitLab; each read is a call to Gitaly, without a cache."""

    def __init__(self, servers: GitalyServers, address: GitalyAddress) -> None:
        self._servers = servers
        self._address = address
        self._repository = pb.Repository(
            storage_name=address.storage_name,
            relative_path=address.relative_path,
            git_object_directory=address.git_object_directory,
            git_alternate_object_directories=address.git_alternate_object_directories,
            gl_repository=address.gl_repository,
            gl_project_path=address.gl_project_path,
        )
        self._resolver = RefResolver(self._find)
        #: Default branch in the last list of refs; empty before kas has received a
        #: list.
        self._default_branch = ""

    def resolve(self, ref: str = "HEAD") -> Deferred[str]:
        """See `IRepository.resolve`."""
        return self._resolver.get(full_ref(ref))

    async def default_branch(self) -> str:
        """See `IRepository.default_branch`."""
        if not self._default_branch:
            await self.resolve()
        return self._default_branch

    async def tree(
        self,
        commit: str,
        path: str = "",
        *,
        recursive: bool = False,
        most: int | None = None,
    ) -> list[TreeEntry]:
        """See `IRepository.tree`."""
        path, commit = check_path(path, empty=True), check_commit(commit)
        try:
            found = await self._tree(commit, path, recursive, most)
        except CallError as error:
            if error.status in _MISSING:
                raise await self._missing(commit, path) from None
            raise
        if path and not found:
            raise await self._missing(commit, path)
        return found

    async def _tree(
        self, commit: str, path: str, recursive: bool, most: int | None = None
    ) -> list[TreeEntry]:
        limits = self._servers.limits
        found: list[TreeEntry] = []
        request = pb.GetTreeEntriesRequest(
            repository=self._repository,
            revision=commit.encode(),
            path=path.encode() or b".",
            recursive=recursive,
        )
        size = folders = 0
        async for response in self._stream("CommitService", "GetTreeEntries", request):
            size += response.ByteSize()
            async for piece in in_pieces(self._servers.clock, response.entries):
                for entry in piece:
                    kind = _kind(entry.type, entry.mode)
                    if recursive and kind is TreeEntryKind.FOLDER:
                        folders += 1
                        continue
                    one = self._entry(entry, kind)
                    # Only a path with a trailing slash shows the content of a folder:
                    # for such a path, git lists a submodule as an entry.
                    if one.path != path:
                        found.append(one)
                if most is not None and len(found) > most:
                    return found[: most + 1]
            if (
                len(found) > limits.entries
                or folders > limits.folders
                or size > limits.listing
            ):
                text = (
                    f"there are more than {limits.entries} files, or "
                    f"{limits.folders} folders"
                )
                raise CallError(Status.RESOURCE_EXHAUSTED, text)
        return found

    async def _missing(self, commit: str, path: str) -> CallError:
        """
        Return the error that says whether the commit or only *path* does not exist.
        """
        try:
            await self._tree(commit, "", False, most=0)
        except CallError as error:
            if error.status not in _MISSING:
                return error
            text = f"the commit {commit[:12]} does not exist in the repository"
            return CallError(Status.OUT_OF_RANGE, text)
        return CallError(Status.NOT_FOUND, f"{path!r} does not exist in {commit[:12]}")

    async def read(self, commit: str, path: str, *, limit: int) -> bytes:
        """See `IRepository.read`."""
        return await self._content(commit, path, limit, is_link=False)

    async def read_files(
        self, commit: str, files: Sequence[TreeEntry], *, limit: int, total: int
    ) -> list[bytes]:
        """
        See `IRepository.read_files`.

        Each file needs one call, because Gitaly's `TreeEntry` reads a single path.
        """
        found: list[bytes] = []
        left = total
        for one in files:
            try:
                data = await self.read(commit, one.path, limit=min(limit, left))
            except CallError as error:
                if error.status is not Status.RESOURCE_EXHAUSTED:
                    raise
                text = (
                    f"{one.path} has more than {limit} bytes"
                    if left > limit
                    else f"all files together have more than {total} bytes"
                )
                raise CallError(error.status, text) from None
            left -= len(data)
            found.append(data)
        return found

    async def link(self, commit: str, path: str) -> str:
        """See `IRepository.link`."""
        found = await self._content(commit, path, MAX_NAME, is_link=True)
        return found.decode("utf-8", "replace")

    async def _content(
        self, commit: str, path: str, limit: int, *, is_link: bool
    ) -> bytes:
        path = check_path(path)
        limit = min(limit, self._servers.limits.blob)
        too_large = CallError(
            Status.RESOURCE_EXHAUSTED, f"{path!r} has more than {limit} bytes"
        )
        request = pb.TreeEntryRequest(
            repository=self._repository,
            revision=check_commit(commit).encode(),
            path=path.encode(),
            max_size=limit,
        )
        parts: list[bytes] = []
        size = 0
        first = True
        try:
            async for response in self._stream("CommitService", "TreeEntry", request):
                if first:
                    first = False
                    self._check_file(response, path, commit, is_link=is_link)
                size += len(response.data)
                # Gitaly may send more than the announced size.
                if max(size, response.size) > limit:
                    raise too_large
                parts.append(response.data)
        except CallError as error:
            if error.status is Status.FAILED_PRECONDITION and first:
                raise too_large from None
            if error.status in _MISSING:
                raise await self._missing(commit, path) from None
            raise
        if first:
            raise await self._missing(commit, path)
        return b"".join(parts)

    async def changed(self, old: str, new: str, path: str = "") -> list[str]:
        """See `IRepository.changed`."""
        path = check_path(path, empty=True)
        limits = self._servers.limits
        request = pb.CommitDeltaRequest(
            repository=self._repository,
            left_commit_id=check_commit(old),
            right_commit_id=check_commit(new),
            paths=[path.encode()] if path else [],
        )
        # A dict keeps Gitaly's order, which is nearly sorted, so that sorting is fast.
        found: dict[bytes, None] = {}
        try:
            async for response in self._stream("DiffService", "CommitDelta", request):
                async for piece in in_pieces(self._servers.clock, response.deltas):
                    for delta in piece:
                        found[delta.from_path] = found[delta.to_path] = None
                if len(found) > 2 * limits.entries:
                    text = f"more than {limits.entries} files differ"
                    raise CallError(Status.RESOURCE_EXHAUSTED, text)
        except CallError as error:
            if error.status not in _GONE:
                raise
            text = (
                f"the commit {old[:12]} or {new[:12]} does not exist in the repository"
            )
            raise CallError(Status.OUT_OF_RANGE, text) from None
        return sorted(name.decode("utf-8", "replace") for name in found if name)

    async def contains(self, ref: str, commit: str) -> bool:
        """See `IRepository.contains`."""
        request = pb.CommitIsAncestorRequest(
            repository=self._repository,
            ancestor_id=check_commit(commit),
            child_id=await self.resolve(ref),
        )
        try:
            async for response in self._stream(
                "CommitService", "CommitIsAncestor", request
            ):
                return bool(response.value)
        except CallError as error:
            # Gitaly also responds with INTERNAL if the repository lacks a commit.
            if error.status not in (*_GONE, Status.INTERNAL):
                raise
        return False

    async def _find(self, ref: str) -> str:
        """
        Return the commit of a ref, from the list of refs that Gitaly sends to every Git
        client.
        """
        if is_commit(ref):
            # Do not check that the commit exists: this is detected when the commit is
            # read.
            return ref
        request = pb.InfoRefsRequest(repository=self._repository)
        limit = self._servers.limits.listing
        data = bytearray()
        async for response in self._stream(
            "SmartHTTPService", "InfoRefsUploadPack", request
        ):
            data += response.data
            if len(data) > limit:
                text = f"the list of refs has more than {limit} bytes"
                raise CallError(Status.RESOURCE_EXHAUSTED, text)
        if not data.endswith(b"0000"):
            text = "cannot parse Gitaly's list of refs"
            raise CallError(Status.UNAVAILABLE, text)
        # Capabilities follow the first name.
        symref = _SYMREF.search(data)
        self._default_branch = (
            "HEAD" if symref is None else symref[1].decode("utf-8", "replace")
        )
        # For an annotated tag, a separate line contains its commit.
        name = ref.encode()
        found = _object_of(data, name + b"^{}") or _object_of(data, name)
        if found is None:
            what = "no commit on its default branch" if ref == "HEAD" else f"no {ref}"
            raise CallError(Status.NOT_FOUND, f"the repository has {what}")
        return check_commit(found.decode("ascii"))

    async def _stream(
        self, service: str, method: str, request: Message
    ) -> AsyncIterator[Any]:
        descriptor: ServiceDescriptor = _SERVICES[service]
        servers = self._servers
        async with servers.channel(self._address.address) as channel:
            with servers.outcomes.measure(method):
                calls = channel.client(descriptor).stream(
                    method,
                    request,
                    timeout=servers.limits.read_timeout,
                    metadata=self._metadata(),
                )
                async with aclosing(calls):
                    async for response in calls:
                        yield response

    def _metadata(self) -> dict[str, str]:
        """
        Return the metadata of a call, with a token that contains a signature of the
        time of day; see gitalyauth in Gitaly's sources.
        """
        metadata = dict(self._address.features)
        token = self._address.token
        if token:
            issued = str(int(self._servers.now()))
            mac = hmac.new(token.encode(), issued.encode(), hashlib.sha256).hexdigest()
            metadata["authorization"] = f"Bearer v2.{mac}.{issued}"
        return metadata

    def _check_file(
        self, response: Any, path: str, commit: str, *, is_link: bool
    ) -> None:
        if not response.oid:
            raise CallError(
                Status.NOT_FOUND, f"{path!r} does not exist in {commit[:12]}"
            )
        is_blob = response.type == pb.TreeEntryResponse.BLOB
        if not is_blob or _is_link(response.mode) is not is_link:
            what = "symbolic link" if is_link else "file"
            raise CallError(Status.FAILED_PRECONDITION, f"{path!r} is not a {what}")

    def _entry(self, entry: Any, kind: TreeEntryKind) -> TreeEntry:
        limit = self._servers.limits.depth
        if entry.path.count(b"/") >= limit:
            text = f"folders are nested deeper than {limit}"
            raise CallError(Status.RESOURCE_EXHAUSTED, text)
        return TreeEntry(entry.path.decode("utf-8", "replace"), kind, entry.oid)


def _is_link(mode: int) -> bool:
    return mode & _TYPE == _LINK


def _kind(kind: int, mode: int) -> TreeEntryKind:
    if kind == pb.TreeEntry.TREE:
        return TreeEntryKind.FOLDER
    if kind == pb.TreeEntry.COMMIT:
        return TreeEntryKind.SUBMODULE
    return TreeEntryKind.LINK if _is_link(mode) else TreeEntryKind.FILE


def _object_of(refs: bytearray, name: bytes) -> bytes | None:
    """
    Return the object of a ref in an advertisement of refs; None if the ref is missing.

    The text is not split into lines: for a project with many merge requests, it has
    hundreds of thousands of lines, and splitting it would block kas for seconds.
    """
    # In the first line, the capabilities follow the name, and some resemble refs.
    for end in (b"\n", b"\0"):
        at = refs.find(b" " + name + end)
        while at >= 0:
            found = _OBJECT_ID.search(refs, max(0, at - 73), at)
            if found is not None:
                return found[1]
            at = refs.find(b" " + name + end, at + 1)
    return None
