"""
Heads of HTTP/1.1: parsed strictly, and cheap to forward.

A *block* is a start line and its header lines, each ended by CRLF, without the empty
line. *Fields* are header lines each **preceded** by CRLF (``b"\r\nA: b"``), so that
they can be appended to a start line, and to each other, as they are.

Neither is split into one object per header. One expression checks the whole head, a
second one cuts out the few lines that a proxy must read, and the rest is forwarded as
one `bytes`. Request smuggling relies on two parsers that read the same bytes
differently, so anything unusual is rejected: a bare CR or LF, folding, whitespace
before a colon, two lengths, any coding but ``chunked``, an absolute target.

In each request on a connection, a client repeats its header lines byte for byte, and
their parsed form is always the same. So the parsed form is cached by these bytes, until
the owner of the cache clears it. The request line is parsed each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Generic, TypeVar, cast

from tunnel.errors import TunnelError

__all__ = [
    "CHUNKED",
    "UNTIL_CLOSE",
    "HeadError",
    "HeadNote",
    "RequestHead",
    "RequestParser",
    "ResponseHead",
    "ResponseParser",
    "clean_trailers",
    "encode_request",
    "is_value",
]

T = TypeVar("T")

#: Length of a body whose end is marked in the body itself.
CHUNKED: Final = -1
#: Length of a response that ends with its connection.
UNTIL_CLOSE: Final = -2

# Parts of expressions. They are possessive or atomic, so that no input makes them
# backtrack. A repeated group is written as ``(?>(?:...)*)`` and never as ``(?:...)*+``:
# Python before 3.11.5 keeps part of a failed repetition of a possessive group, and so
# accepts a head that ends in the middle of a line.
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_TEXT: Final = rb"[\t -~\x80-\xff]"
_FIELDS: Final = rb"((?>(?:\r\n" + _TOKEN + rb"++:" + _TEXT + rb"*+)*))"

#: The name of a header line.
_NAME: Final = re.compile(_TOKEN + rb"++")
_VALUE: Final = re.compile(_TEXT + rb"*+")
_TRAILERS: Final = re.compile(_FIELDS)
_LINE: Final = re.compile(rb"\r\n(" + _TOKEN + rb"++):[^\r]*+")

#: Maximum number of characters of a method; the longest registered method has 17.
_MAX_METHOD: Final = 32
_MAX_DIGITS: Final = 18  # of a length: more than any body has

#: Method and target; the minor version and the header lines follow.
_REQUEST: Final = re.compile(
    rb"(%b{1,%d}+) (/[!\"$-~]*+) HTTP/1\." % (_TOKEN, _MAX_METHOD)
)
_LINES: Final = re.compile(rb"([01])" + _FIELDS + rb"\r\n")
_RESPONSE: Final = re.compile(
    rb"HTTP/1\.([01]) ([1-9][0-9]{2})( " + _TEXT + rb"*+)?" + _FIELDS + rb"\r\n"
)
_PROTOCOL: Final = re.compile(_TOKEN + rb"++(?:/" + _TOKEN + rb"++)?")
_LENGTH: Final = re.compile(rb"[0-9]+")
_HOST: Final = re.compile(rb"[0-9A-Za-z.\-_:\[\]%]*+")
# After an upgrade to HTTP/2, the proxy would not see the requests.
_REFUSED_UPGRADES: Final = frozenset([b"h2c", b"h2", b"http/2.0"])
_REFUSED_METHODS: Final = frozenset([b"CONNECT", b"TRACE"])
_NEEDS_LENGTH: Final = frozenset([b"POST", b"PUT", b"PATCH"])

#: Fields that belong to one connection or delimit a message: they are never forwarded.
_HOP_BY_HOP: Final = (
    b"connection",
    b"proxy-connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"http2-settings",
    b"content-length",
)
_REQUEST_ONLY: Final = (b"host", b"expect")

#: Fields that determine how a request and its connection continue.
_INSPECTED: Final = frozenset(
    [b"connection", b"content-length", b"expect", b"transfer-encoding", b"upgrade"]
)

#: Maximum number of bytes of header lines that are cached: kubectl's header lines have
#: about 400 bytes, with a token of an OpenID provider up to 2,500.
MAX_KNOWN: Final = 4096

#: Maximum number of lines that are cut out of a cached head, because each line takes a
#: quarter of a KiB, however short it is.  Requests of kubectl and of browsers have five
#: such lines, requests through some proxies have ten.
MAX_TAKEN: Final = 16

#: Names that Connection must not contain: the next hop would remove these fields, and
#: then decide without them.
_PROTECTED: Final = (
    b"accept*",
    b"authorization",
    b"cache-control",
    b"content-*",
    b"cookie",
    b"date",
    b"expect",
    b"forwarded",
    b"host",
    b"transfer-encoding",
    b"via",
    b"x-forwarded-*",
    b"x-remote-*",
)

#: Options that Connection may contain without naming a header line.
_STANDARD_OPTIONS: Final = frozenset([b"close", b"keep-alive", b"upgrade", b"te", b""])


class HeadError(TunnelError):
    """
    Raised for a head that is not forwarded; *status* is for the response to its sender.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestHead:
    """
    The parts of a request that a proxy must understand.

    :ivar minor: the minor version of HTTP/1.x, 0 or 1.
    :ivar fields: the fields to forward.
    :ivar length: bytes of the body, or `CHUNKED`; 0 without a body.
    :ivar upgrade: the protocol that the client requests, if the request permits an
        upgrade.
    :ivar taken: by lower-case name, the values of the lines that were cut out of
        *fields*. Must not be modified: heads with the same lines share it.
    :ivar notes: results that readers computed from its header lines alone; see
        `HeadNote`.
    """

    __slots__ = (
        "expect_continue",
        "fields",
        "host",
        "keep_alive",
        "length",
        "method",
        "minor",
        "notes",
        "taken",
        "target",
        "upgrade",
    )

    def __init__(  # noqa: PLR0913 - its fields
        self,
        method: bytes,
        target: bytes,
        minor: int,
        fields: bytes,
        length: int = 0,
        keep_alive: bool = True,
        upgrade: bytes = b"",
        expect_continue: bool = False,
        host: bytes = b"",
        taken: dict[bytes, list[bytes]] | None = None,
        notes: dict[object, object] | None = None,
    ) -> None:
        self.method = method
        self.target = target
        self.minor = minor
        self.fields = fields
        self.length = length
        self.keep_alive = keep_alive
        self.upgrade = upgrade
        self.expect_continue = expect_continue
        self.host = host
        self.taken = {} if taken is None else taken
        self.notes: dict[object, object] = {} if notes is None else notes

    def again(self, method: bytes, target: bytes) -> RequestHead:
        """Return the head of another request with the same header lines."""
        return RequestHead(
            method,
            target,
            self.minor,
            self.fields,
            self.length,
            self.keep_alive,
            self.upgrade,
            self.expect_continue,
            self.host,
            self.taken,
            self.notes,
        )


