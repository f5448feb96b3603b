"""The files of one commit as kas sends them: all of them, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import attrs

from modules.gitops.wire import rpc_pb2
from modules.gitops.wire.fingerprint import Fingerprint
from modules.gitops.wire.settings import ManifestRef
from tunnel.errors import CallError, Status

__all__ = ["Location", "Snapshot", "followed_in", "receive", "ref_message"]

#: Maximum bytes of all files that agentk accepts, regardless of kas' configuration.
MAX_BYTES = 64 * 1024**2

#: Maximum characters of the name of a ref or the id of a repository.
MAX_NAME = 1000

#: Maximum number of files, and maximum bytes of a path, which is the limit of Linux.
MAX_FILES, MAX_PATH = 20_000, 4096


@attrs.frozen
class Location:
    """
    Ref of a repository, as kas resolved it.

    :ivar repository: the id of the repository, which does not depend on the
        repository's name; empty if unknown.
    :ivar ref: the full name of the ref, or the id of a commit; empty or ``HEAD`` if
        unknown.
    """

    repository: str = ""
    ref: str = ""

    @classmethod
    def of(cls, header: rpc_pb2.ObjectsToSynchronizeResponse.Header) -> Location:
        """Return the location that kas names in a response."""
        return cls(header.repository[:MAX_NAME], header.ref[:MAX_NAME])

    def __str__(self) -> str:
        return f"{self.repository or '?'} {self.ref or 'HEAD'}"

    def may_be_in(self, other: Location) -> bool:
        """
        Return whether both may be in one repository.

        Addresses of different kinds (``url:``, ``gitaly:``) may belong to the same
        repository, so they do not prove a difference.
        """
        ours, theirs = self.repository, other.repository
        if not (ours and theirs):
            return True
        return ours == theirs or ours.partition(":")[0] != theirs.partition(":")[0]

    def may_be_ref(self, other: Location) -> bool:
        """Return whether both may have the same ref."""
        for one, another in ((self.ref, other.ref), (other.ref, self.ref)):
            if one == another or not one:
                return True
            if one == "HEAD" and another.startswith("refs/heads/"):
                return True
        return False


@attrs.frozen(eq=False)
class Snapshot:
    """
    All files of a source at a commit.

    :ivar project_id: the id of the project in GitLab; 0 if the repository is not a
        project of GitLab.
    :ivar project: the full path of the project, or the name of the repository.
    :ivar at: the ref and repository that kas read.
    :ivar files: paths from the root of the repository, and contents.
    """

    commit: str
    project_id: int
    project: str
    files: tuple[tuple[str, bytes], ...] = attrs.field(
        repr=lambda files: f"{len(files)} files"
    )
    at: Location = attrs.field(factory=Location)

    @classmethod
    def of(
        cls,
        header: rpc_pb2.ObjectsToSynchronizeResponse.Header,
        files: tuple[tuple[str, bytes], ...] = (),
    ) -> Snapshot:
        """Return the snapshot for a response of kas with *header*."""
        names = header.commit_id, header.project_id, header.project_path
        return cls(*names, files, Location.of(header))

    @property
    def followed(self) -> str:
        """
        Ref and paths that the source follows, as text for the inventory; `followed_in`
        parses this text.
        """
        return f"{self.at} {self.project}"


def followed_in(text: str) -> tuple[Location, str]:
    """Parse the value of `Snapshot.followed`: return the location and the project."""
    repository, _, rest = text.partition(" ")
    ref, _, project = rest.partition(" ")
    return Location(repository, ref), project


def ref_message(ref: ManifestRef | None) -> rpc_pb2.Ref:
    """Return the message for *ref*; None for the default branch."""
    said = {} if ref is None else attrs.asdict(ref)
    return rpc_pb2.Ref(**{key: one for key, one in said.items() if one is not None})


async def receive(
    responses: AsyncIterator[rpc_pb2.ObjectsToSynchronizeResponse],
    began: Callable[[str], None] = lambda commit: None,
    headed: Callable[[Snapshot], None] = lambda snapshot: None,
) -> Snapshot | None:
    """
    Receive one response and return its snapshot; None if the stream ended before the
    response began, so that the caller has to repeat the request.

    :param began: called with the commit of a response, before its files.
    :param headed: called with the snapshot of a response, before its files.
    :raises CallError: DATA_LOSS if the response is incomplete or differs from the files
        that kas read, so that it must not be used; RESOURCE_EXHAUSTED if the response
        is too large.
    """
    header: rpc_pb2.ObjectsToSynchronizeResponse.Header | None = None
    files: dict[str, list[bytes]] = {}
    parts: list[bytes] = []
    last, left = None, MAX_BYTES
    async for response in responses:
        kind = response.WhichOneof("message")
        if header is None:
            if kind != "header" or not response.header.commit_id:
                raise _damaged("the files do not begin with their commit")
            header = response.header
            headed(Snapshot.of(header))
            began(header.commit_id)
        elif kind == "object":
            part = response.object
            if part.source != last:
                if part.source in files or not _is_path(part.source):
                    raise _damaged(
                        f"the file {part.source[:200]!r} is out of order or has an "
                        "invalid path"
                    )
                last, parts = part.source, []
                files[last] = parts
            left -= len(part.data) + len(part.source)
            if left < 0 or len(files) > MAX_FILES:
                raise CallError(
                    Status.RESOURCE_EXHAUSTED,
                    f"the source has more than {MAX_BYTES} bytes or {MAX_FILES} files",
                )
            parts.append(part.data)
        elif kind == "trailer":
            return _checked(header, files, response.trailer)
        else:
            raise _damaged("an unexpected message is among the files")
    if header is None:
        return None
    raise _damaged("the response ended before all files had arrived")


def _checked(
    header: rpc_pb2.ObjectsToSynchronizeResponse.Header,
    files: dict[str, list[bytes]],
    trailer: rpc_pb2.ObjectsToSynchronizeResponse.Trailer,
) -> Snapshot:
    whole = tuple((path, b"".join(parts)) for path, parts in files.items())
    fingerprint = Fingerprint()
    for path, data in whole:
        fingerprint.add(path, data)
    if (trailer.files, trailer.sha256) != (fingerprint.files, fingerprint.digest()):
        raise _damaged("the files differ from those that kas read")
    return Snapshot.of(header, whole)


def _is_path(path: str) -> bool:
    """Return whether *path* stays inside a folder."""
    return (
        0 < len(path) <= MAX_PATH
        and "\0" not in path
        and not {"", ".", ".."} & set(path.split("/"))
    )


def _damaged(why: str) -> CallError:
    return CallError(Status.DATA_LOSS, f"the response of kas cannot be used: {why}")
