"""Frames, whatever pieces they arrive in."""

from hypothesis import given
from hypothesis import strategies as st

from tunnel.errors import ErrorCode
from tunnel.wire.framing import FrameDecoder, encode_frame

FRAMES = st.lists(
    st.tuples(
        st.integers(0, 255),
        st.integers(0, 255),
        st.integers(0, 2**32 - 1),
        st.binary(max_size=300),
    ),
    max_size=12,
)


@given(FRAMES, st.data())
def test_any_cutting_gives_the_same_frames(
    frames: list[tuple[int, int, int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    decoder = FrameDecoder()
    got = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += decoder.feed(stream[start:stop])
    assert got == frames
    assert decoder.buffered == 0


def test_frame_is_given_once_its_last_byte_is_here() -> None:
    data = encode_frame(5, 1, 3, b"payload")
    decoder = FrameDecoder()
    for position in range(len(data) - 1):
        assert decoder.feed(data[position : position + 1]) == []
    assert decoder.feed(data[-1:]) == [(5, 1, 3, b"payload")]


def test_claimed_length_beyond_the_limit_ends_before_the_body_is_here() -> None:
    decoder = FrameDecoder(max_payload=100)
    good = encode_frame(5, 0, 1, b"x" * 100)
    assert decoder.feed(good + b"\xff\xff\xff\xff\x00\x00\x00\x01\x05\x00") == [
        (5, 0, 1, b"x" * 100)
    ]
    assert decoder.error is not None
    assert decoder.error.code is ErrorCode.FRAME_SIZE
    assert decoder.buffered == 0
    assert decoder.feed(good) == []


def test_an_answer_of_http() -> None:
    """It is named, and its first bytes are not shown as a length."""
    decoder = FrameDecoder()
    decoder.feed(b"HTTP/1.1 408 Request Timeout\r\n")
    assert decoder.error is not None
    assert str(decoder.error) == "received an HTTP response instead of a frame"


def test_claimed_length_allocates_nothing() -> None:
    decoder = FrameDecoder(max_payload=2**31)
    decoder.feed(b"\x7f\xff\xff\xff\x00\x00\x00\x01\x05\x00")
    assert decoder.buffered == 10
