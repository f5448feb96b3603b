"""Whatever came before on a connection, each request is as the first on a new one."""

from __future__ import annotations

import re

import attrs
from hypothesis import example, given
from hypothesis import strategies as st

from tests.modules.kubernetes_api.cases import HELLO
from tests.modules.kubernetes_api.pair import ALICE, ROOT, World
from tests.tunnel.http1.wire import Wire
from tunnel.api import Access, Impersonation

ORIGIN = "https://gitlab.example.com"

_STARTS = st.sampled_from(
    [
        b"GET /api HTTP/1.1", b"HEAD /api?a HTTP/1.1", b"GET /api HTTP/1.0",
        b"GET /agents/1/api HTTP/1.1", b"GET /agents/9/api HTTP/1.1",
        b"OPTIONS /api HTTP/1.1", b"TRACE /api HTTP/1.1", b"DELETE /api/v1/a HTTP/1.1",
        b"GET /api?gitlab-agent-id=1&gitlab-csrf-token=c HTTP/1.1",
    ]
)  # fmt: skip
_LINES = st.lists(
    st.sampled_from(
        [
            b"Authorization: Bearer user:1:root", b"Authorization: Bearer alice",
            b"Impersonate-User: eve", b"Via: 1.1 p", b"Via: 1.1 q", b"X-A: 1",
            b"Origin: " + ORIGIN.encode(), b"Origin: https://evil.example.com",
            b"Connection: close", b"Connection: X-A", b"Connection: upgrade",
            b"Upgrade: websocket", b"Expect: 100-continue", b"Content-Length: 0",
            b"Cookie: _gitlab_kas=k", b"Gitlab-Agent-Id: 1", b"X-Csrf-Token: c",
            b"Txkas-Credential: user:eve", b"Sec-WebSocket-Protocol: a",
        ]
    ),
    max_size=3,
)  # fmt: skip
BOB = attrs.evolve(ALICE, impersonation=Impersonation("bob", ("g",)))
_ACCESS = st.sampled_from(
    [
        ALICE,
        BOB,
        attrs.evolve(ALICE, impersonation=None),
        attrs.evolve(ALICE, read_only=True),
        None,
    ]
)


def ask(world: World, wire: Wire, block: bytes, access: Access | None) -> list[object]:
    """What the API server and the client get, and which credential was looked at."""
    api = world.server_api
    api.access = {"root": ROOT, "c k": ALICE}
    if access is not None:
        api.access["alice"] = access
    api.asked.clear()
    wires = world.cluster.connections.wires
    wire.receive(block)
    world.run()
    # An upgrade has a connection of its own, so it need not be the newest one.
    sent = b""
    for upstream in wires:
        if sent := upstream.taken():
            upstream.receive(HELLO[: -5 if sent.startswith(b"HEAD") else None])
            world.run()
            break
    # Each error has an id of its own.
    return [sent, re.sub(rb"[0-9a-f]{32}", b"", wire.taken()), list(api.asked)]


@given(
    st.tuples(_LINES, _LINES),
    st.lists(st.tuples(_STARTS, st.sampled_from([0, 1]), _ACCESS), max_size=6),
)
@example(
    ([], [b"Connection: upgrade", b"Upgrade: websocket"]),
    [(b"GET /api HTTP/1.1", which, ALICE) for which in (0, 1, 0)],
)
@example(
    ([b"Origin: " + ORIGIN.encode()], []),
    [(b"GET /api HTTP/1.1", 0, ALICE), (b"GET /api HTTP/1.1", 0, BOB)],
)
def test_as_on_a_new_connection(
    lines: tuple[list[bytes], list[bytes]],
    requests: list[tuple[bytes, int, Access | None]],
) -> None:
    """Credentials, agents, pages and what an access says change; lines do not."""
    world = World(page_origins=(ORIGIN,))
    wire = world.client()
    for start, which, access in requests:
        more = lines[which]
        if not any(b"Authorization" in line for line in more):
            more = [b"Authorization: Bearer user:1:alice", *more]
        block = b"".join(line + b"\r\n" for line in (start, b"Host: a", *more, b""))
        fresh = World(page_origins=(ORIGIN,))
        expected = ask(fresh, fresh.client(), block, access)
        assert ask(world, wire, block, access) == expected
        if wire.disconnecting or wire.half_closed:
            wire.settle()
            wire = world.client()
