"""Git repositories as modules read them: real ones, of this machine and over HTTP."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.task import deferLater
from zope.interface.verify import verifyObject

from kas.git.limits import GitLimits
from kas.git.program import GitProgram
from kas.git.repositories import Repositories
from kas.state.directory import StateDirectory, process_name
from tests.integration.processes import Process, eventually
from tools.git_repository import GitRepository
from tools.git_server import GitServer
from tunnel.api import (
    GitAddress,
    GitalyAddress,
    IRepositories,
    IRepository,
    TreeEntry,
    TreeEntryKind,
)
from tunnel.errors import CallError, Status
from tunnel.program.runtime import Runtime
from tunnel.toolkit.files import MAX_SECRET_FILE
from tunnel.toolkit.until import until

_reactor: Any = reactor

CONFIG = ".gitlab/agents/prod/config.yaml"
SECRET = "glpat-secret"
TOKEN = "gitaly-secret"

#: Small enough to be reached by a test.
LIMITS = GitLimits(
    entries=20_500, depth=10, blob=1 << 20, fetched_blob=64 << 20, packs=3
)

async_test = pytest_twisted.ensureDeferred


@attrs.define(eq=False)
class Place:
    """Where a repository is, and what kas reads of it."""

    origin: GitRepository
    address: Any
    state: StateDirectory
    server: GitServer | None = None
    gitaly: Process | None = None
    opened: list[Repositories] = attrs.Factory(list)

    def repositories(self, limits: GitLimits = LIMITS) -> Repositories:
        self.opened.append(Repositories(self.state, Runtime(reactor=_reactor), limits))
        return self.opened[-1]

    def repository(self, limits: GitLimits = LIMITS) -> IRepository:
        return self.repositories(limits).open(self.address)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    """A Git server that asks for a password."""
    (tmp_path / "served").mkdir()
    server = GitServer(tmp_path / "served", "kas", SECRET)
    yield server
    server.stop()


def _place(kind: str, tmp_path: Path, server: GitServer) -> Place:
    origin = GitRepository.make(tmp_path / "served" / "clusters.git")
    state = StateDirectory.open(tmp_path / "state")
    if kind == "local":
        return Place(origin, GitAddress(path=origin.path), state)
    if kind == "gitaly":
        command = (sys.executable, "-m", "tests.integration.gitaly_server")
        served = tmp_path / "served"
        gitaly = Process("gitaly", [*command, served, TOKEN], tmp_path / "gitaly.log")
        port = int(gitaly.wait_for(r"listening on port (\d+)")[1])
        there = GitalyAddress(
            address=f"tcp://127.0.0.1:{port}",
            token=TOKEN,
            features=(("gitaly-feature-test", "true"),),
            storage_name="default",
            relative_path="clusters.git",
        )
        return Place(origin, there, state, gitaly=gitaly)
    credentials = tmp_path / "credentials"
    credentials.write_text(f"kas:{SECRET}\n")
    address = GitAddress(url=server.url("clusters.git"), credentials_file=credentials)
    return Place(origin, address, state, server)


@pytest.fixture(params=["local", "http", "gitaly"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, server: GitServer
) -> Iterator[Place]:
    """One kind of repository after the other."""
    place = _place(request.param, tmp_path, server)
    yield place
    for one in place.opened:
        one.stop()
    if place.gitaly is not None:
        place.gitaly.kill()


@pytest.fixture
def remote(tmp_path: Path, server: GitServer) -> Iterator[Place]:
    """A repository at the Git server."""
    place = _place("http", tmp_path, server)
    yield place
    for one in place.opened:
        one.stop()


async def fails(asked: Awaitable[Any]) -> CallError:
    """What it fails with."""
    with pytest.raises(CallError) as caught:
        await asked
    return caught.value


@async_test
async def test_reading(place: Place) -> None:
    """A ref, folders, a file, and what changed."""
    old = place.origin.commit({CONFIG: "a: 1\n", "apps/x.yaml": "x", "apps/y/z": "z"})
    repository = place.repository()
    assert verifyObject(IRepository, repository)
    assert await repository.resolve() == old
    assert await repository.resolve("main") == old
    assert await repository.resolve("refs/heads/main") == old
    found = await repository.tree(old, "apps")
    assert [(one.path, one.kind.value) for one in found] == [
        ("apps/x.yaml", "file"),
        ("apps/y", "folder"),
    ]
    every = await repository.tree(old, recursive=True)
    assert [one.path for one in every] == [CONFIG, "apps/x.yaml", "apps/y/z"]
    assert await repository.read(old, CONFIG, limit=100) == b"a: 1\n"
    new = place.origin.commit({"apps/x.yaml": "changed", "apps/new": "n", CONFIG: None})
    assert await repository.resolve() == new
    assert await repository.changed(old, new) == [CONFIG, "apps/new", "apps/x.yaml"]
    assert await repository.changed(old, new, ".gitlab") == [CONFIG]
    # What was read of can still be read.
    assert await repository.read(old, CONFIG, limit=100) == b"a: 1\n"


@async_test
async def test_a_commit_by_its_id(place: Place) -> None:
    """One that no ref is at any more can be read, as long as the repository has it."""
    old = place.origin.commit({"a": "old"})
    place.origin.commit({"a": "new"})
    repository = place.repository()
    await repository.resolve()
    assert await repository.resolve(old) == old
    assert await repository.read(old, "a", limit=100) == b"old"
    missing = "0" * 39 + "1"
    try:
        await repository.resolve(missing)
        error = await fails(repository.read(missing, "a", limit=100))
    except CallError as caught:
        error = caught
    assert error.status in (Status.NOT_FOUND, Status.OUT_OF_RANGE)


@async_test
async def test_forced_push(place: Place) -> None:
    """History that was replaced: what is there now counts."""
    old = place.origin.commit({CONFIG: "a: 1\n", "gone": "x"})
    repository = place.repository()
    await repository.resolve()
    new = place.origin.commit({CONFIG: "a: 2\n"}, onto=None)
    assert await repository.resolve() == new
    assert await repository.changed(old, new) == [CONFIG, "gone"]


@async_test
async def test_history(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch contains its commits, however old, and no commit of another branch."""
    monkeypatch.setattr("kas.git.http.HISTORY_DEPTHS", (2, 2**31 - 1))
    commits = [place.origin.commit({"a": str(number)}) for number in range(5)]
    other = place.origin.commit({"a": "x"}, branch="other", onto=commits[1])
    repository = place.repository()
    for commit in (commits[-1], commits[3], commits[0]):
        assert await repository.contains("HEAD", commit)
    assert await repository.contains("other", commits[1])
    assert not await repository.contains("other", commits[2])
    for commit in (other, "0" * 40):
        assert not await repository.contains("main", commit)
    replaced = place.origin.commit({"a": "y"}, onto=None)
    assert await repository.contains("main", replaced)
    assert not await repository.contains("main", commits[-1])
    # It is not a commit but may be the name of a ref.
    for name in ("main", "refs/heads/main", ""):
        error = await fails(repository.contains("main", name))
        assert error.status is Status.INVALID_ARGUMENT
    # Nothing is left of the histories, and the copy still serves.
    assert await repository.resolve() == replaced
    left = list(place.state.path.rglob("history-*")) if place.server else []
    assert not left


