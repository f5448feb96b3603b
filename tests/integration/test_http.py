"""
HTTP in every framing, at the API server and through kas.

What is sent is the same to the byte, but for the credential; what comes back may differ
in what `differences.py` lists.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable

import pytest

from tests.integration.cluster import ControlPlane
from tests.integration.differences import comparable
from tests.integration.objects import JSON, config_map, config_maps
from tests.integration.rawhttp import Answer, Connection, Way

Talk = Callable[[Way, Connection], list[Answer]]
Compare = Callable[..., list[Answer]]

#: How often a comparison is repeated.
AGAIN = 2


@pytest.fixture
def compare(ways: dict[str, Way], namespace: str) -> Compare:
    """Talk to both, each on one connection; what kas answered, once it is equal."""

    def once(talk: Talk) -> tuple[list[Answer], list[Answer]]:
        answers = []
        for way in ways["direct"], ways["proxied"]:
            with way.connect() as connection:
                answers.append(talk(way, connection))
        direct, proxied = answers
        return direct, proxied

    def run(talk: Talk) -> list[Answer]:
        direct, proxied = once(talk)
        for _ in range(AGAIN):
            if list(map(comparable, direct)) == list(map(comparable, proxied)):
                break
            # The API server may have changed between the two: it publishes OpenAPI
            # documents in the background.  What a proxy changes, it changes each time.
            direct, proxied = once(talk)
        for one, other in zip(direct, proxied, strict=True):
            assert comparable(other) == comparable(one)
        return proxied

    return run


def asking(method: str, target: str, *fields: str, version: str = "1.1") -> Talk:
    """One request without a body."""

    def talk(way: Way, connection: Connection) -> list[Answer]:
        connection.send(way.head(method, target, *fields, version=version))
        return [connection.answer(method)]

    return talk


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("Accept: application/yaml",),
        ("Accept: application/vnd.kubernetes.protobuf",),
        ("Accept: application/json;as=Table;v=v1;g=meta.k8s.io",),
        ("Accept: image/png",),
        ("X-Odd:", "x-UPPER-lower: a  b", "Cookie: a=b"),
    ],
)
def test_get(fields: tuple[str, ...], compare: Compare) -> None:
    """An object in every form that it has."""
    compare(asking("GET", "/api/v1/namespaces/kube-system", *fields))


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("HEAD", "/api/v1/namespaces/default"),
        ("HEAD", "/nowhere"),
        ("OPTIONS", "/api/v1/namespaces/default"),
        ("PUT", "/api/v1/namespaces/default"),
        ("FROBNICATE", "/api/v1/namespaces/default"),
        ("GET", "/api/v1/namespaces/none"),
        ("GET", "/api/v1/namespaces/default/configmaps/a%2Fb?pretty=%74rue&x=%zz&;=+"),
        ("GET", "/api/v1//namespaces//default"),
        ("GET", "/api/v1/namespaces/default/"),
        ("GET", "/openapi/v3/apis/apps/v1?hash=0000"),
        ("GET", "/metrics?x"),
    ],
)
def test_methods_and_targets(method: str, target: str, compare: Compare) -> None:
    """Also what does not exist, and what nobody should write."""
    if target.startswith("/metrics"):
        # Counters: only that it comes, and how.
        compare(asking("HEAD", target))
    else:
        compare(asking(method, target))


def test_body_with_length(compare: Compare, namespace: str) -> None:
    """One that is made, then made again."""

    def talk(way: Way, connection: Connection) -> list[Answer]:
        body = config_map(f"sized-{way.name:-<8}x", text="ü" * 1000)
        for _ in range(2):
            fields = (JSON, f"Content-Length: {len(body)}")
            connection.send(way.head("POST", config_maps(namespace), *fields) + body)
        found = [connection.answer(), connection.answer()]
        return [_renamed(answer, way) for answer in found]

    answers = compare(talk)
    assert [answer.status for answer in answers] == [201, 409]


def _renamed(answer: Answer, way: Way) -> Answer:
    import attrs

    body = answer.body.replace(f"{way.name:-<8}x".encode(), b"WAY")
    return attrs.evolve(answer, body=body)


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("trailers", [b"", b"X-Checksum: 5\r\n"])
def test_chunked_body(
    size: int, trailers: bytes, compare: Compare, namespace: str
) -> None:
    """In chunks of any size, with and without trailers, and a request after it."""
    target = config_maps(namespace) + "?dryRun=All"

    def talk(way: Way, connection: Connection) -> list[Answer]:
        body = config_map("chunked", text="x" * 5000 if size > 1 else "x")
        fields = [JSON, "Transfer-Encoding: chunked"]
        if trailers:
            fields.append("Trailer: X-Checksum")
        connection.send(way.head("POST", target, *fields))
        for begin in range(0, len(body), size):
            part = body[begin : begin + size]
            connection.send(b"%x;ext=1\r\n%b\r\n" % (len(part), part))
        connection.send(b"0\r\n%b\r\n" % trailers)
        answers = [connection.answer()]
        connection.send(way.head("GET", "/readyz"))
        return [*answers, connection.answer()]

    assert [answer.status for answer in compare(talk)] == [201, 200]


def test_expect_continue(compare: Compare, namespace: str) -> None:
    """The client waits for 100 before it sends the body."""
    target = config_maps(namespace) + "?dryRun=All"

    def talk(way: Way, connection: Connection) -> list[Answer]:
        body = config_map("patient")
        fields = (JSON, f"Content-Length: {len(body)}", "Expect: 100-continue")
        connection.send(way.head("POST", target, *fields))
        answers = [connection.answer()]
        connection.send(body)
        return [*answers, connection.answer()]

    assert [answer.status for answer in compare(talk)] == [100, 201]


def test_expect_continue_refused(compare: Compare) -> None:
    """An answer instead of 100: the body is never sent."""
    fields = ("Content-Length: 5000000", "Expect: 100-continue")
    answers = compare(asking("POST", "/apis/none/v1/things", JSON, *fields))
    assert answers[0].status == 404


def test_keep_alive(compare: Compare) -> None:
    """Many requests, one after the other."""

    def talk(way: Way, connection: Connection) -> list[Answer]:
        answers = []
        for number in range(20):
            method = "HEAD" if number % 3 == 0 else "GET"
            connection.send(way.head(method, "/api/v1/namespaces/default"))
            answers.append(connection.answer(method))
        return answers

    compare(talk)


def test_pipelined(compare: Compare) -> None:
    """Many requests at once; the answers keep their order."""
    names = ["default", "kube-system", "none", "kube-public"] * 5

    def talk(way: Way, connection: Connection) -> list[Answer]:
        connection.send(
            b"".join(way.head("GET", f"/api/v1/namespaces/{n}") for n in names)
        )
        return [connection.answer() for _ in names]

    for name, answer in zip(names, compare(talk), strict=True):
        assert name.encode() in answer.body


def test_connection_close(compare: Compare) -> None:
    """Closed when the client says so."""

    def talk(way: Way, connection: Connection) -> list[Answer]:
        connection.send(way.head("GET", "/readyz", "Connection: close"))
        answer = connection.answer()
        assert connection.is_closed()
        return [answer]

    compare(talk)


@pytest.mark.parametrize("fields", [(), ("Connection: keep-alive",)])
def test_http_1_0(fields: tuple[str, ...], compare: Compare) -> None:
    """The older version, which knows no chunks."""
    compare(asking("GET", "/api/v1/namespaces/default", *fields, version="1.0"))
    compare(asking("GET", "/openapi/v3", *fields, version="1.0"))


def test_gzip(compare: Compare, ways: dict[str, Way], large_list: str) -> None:
    """Compressed by the API server, and not touched on the way."""
    target = large_list + "?limit=2&resourceVersion=0"
    found = []
    for way in ways.values():
        answer = way.ask("GET", target, "Accept-Encoding: gzip")
        assert answer.field("Content-Encoding") == "gzip"
        found.append(
            (answer.framing, answer.field("Vary"), gzip.decompress(answer.body))
        )
    assert _items(found[0][2]) == _items(found[1][2])
    assert found[0][:2] == found[1][:2]


def test_not_modified(compare: Compare) -> None:
    """304 for what the client has already."""

    def talk(way: Way, connection: Connection) -> list[Answer]:
        connection.send(way.head("GET", "/openapi/v2"))
        whole = connection.answer()
        condition = f"If-None-Match: {whole.field('ETag')}"
        connection.send(way.head("GET", "/openapi/v2", condition))
        return [whole, connection.answer()]

    assert [answer.status for answer in compare(talk)] == [200, 304]


@pytest.fixture(scope="module")
def large_list(shared_namespace: str, control_plane: ControlPlane) -> str:
    """The path of thirty ConfigMaps of nearly a megabyte each."""
    path = config_maps(shared_namespace)
    text = "".join(f"{number:07}," for number in range(120_000))
    for number in range(30):
        body = {"metadata": {"name": f"large-{number:02}"}, "data": {"text": text}}
        control_plane.call("POST", path, body)
    return path


def _items(body: bytes) -> object:
    return json.loads(body)["items"]


def test_large_list(ways: dict[str, Way], large_list: str) -> None:
    """Thirty megabytes in one answer."""
    direct, proxied = (way.ask("GET", large_list) for way in ways.values())
    assert len(proxied.body) > 28_000_000
    assert _items(proxied.body) == _items(direct.body)
    assert proxied.framing == direct.framing == "chunked"


def test_too_large_a_body(compare: Compare, namespace: str) -> None:
    """More than the API server takes is refused by it, in its words."""
    body = config_map("huge", text="x" * 3_200_000)

    def talk(way: Way, connection: Connection) -> list[Answer]:
        fields = (JSON, f"Content-Length: {len(body)}")
        connection.send(way.head("POST", config_maps(namespace), *fields) + body)
        return [connection.answer()]

    assert compare(talk)[0].status == 413


def test_large_body(ways: dict[str, Way], namespace: str) -> None:
    """Just less than the API server takes arrives whole."""
    for way in ways.values():
        body = config_map(f"large-{way.name}", text="x" * 1_000_000)
        answer = way.ask("POST", config_maps(namespace), JSON, body=body)
        assert answer.status == 201
        assert len(json.loads(answer.body)["data"]["text"]) == 1_000_000


def test_warnings(compare: Compare, namespace: str) -> None:
    """What the API server wants a person to read."""
    target = config_maps(namespace) + "?dryRun=All&fieldValidation=Warn"
    body = b'{"metadata":{"name":"odd"},"colour":"red","size":1}'

    def talk(way: Way, connection: Connection) -> list[Answer]:
        fields = (JSON, f"Content-Length: {len(body)}")
        connection.send(way.head("POST", target, *fields) + body)
        return [connection.answer()]

    assert 'unknown field \\"colour' in compare(talk)[0].field("Warning")


def test_refused_upgrade(compare: Compare, namespace: str) -> None:
    """An upgrade that the API server does not make is an ordinary answer."""
    upgrade = ("Connection: Upgrade", "Upgrade: SPDY/3.1")
    socket = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    compare(asking("GET", "/api/v1/namespaces?watch=1", *socket))
    for target in (
        "/api/v1/namespaces/default",
        f"/api/v1/namespaces/{namespace}/pods/none/exec?command=true",
    ):
        compare(asking("GET", target, *upgrade))


def test_watch(
    way: Way, namespace: str, record_property: Callable[[str, object], None]
) -> None:
    """Each event comes by itself, at once."""
    target = config_maps(namespace)
    with way.connect() as watching, way.connect() as changing:
        watching.send(
            way.head("GET", target + "?watch=1&fieldSelector=metadata.name=w")
        )
        assert watching.head()[1] == 200
        delays = []
        for number in range(20):
            method, path, kind = "PUT", f"{target}/w", "MODIFIED"
            if not number:
                method, path, kind = "POST", target, "ADDED"
            body = config_map("w", n=str(number))
            fields = (JSON, f"Content-Length: {len(body)}")
            began = time.monotonic()
            changing.send(way.head(method, path, *fields) + body)
            event = json.loads(watching.chunk())
            delays.append(time.monotonic() - began)
            assert changing.answer().status in (200, 201)
            assert event["type"] == kind
            assert event["object"]["data"]["n"] == str(number)
    delays.sort()
    record_property("median seconds to an event", delays[10])
    # Fifty milliseconds are meant; a busy machine needs more, a buffer never ends.
    assert delays[10] < 1
