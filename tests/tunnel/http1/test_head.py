"""Heads: what is read, what is refused, what travels on."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tunnel.http1.head import (
    CHUNKED,
    MAX_KNOWN,
    MAX_TAKEN,
    UNTIL_CLOSE,
    HeadError,
    HeadNote,
    RequestHead,
    RequestParser,
    ResponseHead,
    ResponseParser,
    clean_trailers,
    cut,
    encode_request,
    lines_of,
    without,
)

PARSER = RequestParser(taken=[b"authorization", b"impersonate-*"])
RESPONSES = ResponseParser(taken=[b"set-cookie", b"access-control-*"])


def request(*lines: bytes, start: bytes = b"GET / HTTP/1.1") -> RequestHead:
    block = b"".join(line + b"\r\n" for line in (start, b"Host: a", *lines))
    return PARSER.parse(block)


def response(
    *lines: bytes, start: bytes = b"HTTP/1.1 200 OK", method: bytes = b"GET"
) -> ResponseHead:
    return RESPONSES.parse(b"".join(line + b"\r\n" for line in (start, *lines)), method)


GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"

REFUSED = {
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n",
    "equal lengths": POST + b"Content-Length: 1\r\ncontent-length: 1\r\n",
    "length list": POST + b"Content-Length: 1, 1\r\n",
    "signed length": POST + b"Content-Length: +1\r\n",
    "hexadecimal length": POST + b"Content-Length: 0x1\r\n",
    "spaced length": POST + b"Content-Length: 1 1\r\n",
    "empty length": POST + b"Content-Length: \r\n",
    "huge length": POST + b"Content-Length: " + b"9" * 20 + b"\r\n",
    "length and coding": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
    "coding and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
    "two codings": POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "coding list": POST + b"Transfer-Encoding: gzip, chunked\r\n",
    "unknown coding": POST + b"Transfer-Encoding: xchunked\r\n",
    "quoted coding": POST + b'Transfer-Encoding: "chunked"\r\n',
    "coding with vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n",
    "coding with space before colon": POST + b"Transfer-Encoding : chunked\r\n",
    "coding behind a space": POST + b" Transfer-Encoding: chunked\r\n",
    "coding with underscore": POST + b"Transfer_Encoding: chunked\r\n",
    "length with underscore": POST + b"Content_Length: 5\r\n",
    "coding in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
    "bare LF": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n",
    "bare CR": GET + b"X: b\rY: c\r\n",
    "bare LF ends the request line": b"GET / HTTP/1.1\nHost: a\r\n",
    "NUL": GET + b"X: b\0\r\n",
    "folded": GET + b"X: b\r\n c\r\n",
    "folded by tab": GET + b"X: b\r\n\tc\r\n",
    "no colon": GET + b"X\r\n",
    "no name": GET + b": x\r\n",
    "two hosts": GET + b"Host: a\r\n",
    "no host": b"GET / HTTP/1.1\r\nX: b\r\n",
    "host with path": b"GET / HTTP/1.1\r\nHost: a/b\r\n",
    "host with user": b"GET / HTTP/1.1\r\nHost: a@b\r\n",
    "absolute target": b"GET http://a/ HTTP/1.1\r\nHost: a\r\n",
    "authority target": b"GET a:443 HTTP/1.1\r\nHost: a\r\n",
    "asterisk target": b"OPTIONS * HTTP/1.1\r\nHost: a\r\n",
    "fragment": b"GET /a#b HTTP/1.1\r\nHost: a\r\n",
    "space in target": b"GET /a b HTTP/1.1\r\nHost: a\r\n",
    "tab in request line": b"GET\t/ HTTP/1.1\r\nHost: a\r\n",
    "control character in target": b"GET /\x01 HTTP/1.1\r\nHost: a\r\n",
    "raw UTF-8 in target": "GET /ä HTTP/1.1\r\nHost: a\r\n".encode(),
    "no version": b"GET /\r\nHost: a\r\n",
    "long method": b"A" * 33 + b" / HTTP/1.1\r\nHost: a\r\n",
    "Connection is no list of names": GET + b"Connection: a b\r\n",
    "Connection names Host": GET + b"Connection: host\r\n",
    "Connection names Content-Length": GET + b"Connection: Content-Length\r\n",
    "Connection names Via": GET + b"Connection: close, via\r\n",
    "Connection names X-Forwarded-For": GET + b"Connection: x-forwarded-for\r\n",
    "upgrade with body": GET
    + b"Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 1\r\n",
    "empty": b"",
}


@pytest.mark.parametrize("block", REFUSED.values(), ids=REFUSED.keys())
def test_ambiguous_request_is_refused(block: bytes) -> None:
    """What two readers could understand differently gets 400."""
    with pytest.raises(HeadError) as caught:
        PARSER.parse(block)
    assert caught.value.status == 400
    assert str(caught.value)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (b"A" * 33 + b" / HTTP/1.1\r\nHost: a\r\n", "a method of more than 32"),
        (b"G(T / HTTP/1.1\r\nHost: a\r\n", "not permitted in a method"),
        (
            POST + b"Content-Length: " + b"9" * 19 + b"\r\n",
            "Content-Length is too large",
        ),
        (POST + b"Content-Length: 1x\r\n", "Content-Length is not a number"),
    ],
)
def test_what_is_wrong_is_said(block: bytes, said: str) -> None:
    """Not that a line is malformed which is not."""
    with pytest.raises(HeadError, match=said):
        PARSER.parse(block)


class RequestTests(SynchronousTestCase):
    """`RequestParser` on what is allowed."""

    def test_fields_travel_as_they_are(self) -> None:
        """Untaken lines keep their bytes, order and case."""
        head = request(
            b"X-B:  c ", b"authorization: s", b"x-a:\tZ", b"Connection: close"
        )
        self.assertEqual(head.fields, b"\r\nX-B:  c \r\nx-a:\tZ")
        self.assertEqual(head.taken[b"authorization"], [b"s"])
        self.assertEqual(head.host, b"a")
        self.assertFalse(head.keep_alive)

    def test_prefix_is_taken(self) -> None:
        """A star takes every name that begins so, whatever its case."""
        head = request(b"Impersonate-User: a", b"impersonate-Extra-%2F: b")
        self.assertEqual(head.fields, b"")
        self.assertEqual(head.taken[b"impersonate-user"], [b"a"])
        self.assertEqual(head.taken[b"impersonate-extra-%2f"], [b"b"])

    def test_taken_name_with_underscore(self) -> None:
        """Some servers read underscores as dashes: refused."""
        for line in (b"Impersonate_User: a", b"impersonate_Extra-x: b"):
            self.assertRaises(HeadError, request, line)
        head = request(b"Impersonate-Extra-my_key: c")
        self.assertEqual(head.taken[b"impersonate-extra-my_key"], [b"c"])

    def test_hop_by_hop_stays_here(self) -> None:
        """Lines of this connection, and those that Connection names, go no further."""
        head = request(
            b"Connection: X-Mine, keep-alive",
            b"X-Mine: 1",
            b"Keep-Alive: 5",
            b"TE: trailers",
            b"Trailer: x",
            b"Proxy-Authorization: p",
            b"Upgrade: websocket",
            b"X-Other: 2",
        )
        self.assertEqual(head.fields, b"\r\nX-Other: 2")
        self.assertEqual(head.upgrade, b"")
        self.assertTrue(head.keep_alive)

    def test_lengths(self) -> None:
        """A number, chunks, or nothing."""
        self.assertEqual(request().length, 0)
        self.assertEqual(request(b"Content-Length: 42").length, 42)
        self.assertEqual(request(b"Transfer-Encoding: Chunked").length, CHUNKED)

    def test_expectation(self) -> None:
        """100-continue is noted where a body follows; another one gets 417."""
        head = request(b"Expect: 100-Continue", b"Content-Length: 1")
        self.assertTrue(head.expect_continue)
        self.assertFalse(request(b"Expect: 100-continue").expect_continue)
        error = self.assertRaises(HeadError, request, b"Expect: cake")
        self.assertEqual(error.status, 417)

    def test_upgrade(self) -> None:
        """One protocol, asked for in both headers; never h2c."""
        asked = b"Connection: keep-alive, Upgrade"
        self.assertEqual(request(asked, b"Upgrade: SPDY/3.1").upgrade, b"SPDY/3.1")
        self.assertEqual(request(asked, b"Upgrade: h2c").upgrade, b"")
        self.assertEqual(request(asked, b"Upgrade: a, b").upgrade, b"")
        self.assertEqual(request(b"Upgrade: websocket").upgrade, b"")
        old = request(asked, b"Upgrade: websocket", start=b"GET / HTTP/1.0")
        self.assertEqual(old.upgrade, b"")

    def test_http_1_0(self) -> None:
        """Kept only if asked for, and Host is optional."""
        head = PARSER.parse(b"GET / HTTP/1.0\r\n")
        self.assertFalse(head.keep_alive)
        head = PARSER.parse(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n")
        self.assertTrue(head.keep_alive)

    def test_statuses(self) -> None:
        """Other versions and methods have answers of their own."""
        for block, status in (
            (b"PRI * HTTP/2.0\r\n", 505),
            (b"GET / HTTP/1.2\r\nHost: a\r\n", 505),
            (b"CONNECT /a HTTP/1.1\r\nHost: a\r\n", 405),
            (b"TRACE / HTTP/1.1\r\nHost: a\r\n", 405),
        ):
            error = self.assertRaises(HeadError, PARSER.parse, block)
            self.assertEqual(error.status, status, block)

    def test_too_many_lines(self) -> None:
        """One line more than the limit is 431."""
        parser = RequestParser(max_count=3)
        block = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 2
        parser.parse(block)
        error = self.assertRaises(HeadError, parser.parse, block + b"A: b\r\n")
        self.assertEqual(error.status, 431)

    def test_encode(self) -> None:
        """A block parses back to what it was made of."""
        parser = RequestParser(host_required=False)
        for length, upgrade in ((0, b""), (7, b""), (CHUNKED, b""), (0, b"websocket")):
            block = encode_request(
                b"POST", b"/x?y", b"\r\nA: b", length=length, upgrade=upgrade
            )
            head = parser.parse(block)
            self.assertEqual(
                (head.method, head.target, head.fields, head.length, head.upgrade),
                (b"POST", b"/x?y", b"\r\nA: b", length, upgrade),
            )

    def test_post_always_has_a_length(self) -> None:
        """Some servers answer 411 to a POST that says nothing."""
        self.assertIn(b"Content-Length: 0", encode_request(b"POST", b"/", b""))
        self.assertNotIn(b"Content-Length", encode_request(b"GET", b"/", b""))


class ResponseTests(SynchronousTestCase):
    """`ResponseParser`, whose peer may be hostile."""

    def test_framing(self) -> None:
        """Where each kind of response ends."""
        self.assertEqual(response(b"Content-Length: 3").length, 3)
        self.assertEqual(response(b"Transfer-Encoding: chunked").length, CHUNKED)
        self.assertEqual(response().length, UNTIL_CLOSE)
        head = response(b"Content-Length: 3", method=b"HEAD")
        self.assertTrue(head.bodiless)
        self.assertEqual(head.length, 3)
        for status in (b"100", b"204", b"304"):
            self.assertTrue(response(start=b"HTTP/1.1 " + status + b" x").bodiless)

    def test_refused(self) -> None:
        """Ambiguity is the origin's fault."""
        for lines in (
            (b"Content-Length: 1", b"Content-Length: 1"),
            (b"Content-Length: 1", b"Transfer-Encoding: chunked"),
            (b"Transfer-Encoding: gzip",),
            (b"A: b\x00",),
            (b"A: b\rC: d",),
            (b" folded: x",),
            (b"Connection: a b",),
        ):
            error = self.assertRaises(HeadError, response, *lines)
            self.assertEqual(error.status, 502, lines)
        for start in (b"HTTP/1.1 20 OK", b"HTTP/2.0 200 OK", b"HTTP/1.1  200 OK", b"x"):
            self.assertRaises(HeadError, response, start=start)

    def test_taken(self) -> None:
        """Taken lines, and those of the connection, do not travel."""
        head = response(
            b"Set-Cookie: a",
            b"Access-Control-Allow-Origin: *",
            b"Connection: close, x-b",
            b"X-B: c",
            b"Date: now",
        )
        self.assertEqual(head.fields, b"\r\nDate: now")
        self.assertFalse(head.keep_alive)

    def test_too_many_lines(self) -> None:
        """The origin does not decide how long we parse."""
        self.assertRaises(HeadError, response, *[b"A: b"] * 257)

    def test_block(self) -> None:
        """What the next hop gets says the length, and the upgrade."""
        head = response(b"Content-Length: 3", b"A: b")
        self.assertEqual(
            head.block(b"\r\nVia: x"),
            b"HTTP/1.1 200 OK\r\nA: b\r\nVia: x\r\nContent-Length: 3\r\n",
        )
        head = response(
            b"Connection: Upgrade",
            b"Upgrade: x",
            start=b"HTTP/1.1 101 Switching",
        )
        self.assertEqual(
            head.block(),
            b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n",
        )