@async_test
async def test_nothing_there(place: Place) -> None:
    """No commit, no branch, no path, no such commit: each says so."""
    repository = place.repository()
    error = await fails(repository.resolve())
    assert error.status is Status.NOT_FOUND
    assert "default branch" in error.message
    commit = place.origin.commit({"a": "x"})
    assert await repository.resolve() == commit
    for asked in (
        repository.resolve("other"),
        repository.resolve("refs/tags/v1"),
        repository.tree(commit, "nowhere"),
        repository.tree(commit, ".gitlab/agents", recursive=True),
        repository.read(commit, CONFIG, limit=9),
    ):
        assert (await fails(asked)).status is Status.NOT_FOUND
    for gone in (
        repository.read("0" * 40, "a", limit=9),
        repository.tree("0" * 40),
        repository.changed("0" * 40, commit),
    ):
        assert (await fails(gone)).status is Status.OUT_OF_RANGE


@async_test
async def test_empty_tree(place: Place) -> None:
    """A commit without files is none without a commit."""
    place.origin.commit({"a": "x"})
    commit = place.origin.commit({"a": None})
    repository = place.repository()
    assert await repository.resolve() == commit
    assert await repository.tree(commit, recursive=True) == []


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "a/../../b",
        "a//b",
        "./a",
        ".git/config",
        "a/.GIT/config",
        "a\nb",
        "a\0b",
        "\ud800",
        "x" * 5000,
    ],
)
@async_test
async def test_traversal(tmp_path: Path, server: GitServer, path: str) -> None:
    """A path that leaves the tree, or that git could take for something else."""
    place = _place("local", tmp_path, server)
    commit = place.origin.commit({"a": "x"})
    repository = place.repository()
    for asked in (
        repository.read(commit, path, limit=9),
        repository.tree(commit, path),
        repository.changed(commit, commit, path),
    ):
        assert (await fails(asked)).status is Status.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "ref",
    ["--upload-pack=touch /tmp/x", "-x", "a..b", "a b", "HEAD~1", "HEAD^{tree}", "a:b",
     "main@{1}", "", ".hidden", "a.lock", "x*", "\ud800", "a\nb"],
)  # fmt: skip
@async_test
async def test_refs_that_cannot_be(remote: Place, ref: str) -> None:
    """A ref that git could take for an option or an expression never reaches it."""
    with pytest.raises(CallError) as caught:
        await remote.repository().resolve(ref)
    assert caught.value.status is Status.INVALID_ARGUMENT
    assert remote.server is not None
    assert not remote.server.requests


