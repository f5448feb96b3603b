"""Channels to Gitaly, and what it says of refs, read where there are very many."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.testing import MemoryReactorClock

from kas.git import gitaly
from kas.git.gitaly import GitalyRepository, GitalyServers, _object_of
from kas.git.limits import GitLimits
from kas.git.metrics import GitCollector
from kas.git.pieces import PIECE
from kas.git.repositories import Repositories
from kas.state.directory import StateDirectory
from tunnel.api import GitalyAddress
from tunnel.errors import CallError, Status
from tunnel.gitaly import gitaly_pb2 as pb
from tunnel.program.runtime import Runtime

COMMIT = "a" * 40
SHA1, SHA256 = b"0123456789abcdef" * 2 + b"01234567", b"0123456789abcdef" * 4


def advertisement(*lines: bytes) -> bytearray:
    """As Git's protocol has it, in pkt-lines."""
    packed = [b"%04x%b" % (len(line) + 4, line) for line in lines]
    begin = b"001e# service=git-upload-pack\n0000"
    return bytearray(begin + b"".join(packed) + b"0000")


@pytest.mark.parametrize("id_", [SHA1, SHA256])
@pytest.mark.parametrize("others", [0, 1000])
def test_refs(id_: bytes, others: int) -> None:
    """The first line and all others, with what the server can do behind the first."""
    other = b"f" * len(id_)
    refs = advertisement(
        other + b" HEAD\0multi_ack symref=HEAD:refs/heads/main agent=git/2.39 v1\n",
        *(b"%b refs/merge-requests/%d/head\n" % (other, n) for n in range(others)),
        id_ + b" refs/heads/main\n",
        other + b" refs/tags/v1\n",
        id_ + b" refs/tags/v1^{}\n",
    )
    assert _object_of(refs, b"HEAD") == other
    assert _object_of(refs, b"refs/heads/main") == id_
    assert _object_of(refs, b"refs/tags/v1") == other
    assert _object_of(refs, b"refs/tags/v1^{}") == id_
    for name in (b"v1", b"main", b"refs/heads/mai", b"heads/main", b""):
        assert _object_of(refs, name) is None


def test_no_refs() -> None:
    """A repository without a commit, and what is no advertisement."""
    empty = advertisement(b"0" * 40 + b" capabilities^{}\0agent=git/2.39\n")
    assert _object_of(empty, b"HEAD") is None
    assert _object_of(bytearray(b"x HEAD\n HEAD\n0000"), b"HEAD") is None


@attrs.define
class Use:
    """A call that lasts until it is told to end."""

    servers: GitalyServers
    address: str = "tcp://a:1"
    channel: Any = None
    end: Deferred[None] = attrs.Factory(Deferred)

    def begin(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._use())

    async def _use(self) -> None:
        async with self.servers.channel(self.address) as self.channel:
            await self.end