class _Seen:
    """What llhttp makes of a head."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))


_BITS = st.sampled_from(
    [
        b"Content-Length", b"Transfer-Encoding", b"chunked", b"5", b"0", b": ", b":",
        b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b"\x0b", b"Host", b"a", b",", b"X",
        b"Connection", b"close", b"\xff", b"_", b"-", b"GET / HTTP/1.1\r\n",
    ]
)  # fmt: skip


@pytest.mark.parametrize("half", [b"", b"X", b"X\t:", b"X :", b":", b"X\r\nA: b"])
@pytest.mark.parametrize("lines", [0, 1, 5])
def test_half_a_line_is_refused(half: bytes, lines: int) -> None:
    """A line that ends in the middle is refused behind any number of whole lines."""
    whole = b"".join(b"X-%d: a\r\n" % number for number in range(lines))
    with pytest.raises(HeadError):
        RequestParser().parse(b"GET / HTTP/1.1\r\nHost: a\r\n" + whole + half + b"\r\n")
    for length in (b"", b"Content-Length: 5\r\n", b"Connection: keep-alive\r\n"):
        with pytest.raises(HeadError):
            ResponseParser().parse(
                b"HTTP/1.1 200 OK\r\n" + length + whole + half + b"\r\n"
            )
    with pytest.raises(HeadError):
        clean_trailers(whole + half + b"\r\n")


@given(st.lists(_BITS, max_size=20))
def test_llhttp_agrees_on_what_we_accept(bits: list[bytes]) -> None:
    """Whatever passes here means the same to a parser that others use."""
    block = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(bits) + b"\r\n"
    try:
        head = RequestParser().parse(block)
    except HeadError:
        return
    seen = _Seen()
    parser = httptools.HttpRequestParser(seen)
    try:
        parser.feed_data(block + b"\r\n")
    except httptools.HttpParserUpgrade:
        pass
    assert seen.url == head.target
    kept = [line.partition(b":")[0] for line in head.fields.split(b"\r\n")[1:]]
    names = [name for name, _ in seen.headers]
    assert len(names) == len(kept) + sum(map(len, head.taken.values()))
    assert [name for name in names if name in kept] == kept
    lengths = [int(v) for n, v in seen.headers if n.lower() == b"content-length"]
    if lengths:
        assert lengths == [head.length]


def _read(parse: Callable[[bytes], object], block: bytes) -> object:
    """Everything that a parser says of *block*, be it a head or an error."""
    try:
        head = parse(block)
    except HeadError as error:
        return error.status, str(error)
    found = {name: getattr(head, name) for name in dir(head) if name[0] != "_"}
    fields = {name: value for name, value in found.items() if not callable(value)}
    assert "fields" in fields
    return {name: value for name, value in fields.items() if name != "notes"}


_LINES = st.sampled_from(
    [
        b"Content-Length: 5", b"content-length:7 ", b"Content-Length: 1,1",
        b"Transfer-Encoding: chunked", b"Transfer_Encoding: chunked", b"Expect: x",
        b"X: \0", b"Connection: close, x", b"Connection: upgrade", b"Upgrade: wibble",
        b"Authorization: Bearer a", b"Impersonate-User:  b\t", b"X:\xff", b" X: a",
        b"Via: 1.1 a", b"via: b ,c", b"Set-Cookie: a=b", b"Date: now", b"TE: trailers",
        b"Access-Control-Allow-Origin: *", b"x : y", b"Keep-Alive: 5", b"y: a\rb: c",
        b"Connection: keep-alive", b"connection:Keep-Alive", b"Connection: keep-alive ",
    ]
)  # fmt: skip
_STARTS = st.sampled_from(
    [
        b"GET / HTTP/1.1", b"GET /a?b HTTP/1.1", b"GET / HTTP/1.0", b"POST / HTTP/1.1",
        b"TRACE / HTTP/1.1", b"GET a HTTP/1.1", b"GET / HTTP/1.2", b"GET / HTTP/1.11",
    ]
)  # fmt: skip
_BLOCKS = st.tuples(
    _STARTS, st.lists(_LINES, max_size=3), st.booleans(), st.lists(_BITS, max_size=2)
).map(
    lambda parts: b"".join(
        [
            parts[0] + b"\r\n",
            b"Host: a\r\n" if parts[2] else b"",
            *[line + b"\r\n" for line in parts[1]],
            *parts[3],
        ]
    )
)


@given(st.lists(_BLOCKS, min_size=1, max_size=8), st.booleans())
def test_known_heads_mean_the_same(blocks: list[bytes], host_required: bool) -> None:
    """Whatever came before, each head is read as if it were the first."""
    parser = RequestParser(
        taken=[b"authorization", b"impersonate-*", b"via"],
        host_required=host_required,
        max_count=3,
    )
    known: dict[bytes, RequestHead] = {}
    for block in [*blocks, *blocks]:
        got = _read(lambda one: parser.parse(one, known), block)
        assert got == _read(parser.parse, block)


_ANSWERS = st.tuples(
    st.sampled_from(
        [
            b"HTTP/1.1 200 OK", b"HTTP/1.1 404", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 x",
            b"HTTP/1.1 101 x", b"HTTP/1.1 100 x", b"HTTP/1.1 600 x",
            b"HTTP/1.1 304 \xff",
        ]
    ),
    st.lists(_LINES, max_size=5),
    st.lists(_BITS, max_size=2),
    st.sampled_from([b"GET", b"HEAD"]),
)  # fmt: skip


@given(_ANSWERS)
@example((b"HTTP/1.1 200 OK", [b"Transfer-Encoding: chunked"], [], b"GET"))
@example((b"HTTP/1.1 200 OK", [b"Content-Length: 1"], [], b"GET"))
@example((b"HTTP/1.1 200 OK", [b"Connection: close"], [], b"GET"))
def test_usual_answers_mean_the_same(
    answer: tuple[bytes, list[bytes], list[bytes], bytes],
) -> None:
    """What is read in one go is what the closer look finds."""
    start, lines, bits, method = answer
    block = b"".join([start, b"\r\n", *[line + b"\r\n" for line in lines], *bits])
    for taken in (
        [],
        [b"via"],
        [b"via", b"set-cookie", b"access-control-*"],
        [b"transfer-encoding", b"content-*", b"connection"],
        [b"*"],
    ):
        quick = ResponseParser(taken=taken, max_count=4)
        thorough = ResponseParser(taken=taken, max_count=4)
        thorough._usual = re.compile(rb"(?!)")
        found = [
            _read(partial(parser.parse, method=method), block)
            for parser in (quick, thorough)
        ]
        assert found[0] == found[1]


def test_names_of_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lines a Connection names, nothing is compiled and kept for them."""
    parser, responses = RequestParser(), ResponseParser()

    def never(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(re, "compile", never)
    names = b"".join(b",x-%d" % number for number in range(9000))
    lines = b"Connection: close%b\r\nX-7: a\r\nY: b\r\nx-8999: c\r\n" % names
    head = parser.parse(b"GET / HTTP/1.1\r\nHost: a\r\n" + lines)
    assert head.fields == b"\r\nY: b"
    assert responses.parse(b"HTTP/1.1 200 OK\r\n" + lines).fields == b"\r\nY: b"


class KnownTests(SynchronousTestCase):
    """What `RequestParser` remembers of the heads before."""

    def setUp(self) -> None:
        self.known: dict[bytes, RequestHead] = {}

    def parse(self, lines: bytes, start: bytes = b"GET / HTTP/1.1") -> RequestHead:
        block = start + b"\r\nHost: a\r\n" + lines
        return RequestParser(max_known=3).parse(block, self.known)

    def test_notes(self) -> None:
        """They are there again with the same lines, and with no others."""
        self.parse(b"A: b\r\n").notes["x"] = 1
        again = self.parse(b"A: b\r\n", b"DELETE /b?c HTTP/1.1")
        self.assertEqual((again.method, again.target), (b"DELETE", b"/b?c"))
        self.assertEqual(again.notes, {"x": 1})
        for lines, start in (
            (b"A: c\r\n", b"GET / HTTP/1.1"),
            (b"a: b\r\n", b"GET / HTTP/1.1"),
            (b"A: b\r\n", b"GET / HTTP/1.0"),
        ):
            self.assertEqual(self.parse(lines, start).notes, {})

    def test_changed(self) -> None:
        """What a reader does to its head is not in the next one."""
        first = self.parse(b"A: b\r\n")
        first.fields += b"\r\nOrigin: c"
        self.parse(b"A: b\r\n").fields += b"\r\nOrigin: d"
        self.assertEqual(self.parse(b"A: b\r\n").fields, b"\r\nA: b")

    def test_limits(self) -> None:
        """So many heads, and none that is longer than most are."""
        for number in range(10):
            self.parse(b"A: %d\r\n" % number)
            self.assertLessEqual(len(self.known), 3)
        self.known.clear()
        rest = MAX_KNOWN - len(b"1\r\nHost: a\r\nA: \r\n")
        self.parse(b"A: " + b"x" * (rest + 1) + b"\r\n")
        self.assertEqual(len(self.known), 0)
        self.parse(b"A: " + b"x" * rest + b"\r\n")
        self.assertEqual(len(self.known), 1)

    def test_many_short_lines(self) -> None:
        """As objects they take many times the bytes that they came in."""
        parser = RequestParser(taken=[b"x-*"])
        for lines in (
            [b"X-%d: a\r\n" % number for number in range(MAX_TAKEN)],
            [b"X-A: a\r\n"] * MAX_TAKEN,
        ):
            for count, remembered in ((MAX_TAKEN - 1, 1), (MAX_TAKEN, 0)):
                self.known.clear()
                block = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(lines[:count])
                head = parser.parse(block, self.known)
                self.assertEqual(sum(map(len, head.taken.values())), count + 1)
                self.assertEqual(len(self.known), remembered)

    def test_refused_is_not_remembered(self) -> None:
        """Nor does it matter that its lines are known."""
        self.assertRaises(HeadError, self.parse, b"A: \0\r\n")
        self.assertEqual(self.known, {})
        self.parse(b"A: b\r\n")
        error = self.assertRaises(
            HeadError, self.parse, b"A: b\r\n", b"TRACE / HTTP/1.1"
        )
        self.assertEqual(error.status, 405)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_read(garbage: bytes) -> None:
    """Nothing but `HeadError` comes out, whatever goes in."""
    for parse in (PARSER.parse, RESPONSES.parse, clean_trailers):
        try:
            parse(garbage)
        except HeadError:
            pass


class TrailerTests(SynchronousTestCase):
    """`clean_trailers`."""

    def test_kept_and_dropped(self) -> None:
        """Nothing that would change the head survives in a trailer."""
        self.assertEqual(clean_trailers(b""), b"")
        self.assertEqual(
            clean_trailers(b"A: b\r\nContent-Length: 1\r\nImpersonate_User: x\r\n"),
            b"\r\nA: b",
        )

    def test_malformed(self) -> None:
        """As strict as a head."""
        for lines in (b"A: b", b"A b\r\n", b"A: \0\r\n", b" A: b\r\n"):
            self.assertRaises(HeadError, clean_trailers, lines)


def _is_one(name: bytes, names: list[bytes], underscores: bool) -> bool:
    name = name.lower()
    if underscores:
        name = name.replace(b"_", b"-")
    return any(
        name.startswith(one[:-1]) if one.endswith(b"*") else name == one
        for one in names
    )


_PIECES = st.sampled_from([b"a", b"B", b"te", b"-", b"_", b"x", b"."])
_NAMES = st.lists(_PIECES, min_size=1, max_size=4).map(b"".join)
_WANTED = st.lists(
    st.tuples(_NAMES, st.sampled_from([b"", b"*"])).map(
        lambda pair: b"".join(pair).lower().replace(b"_", b"-")
    ),
    min_size=1,
    max_size=6,
)


@given(wanted=_WANTED, lines=st.lists(_NAMES, max_size=6), underscores=st.booleans())
def test_cut(wanted: list[bytes], lines: list[bytes], underscores: bool) -> None:
    """Those that are named go, whatever they share with others; the rest stays."""
    block = [b"\r\n%b:  v%d " % (name, number) for number, name in enumerate(lines)]
    pattern = lines_of(wanted, underscores=underscores)
    kept, taken = cut(pattern, b"".join(block))
    gone = [_is_one(name, wanted, underscores) for name in lines]
    assert kept == b"".join(b for b, out in zip(block, gone, strict=True) if not out)
    expected: dict[bytes, list[bytes]] = {}
    for number, (name, out) in enumerate(zip(lines, gone, strict=True)):
        if out:
            expected.setdefault(name.lower(), []).append(b"v%d" % number)
    assert taken == expected


def test_star_of_a_client() -> None:
    """In a Connection it is a character of a name, and stands for nothing else."""
    block = b"\r\nUser-Agent: u\r\nU*: v"
    assert without(block, frozenset({b"u*"})) == b"\r\nUser-Agent: u"


def test_note() -> None:
    """Each reader has its own entry, which heads with the same lines share."""
    first, second = HeadNote[int](), HeadNote[int]()
    known: dict[bytes, RequestHead] = {}
    heads = [
        RequestParser().parse(b"GET %b HTTP/1.1\r\nHost: a\r\n" % target, known)
        for target in (b"/a", b"/b")
    ]
    assert first.read(heads[0]) is None
    first.write(heads[0], 1)
    assert [first.read(head) for head in heads] == [1, 1]
    assert [second.read(head) for head in heads] == [None, None]