@async_test
async def test_links_and_submodules(place: Place) -> None:
    """Nothing is followed: not to /etc, not in a circle, not to another repository."""
    commit = place.origin.commit(
        {"real/file": "x", ".gitmodules": '[submodule "s"]\nurl=ext::sh\npath=sub\n'},
        links={
            "secret": "/etc/passwd",
            "up": "../../../../etc/passwd",
            "folder": "real",
            "circle": "circle",
        },
        submodules={"sub": "1" * 40},
    )
    repository = place.repository()
    await repository.resolve()
    kinds = {one.path: one.kind for one in await repository.tree(commit)}
    assert kinds["secret"] is TreeEntryKind.LINK
    assert kinds["sub"] is TreeEntryKind.SUBMODULE
    assert kinds["real"] is TreeEntryKind.FOLDER
    for path in ("secret", "up", "folder", "circle", "sub", "real"):
        error = await fails(repository.read(commit, path, limit=99))
        assert error.status is Status.FAILED_PRECONDITION, path
    for path in ("secret", "folder", "sub", "real/file"):
        error = await fails(repository.tree(commit, path, recursive=True))
        assert error.status is Status.NOT_FOUND, path
    for path, target in (("up", "../../../../etc/passwd"), ("folder", "real")):
        assert await repository.link(commit, path) == target
    for path in ("real/file", "real", "sub"):
        error = await fails(repository.link(commit, path))
        assert error.status is Status.FAILED_PRECONDITION, path
    for path in ("folder/file", "sub/x", "circle/circle"):
        error = await fails(repository.read(commit, path, limit=99))
        assert error.status is Status.NOT_FOUND, path


@async_test
async def test_names_of_strangers(place: Place) -> None:
    """Names that differ in case only, or look like a pattern, are themselves."""
    commit = place.origin.commit({"a/X": "1", "a/x": "2", "a/*": "3", ":(glob)a": "4"})
    repository = place.repository()
    await repository.resolve()
    assert await repository.read(commit, "a/X", limit=9) == b"1"
    assert await repository.read(commit, "a/x", limit=9) == b"2"
    assert await repository.read(commit, "a/*", limit=9) == b"3"
    assert await repository.read(commit, ":(glob)a", limit=9) == b"4"


@async_test
async def test_large_file(place: Place) -> None:
    """A file above the limit is not read, and costs kas no memory."""
    commit = place.origin.commit({"large": b"x" * (40 << 20), "edge": b"y" * 1000})
    repository = place.repository()
    await repository.resolve()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = await fails(repository.read(commit, "large", limit=1 << 30))
    assert error.status is Status.RESOURCE_EXHAUSTED
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10 * 1024
    assert len(await repository.read(commit, "edge", limit=1000)) == 1000
    error = await fails(repository.read(commit, "edge", limit=999))
    assert error.status is Status.RESOURCE_EXHAUSTED


@async_test
async def test_many_files_at_once(place: Place) -> None:
    """One process of git reads all of them, in their order."""
    files = {f"f{number}": os.urandom(number * 7) for number in range(60)}
    # An object without a byte, two files of one object, and lines that look like heads.
    files |= {"g": b"", "h": b"blob 4\n\n", "same": b"blob 4\n\n"}
    commit = place.origin.commit(files)
    repositories = place.repositories()
    repository = repositories.open(place.address)
    await repository.resolve()
    entries = await repository.tree(commit, recursive=True)
    entries.sort(key=lambda one: one.path, reverse=True)
    expected = [files[one.path] for one in entries]
    total = sum(map(len, expected))
    started = _commands(repositories)
    found = await repository.read_files(commit, entries, limit=413, total=total)
    assert found == expected
    if place.gitaly is None:
        assert _commands(repositories) == started + 1
    error = await fails(
        repository.read_files(commit, entries, limit=412, total=total),
    )
    assert error.status is Status.RESOURCE_EXHAUSTED
    assert error.message == "f59 has more than 412 bytes"
    error = await fails(
        repository.read_files(commit, entries, limit=413, total=total - 1),
    )
    assert error.status is Status.RESOURCE_EXHAUSTED
    assert error.message == f"all files together have more than {total - 1} bytes"
    assert await repository.read_files(commit, [], limit=9, total=9) == []


def _commands(repositories: Repositories) -> int:
    return sum(repositories.commands.counts.values())


@async_test
async def test_files_that_are_missing(place: Place) -> None:
    commit = place.origin.commit({"a": b"a", "b": b"b"})
    repository = place.repository()
    await repository.resolve()
    (a, b) = await repository.tree(commit)
    gone = TreeEntry("gone", b.kind, "1" * 40)
    error = await fails(
        repository.read_files(commit, [a, gone, b], limit=9, total=99),
    )
    assert error.status in (Status.NOT_FOUND, Status.RESOURCE_EXHAUSTED)
    assert "gone" in error.message