class HeadNote(Generic[T]):
    """
    The key of one reader's entry in `RequestHead.notes`, and the type of that entry.

    An entry is also found in later heads with the same header lines.
    """

    def read(self, head: RequestHead) -> T | None:
        """Return the entry of *head*; None if *head* has no entry."""
        return cast("T | None", head.notes.get(self))

    def write(self, head: RequestHead, entry: T) -> None:
        """Set the entry for *head* and for heads with the same lines."""
        head.notes[self] = entry


class ResponseHead:
    """
    The parts of a response that a proxy must understand.

    :ivar start: the status line, always of HTTP/1.1, without CRLF.
    :ivar length: the declared length; for a response without a body only information.
    :ivar bodiless: whether no body follows, whatever *length* is.
    :ivar taken: as in `RequestHead`, except for the length.
    """

    __slots__ = (
        "bodiless",
        "fields",
        "keep_alive",
        "length",
        "start",
        "status",
        "taken",
        "upgrade",
    )

    def __init__(
        self,
        status: int,
        start: bytes,
        fields: bytes,
        length: int = UNTIL_CLOSE,
        bodiless: bool = False,
        keep_alive: bool = True,
        upgrade: bytes = b"",
        taken: dict[bytes, list[bytes]] | None = None,
    ) -> None:
        self.status = status
        self.start = start
        self.fields = fields
        self.length = length
        self.bodiless = bodiless
        self.keep_alive = keep_alive
        self.upgrade = upgrade
        self.taken = {} if taken is None else taken

    def block(self, extra: bytes = b"") -> bytes:
        """Return the head for the next hop, with the *extra* fields."""
        if self.status < 200:
            # Other statuses do not switch protocols, but a client might believe the
            # field.
            if self.status == 101 and self.upgrade:
                extra += b"\r\nConnection: Upgrade\r\nUpgrade: " + self.upgrade
        elif self.length >= 0 and self.status != 204:
            extra += b"\r\nContent-Length: %d" % self.length
        return b"%b%b%b\r\n" % (self.start, self.fields, extra)


