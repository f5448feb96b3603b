"""The files of a commit in agentk: whole, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from modules.gitops.agent.source import snapshot as module
from modules.gitops.agent.source.snapshot import Snapshot, receive
from modules.gitops.wire.fingerprint import Fingerprint
from modules.gitops.wire.rpc_pb2 import ObjectsToSynchronizeResponse as Response
from tunnel.errors import CallError, Status

HEADER = Response(
    header=Response.Header(commit_id="c1", project_id=7, project_path="group/apps")
)


def part(path: str, data: bytes) -> Any:
    return Response(object=Response.Object(source=path, data=data))


def trailer(*files: tuple[str, bytes]) -> Any:
    fingerprint = Fingerprint()
    for path, data in files:
        fingerprint.add(path, data)
    return Response(
        trailer=Response.Trailer(files=len(files), sha256=fingerprint.digest())
    )


def received(*responses: Any) -> Snapshot | None:
    async def stream() -> AsyncIterator[Any]:
        for one in responses:
            yield one

    got: list[Any] = []
    Deferred.fromCoroutine(receive(stream())).addBoth(got.append)
    if hasattr(got[0], "raiseException"):
        got[0].raiseException()
    found: Snapshot | None = got[0]
    return found


def refused(*responses: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        received(*responses)
    return caught.value


FILES = (("a.yaml", b"one two"), ("b/c.yaml", b""))


def test_whole() -> None:
    found = received(
        HEADER,
        part("a.yaml", b"one "),
        part("a.yaml", b"two"),
        part("b/c.yaml", b""),
        trailer(*FILES),
    )
    assert found is not None
    assert found.files == FILES
    assert (found.commit, found.project_id, found.project) == ("c1", 7, "group/apps")
    assert "one two" not in repr(found)
    empty = received(HEADER, trailer())
    assert empty is not None
    assert empty.files == ()


def test_nothing_new() -> None:
    assert received() is None


ALL = (HEADER, part("a.yaml", b"one two"), part("b/c.yaml", b""))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_cut_off(count: int) -> None:
    """Wherever the stream ends, it is not taken for a source with fewer files."""
    assert refused(*ALL[:count]).status is Status.DATA_LOSS


@pytest.mark.parametrize(
    "responses",
    [
        (ALL[1], trailer(*FILES)),
        (trailer(),),
        (Response(header=Response.Header()), trailer()),
        (*ALL, HEADER, trailer(*FILES)),
        (*ALL[:2], trailer(*FILES)),
        (*ALL, trailer(FILES[0])),
        (*ALL, trailer(FILES[0], ("b/c.yaml", b"x"))),
        (*ALL, trailer(FILES[1], FILES[0])),
        (*ALL, part("a.yaml", b""), trailer(*FILES)),
        (*ALL, Response(), trailer(*FILES)),
    ],
)
def test_damaged(responses: tuple[Any, ...]) -> None:
    assert refused(*responses).status is Status.DATA_LOSS


@pytest.mark.parametrize(
    "path", ["", "/etc/x", "../x", "a/../x", "a//b", "./a", "a\0b", "a" * 5000]
)
def test_paths_stay_inside(path: str) -> None:
    found = refused(HEADER, part(path, b"x"), trailer((path, b"x")))
    assert found.status is Status.DATA_LOSS


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 13)
    assert received(*ALL[:2], trailer(FILES[0])) is not None
    error = refused(*ALL[:2], part("b", b""), trailer(FILES[0], ("b", b"")))
    assert error.status is Status.RESOURCE_EXHAUSTED
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    monkeypatch.setattr(module, "MAX_FILES", 1)
    assert refused(*ALL, trailer(*FILES)).status is Status.RESOURCE_EXHAUSTED