@async_test
async def test_large_file_is_not_fetched(remote: Place) -> None:
    """Where the server can leave it out, it is left out; the rest is there."""
    commit = remote.origin.commit({"large": os.urandom(8 << 20), CONFIG: "a: 1\n"})
    repository = remote.repository(GitLimits(fetched_blob=1 << 20))
    await repository.resolve()
    copies = sum(f.stat().st_size for f in remote.state.path.rglob("*.pack"))
    assert copies < 1 << 20
    assert await repository.read(commit, CONFIG, limit=99) == b"a: 1\n"
    assert {one.path for one in await repository.tree(commit)} == {"large", ".gitlab"}
    error = await fails(repository.read(commit, "large", limit=1 << 30))
    assert error.status is Status.RESOURCE_EXHAUSTED
    entries = await repository.tree(commit, recursive=True)
    most = 1 << 30
    error = await fails(repository.read_files(commit, entries, limit=most, total=most))
    assert error.status is Status.RESOURCE_EXHAUSTED
    assert "large has more than" in error.message


@async_test
async def test_repository_too_large(remote: Place) -> None:
    """A fetch that brings more than may be kept ends, and leaves nothing."""
    remote.origin.run("config", "uploadpack.allowFilter", "false")
    remote.origin.commit({"large": os.urandom(8 << 20)})
    repository = remote.repository(GitLimits(pack=1 << 20))
    error = await fails(repository.resolve())
    assert error.status is Status.RESOURCE_EXHAUSTED, error.message
    assert not list(remote.state.path.rglob("*pack*/*"))
    smaller = remote.origin.commit({CONFIG: "a: 1\n"}, onto=None)
    assert await repository.resolve() == smaller


@async_test
async def test_empty_trees_in_each_other(tmp_path: Path, server: GitServer) -> None:
    """Billions of folders without a file, made of 40: seen before time runs out."""
    place = _place("local", tmp_path, server)
    origin = place.origin
    tree = origin.run("mktree")
    empty = origin.run("commit-tree", "-m", "empty", tree)
    for _ in range(40):
        two = "".join(f"040000 tree {tree}\t{name}\n" for name in "ab")
        tree = origin.run("mktree", data=two.encode())
    bomb = origin.run("commit-tree", "-m", "bomb", tree)
    limits = attrs.evolve(LIMITS, folders=1000, depth=64, read_timeout=100)
    repository = place.repository(limits)
    begun = time.monotonic()
    for asked in (
        repository.tree(bomb, recursive=True),
        repository.tree(bomb, "a/b", recursive=True),
        repository.changed(empty, bomb),
    ):
        error = await fails(asked)
        assert error.status is Status.RESOURCE_EXHAUSTED, error.message
    assert time.monotonic() - begun < 50
    assert len(await repository.tree(bomb)) == 2


@async_test
async def test_many_files(place: Place) -> None:
    """20,000 files: all of them in one listing, and one more than the limit in none."""
    files: dict[str, str | bytes | None] = {
        f"apps/{n // 100:03}/{n % 100:02}.yaml": str(n) for n in range(20_000)
    }
    old = place.origin.commit(files)
    repository = place.repository()
    assert await repository.resolve() == old
    begin = time.monotonic()
    assert len(await repository.tree(old, recursive=True)) == 20_000
    assert await repository.read(old, "apps/042/17.yaml", limit=9) == b"4217"
    new = place.origin.commit({"apps/042/17.yaml": "changed"})
    await repository.resolve()
    assert await repository.changed(old, new) == ["apps/042/17.yaml"]
    assert time.monotonic() - begin < 60
    more = place.origin.commit({f"more/{n}": "x" for n in range(600)})
    await repository.resolve()
    error = await fails(repository.tree(more, recursive=True))
    assert error.status is Status.RESOURCE_EXHAUSTED
    assert len(await repository.tree(more, "more")) == 600


@async_test
async def test_deep_tree(place: Place) -> None:
    """Folders in folders in folders: an error, and no recursion of ours."""
    commit = place.origin.commit({"d/" * 200 + "file": "x", "ok": "y"})
    repository = place.repository()
    await repository.resolve()
    error = await fails(repository.tree(commit, recursive=True))
    assert error.status is Status.RESOURCE_EXHAUSTED
    assert await repository.read(commit, "ok", limit=9) == b"y"


@async_test
async def test_hostile_repository(tmp_path: Path, server: GitServer) -> None:
    """What a repository's own configuration and hooks name is never run."""
    place = _place("local", tmp_path, server)
    commit = place.origin.commit(
        {"a": "x", ".gitattributes": "* filter=run diff=run\n"}
    )
    ran = tmp_path / "ran"
    run = f"touch {ran}"
    for key, value in {
        "core.fsmonitor": run,
        "core.sshCommand": run,
        "core.pager": run,
        "diff.external": run,
        "diff.run.textconv": run,
        "filter.run.smudge": run,
        "core.hooksPath": str(tmp_path / "hooks"),
        "extensions.partialClone": "evil",
        "remote.evil.url": f"ext::sh -c {run!r}",
        "remote.evil.promisor": "true",
        "protocol.ext.allow": "always",
        "alias.ls-tree": f"!{run}",
    }.items():
        place.origin.run("config", key, value)
    place.origin.run("config", "core.repositoryFormatVersion", "1")
    (tmp_path / "hooks").mkdir()
    for hook in ("post-index-change", "reference-transaction", "pre-auto-gc"):
        (tmp_path / "hooks" / hook).write_text(f"#!/bin/sh\n{run}\n")
        (tmp_path / "hooks" / hook).chmod(0o755)
    repository = place.repository()
    assert await repository.resolve() == commit
    assert await repository.read(commit, "a", limit=9) == b"x"
    assert await repository.changed(commit, commit) == []
    # One that is missing would be fetched from the remote that the file names.
    found = await repository.tree(commit)
    missing = next(one.object_id for one in found if one.path == "a")
    (place.origin.path / "objects" / missing[:2] / missing[2:]).unlink(missing_ok=True)
    for pack in (place.origin.path / "objects" / "pack").glob("*"):
        pack.unlink()
    await fails(repository.read(commit, "a", limit=9))
    assert not ran.exists()