class RequestParser:
    """
    Parser of request heads, which decides which fields are forwarded.

    :param taken: lower-case names to take out in addition to the hop-by-hop fields; a
        ``*`` at the end matches any ending.  A taken name with an underscore instead of
        one of its dashes is rejected, because some servers read it as the name with the
        dash; the part that the star matches may have underscores.
    :param protected: names that ``Connection`` must not contain, in addition to
        `_PROTECTED`.
    :param max_count: maximum number of header lines in one head.
    :param host_required: require exactly one ``Host``, as HTTP/1.1 does.
    :param max_known: maximum number of heads in one cache; see `parse`.
    """

    def __init__(
        self,
        *,
        taken: Iterable[bytes] = (),
        protected: Iterable[bytes] = (),
        max_count: int = 200,
        host_required: bool = True,
        max_known: int = 4,
    ) -> None:
        names = dict.fromkeys([*_HOP_BY_HOP, *_REQUEST_ONLY, *taken])
        self._lines = lines_of(names, underscores=True)
        self._spelled = re.compile(_one_of(names, underscores=False))
        #: Taken names in their usual spelling, except names that `_inspect` reads.
        self._plain = frozenset(names) - _INSPECTED
        refused = dict.fromkeys([*_PROTECTED, *protected])
        self._protected = re.compile(_one_of(refused, underscores=True))
        self._max_count = max_count
        self._host_required = host_required
        self._max_known = max_known

    def parse(
        self, block: bytes, known: dict[bytes, RequestHead] | None = None
    ) -> RequestHead:
        """
        Parse the head of a request.

        :param known: the cache of earlier heads, by their header lines as received,
            including credentials. This method fills it; its owner clears it.
        :raises HeadError: the head is malformed, or two parsers could read it
            differently.
        """
        match = _REQUEST.match(block)
        if match is None:
            raise _explain(block)
        method, target = match.groups()
        lines = block[match.end() :]
        if known is not None:
            like = known.get(lines)
            if like is not None and method not in _REFUSED_METHODS:
                return like.again(method, target)
        head = self._read(method, target, lines, block)
        if (
            known is not None
            and len(lines) <= MAX_KNOWN
            and sum(map(len, head.taken.values())) <= MAX_TAKEN
        ):
            if len(known) >= self._max_known:
                known.clear()
            # The caller may change *head*, so a copy of it is cached.
            known[lines] = head.again(method, target)
        return head

    def _read(
        self, method: bytes, target: bytes, lines: bytes, block: bytes
    ) -> RequestHead:
        match = _LINES.fullmatch(lines)
        if match is None:
            raise _explain(block)
        minor, fields = match.groups()
        if fields.count(b"\n") > self._max_count:
            raise HeadError(431, f"more than {self._max_count} header lines")
        if method in _REFUSED_METHODS:
            raise HeadError(405, f"{method.decode()} is not supported")
        fields, taken = cut(self._lines, fields)
        head = RequestHead(method, target, int(minor), fields, taken=taken)
        hosts = taken.get(b"host")
        if hosts is not None:
            if len(hosts) > 1 or _HOST.fullmatch(hosts[0]) is None:
                raise HeadError(400, "Host is repeated or malformed")
            head.host = hosts[0]
        elif self._host_required and head.minor:
            raise HeadError(400, "Host is missing")
        if taken.keys() <= self._plain:
            head.keep_alive = head.minor == 1
        else:
            self._inspect(head)
        return head

    def _inspect(self, head: RequestHead) -> None:
        taken = head.taken
        for name in taken:
            if b"_" in name and self._spelled.fullmatch(name) is None:
                raise HeadError(
                    400, f"{name.decode()} contains an underscore instead of a dash"
                )
        options: frozenset[bytes] = frozenset()
        if b"connection" in taken:
            options = _options_of(taken[b"connection"])
            self._drop_named(head, options)
        if head.minor:
            head.keep_alive = b"close" not in options
        else:
            head.keep_alive = b"keep-alive" in options and b"close" not in options
        coding = taken.get(b"transfer-encoding")
        sizes = taken.get(b"content-length")
        if coding is not None:
            if sizes is not None:
                raise HeadError(400, "both Content-Length and Transfer-Encoding")
            if not head.minor:
                raise HeadError(400, "Transfer-Encoding in HTTP/1.0")
            if len(coding) > 1 or coding[0].lower() != b"chunked":
                raise HeadError(400, "a Transfer-Encoding other than chunked")
            head.length = CHUNKED
        elif sizes is not None:
            head.length = _length_of(sizes)
        if b"expect" in taken and head.minor:
            if [value.lower() for value in taken[b"expect"]] != [b"100-continue"]:
                raise HeadError(417, "an expectation other than 100-continue")
            # A client that sends no body does not wait for a 100.
            head.expect_continue = head.length != 0
        if b"upgrade" in options and b"upgrade" in taken and head.minor:
            head.upgrade = _wanted_upgrade(taken[b"upgrade"])
            if head.upgrade and head.length:
                raise HeadError(400, "an upgrade request with a body")

    def _drop_named(self, head: RequestHead, options: frozenset[bytes]) -> None:
        named = options - _STANDARD_OPTIONS
        if not named:
            return
        for option in named:
            if _NAME.fullmatch(option) is None:
                raise HeadError(400, "Connection is malformed")
            if self._protected.fullmatch(option):
                raise HeadError(400, f"Connection must not name {option.decode()}")
        head.fields = without(head.fields, named)


