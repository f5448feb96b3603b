"""Repositories on Git servers, fetched into a folder of kas."""

from __future__ import annotations

import base64
import hashlib
import itertools
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from zope.interface import implementer

from kas.git.live_refs import LiveRefs
from kas.git.names import check_commit, full_ref, is_commit
from kas.git.objects import Objects
from kas.git.program import Ended, GitProgram
from kas.git.ref_listing import RefListing
from kas.git.ref_resolver import MAX_TOGETHER, Known, RefResolver
from tunnel.api import GitAddress, IRepository, TreeEntry
from tunnel.errors import CallError, Status
from tunnel.toolkit.files import read_secret_file

__all__ = ["HttpRepository"]

#: Numbers of commits that kas fetches of a history, in the first and in the last
#: attempt.  Operators usually return to recent commits, and git treats the largest
#: number as infinity.
HISTORY_DEPTHS = (1000, 2**31 - 1)

#: Filter that limits a fetch to commits, if the server supports it.
NO_TREES = "tree:0"

#: Maximum bytes of a list of refs, which kas reads piece by piece: older servers list
#: all refs of a repository.
MAX_LISTED = 256 * 1024 * 1024

#: Maximum number of fetches of a ref that changes in the meantime.
FETCHES = 3


@implementer(IRepository)
class HttpRepository:
    """
    Shallow copy of a repository on a Git server.

    kas fetches only the commit of a ref, and leaves out files larger than
    `GitLimits.fetched_blob` if the server supports that.  The copy is a cache: kas
    replaces it when it is old, and deletes it at the end.

    :param folder: folder for the copy, which kas creates when it needs the folder.
    """

    _log = Logger()

    def __init__(self, program: GitProgram, address: GitAddress, folder: Path) -> None:
        self._program = program
        self._address = address
        self._folder = folder
        self._histories = itertools.count()
        #: Number of the current copy; the previous copy is still used by reads that
        #: began earlier.
        self._number = 0
        self._objects: Objects | None = None
        self._live = LiveRefs(program.clock.seconds)
        #: The ids that refs have at the server, from the last list.
        self._there: dict[str, str] = {}
        #: Size of the copy in bytes; 0 before the first fetch.
        self.copy_bytes = 0
        self._resolver = RefResolver(self._fetched, self._known)

    def resolve(self, ref: str = "HEAD") -> Deferred[str]:
        """See `IRepository.resolve`."""
        return self._resolver.get(full_ref(ref))

    async def default_branch(self) -> str:
        """See `IRepository.default_branch`."""
        if self._objects is None:
            await self.resolve()
        listing = await self._list(["HEAD"], "--symref")
        # The line is missing if the server does not support this.
        return listing.branch or "HEAD"

    async def tree(
        self,
        commit: str,
        path: str = "",
        *,
        recursive: bool = False,
        most: int | None = None,
    ) -> list[TreeEntry]:
        """See `IRepository.tree`."""
        return await self._here().tree(commit, path, recursive, most)

    async def read(self, commit: str, path: str, *, limit: int) -> bytes:
        """See `IRepository.read`."""
        return await self._here().read(commit, path, limit)

    async def read_files(
        self, commit: str, files: Sequence[TreeEntry], *, limit: int, total: int
    ) -> list[bytes]:
        """See `IRepository.read_files`."""
        return await self._here().read_files(files, limit, total)

    async def link(self, commit: str, path: str) -> str:
        """See `IRepository.link`."""
        return await self._here().link(commit, path)

    async def changed(self, old: str, new: str, path: str = "") -> list[str]:
        """See `IRepository.changed`."""
        return await self._here().changed(old, new, path)

    async def contains(self, ref: str, commit: str) -> bool:
        """
        See `IRepository.contains`.

        The copy has no history, so kas fetches commits without files into a separate
        copy: first only the newest commits, then all of them.
        """
        check_commit(commit)
        ref = full_ref(ref)
        folder = self._folder / f"history-{next(self._histories)}"
        try:
            await self._made(folder)
            objects = Objects(self._program, str(folder))
            for depth in HISTORY_DEPTHS:
                tip = await self._fetch(objects, ref, depth, NO_TREES)
                # The fetched history contains only ancestors of the tip.
                if await objects.contains(tip, commit):
                    return True
            return False
        finally:
            await deferToThread(shutil.rmtree, folder, ignore_errors=True)

    def _here(self) -> Objects:
        if self._objects is None:
            text = "the repository has not been fetched yet"
            raise CallError(Status.OUT_OF_RANGE, text)
        return self._objects

    async def _fetched(self, ref: str) -> str:
        try:
            commit = await self._fetched_alone(ref, self._there.pop(ref, ""))
        except CallError:
            if not is_commit(ref):
                self._live.fetched(ref, failed=True)
            raise
        finally:
            if self._objects is not None:
                self.copy_bytes = sum(_packs(self._objects))
        self._live.fetched(ref, failed=False)
        return commit

    async def _fetched_alone(self, ref: str, wanted: str) -> str:
        objects = self._objects
        if objects is None or self._is_old():
            return await self._begin_again(ref, wanted)
        if wanted:
            # The ref before this one may have begun a copy, which has this ref, too.
            found = (await self._current(objects, {ref: wanted})).get(ref)
            if isinstance(found, CallError):
                raise found
            if found is not None:
                return found
        return await self._fetch(objects, ref, wanted=wanted)

    async def _known(self, refs: Sequence[str]) -> Known:
        """
        Return the commits of the refs that are as in the copy, after those that have
        changed were fetched together; and errors for refs that the server does not
        have, or that cannot be fetched.

        :raises CallError: if the server cannot be asked.
        """
        names = [one for one in refs if not is_commit(one)]
        if not names:
            return {}
        self._there = there = await self._ids(names)
        self._live.asked(names, there)
        found: dict[str, str | CallError] = {
            ref: _no_ref(ref) for ref in names if ref not in there
        }
        objects = self._objects
        if objects is None or self._is_old():
            # The first of the other refs begins a new copy, with all others.
            return found
        found |= await self._current(objects, there)
        changed = self._live.good([ref for ref in there if ref not in found])
        if changed:
            room = self._program.limits.copy
            found |= await self._fetch_together(objects, changed, room)
            found |= await self._current(objects, {ref: there[ref] for ref in changed})
            self.copy_bytes = sum(_packs(objects))
        return found

    async def _current(
        self, objects: Objects, there: Mapping[str, str]
    ) -> dict[str, str | CallError]:
        """
        Return the commits of the refs that have the same ids in a copy, or the reasons
        why they have none.

        :param there: the ids of refs at the server.
        """
        if not there:
            # Without names, git would list all refs.
            return {}
        try:
            here = await objects.refs([_own(one) for one in there])
        except CallError:
            # One ref of the copy, whose object is missing, must not stop the others.
            return {}
        found: dict[str, str | CallError] = {}
        for ref, wanted in there.items():
            own = here.get(_own(ref))
            if own is not None and own.id == wanted:
                try:
                    found[ref] = await objects.peeled(own)
                except CallError as error:
                    found[ref] = error
        return found

    async def _ids(self, names: Sequence[str]) -> dict[str, str]:
        """
        Return the ids of the objects that refs at the server name, by ref; a ref that
        does not exist is missing.

        :raises CallError: if the server cannot be asked.
        """
        listing = await self._list(names)
        return {name: id_ for name, (id_,) in listing.found.items()}

    async def _list(self, names: Sequence[str], *options: str) -> RefListing:
        """
        List refs of the server.

        :param options: further options of ``git ls-remote``.
        :raises CallError: if the server cannot be asked.
        """
        listing = RefListing(names, b"\t")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ended = await self._program.run(
            str(self._folder),
            "ls-remote",
            *options,
            "--end-of-options",
            self._address.url,
            *names,
            most=MAX_LISTED,
            enough=listing.read,
            keep=False,
            fetches=True,
            configuration=self._configuration(),
        )
        if ended.code:
            raise _fetch_error(ended, names[0], self._program.limits.pack)
        return listing

    def _is_old(self) -> bool:
        limits = self._program.limits
        sizes = _packs(self._here())
        return len(sizes) > limits.packs or sum(sizes) > limits.copy

    async def _begin_again(self, ref: str, wanted: str) -> str:
        """
        Create a new copy, which replaces the old one once it is complete.

        :param wanted: the id of the ref, as in `_fetch`.
        """
        number = self._number + 1
        folder = self._folder / str(number)
        await self._made(folder)
        objects = Objects(self._program, str(folder), partial=True)
        try:
            commit = await self._fetch(objects, ref, wanted=wanted)
            await self._fetch_live(objects, ref)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(self._folder / str(number - 2), ignore_errors=True)
        self._number = number
        self._objects = objects
        return commit

    async def _fetch_live(self, objects: Objects, besides: str) -> None:
        """
        Fetch the other followed refs into a new copy, with few packs: each of them
        would need a pack of its own later, and replace the copy again.
        """
        names = [one for one in self._live.followed() if one != besides]
        there: list[str] = []
        try:
            for begin in range(0, len(names), MAX_TOGETHER):
                there += await self._ids(names[begin : begin + MAX_TOGETHER])
        except CallError as error:
            # They are fetched when they are needed.
            self._log.debug("cannot list the followed refs: {why}", why=error.message)
        # The copy must not be too large already when it is new.
        limits = self._program.limits
        await self._fetch_together(objects, there, limits.copy - limits.pack)

    async def _fetch_together(
        self, objects: Objects, refs: Sequence[str], room: int
    ) -> dict[str, CallError]:
        """
        Fetch refs of the server in groups, see `LiveRefs.fetch`.

        :param room: bytes of the copy above which no further group is fetched.
        """

        async def fetch(group: Sequence[str]) -> None:
            try:
                await self._fetch_once(objects, group, 1, "")
            except CallError as error:
                self._log.debug(
                    "cannot fetch {number} refs at once: {why}",
                    number=len(group),
                    why=error.message,
                )
                raise

        return await self._live.fetch(refs, fetch, lambda: sum(_packs(objects)) <= room)

    async def _made(self, folder: Path) -> None:
        """Create an empty repository."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        made = await self._program.run(str(folder), "init", "--quiet", "--bare")
        if made.code:
            text = f"cannot create a copy of the repository ({made.complaint})"
            raise CallError(Status.UNAVAILABLE, text)

    async def _fetch(
        self,
        objects: Objects,
        ref: str,
        depth: int = 1,
        leaving_out: str = "",
        wanted: str = "",
    ) -> str:
        """
        Fetch a ref into a copy, and return its commit.

        :param wanted: the id that the ref had at the server; empty if unknown.
        :raises CallError: if the server does not have the ref, or cannot be asked.
        """
        if is_commit(ref):
            await self._fetch_once(objects, [ref], depth, leaving_out)
            return await objects.find(_own(ref))
        for _ in range(FETCHES):
            # git would also fetch refs/heads/refs/tags/v1 as refs/tags/v1.
            wanted = wanted or (await self._ids([ref])).get(ref, "")
            if not wanted:
                raise _no_ref(ref)
            await self._fetch_once(objects, [ref], depth, leaving_out)
            own = (await objects.refs([_own(ref)])).get(_own(ref))
            if own is not None and own.id == wanted:
                return await objects.peeled(own)
            wanted = ""
        raise CallError(Status.UNAVAILABLE, f"{ref} changed during each fetch")

    async def _fetch_once(
        self, objects: Objects, refs: Sequence[str], depth: int, leaving_out: str
    ) -> None:
        limits = self._program.limits
        settings = self._configuration()
        try:
            ended = await self._program.run(
                objects.folder,
                "fetch",
                "--quiet",
                f"--depth={depth}",
                f"--filter={leaving_out or f'blob:limit={limits.fetched_blob}'}",
                "--no-tags",
                "--no-write-fetch-head",
                "--end-of-options",
                self._address.url,
                *(f"+{ref}:{_own(ref)}" for ref in refs),
                fetches=True,
                configuration=settings,
            )
        finally:
            _sweep(objects.folder)
        if ended.code:
            raise _fetch_error(ended, refs[0], limits.pack)

    def _configuration(self) -> dict[str, str]:
        """Return the settings of git for requests to the server."""
        settings = {"http.version": "HTTP/1.1"}
        authorization = self._authorization()
        if authorization:
            settings["http.extraHeader"] = f"Authorization: Basic {authorization}"
        if self._address.ca_certificate_file is not None:
            settings["http.sslCAInfo"] = str(self._address.ca_certificate_file)
        return settings

    def _authorization(self) -> str:
        file = self._address.credentials_file
        if file is None:
            return ""
        try:
            line = read_secret_file(file).strip()
        except ValueError as error:
            raise CallError(Status.UNAVAILABLE, str(error)) from None
        if b":" not in line or b"\n" in line:
            text = f"{file} must have one line, user:password"
            raise CallError(Status.UNAVAILABLE, text)
        return base64.b64encode(line).decode("ascii")


def _packs(objects: Objects) -> list[int]:
    """Return the sizes of the packs of a copy in bytes."""
    packs = Path(objects.folder) / "objects" / "pack"
    return [pack.stat().st_size for pack in packs.glob("*.pack")]


def _own(ref: str) -> str:
    """
    Return the name of a server's ref in the copy.

    In a repository, no ref can have the name of another one as its folder, and a ref of
    the copy outlives that of the server.
    """
    return f"refs/kas/{hashlib.sha256(ref.encode()).hexdigest()}"


def _sweep(folder: str) -> None:
    """
    Remove leftovers of a git process that was killed or failed: partial packs, and
    locks.
    """
    copy = Path(folder)
    packs = copy / "objects" / "pack"
    for left in (*packs.glob("tmp_*"), *copy.rglob("*.lock")):
        left.unlink(missing_ok=True)


def _no_ref(ref: str) -> CallError:
    what = "no commit on its default branch" if ref == "HEAD" else f"no {ref}"
    return CallError(Status.NOT_FOUND, f"the repository has {what}")


def _fetch_error(ended: Ended, ref: str, pack: int) -> CallError:
    """Return the error for a failed fetch."""
    said = ended.complaint
    low = said.lower()
    if "couldn't find remote ref" in low or "not our ref" in low:
        return _no_ref(ref)
    if "authentication failed" in low or "terminal prompts disabled" in low:
        return CallError(
            Status.PERMISSION_DENIED, "the Git server rejects the credentials"
        )
    if "error: 403" in low:
        return CallError(Status.PERMISSION_DENIED, "the Git server refuses (403)")
    if "not found" in low and "repository" in low:
        text = "the Git server does not have this repository, or hides it from kas"
        return CallError(Status.NOT_FOUND, text)
    if "file too large" in low:
        return CallError(
            Status.RESOURCE_EXHAUSTED, f"the repository has more than {pack} bytes"
        )
    return CallError(
        Status.UNAVAILABLE, f"the fetch failed ({said or f'status {ended.code}'})"
    )