@async_test
async def test_not_a_repository(tmp_path: Path, server: GitServer) -> None:
    """A folder that is none, and one that is not there; those above are not taken."""
    place = _place("local", tmp_path, server)
    place.origin.commit({"a": "x"})
    inside = place.origin.path / "inside"
    inside.mkdir()
    for path in (inside, tmp_path / "missing"):
        repository = place.repositories().open(GitAddress(path=path))
        error = await fails(repository.resolve())
        assert error.status is Status.UNAVAILABLE
        assert str(path) in error.message


@async_test
async def test_one_fetch_for_all(remote: Place) -> None:
    """A hundred callers cost one fetch, and those who come meanwhile one more."""
    assert remote.server is not None
    commit = remote.origin.commit({"a": "x"})
    repositories = remote.repositories()
    assert verifyObject(IRepositories, repositories)
    repository = repositories.open(remote.address)
    await repository.resolve()
    remote.server.requests.clear()
    await repository.resolve()
    one = len(remote.server.requests)
    remote.server.requests.clear()
    asked = [
        Deferred.fromCoroutine(_resolve(repositories.open(remote.address)))
        for _ in range(100)
    ]
    # Who leaves takes nothing from the others.
    asked[3].cancel()
    with pytest.raises(CancelledError):
        await asked.pop(3)
    assert await gatherResults(asked) == [commit] * 99
    assert len(remote.server.requests) <= 2 * one


async def _resolve(repository: IRepository) -> str:
    return await repository.resolve()


@async_test
async def test_nothing_outlives_git(tmp_path: Path) -> None:
    """What git started ends with it, and keeps no reading waiting."""
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nsleep 60 &\necho $!\n")
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    begun = time.monotonic()
    ended = await GitProgram(_reactor, LIMITS, environ).run(str(tmp_path), "x")
    assert ended.code == 0
    assert time.monotonic() - begun < 50
    process = Path("/proc") / ended.out.decode().strip()
    state = process / "stat"
    # It is killed, and may not have come to die of it.
    assert await until(
        lambda: not state.exists() or ") Z " in state.read_text(), _reactor, 10
    )


@async_test
async def test_failed_fetches_leave_nothing(remote: Place) -> None:
    """Neither half a pack, each time again, nor a lock that stops the next fetch."""
    repository = remote.repository(attrs.evolve(LIMITS, pack=1 << 20))
    remote.origin.commit({"a": "x"})
    await repository.resolve()
    remote.origin.commit({"large": os.urandom(3 << 20)})
    (copy,) = remote.state.path.glob("git-*/*/*")
    (copy / "shallow.lock").touch()
    for _ in range(2):
        await fails(repository.resolve())
        left = [one for one in copy.rglob("*") if one.match("tmp_*")]
        assert not left and not list(copy.rglob("*.lock"))
    remote.origin.commit({"b": "y"}, branch="other")
    await repository.resolve("other")


@async_test
async def test_copy_of_many_bytes(remote: Place) -> None:
    """What is pushed again and again does not add up without an end."""
    limits = attrs.evolve(LIMITS, packs=1000, copy=2 << 20)
    repository = remote.repository(limits)
    for _ in range(8):
        remote.origin.commit({"large": os.urandom(1 << 20)})
        await repository.resolve()
    packs = remote.state.path.rglob("*.pack")
    assert sum(one.stat().st_size for one in packs) < 7 << 20


@async_test
async def test_copy_begins_again(remote: Place) -> None:
    """After some fetches the copy is made again: it never grows without end."""
    repository = remote.repository()
    for number in range(12):
        commit = remote.origin.commit({"a": str(number)})
        assert await repository.resolve() == commit
        assert await repository.read(commit, "a", limit=9) == str(number).encode()
    assert len(list(remote.state.path.rglob("*.pack"))) <= 2 * (LIMITS.packs + 1)


