"""Where a watch may end."""

from __future__ import annotations

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from modules.kubernetes_api.watch_boundary import Boundary

JSON = b"\r\nAudit-Id: x\r\nContent-Type: application/json;stream=watch"
PROTOBUF = b"\r\ncontent-type: application/vnd.kubernetes.protobuf;stream=watch"


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
