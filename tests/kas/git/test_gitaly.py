"""Channels to Gitaly, and what it says of refs, read where there are very many."""

from __future__ import annotations

import pytest
from twisted.internet.testing import MemoryReactorClock

from kas.git import gitaly
from kas.git.gitaly import GitalyServers, _object_of
from kas.git.limits import GitLimits
from tunnel.errors import CallError, Status

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


def test_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each server; those without a call end, sooner where others need room."""
    monkeypatch.setattr(gitaly, "MAX_SERVERS", 2)
    clock = MemoryReactorClock()
    servers = GitalyServers(clock, GitLimits(), clock.seconds)
    with servers.channel("tcp://a:1") as first, servers.channel("tcp://a:1") as again:
        assert first is again
    clock.advance(gitaly.IDLE - 1)
    with servers.channel("tcp://a:1") as again:
        assert first is again
        clock.advance(2 * gitaly.IDLE)
        assert len(servers) == 1
        with servers.channel("tcp://b:1"):
            with pytest.raises(CallError) as caught, servers.channel("tcp://c:1"):
                pass
            assert caught.value.status is Status.UNAVAILABLE
        with servers.channel("tcp://c:1"):
            assert len(servers) == 2
        with servers.channel("tcp://a:1") as again:
            assert first is again
    clock.advance(gitaly.IDLE)
    assert len(servers) == 0
    with servers.channel("tcp://a:1") as again:
        assert again is not first
        servers.close()
    assert len(servers) == 0 and not clock.getDelayedCalls()