@async_test
async def test_refusals(remote: Place, tmp_path: Path) -> None:
    """What the server says when it does not let kas in, and no secret in any of it."""
    assert remote.server is not None
    remote.origin.commit({"a": "x"})
    repository = remote.repository()
    credentials = remote.address.credentials_file
    assert credentials is not None

    async def told(status: Status) -> None:
        error = await fails(repository.resolve())
        assert error.status is status, error
        assert SECRET not in repr(error)
        assert "a2FzOmds" not in repr(error)

    credentials.write_text("kas:wrong\n")
    await told(Status.PERMISSION_DENIED)
    credentials.unlink()
    await told(Status.UNAVAILABLE)
    # The start of a file that is too large is not used.
    credentials.write_text(f"kas:{SECRET}\n" + "\n" * MAX_SECRET_FILE)
    await told(Status.UNAVAILABLE)
    credentials.write_text(f"kas:{SECRET}\n")
    for refuses, status in (
        (403, Status.PERMISSION_DENIED),
        (404, Status.NOT_FOUND),
        (500, Status.UNAVAILABLE),
        (503, Status.UNAVAILABLE),
    ):
        remote.server.refuses = refuses
        await told(status)
    remote.server.refuses = 0
    elsewhere = GitServer(tmp_path / "served")
    try:
        remote.server.moved_to = f"http://127.0.0.1:{elsewhere.port}"
        await told(Status.UNAVAILABLE)
        assert not elsewhere.requests
    finally:
        elsewhere.stop()
    remote.server.moved_to = ""
    assert len(await repository.resolve()) == 40


@async_test
async def test_dead_server(remote: Place) -> None:
    """A port where nothing listens; the same repository works once something does."""
    commit = remote.origin.commit({"a": "x"})
    assert remote.server is not None
    nowhere = attrs.evolve(remote.address, url="http://127.0.0.1:9/clusters.git")
    error = await fails(remote.repositories().open(nowhere).resolve())
    assert error.status is Status.UNAVAILABLE
    assert await remote.repository().resolve() == commit


@async_test
async def test_slow_server(remote: Place) -> None:
    """A server that does not answer costs its time, and no process after it."""
    assert remote.server is not None
    commit = remote.origin.commit({"a": "x"})
    remote.server.delay = 60
    repository = remote.repository(GitLimits(fetch_timeout=0.5))
    begin = time.monotonic()
    error = await fails(repository.resolve())
    assert error.status is Status.DEADLINE_EXCEEDED
    assert time.monotonic() - begin < 50
    eventually(lambda: not _fetching(remote))
    remote.server.delay = 0
    assert await remote.repository().resolve() == commit


@async_test
async def test_kas_stops(remote: Place) -> None:
    """What runs is killed, and the copies are gone."""
    assert remote.server is not None
    remote.origin.commit({"a": "x"})
    repositories = remote.repositories()
    repository = repositories.open(remote.address)
    await repository.resolve()
    assert list(remote.state.path.rglob("*.pack"))
    remote.server.delay = 30
    before = len(remote.server.requests)
    asked = Deferred.fromCoroutine(_resolve(repository))
    while len(remote.server.requests) == before:
        await deferLater(_reactor, 0.01)
    repositories.stop()
    error = await fails(asked)
    assert error.status is Status.UNAVAILABLE
    assert not list(remote.state.path.glob("git-*"))
    # No further process is started.
    remote.server.delay = 0
    before = len(remote.server.requests)
    for ref in ("HEAD", "other"):
        error = await fails(repository.resolve(ref))
        assert error.message == "kas is shutting down"
    assert len(remote.server.requests) == before


@pytest.mark.parametrize("place", ["local", "http"], indirect=True)
@async_test
async def test_at_most_so_many(place: Place) -> None:
    """More readings than may run wait; more than may wait are refused."""
    commit = place.origin.commit({"a": "x"})
    repository = place.repository(attrs.evolve(LIMITS, readings=2, waiting=3))
    await repository.resolve()
    asked: list[Deferred[Any]] = [
        Deferred.fromCoroutine(_read(repository, commit, "a")) for _ in range(8)
    ]
    for one in asked:
        one.addErrback(lambda failure: failure.value)
    found = await gatherResults(asked)
    assert found.count(b"x") == 5
    assert [one.status for one in found if one != b"x"] == [Status.UNAVAILABLE] * 3


async def _read(repository: IRepository, commit: str, path: str) -> bytes:
    return await repository.read(commit, path, limit=99)


@async_test
async def test_gitaly_refuses(tmp_path: Path, server: GitServer) -> None:
    """A wrong token, an unknown repository, addresses that are none, nobody there."""
    place = _place("gitaly", tmp_path, server)
    place.origin.commit({"a": "x"})
    repositories = place.repositories()
    for changes, status in (
        ({"token": "wrong"}, Status.UNAUTHENTICATED),
        ({"relative_path": "none.git"}, Status.NOT_FOUND),
        ({"address": "http://127.0.0.1:1"}, Status.UNAVAILABLE),
        ({"address": "tcp://127.0.0.1:port"}, Status.UNAVAILABLE),
        ({"address": "tcp://127.0.0.1:9"}, Status.UNAVAILABLE),
    ):
        address = attrs.evolve(place.address, **changes)
        error = await fails(repositories.open(address).resolve())
        assert error.status is status, error
        assert TOKEN not in repr(error) + repr(address)
    repositories.stop()
    assert place.gitaly is not None
    place.gitaly.kill()


