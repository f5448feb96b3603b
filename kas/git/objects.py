"""Reader of commits, trees and files in a folder with a repository."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs

from kas.git.names import MAX_NAME, check_commit, check_path, is_commit
from kas.git.pieces import in_pieces
from kas.git.program import Ended, GitProgram
from kas.git.ref_listing import RefListing
from tunnel.api import TreeEntry, TreeEntryKind
from tunnel.errors import CallError, Status

__all__ = ["LocalRef", "Objects"]

_KINDS = {
    b"100644": TreeEntryKind.FILE,
    b"100664": TreeEntryKind.FILE,
    b"100755": TreeEntryKind.FILE,
    b"040000": TreeEntryKind.FOLDER,
    b"120000": TreeEntryKind.LINK,
    b"160000": TreeEntryKind.SUBMODULE,
}

_WORDS = {
    TreeEntryKind.FILE: "a file",
    TreeEntryKind.FOLDER: "a folder",
    TreeEntryKind.LINK: "a symbolic link, not a file",
    TreeEntryKind.SUBMODULE: "a submodule, which is not followed",
}

_FOLDER = TreeEntryKind.FOLDER

#: Maximum bytes of the line before a file's content, which contains its id, kind and
#: size.
_HEAD = 128

#: Maximum bytes of a list of refs, which kas reads piece by piece: a repository may
#: have a hundred thousand refs below a name.
MAX_REFS = 64 * 1024 * 1024


@attrs.frozen
class LocalRef:
    """
    A ref.

    :ivar id: the object that it names, which may be a tag.
    :ivar is_commit: whether the object is a commit.
    :ivar tagged: the object that the tag names; empty if it is not a tag.
    """

    id: str
    is_commit: bool
    tagged: str


class _Enough(CallError):
    """Signal that ends a listing because the caller does not need the rest."""

    def __init__(self) -> None:
        super().__init__(Status.OK, "the rest is not needed")


class Objects:
    """
    Reader of the objects of the repository in *folder*.

    Reads send no request to another machine, and follow neither links nor submodules
    nor names in the repository's own configuration.

    :param partial: files of more than `GitLimits.fetched_blob` may be missing.
    """

    def __init__(
        self, program: GitProgram, folder: str, *, partial: bool = False
    ) -> None:
        self.folder = folder
        self._partial = partial
        self._program = program
        self._limits = program.limits

    async def find(self, ref: str) -> str:
        """
        Return the commit of *ref*, which is a full name, ``HEAD``, or the id of a
        commit.

        :raises CallError: NOT_FOUND if the ref does not exist.
        """
        name = ref
        if ref == "HEAD":
            # git would take a branch of this name for a HEAD without a commit.
            name = await self.default_branch()
        if name == "HEAD" or is_commit(name):
            return await self._commit(name)
        found = (await self.refs([name])).get(name)
        if found is None:
            text = f"the repository has no {_shown(ref)}"
            raise CallError(Status.NOT_FOUND, text)
        return await self.peeled(found)

    async def refs(self, names: Sequence[str]) -> dict[str, LocalRef]:
        """Return those refs of *names*, which are full names, that exist."""
        listing = RefListing(names, b" ", 3)
        ended = await self._program.run(
            self.folder,
            "for-each-ref",
            "--format=%(objectname) %(objecttype) %(*objectname) %(refname)",
            "--end-of-options",
            *names,
            most=MAX_REFS,
            enough=listing.read,
            keep=False,
        )
        if ended.code:
            raise self._failed(ended, "the refs cannot be read")
        return {
            name: LocalRef(id_, kind == "commit", tagged)
            for name, (id_, kind, tagged) in listing.found.items()
        }

    async def peeled(self, ref: LocalRef) -> str:
        """
        Return the commit of a ref.

        :raises CallError: NOT_FOUND if the ref does not lead to a commit.
        """
        return ref.id if ref.is_commit else await self._commit(ref.id)

    async def _commit(self, name: str) -> str:
        """
        Return the commit of an object.

        :param name: the id of the object; or ``HEAD``, which names an object itself.
        """
        ended = await self._program.run(
            self.folder,
            "rev-parse",
            "--verify",
            "--end-of-options",
            f"{name}^{{commit}}",
        )
        found = ended.out.decode("ascii", "replace").strip()
        if ended.code or not found:
            raise self._failed(ended, f"the repository has no {_shown(name)}")
        return check_commit(found)

    async def default_branch(self) -> str:
        """See `IRepository.default_branch`."""
        ended = await self._program.run(self.folder, "symbolic-ref", "-q", "HEAD")
        # HEAD may name a commit instead of a branch.
        return ended.out.decode("utf-8", "replace").strip() or "HEAD"

    async def contains(self, tip: str, commit: str) -> bool:
        """Return whether *commit* is *tip* or one of its ancestors."""
        ended = await self._program.run(
            self.folder,
            "merge-base",
            "--is-ancestor",
            check_commit(commit),
            check_commit(tip),
        )
        # Git fails with different codes if either commit is missing.
        return ended.code == 0

    async def tree(
        self, commit: str, path: str, recursive: bool, most: int | None
    ) -> list[TreeEntry]:
        """See `IRepository.tree`."""
        path = check_path(path, empty=True)
        where = (f"{path}/",) if path else ()
        # Only a path with a trailing slash shows the content of a folder: for such a
        # path, git lists a submodule as an entry.
        entries = await self._entries(commit, where, recursive, most, without=path)
        if path and not entries:
            # Report an error, as Gitaly does, because a link or a file is not an empty
            # folder.
            found = (await self._kinds(commit, path)).get(path)
            if found is None or found.kind is not _FOLDER:
                text = f"{commit[:12]} has no folder {path!r}"
                raise CallError(Status.NOT_FOUND, text)
        return entries

    async def read(self, commit: str, path: str, limit: int) -> bytes:
        """See `IRepository.read`."""
        return await self._content(commit, path, limit, TreeEntryKind.FILE)

    async def read_files(
        self, files: Sequence[TreeEntry], limit: int, total: int
    ) -> list[bytes]:
        """
        See `IRepository.read_files`.

        One git process reads all files by their object ids.
        """
        if not files:
            return []
        limit = min(limit, self._limits.blob)
        batch = _Batch([check_path(one.path) for one in files], limit, total)
        ended = await self._program.run(
            self.folder,
            "cat-file",
            "--batch",
            data="".join(f"{one.object_id}\n" for one in files).encode(),
            most=total + len(files) * _HEAD,
            enough=batch.check,
        )
        found, missing = batch.contents(ended.out)
        if ended.code and self._partial and missing:
            raise batch.too_large(missing)
        if ended.code or missing:
            name = missing or files[-1].path
            raise self._failed(ended, f"{name!r} is missing in the repository")
        return found

    async def link(self, commit: str, path: str) -> str:
        """See `IRepository.link`."""
        found = await self._content(commit, path, MAX_NAME, TreeEntryKind.LINK)
        return found.decode("utf-8", "replace")

    async def _content(
        self, commit: str, path: str, limit: int, kind: TreeEntryKind
    ) -> bytes:
        path = check_path(path)
        limit = min(limit, self._limits.blob)
        entry = (await self._kinds(commit, path)).get(path)
        if entry is None:
            raise CallError(
                Status.NOT_FOUND, f"{path!r} does not exist in {commit[:12]}"
            )
        if entry.kind is not kind:
            word = _WORDS[entry.kind]
            raise CallError(Status.FAILED_PRECONDITION, f"{path!r} is {word}")
        too_large = CallError(
            Status.RESOURCE_EXHAUSTED, f"{path!r} has more than {limit} bytes"
        )
        ended = await self._program.run(
            self.folder,
            "cat-file",
            "--batch",
            data=entry.object_id.encode() + b"\n",
            most=_HEAD + limit + 1,
            enough=partial(_check_head, limit, too_large),
        )
        if ended.code and self._partial:
            raise too_large
        head, newline, content = ended.out.partition(b"\n")
        words = head.split(b" ")
        if ended.code or not newline or len(words) != 3:
            raise self._failed(ended, f"{path!r} is missing in the repository")
        return content[: int(words[2])]

    async def changed(self, old: str, new: str, path: str) -> list[str]:
        """See `IRepository.changed`."""
        where = (check_path(path, empty=True),) if path else ()
        # git diff-tree writes no output before the comparison is complete, so the
        # output cannot be limited early.
        before: dict[bytes, None] = {}
        after: list[bytes] = []

        def remember(line: bytes) -> None:
            before[line] = None

        def compare(line: bytes) -> None:
            if line in before:
                del before[line]
            else:
                after.append(line)

        await self._listed(old, where, True, remember)
        await self._listed(new, where, True, compare)
        # Dicts keep Git's order, which is nearly sorted, so that sorting is fast.
        paths: dict[str, None] = {}
        async for lines in in_pieces(self._program.clock, [*before, *after]):
            for one in map(self._entry, lines):
                if one.kind is not _FOLDER:
                    paths[one.path] = None
        return sorted(paths)

    async def _kinds(self, commit: str, path: str) -> dict[str, TreeEntry]:
        found = await self._entries(commit, (path,), False)
        return {entry.path: entry for entry in found}

    async def _entries(
        self,
        commit: str,
        where: tuple[str, ...],
        recursive: bool,
        most: int | None = None,
        without: str = "",
    ) -> list[TreeEntry]:
        found: list[TreeEntry] = []
        limit = self._limits.entries

        def take(line: bytes) -> None:
            one = self._entry(line)
            if (recursive and one.kind is _FOLDER) or one.path == without:
                return
            found.append(one)
            if most is not None and len(found) > most:
                raise _Enough
            if len(found) > limit:
                text = f"there are more than {limit} files"
                raise CallError(Status.RESOURCE_EXHAUSTED, text)

        try:
            await self._listed(commit, where, recursive, take)
        except _Enough:
            pass
        return found

    async def _listed(
        self,
        commit: str,
        where: tuple[str, ...],
        recursive: bool,
        take: Callable[[bytes], None],
    ) -> None:
        """
        Call *take* with each line of ``git ls-tree``, including folders, as it arrives.

        git visits folders in any case; because it also lists the folders, kas can count
        them.  kas reads the lines while the output arrives, between its other work: a
        listing of 100,000 files takes a second.

        :param take: called with each line; may raise a `CallError`, which ends git.
        """
        limits = self._limits
        left = limits.entries + limits.folders
        rest = bytearray()

        def enough(_: bytes | bytearray, data: bytes) -> CallError | None:
            nonlocal left, rest
            rest += data
            if b"\0" not in data:
                return None
            *lines, rest = rest.split(b"\0")
            left -= len(lines)
            if left < 0:
                text = (
                    f"there are more than {limits.entries} files, or "
                    f"{limits.folders} folders"
                )
                return CallError(Status.RESOURCE_EXHAUSTED, text)
            try:
                for line in lines:
                    take(bytes(line))
            except CallError as error:
                return error
            except ValueError:
                text = "cannot parse git's list of files"
                return CallError(Status.UNAVAILABLE, text)
            return None

        ended = await self._program.run(
            self.folder,
            "ls-tree",
            "-z",
            "--full-tree",
            *(["-r", "-t"] if recursive else []),
            check_commit(commit),
            "--",
            *where,
            most=limits.listing,
            enough=enough,
            keep=False,
        )
        if ended.code:
            raise self._gone(ended, commit[:12])

    def _entry(self, line: bytes) -> TreeEntry:
        about, _, name = line.partition(b"\t")
        mode, _, object_id = about.split(b" ")
        if name.count(b"/") >= self._limits.depth:
            text = f"folders are nested deeper than {self._limits.depth}"
            raise CallError(Status.RESOURCE_EXHAUSTED, text)
        # A file whose name is not UTF-8 cannot be read; its entry contains replacement
        # characters.
        return TreeEntry(
            name.decode("utf-8", "replace"),
            _KINDS.get(mode, TreeEntryKind.FILE),
            object_id.decode("ascii"),
        )

    def _gone(self, ended: Ended, commit: str) -> CallError:
        error = self._failed(
            ended, f"the commit {commit} does not exist in the repository"
        )
        if error.status is Status.NOT_FOUND:
            return CallError(Status.OUT_OF_RANGE, error.message)
        return error

    def _failed(self, ended: Ended, missing: str) -> CallError:
        """Return the error for a failed git process."""
        if (
            "not a git repository" in ended.complaint
            or "cannot change" in ended.complaint
        ):
            return CallError(
                Status.UNAVAILABLE, f"{self.folder} is not a readable Git repository"
            )
        if ended.code in (1, 128) or not ended.code:
            return CallError(Status.NOT_FOUND, missing)
        return CallError(
            Status.UNAVAILABLE,
            f"git failed ({ended.complaint or f'status {ended.code}'})",
        )


class _Batch:
    """
    Checker of the output of ``git cat-file --batch`` while the output arrives.

    :param names: the names of the files, in order.
    :param limit: maximum bytes of one file.
    :param total: maximum bytes of all files.
    """

    def __init__(self, names: Sequence[str], limit: int, total: int) -> None:
        self._names = names
        self._limit = limit
        self._total = total
        #: Begin and end of each content whose head has arrived, as positions in the
        #: output.
        self._places: list[tuple[int, int]] = []
        #: The position of the next head.
        self._next = 0
        self._size = 0
        #: Whether the output has ended unexpectedly, because an object is missing.
        self._broken = False

    def check(self, out: bytes | bytearray, _: bytes) -> CallError | None:
        """Return the reason to stop git early; None to continue."""
        while not self._broken and len(self._places) < len(self._names):
            newline = out.find(b"\n", self._next, self._next + _HEAD)
            if newline < 0:
                return None
            words = bytes(out[self._next : newline]).split(b" ")
            if len(words) != 3 or words[1] != b"blob" or not words[2].isdigit():
                self._broken = True
                return None
            size = int(words[2])
            if size > self._limit:
                return self.too_large(self._names[len(self._places)])
            self._size += size
            if self._size > self._total:
                text = f"all files together have more than {self._total} bytes"
                return CallError(Status.RESOURCE_EXHAUSTED, text)
            self._places.append((newline + 1, newline + 1 + size))
            self._next = newline + 1 + size + 1
        return None

    def too_large(self, name: str) -> CallError:
        """Return the error for a file that exceeds the limit."""
        text = f"{name} has more than {self._limit} bytes"
        return CallError(Status.RESOURCE_EXHAUSTED, text)

    def contents(self, out: bytes) -> tuple[list[bytes], str]:
        """
        Return the contents, and the name of the first incomplete file; empty if all are
        complete.
        """
        whole = [(begin, end) for begin, end in self._places if end < len(out)]
        missing = self._names[len(whole)] if len(whole) < len(self._names) else ""
        return [out[begin:end] for begin, end in whole], missing


def _check_head(
    limit: int, too_large: CallError, out: bytes | bytearray, _: bytes
) -> CallError | None:
    """
    Return *too_large* if the line before the content announces more than *limit* bytes.
    """
    head, newline, _ = bytes(out[:_HEAD]).partition(b"\n")
    words = head.split(b" ")
    if newline and len(words) == 3 and words[2].isdigit() and int(words[2]) > limit:
        return too_large
    return None


def _shown(ref: str) -> str:
    if ref == "HEAD":
        return "commit on the default branch"
    return f"branch {ref[11:]!r}" if ref.startswith("refs/heads/") else repr(ref)