def test_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each server; those without a call end, sooner where others need room."""
    monkeypatch.setattr(gitaly, "MAX_SERVERS", 2)
    clock = MemoryReactorClock()
    servers = GitalyServers(clock, GitLimits(), clock.seconds)

    def begin(address: str) -> Use:
        use = Use(servers, address)
        done.append(use.begin())
        return use

    done: list[Deferred[None]] = []
    first, second = begin("tcp://a:1"), begin("tcp://a:1")
    assert first.channel is second.channel is not None
    first.end.callback(None)
    second.end.callback(None)
    clock.advance(gitaly.IDLE - 1)
    third = begin("tcp://a:1")
    assert third.channel is first.channel
    clock.advance(2 * gitaly.IDLE)
    assert len(servers) == 1
    other = begin("tcp://b:1")
    failures: list[Any] = []
    begin("tcp://c:1")
    done.pop().addErrback(failures.append)
    assert failures[0].value.status is Status.UNAVAILABLE
    other.end.callback(None)
    begin("tcp://c:1").end.callback(None)
    assert len(servers) == 2 and begin("tcp://a:1").channel is first.channel
    third.end.callback(None)
    clock.advance(gitaly.IDLE)
    assert len(servers) == 1
    servers.close()
    assert len(servers) == 0 and not clock.getDelayedCalls()


def test_rates() -> None:
    """So many at once, for each server and for all; then one after the other."""
    clock = MemoryReactorClock()
    limits = GitLimits(
        gitaly_rate=2, gitaly_burst=3, gitaly_server_rate=1, gitaly_server_burst=2
    )
    servers = GitalyServers(clock, limits, clock.seconds)
    uses = [Use(servers, f"tcp://{name}:1") for name in "aaab"]
    for use in uses:
        use.begin()
    assert [bool(use.channel) for use in uses] == [True, True, False, True]
    late = Use(servers, "tcp://c:1")
    late.begin()
    assert not late.channel and servers.waiting == 2
    clock.advance(0.5)
    assert late.channel and servers.waiting == 1
    clock.advance(0.5)
    assert uses[2].channel and servers.waiting == 0
    # Who gives up leaves its turn to others.
    gone = Use(servers, "tcp://a:1")
    calls = gone.begin()
    calls.addErrback(lambda _: None)
    assert servers.waiting == 1
    calls.cancel()
    assert servers.waiting == 0


def test_metrics(tmp_path: Path) -> None:
    """What was counted is there under its names."""
    clock = MemoryReactorClock()
    repositories = Repositories(
        StateDirectory.open(tmp_path / "state"), Runtime(reactor=clock)
    )
    outcomes = repositories.gitaly.outcomes
    with outcomes.measure("TreeEntry"):
        clock.advance(1.5)
    with pytest.raises(CallError), outcomes.measure("TreeEntry"):
        raise CallError(Status.NOT_FOUND, "no")
    with repositories.commands.measure("fetch") as said:
        said.append("failed")
    registry = CollectorRegistry()
    registry.register(GitCollector(repositories))
    value = registry.get_sample_value
    calls = "kas_gitaly_calls_total"
    assert value(calls, {"method": "TreeEntry", "outcome": "ok"}) == 1
    assert value(calls, {"method": "TreeEntry", "outcome": "not_found"}) == 1
    assert value("kas_gitaly_call_seconds_total", {"method": "TreeEntry"}) == 1.5
    labels = {"command": "fetch", "outcome": "failed"}
    assert value("kas_git_commands_total", labels) == 1
    assert value("kas_git_copies") == value("kas_git_copy_bytes") == 0
    assert value("kas_gitaly_calls_waiting") == value("kas_gitaly_servers") == 0


class TurnCounter(MemoryReactorClock):
    """A reactor that counts the calls for its next turn."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> IDelayedCall:
        self.turns += delay == 0
        return super().callLater(delay, callable, *args, **kw)


class ListedByGitaly(GitalyRepository):
    """A repository whose Gitaly answers *messages*."""

    def __init__(self, clock: MemoryReactorClock, messages: list[Any]) -> None:
        servers = GitalyServers(clock, GitLimits(), clock.seconds)
        address = GitalyAddress(address="tcp://a:1", relative_path="a.git")
        super().__init__(servers, address)
        self.messages = messages
        self.sent = 0

    async def _stream(
        self, service: str, method: str, request: Any
    ) -> AsyncIterator[Any]:
        for one in self.messages:
            self.sent += 1
            yield one


def test_a_listing_of_gitaly_ends_early() -> None:
    """It reads no more messages than the caller can use."""
    entries = [pb.TreeEntry(path=b"%d" % n, mode=0o100644) for n in range(100)]
    messages = [pb.GetTreeEntriesResponse(entries=entries)] * 50
    repository = ListedByGitaly(MemoryReactorClock(), messages)
    reading = Deferred.fromCoroutine(repository.tree(COMMIT, recursive=True, most=150))
    found: list[Any] = []
    reading.addCallback(found.extend)
    assert (len(found), repository.sent) == (151, 2)


@pytest.mark.parametrize("method", ["tree", "changed"])
def test_a_large_message_of_gitaly_is_read_in_pieces(method: str) -> None:
    clock, count = TurnCounter(), 3 * PIECE
    entries = [pb.TreeEntry(path=b"%06d" % n, mode=0o100644) for n in range(count)]
    deltas = [
        pb.CommitDelta(from_path=b"%06d" % n, to_path=b"%06d" % n) for n in range(count)
    ]
    messages = {
        "tree": pb.GetTreeEntriesResponse(entries=entries),
        "changed": pb.CommitDeltaResponse(deltas=deltas),
    }
    repository = ListedByGitaly(clock, [messages[method]])
    asked: Any = {
        "tree": lambda: repository.tree(COMMIT, recursive=True),
        "changed": lambda: repository.changed(COMMIT, COMMIT),
    }
    reading: Deferred[list[Any]] = Deferred.fromCoroutine(asked[method]())
    clock.advance(0)
    assert clock.turns == 3
    found: list[Any] = []
    reading.addCallback(found.extend)
    assert len(found) == count