def test_copies_of_dead_processes(tmp_path: Path) -> None:
    """A kas that was killed leaves its copies, and the next one removes them."""
    state = StateDirectory.open(tmp_path / "state")
    dead, own, alive = (
        state.file("git-" + process_name(pid))
        for pid in (2**22 + 5, os.getpid(), os.getppid())
    )
    for folder in (dead, own, alive):
        (folder / "x").mkdir(parents=True)
    Repositories(state, Runtime(reactor=_reactor)).start()
    assert [one.exists() for one in (dead, own, alive)] == [False, False, True]


def _fetching(place: Place) -> list[str]:
    """Processes that ask its server."""
    host = urlsplit(place.address.url or "").netloc
    assert host
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "git-remote-http" in text and host in text:
            found.append(text)
    return found


@async_test
async def test_default_branch(place: Place) -> None:
    """Its whole name, whatever it is called; HEAD where none is named."""
    commit = place.origin.commit({"a": "1"})
    repository = place.repository()
    name = await repository.default_branch()
    assert name.startswith("refs/heads/")
    assert await repository.resolve() == await repository.resolve(name) == commit
    place.origin.commit({"a": "2"}, branch="stable")
    git = ("git", "-C", str(place.origin.path))
    subprocess.run([*git, "symbolic-ref", "HEAD", "refs/heads/stable"], check=True)
    await repository.resolve()
    assert await repository.default_branch() == "refs/heads/stable"
    subprocess.run([*git, "update-ref", "--no-deref", "HEAD", commit], check=True)
    await repository.resolve()
    assert await repository.default_branch() == "HEAD"


@async_test
async def test_branches_whose_names_end_with_head(place: Place) -> None:
    """Their number and their names change nothing for HEAD."""
    commit = place.origin.commit({"a": "x"})
    place.origin.commit({"a": "evil"}, branch="evil")
    for number in range(100):
        place.origin.run("update-ref", f"refs/heads/x{number:03}/HEAD", "evil")
    repository = place.repository()
    assert await repository.resolve() == commit
    assert await repository.default_branch() == "refs/heads/main"


@async_test
async def test_many_refs_at_once(remote: Place) -> None:
    """Only refs that have changed cost a fetch each."""
    assert remote.server is not None
    commit = remote.origin.commit({"a": "x"})
    names = [f"b{number}" for number in range(20)]
    for name in names:
        remote.origin.run("branch", name)
    remote.origin.run("tag", "-a", "-m", "one", "v1")
    refs = [*names, "refs/tags/v1", "HEAD"]
    repository = remote.repository()
    first = [Deferred.fromCoroutine(_resolved(repository, ref)) for ref in refs]
    assert await gatherResults(first) == [commit] * len(refs)
    remote.server.requests.clear()
    again = [Deferred.fromCoroutine(_resolved(repository, ref)) for ref in refs]
    assert await gatherResults(again) == [commit] * len(refs)
    # The first ref of all, and then the others together.
    assert len(remote.server.requests) <= 6
    # One of them changes, one goes, and one never was.
    new = remote.origin.commit({"a": "y"}, branch="b3")
    remote.origin.run("branch", "-D", "b4")
    asked = [
        Deferred.fromCoroutine(_resolved(repository, ref))
        for ref in ("b0", "b1", "b2", "b3", "b5", commit, "refs/tags/v1")
    ]
    gone = [
        Deferred.fromCoroutine(fails(_resolved(repository, ref)))
        for ref in ("b4", "never")
    ]
    assert await gatherResults(asked) == [commit] * 3 + [new] + [commit] * 3
    for error in await gatherResults(gone):
        assert error.status is Status.NOT_FOUND, error


@async_test
async def test_names_that_git_takes_for_others(place: Place) -> None:
    """Authors of branches cannot choose what other names lead to."""
    origin, repository = place.origin, place.repository()
    commit = origin.commit({"a": "x"})
    evil = origin.commit({"a": "evil"}, branch="evil")
    for name in (
        "refs/heads/refs/heads/prod",
        "refs/heads/refs/tags/v2",
        "refs/heads/x/refs/heads/main",
        "refs/heads/refs/heads/main\u2028/refs/heads/main",
        "refs/heads/x\u2028y",
        "refs/heads/HEAD",
    ):
        origin.run("update-ref", name, evil)
    refs = ("HEAD", "main", "refs/heads/main", commit)
    for _ in range(2):
        asked = [Deferred.fromCoroutine(_resolved(repository, ref)) for ref in refs]
        assert await gatherResults(asked) == [commit] * len(refs)
        for ref in ("prod", "refs/tags/v2", "refs/heads/nothing"):
            error = await fails(_resolved(repository, ref))
            assert error.status is Status.NOT_FOUND, ref
        assert await _resolved(repository, "x\u2028y") == evil
    assert not await repository.contains("main", evil)
    error = await fails(repository.contains("prod", evil))
    assert error.status is Status.NOT_FOUND
    # The branch of HEAD is gone, and another one is called HEAD.
    origin.run("update-ref", "-d", "refs/heads/main")
    assert (await fails(_resolved(repository, "HEAD"))).status is Status.NOT_FOUND


