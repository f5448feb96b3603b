"""The chunked coding, cut anywhere and abused."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tunnel.http1.chunked import ChunkedDecoder, encode_chunk, encode_last_chunk
from tunnel.http1.head import HeadError


def decode(*pieces: bytes) -> tuple[bytes, bytes | None, bytes]:
    decoder = ChunkedDecoder()
    body = b""
    rest: bytes | None = None
    for piece in pieces:
        if rest is not None:
            rest += piece
            continue
        part, rest = decoder.feed(piece)
        body += part
    return body, rest, decoder.trailers


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.sampled_from([b"", b"\r\nA: b", b"\r\nA: b\r\nC: d"]),
    st.binary(max_size=10),
    st.data(),
)
def test_cut_anywhere(
    chunks: list[bytes], trailers: bytes, rest: bytes, data: st.DataObject
) -> None:
    """Where the network cuts makes no difference, and nothing behind is touched."""
    whole = b"".join(map(encode_chunk, chunks)) + encode_last_chunk(trailers) + rest
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert decode(*pieces) == (b"".join(chunks), rest, trailers)


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=5))
def test_byte_by_byte(chunks: list[bytes]) -> None:
    """The slowest sender gets the same result."""
    whole = b"".join(map(encode_chunk, chunks)) + encode_last_chunk(b"\r\nA: b")
    pieces = [whole[i : i + 1] for i in range(len(whole))]
    assert decode(*pieces) == (b"".join(chunks), b"", b"\r\nA: b")


@pytest.mark.parametrize(
    "coded",
    [
        b"\r\n",
        b"g\r\n",
        b"-1\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b"5\nhello\r\n",
        b"5\rhello\r\n",
        b"5\r\nhello!\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhelloX",
        b"5\r\nhello\rX",
        b"5;a\x00\r\nhello\r\n",
        b"5;a\nb\r\nhello\r\n",
        b"11111111111111111\r\n",
        b"0\r\nA b\r\n\r\n",
        b"0\r\n A: b\r\n\r\n",
        b"0\r\nA: b\nC: d\r\n\r\n",
    ],
)
def test_broken_coding_is_refused(coded: bytes) -> None:
    """Whole or byte by byte, no reading of it is guessed."""
    with pytest.raises(HeadError):
        decode(coded)
    with pytest.raises(HeadError):
        decode(*[coded[i : i + 1] for i in range(len(coded))])


class LimitTests(SynchronousTestCase):
    """What a sender cannot spend."""

    def test_too_large(self) -> None:
        """More digits than any body needs: that is what is said, and at once."""
        for pieces in ((b"1" * 17,), (b"f" * 10, b"f" * 10)):
            error = self.assertRaises(HeadError, decode, *pieces)
            self.assertEqual(str(error), "the size of a chunk is too large")

    def test_extension(self) -> None:
        """One is skipped, many are refused, and so is a long one."""
        self.assertEqual(decode(b"1;a=b\r\nx\r\n0;c\r\n\r\n"), (b"x", b"", b""))
        self.assertRaises(HeadError, decode, b"1;" + b"a" * 300)
        chunk = b"1;" + b"a" * 200 + b"\r\nx\r\n"
        self.assertEqual(decode(chunk * 20)[0], b"x" * 20)
        self.assertRaises(HeadError, decode, chunk * 21)

    def test_half_an_extension(self) -> None:
        """An extension that ends in the middle is refused, whatever is before it."""
        for begin in (b"1", b"1;a", b'1;a="b";c=d'):
            for half in (b";", b";=", b";a=", b';a="', b';a="b', b';a="\\', b";a;"):
                self.assertRaises(HeadError, decode, begin + half + b"\r\nx\r\n")

    def test_trailers(self) -> None:
        """They are bounded, complete or not."""
        for tail in (b"", b"\r\n\r\n"):
            error = self.assertRaises(
                HeadError, decode, b"0\r\nA: " + b"b" * 17000 + tail
            )
            self.assertEqual(error.status, 431)

    def test_nothing_is_kept(self) -> None:
        """A chunk of any size passes through."""
        decoder = ChunkedDecoder()
        decoder.feed(b"ffffffffffff\r\n")
        for _ in range(100):
            body, rest = decoder.feed(b"x" * 65536)
            self.assertEqual((len(body), rest), (65536, None))
        self.assertEqual(decoder._held, b"")


class _Seen:
    def __init__(self) -> None:
        self.body = b""
        self.complete = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


_BITS = st.sampled_from(
    [b"5", b"0", b"1", b"a", b"\r\n", b"\n", b"\r", b" ", b";", b"x", b"hello"]
)


@given(st.lists(_BITS, max_size=14))
def test_llhttp_agrees_on_what_we_accept(bits: list[bytes]) -> None:
    """A body that passes here is the same body to llhttp."""
    coded = b"".join(bits) + b"\r\n0\r\n\r\n"
    try:
        body, rest, _ = decode(coded)
    except HeadError:
        return
    if rest is None:
        return
    seen = _Seen()
    parser = httptools.HttpRequestParser(seen)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    parser.feed_data(head + coded[: len(coded) - len(rest)])
    assert seen.complete
    assert seen.body == body