class ResponseParser:
    """
    A parser of response heads from a peer that may be hostile.

    :param taken: as for `RequestParser`.
    """

    def __init__(self, *, taken: Iterable[bytes] = (), max_count: int = 256) -> None:
        taken = dict.fromkeys(taken)
        self._lines = lines_of(dict.fromkeys([*_HOP_BY_HOP, *taken]))
        self._usual = _usual_response(list(taken))
        self._max_count = max_count

    def parse(self, block: bytes, method: bytes = b"GET") -> ResponseHead:
        """
        Parse the head of a response.

        :param method: the method of the request; a response to HEAD has no body.
        :raises HeadError: with status 502.
        """
        if block.count(b"\n") > self._max_count + 1:
            raise HeadError(502, f"more than {self._max_count} header lines")
        match = self._usual.fullmatch(block)
        if match is not None:
            return _usual(match, method)
        match = _RESPONSE.fullmatch(block)
        if match is None:
            raise HeadError(502, "malformed response head")
        minor, code, reason, fields = match.groups()
        status = int(code)
        fields, taken = cut(self._lines, fields)
        start = b"HTTP/1.1 %b%b" % (code, reason or b" ")
        head = ResponseHead(status, start, fields, taken=taken)
        head.bodiless = (
            status < 200 or status == 204 or status == 304 or method == b"HEAD"
        )
        head.keep_alive = minor == b"1"
        if not taken:
            return head
        if b"connection" in taken:
            options = _options_of(taken[b"connection"])
            if b"close" in options:
                head.keep_alive = False
            if b"upgrade" in options and b"upgrade" in taken:
                head.upgrade = taken[b"upgrade"][0]
            named = options - _STANDARD_OPTIONS
            if named:
                if not all(map(_NAME.fullmatch, named)):
                    raise HeadError(502, "malformed Connection in a response")
                head.fields = without(fields, named)
        self._measure(head, minor)
        return head

    def _measure(self, head: ResponseHead, minor: bytes) -> None:
        coding = head.taken.get(b"transfer-encoding")
        sizes = head.taken.pop(b"content-length", None)
        if coding is not None:
            if sizes is not None:
                raise HeadError(502, "both Content-Length and Transfer-Encoding")
            if minor == b"0" or len(coding) > 1 or coding[0].lower() != b"chunked":
                raise HeadError(502, "a Transfer-Encoding other than chunked")
            head.length = CHUNKED
        elif sizes is not None:
            try:
                head.length = _length_of(sizes)
            except HeadError as error:
                raise HeadError(502, str(error)) from None