@async_test
async def test_a_ref_without_a_commit(remote: Place) -> None:
    """It does not stop the refs that are resolved with it."""
    commit = remote.origin.commit({"a": "x"})
    blob = remote.origin.run("rev-parse", "main:a")
    remote.origin.run("tag", "key", blob)
    names = ["b0", "b1", "b2"]
    for name in names:
        remote.origin.run("branch", name)
    repository = remote.repository()
    await _resolved(repository, "main")
    for _ in range(2):
        asked = [Deferred.fromCoroutine(_resolved(repository, ref)) for ref in names]
        failing = fails(_resolved(repository, "refs/tags/key"))
        bad = Deferred.fromCoroutine(failing)
        assert await gatherResults(asked) == [commit] * 3
        assert (await bad).status is Status.NOT_FOUND


@async_test
async def test_more_refs_than_packs(remote: Place) -> None:
    """A copy that is replaced gets all refs, so it is not replaced for each of them."""
    assert remote.server is not None
    commit = remote.origin.commit({"a": "x"})
    names = [f"b{number}" for number in range(4 * LIMITS.packs)]
    for number, name in enumerate(names):
        remote.origin.commit({"a": f"{number}"}, branch=name)
    repository = remote.repository()
    found: list[str] = []
    for _ in range(3):
        remote.server.requests.clear()
        asked = [Deferred.fromCoroutine(_resolved(repository, ref)) for ref in names]
        found = await gatherResults(asked)
    # Two lists of refs, and no fetch.
    assert len(remote.server.requests) <= 4
    for name, one in zip(names, found, strict=True):
        text = await repository.read(one, "a", limit=10)
        assert text == name.removeprefix("b").encode()
    assert commit not in found


@async_test
async def test_a_ref_that_cannot_be_fetched_with_others(remote: Place) -> None:
    """Authors of one branch stop nobody who follows others, also in a new copy."""
    assert remote.server is not None
    remote.origin.commit({"a": "x"})
    names = [f"b{number}" for number in range(12)]
    for name in names:
        remote.origin.commit({"a": name}, branch=name)
    limits = attrs.evolve(LIMITS, pack=1 << 20)
    repository = remote.repository(limits)
    await _all(repository, names)
    for push in range(6):
        # It is larger at each push, and the others change, too.
        parts = {f"f{part}": os.urandom(400_000) for part in range(3)}
        remote.origin.commit(parts, branch="evil")
        for name in names[::2]:
            remote.origin.commit({"a": f"{name} {push}"}, branch=name)
        remote.server.requests.clear()
        found = await _all(repository, [*names, "evil"])
        evil = found.pop("evil")
        assert isinstance(evil, CallError)
        assert evil.status is Status.RESOURCE_EXHAUSTED
        for name, commit in found.items():
            assert isinstance(commit, str), commit
            text = f"{name} {push}" if name in names[::2] else name
            assert await repository.read(commit, "a", limit=10) == text.encode()
    # The last fetches: of the list, of the others together, and of the large one.
    assert len(remote.server.requests) <= 3 * 6
    packs = list(remote.state.path.rglob("*.pack"))
    assert len(packs) <= 2 * (limits.packs + 1)


@async_test
async def test_more_refs_than_groups(
    remote: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refs are fetched in groups, and not again if they have not changed."""
    assert remote.server is not None
    for place in ("ref_resolver", "live_refs", "http"):
        monkeypatch.setattr(f"kas.git.{place}.MAX_TOGETHER", 5)
    remote.origin.commit({"a": "x"})
    names = [f"b{number}" for number in range(33)]
    for name in names:
        remote.origin.commit({"a": name}, branch=name)
    repository = remote.repository(attrs.evolve(LIMITS, packs=20))
    first = await _all(repository, names)
    assert len(list(remote.state.path.rglob("*.pack"))) <= 8
    remote.server.requests.clear()
    assert await _all(repository, names) == first
    # Seven lists, and no fetch.
    assert len(remote.server.requests) <= 7 * 2
    for name, commit in first.items():
        assert isinstance(commit, str), commit
        assert await repository.read(commit, "a", limit=10) == name.encode()


async def _all(
    repository: IRepository, refs: Sequence[str]
) -> dict[str, str | CallError]:
    """Resolve refs at once; return their commits or errors."""
    asked: list[Deferred[Any]] = [
        Deferred.fromCoroutine(_resolved(repository, ref)) for ref in refs
    ]
    for one in asked:
        one.addErrback(lambda failure: failure.value)
    return dict(zip(refs, await gatherResults(asked), strict=True))


@async_test
async def test_a_name_that_becomes_a_folder(remote: Place) -> None:
    """A ref of the copy outlives that of the server, and blocks no other name."""
    commit = remote.origin.commit({"a": "x"})
    remote.origin.run("branch", "release")
    repository = remote.repository()
    assert await _resolved(repository, "release") == commit
    remote.origin.run("branch", "-D", "release")
    remote.origin.run("branch", "release/1.0")
    assert await _resolved(repository, "release/1.0") == commit


async def _resolved(repository: IRepository, ref: str) -> str:
    return await repository.resolve(ref)
