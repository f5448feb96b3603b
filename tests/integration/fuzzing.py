"""What hostile clients send: generated from a seed, the same in each run."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress

from hpack import Encoder

from tunnel.pb import tunnel_pb2 as pb
from tunnel.wire.framing import FrameType, encode_frame

#: Seconds that one client waits for an answer: most are closed or answered at once.
_PATIENCE = 0.03

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_TARGETS = [
    *(b"/", b"/%ff", b"/%", b"/%00", b"//", b"/\xff", b"*", b"", b"/?%ff=%", b"/a b"),
    *(b"http://a/", b"http://[::1/", b"/" + b"a" * 70_000, b"/../..", b"/a?b#c"),
    *(b"/liveness", b"/readiness", b"/metrics", b"/status", b"/drain", b"/-/x"),
    b"/gitlab.agent.agent_tracker.rpc.AgentTracker/GetConnectedAgents",
    *(b"/a.B/C", b"/a%2eB/C", b"/a.B/C%ff", b"/a.B/\xc3\xa9", b"/a.B/C?connect=v1"),
    *(b"/api/v1/pods", b"/k8s-proxy/api", b"/agents/1/%ff"),
]
_METHODS = [
    *(b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"TRACE", b"CONNECT", b"PRI"),
    *(b"G" * 40, b"G" * 9000, b"get", b"G\xff", b"", b"G(T", b"\x00"),
]
_VERSIONS = [b"HTTP/1.1"] * 6 + [
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"HTTP/9",
    b"",
    b"HTTP/1.\xb2",
]
_NAMES = [
    *(b"Host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"Upgrade"),
    *(b"Expect", b"Content-Type", b"Authorization", b"Cookie", b"Te", b"Trailer"),
    *(b"Sec-WebSocket-Key", b"Sec-WebSocket-Version", b"Sec-WebSocket-Protocol"),
    *(b"Sec-WebSocket-Extensions", b"Content-Encoding", b"Connect-Timeout-Ms"),
    *(b"Connect-Protocol-Version", b"Grpc-Timeout", b"Accept-Encoding", b"Range"),
    *(b"Impersonate-User", b"Impersonate-Extra-a%ff", b"X-Forwarded-For", b"X\xff"),
    *(b"", b" A", b"A ", b"A\x00", b"Host_", b"A" * 5000),
]
_VALUES = [
    *(b"", b"\xff", b"a", b"localhost", b"[::1]:x", b"[", b"a:99999", b"a, b", b"\x00"),
    *(b"0", b"1", b"-1", b"+5", b"1_0", b"99999999999999999999", b"\xb2", b"0x10"),
    *(b"chunked", b"gzip, chunked", b"identity", b"close", b"upgrade", b"keep-alive"),
    *(b"websocket", b"h2c", b"spdy/3.1", b"100-continue", b"application/json"),
    *(b"application/proto", b"application/grpc", b"application/connect+json"),
    *(b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=\xff"),
    *(b"multipart/form-data", b"application/json; charset=\xff", b"gzip", b"br"),
    *(b"Bearer ", b"Bearer \xff", b"Bearer a.b.c", b"Bearer user:1:x", b"Basic YQ=="),
    *(b"Bearer eyJhbGciOiJIUzI1NiJ9.e30.AAAA", b"Bearer agent:1:x:" + b"y" * 5000),
    *(
        b"13",
        b"dGhlIHNhbXBsZSBub25jZQ==",
        b"txkas-tunnel",
        b"permessage-deflate; x=\xff",
    ),
    *(b"a=b; c=\xff", b'";\\"', b"1S", b"99999999H", b"x" * 20_000),
]


class Generator:
    """Cases from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def cases(self, count: int) -> Iterator[list[bytes]]:
        """What *count* connections send, each in a few pieces."""
        kinds: list[Callable[[], bytes]] = [
            self.noise,
            self.http1,
            self.http1,
            self.http1,
            self.http2,
            self.websocket,
            self.tunnel,
        ]
        for _ in range(count):
            yield self._cut(self._random.choice(kinds)())

    def _cut(self, data: bytes) -> list[bytes]:
        if self._random.random() < 0.7:
            return [data]
        at = self._random.randrange(len(data) + 1)
        return [data[:at], data[at:]]

    def _bytes(self, most: int) -> bytes:
        return self._random.randbytes(self._random.randrange(most))

    def noise(self) -> bytes:
        """Bytes without a meaning behind some that have one."""
        starts = [
            b"",
            b"GET ",
            _PREFACE,
            b"\x16\x03\x01\x02\x00\x01",
            b"\0\0\0\x05",
            b"\r\n",
        ]
        return self._random.choice(starts) + self._bytes(300)

    def http1(self) -> bytes:
        """Requests that are wrong somewhere, one behind the other."""
        return b"".join(self._request() for _ in range(self._random.randrange(1, 4)))

    def _request(self) -> bytes:
        choose, chance = self._random.choice, self._random.random
        method = choose(_METHODS) if chance() < 0.3 else choose([b"GET", b"POST"])
        target = choose(_TARGETS)
        version = choose(_VERSIONS)
        lines = [method + b" " + target + b" " + version]
        if chance() < 0.7:
            lines.append(b"Host: localhost")
        for _ in range(self._random.randrange(5)):
            lines.append(
                choose(_NAMES) + choose([b": ", b":", b" : "]) + choose(_VALUES)
            )
        body = b""
        if chance() < 0.5:
            body = self._bytes(200)
            size = len(body) + choose([0, 0, 0, -1, 1])
            lines.append(b"Content-Length: %d" % size)
            lines.append(b"Content-Type: " + choose(_VALUES))
        elif chance() < 0.3:
            lines.append(b"Transfer-Encoding: chunked")
            first = choose([b"5", b"-5", b"5;\xff", b"f" * 17, b"\xff", b""])
            last = choose([b"0\r\n\r\n", b"0\r\nHost: \xff\r\n\r\n", b""])
            body = first + b"\r\nhello\r\n" + last
        end = b"\r\n" if chance() < 0.9 else b"\n"
        return end.join(lines) + end + end + body

    def http2(self) -> bytes:
        """A preface, and frames that are wrong somewhere."""
        choose = self._random.choice
        parts = [_PREFACE, b"\0\0\0\4\0\0\0\0\0"]
        encoder = Encoder()
        for number in range(self._random.randrange(1, 6)):
            stream = choose(
                [2 * number + 1, 2 * number + 1, 0, 2, self._random.getrandbits(31)]
            )
            if self._random.random() < 0.6:
                fields = [
                    (b":method", choose(_METHODS)),
                    (b":path", choose(_TARGETS)),
                    (b":scheme", choose([b"http", b"https", b"\xff"])),
                    (b":authority", choose(_VALUES)),
                    (b"content-type", choose(_VALUES)),
                    *((choose(_NAMES).lower(), choose(_VALUES)) for _ in range(3)),
                ]
                kept = [one for one in fields if self._random.random() < 0.9]
                payload = bytes(encoder.encode(kept, huffman=False)[:16_000])
                kind, flags = 1, choose([4, 5, 5, 5, 0])
            else:
                payload = self._bytes(60)
                kind = choose([*range(12), 255])
                flags = self._random.getrandbits(8)
            head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
            parts.append(head + stream.to_bytes(4, "big") + payload)
        return b"".join(parts)

    def websocket(self) -> bytes:
        """An upgrade, and frames that are wrong somewhere."""
        choose = self._random.choice
        key = choose([b"dGhlIHNhbXBsZSBub25jZQ==", choose(_VALUES)])
        head = (
            b"GET / HTTP/1.1\r\nHost: a\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n"
        )
        if self._random.random() < 0.5:
            head += choose(_NAMES) + b": " + choose(_VALUES) + b"\r\n"
        frames = b"".join(
            bytes([self._random.getrandbits(8), choose([0x80 | 20, 20, 0xFE, 0xFF])])
            + self._bytes(40)
            for _ in range(3)
        )
        masked = bytes([0x82, 0x80 | 10, 0, 0, 0, 0]) + encode_frame(1, 0, 0, b"")
        return head + b"\r\n" + choose([frames, masked + frames])

    def tunnel(self) -> bytes:
        """Frames of the tunnel: a HELLO of sorts, then anything."""
        choose = self._random.choice
        hello = pb.Hello(
            versions=choose([[1], [], [0, 2**32 - 1]]),
            role=choose(["agent", "kas", "", "\u202e\r\n"]),
            credential=choose([b"", b"\xff", self._bytes(40), b"x" * 60_000]),
            instance_id=choose([b"", b"i" * 16, b"i" * 3000]),
            generation=choose([0, 2**64 - 1]),
            services=choose([[], ["\u202e\x00"], ["a"] * 1000]),
        )
        payload = hello.SerializeToString()
        if self._random.random() < 0.3:
            payload = payload[: self._random.randrange(len(payload) + 1)] + self._bytes(
                20
            )
        parts = [encode_frame(FrameType.HELLO, 0, 0, payload[:65_000])]
        for _ in range(self._random.randrange(5)):
            kind = choose([*FrameType, 0, 14, 255])
            stream = choose([0, 1, 2, 3, 2**32 - 1])
            parts.append(
                encode_frame(kind, choose([0, 1, 0x80, 0xFF]), stream, self._bytes(60))
            )
        return b"".join(parts)


def trusting() -> ssl.SSLContext:
    """A client's context that verifies nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def send(port: int, pieces: list[bytes], tls: ssl.SSLContext | None = None) -> bytes:
    """One connection that sends *pieces*; what came back, as far as it came soon."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), 5) as raw:
        one: socket.socket = raw
        with suppress(OSError):
            if tls is not None:
                one = tls.wrap_socket(raw)
            one.settimeout(_PATIENCE)
            for piece in pieces:
                one.sendall(piece)
            while data := one.recv(65536):
                got += data
        if one is not raw:
            one.close()
    return got