def _usual_response(taken: list[bytes]) -> re.Pattern[bytes]:
    """
    Return an expression that matches nearly all responses at once.

    Such responses have no connection field except an optional "keep-alive" at the end,
    optionally a length, and before it at most one line of *taken*.
    """
    special = _one_of(dict.fromkeys([*_HOP_BY_HOP, *taken]), underscores=False)
    line = rb"\r\n(?!(?i:" + special + rb"):)" + _TOKEN + rb"++:" + _TEXT + rb"*+"
    # No line matches both this expression and an optional part, so optional parts match
    # where they exist, without backtracking.
    lines = rb"((?>(?:" + line + rb")*))"
    # Fields that delimit the response are handled separately, even if they are taken.
    framing = rb"(?!(?i:" + _one_of(_HOP_BY_HOP, underscores=False) + rb"):)"
    ours = rb"((?i:" + _one_of(taken, underscores=False) + rb")):"
    of_ours = rb"\r\n" + framing + ours + rb"(" + _TEXT
    return re.compile(
        rb"HTTP/1\.1 ([2-5][0-9]{2})( " + _TEXT + rb"*+)?" + lines
        # An empty expression would match anywhere.
        + (rb"(?:" + of_ours + rb"*+))?" if taken else rb"()()")
        + rb"(?:\r\n(?i:content-length): ?([0-9]{1,%d}+))?" % _MAX_DIGITS
        + lines
        # Servers in front of an API server add this field, although it is the default.
        + rb"(?:\r\n(?i:connection): ?((?i:keep-alive)))?"
        + lines
        + rb"\r\n"
    )  # fmt: skip


def _usual(match: re.Match[bytes], method: bytes) -> ResponseHead:
    code, reason, fields, name, value, size, more, kept, rest = match.groups()
    status = int(code)
    taken = {name.lower(): [value.strip(b" \t")]} if name else {}
    if kept:
        taken[b"connection"] = [kept]
    return ResponseHead(
        status,
        b"HTTP/1.1 %b%b" % (code, reason or b" "),
        fields + more + rest,
        UNTIL_CLOSE if size is None else int(size),
        status == 204 or status == 304 or method == b"HEAD",
        True,
        b"",
        taken,
    )


def encode_request(
    method: bytes,
    target: bytes,
    fields: bytes,
    *,
    length: int = 0,
    upgrade: bytes = b"",
    expect_continue: bool = False,
) -> bytes:
    """Return the head of a request with a self-delimited body."""
    if length > 0 or (length == 0 and method in _NEEDS_LENGTH):
        fields += b"\r\nContent-Length: %d" % length
    elif length < 0:
        fields += b"\r\nTransfer-Encoding: chunked"
    if upgrade:
        fields += b"\r\nConnection: Upgrade\r\nUpgrade: " + upgrade
    if expect_continue:
        fields += b"\r\nExpect: 100-continue"
    return b"%b %b HTTP/1.1%b\r\n" % (method, target, fields)


def clean_trailers(lines: bytes) -> bytes:
    """
    Return trailers as fields, except fields that would change the head.

    :param lines: each ends with CRLF.
    :raises HeadError: if the fields are malformed.
    """
    if not lines:
        return b""
    fields = b"\r\n" + lines[:-2]
    if not lines.endswith(b"\r\n") or _TRAILERS.fullmatch(fields) is None:
        raise HeadError(400, "malformed trailers")
    return cut(_FORBIDDEN_TRAILERS, fields)[0]


def is_value(value: bytes) -> bool:
    """Tell whether *value* is permitted as the value of a header."""
    return _VALUE.fullmatch(value) is not None


# Removal of header lines from fields.


def _one_of(names: Iterable[bytes], *, underscores: bool) -> bytes:
    """
    Return an expression for *names*; a star at the end of a name matches anything.

    The expression contains a common prefix of several names only once, because nearly
    all lines match none of the names, and the expression should fail after one or two
    bytes.
    """
    rests: dict[bytes, list[bytes]] = {}
    for name in names:
        rests.setdefault(name[:1], []).append(name[1:])
    ways = []
    for first, after in rests.items():
        if first in (b"", b"*"):
            ways.append(_TOKEN + b"*" if first else b"")
        else:
            byte = b"[-_]" if underscores and first == b"-" else re.escape(first)
            ways.append(byte + _one_of(after, underscores=underscores))
    return ways[0] if len(ways) == 1 else b"(?:" + b"|".join(ways) + b")"


