"""Which requests last, and where a watch may end."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modules.kubernetes_api.watches import Boundary, is_watch, lasts

JSON = b"\r\nAudit-Id: x\r\nContent-Type: application/json;stream=watch"
PROTOBUF = b"\r\ncontent-type: application/vnd.kubernetes.protobuf;stream=watch"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/api/v1/pods?watch=true", True),
        (b"/api/v1/pods?limit=5&watch=1&resourceVersion=3", True),
        (b"/api/v1/pods?watch=false", False),
        (b"/api/v1/pods?watch", True),
        (b"/api/v1/pods?w%61tch=yes", True),
        (b"/api/v1/watch/pods", True),
        (b"/api/v1/pods/x?watch=true", False),
        (b"/version?watch=true", False),
        (b"/api/v1/pods?labelSelector=watch%3Dtrue", False),
        (b"/api/v1/pods?xwatch=true", False),
        (b"/api/v1/namespaces/watch=true/pods", False),
        (b"/api/v1/pods", False),
    ],
)
def test_watches(target: bytes, expected: bool) -> None:
    assert is_watch(b"GET", target) is expected
    assert lasts(b"GET", target) is expected
    assert not is_watch(b"POST", target)


def test_logs() -> None:
    target = b"/api/v1/namespaces/a/pods/b/log?container=c&follow=true"
    assert lasts(b"GET", target) and not is_watch(b"GET", target)
    assert not lasts(b"GET", target.replace(b"true", b"false"))


def test_json_ends_with_its_line() -> None:
    boundary = Boundary(JSON)
    seen = [boundary.between]
    for part in (b'{"type":"ADDED"', b"}\n"):
        boundary.feed(part)
        seen.append(boundary.between)
    assert seen == [True, False, True]


@given(
    st.lists(st.binary(max_size=40), max_size=6),
    st.lists(st.integers(0, 300), max_size=6),
)
def test_protobuf_however_it_is_cut(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(struct.pack(">I", len(one)) + one for one in frames)
    ends = {0}
    for one in frames:
        ends.add(max(ends) + 4 + len(one))
    boundary = Boundary(PROTOBUF)
    marks = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for begin, end in pairwise(marks):
        boundary.feed(data[begin:end])
        assert boundary.between == (end in ends)


def test_an_unknown_form_never_ends() -> None:
    boundary = Boundary(b"\r\nContent-Type: text/event-stream")
    boundary.feed(b"data\n")
    assert not boundary.between