def lines_of(names: Iterable[bytes], *, underscores: bool = False) -> re.Pattern[bytes]:
    """
    Return an expression for `re.split` that cuts the lines of *names* out of fields.
    """
    return _lines(_one_of(names, underscores=underscores))


def _lines(names: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\r\n(" + names + rb"):([^\r]*+)", re.IGNORECASE)


def cut(
    lines: re.Pattern[bytes], fields: bytes
) -> tuple[bytes, dict[bytes, list[bytes]]]:
    """Return the rest of *fields*, and the values of the lines that were cut out."""
    parts = lines.split(fields)
    taken: dict[bytes, list[bytes]] = {}
    if len(parts) == 1:
        return fields, taken
    for index in range(1, len(parts), 3):
        name = parts[index].lower()
        value = parts[index + 1].strip(b" \t")
        if name in taken:
            taken[name].append(value)
        else:
            taken[name] = [value]
    return b"".join(parts[::3]), taken


def without(fields: bytes, names: frozenset[bytes]) -> bytes:
    """
    Return *fields* without the lines whose lower-case names are in *names*.

    No regular expression is used: a peer chooses the names and can send thousands of
    them in one head, and compiling the names would take a tenth of a second and a
    megabyte each time.
    """
    return _LINE.sub(lambda line: b"" if line[1].lower() in names else line[0], fields)


def _options_of(values: list[bytes]) -> frozenset[bytes]:
    """Return the lower-case members of a list-valued header."""
    joined = b",".join(values).lower()
    return frozenset(option.strip(b" \t") for option in joined.split(b","))


_FORBIDDEN_TRAILERS: Final = lines_of(
    [
        *_HOP_BY_HOP,
        *_REQUEST_ONLY,
        *_PROTECTED,
        b"impersonate-*",
        b"set-cookie",
        b"www-authenticate",
    ],
    underscores=True,
)


# Parsing of header values.


def _length_of(values: list[bytes]) -> int:
    if len(values) > 1:
        raise HeadError(400, "Content-Length is repeated")
    if _LENGTH.fullmatch(values[0]) is None:
        raise HeadError(400, "Content-Length is not a number")
    if len(values[0]) > _MAX_DIGITS:
        raise HeadError(400, "Content-Length is too large")
    return int(values[0])


def _wanted_upgrade(values: list[bytes]) -> bytes:
    """
    Return the single protocol of a requested upgrade; empty if the request continues
    without an upgrade.
    """
    if len(values) > 1 or _PROTOCOL.fullmatch(values[0]) is None:
        return b""
    return b"" if values[0].lower() in _REFUSED_UPGRADES else values[0]


_REQUEST_LINE: Final = re.compile(rb"([^ \r\n]+) ([^\r\n]*) HTTP/([0-9]+)\.([0-9]+)")


def _explain(block: bytes) -> HeadError:
    """
    Return the error for a malformed head; called only after a failure, so it may be
    slow.
    """
    start, _, lines = block.partition(b"\r\n")
    match = _REQUEST_LINE.fullmatch(start)
    if match is None:
        return HeadError(400, "malformed request line")
    if len(match[1]) > _MAX_METHOD:
        return HeadError(400, f"a method of more than {_MAX_METHOD} characters")
    if re.fullmatch(_TOKEN + rb"+", match[1]) is None:
        return HeadError(400, "a byte that is not permitted in a method")
    if match[3] != b"1" or match[4] not in (b"0", b"1"):
        return HeadError(505, "only HTTP/1.1 and HTTP/1.0 are supported")
    if not match[2].startswith(b"/"):
        return HeadError(400, "the request target must be a path")
    if re.fullmatch(rb"/[!\"$-~]*", match[2]) is None:
        return HeadError(400, "a byte that is not permitted in a request target")
    if lines.startswith((b" ", b"\t")) or b"\r\n " in lines or b"\r\n\t" in lines:
        return HeadError(400, "a folded header line")
    if re.search(rb"(?:^|\n)[^:\r\n]*[ \t]:", lines):
        return HeadError(400, "whitespace before the colon of a header")
    if re.search(rb"[^\t\r\n -~\x80-\xff]|\r(?!\n)|(?<!\r)\n", lines):
        return HeadError(400, "a control character in a header")
    return HeadError(400, "malformed header line")
