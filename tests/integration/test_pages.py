"""Pages of a third-party module on a real kas, over TLS, and what the module stores."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.module_kas import ModuleKas
from tests.integration.pages_module import DROPIN
from tests.integration.processes import PATIENCE, eventually, kasctl
from tests.integration.redisserver import RedisServer
from tests.integration.stack import fetch

_WEB = """\
web:
  listen: {address: "127.0.0.1:0", development_certificate: true, %s}
  max_body_bytes: 1KiB
"""


class Kas(ModuleKas):
    """One with the module, and a client of its pages."""

    def __init__(self, folder: Path, more: str, name: str = "kas") -> None:
        super().__init__(folder, "pages", DROPIN, more, name)

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self.state / "ca.crt")
        port = self.port("pages of modules")
        return http.client.HTTPSConnection("localhost", port, context=context)

    def ask(
        self, path: str, method: str = "GET", body: bytes = b"", **fields: str
    ) -> tuple[int, str]:
        connection = self.connect()
        connection.request(method, path, body or None, fields)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.headers["server"] is None
        connection.close()
        return answer.status, text


@pytest.fixture
def kas(tmp_path: Path) -> Iterator[Kas]:
    one = Kas(tmp_path, _WEB % "listen_grace_period: 0s")
    one.start()
    yield one
    one.process.kill()


def test_pages(kas: Kas) -> None:
    """A klein app answers below its prefix, and its failures are its own."""
    assert kas.ask("/pages/count/a", "POST") == (200, "1")
    assert kas.ask("/pages/count/a", "POST") == (200, "2")
    assert kas.ask("/pages/count/a")[0] == 405
    assert kas.ask("/pages/none")[0] == 404
    # The page of kas.
    assert kas.ask("/")[0] == 302
    assert kas.ask("/none") == (404, "this page does not exist\n")
    status, text = kas.ask("/x", Accept="application/json")
    assert (status, json.loads(text)) == (404, {"message": "this page does not exist"})
    assert kas.ask("/pages/crash") == (500, "an internal error\n")
    # A thread writes the log.
    kas.process.wait_for("the page /pages of module pages failed")
    kas.process.wait_for("ZeroDivisionError")
    port = kas.port("pages of modules")
    status, text = kas.ask("/pages/link")
    assert (status, text) == (200, f"https://localhost:{port}/pages/link/x")
    connection = kas.connect()
    connection.request("POST", "/pages/count/a", b"x" * 1025)
    assert connection.getresponse().status == 413
    _, metrics = fetch(kas.port("health and metrics"), "/metrics")
    counted = 'kas_web_requests_total{code="%dxx",module="pages"} %d.0'
    for code, count in ((2, 3), (4, 2), (5, 1)):
        assert (counted % (code, count)).encode() in metrics


def test_only_tls(kas: Kas) -> None:
    """Plain HTTP gets no page, and `kasctl doctor` finds the listener."""
    port = kas.port("pages of modules")
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    plain.request("GET", "/pages/keys")
    assert plain.getresponse().status == 400
    found = kasctl("doctor", state=kas.state, check=False)
    assert re.search(r"ok\s+pages\b", found.stdout), found.stdout


def test_restarted(kas: Kas) -> None:
    """A module that fails has no pages until it is there again, and keeps its store."""
    kas.ask("/pages/count/a", "POST")
    kas.ask("/pages/fail")
    assert kas.ask("/pages/keys")[0] == 404
    eventually(lambda: kas.ask("/pages/keys")[0] == 200, what="it is made again")
    assert kas.ask("/pages/count/a", "POST") == (200, "2")


def test_stops_in_order(kas: Kas) -> None:
    """What runs ends; the module still stores what it has to; the next kas has it."""
    slow = kas.connect()
    slow.request("GET", "/pages/slow")
    answer = slow.getresponse()
    assert answer.readline() == b"begun\n"
    began = time.monotonic()
    assert kas.process.stops_cleanly()
    assert answer.read() == b"ended\n"
    assert time.monotonic() - began < 20
    kas.start()
    assert kas.ask("/pages/last") == (200, "well")
    assert json.loads(kas.ask("/pages/keys")[1]) == ["stopped"]
    assert (kas.state / "store.sqlite").stat().st_mode & 0o777 == 0o600


def test_killed(kas: Kas) -> None:
    """What was answered was stored."""
    numbers = []
    for _ in range(3):
        numbers.append(int(kas.ask("/pages/count/a", "POST")[1]))
        kas.process.kill()
        kas.start()
    assert numbers == [1, 2, 3]


def test_a_damaged_file(kas: Kas) -> None:
    """The log says which, and the module alone suffers."""
    kas.ask("/pages/count/a", "POST")
    assert kas.process.stops_cleanly()
    (kas.state / "store.sqlite").write_bytes(b"damaged")
    kas.start()
    assert kas.ask("/pages/keys") == (500, "an internal error\n")
    kas.process.wait_for(r"store\.sqlite, the store of modules, is damaged")
    assert (kas.state / "store.sqlite").read_bytes() == b"damaged"


def test_two_modules_want_one_prefix(tmp_path: Path) -> None:
    """kas says which two, and does not start."""
    one = Kas(tmp_path, "  rival: {prefix: /pages/x}\n")
    one.start("module rival cannot use /pages/x, because module pages uses /pages")
    assert one.process.ended() == 1


def test_without_a_listener(tmp_path: Path) -> None:
    """The module runs; the log says why its pages are not there."""
    one = Kas(tmp_path, "")
    one.start()
    try:
        assert (
            "which are not served, because 'web' is not configured"
            in one.process.said()
        )
    finally:
        one.process.kill()


_SEVERAL = """\
private_api:
  listen: {{address: "127.0.0.1:0", authentication_secret_file: secret}}
redis: {{server: {{address: "127.0.0.1:{port}"}}}}
"""


def test_several_share_a_redis(tmp_path: Path, redis: RedisServer) -> None:
    """What one stores the other has, and a flush is said by both."""
    (tmp_path / "secret").write_text("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    more = _WEB % "listen_grace_period: 0s" + _SEVERAL.format(port=redis.port)
    several = [Kas(tmp_path, more, name) for name in ("one", "two")]
    try:
        for one in several:
            one.start()
            one.process.wait_for("is available for the stores of modules")
        found: list[Any] = []
        for _ in range(3):
            found += [one.ask("/pages/count/a", "POST")[1] for one in several]
        assert found == ["1", "2", "3", "4", "5", "6"]
        _, metrics = fetch(several[0].port("health and metrics"), "/metrics")
        assert b'kas_redis_up{purpose="stores"} 1.0' in metrics
        assert b'kas_redis_up{purpose="directory"} 1.0' in metrics
        redis("FLUSHALL")
        for one in several:
            one.process.wait_for("Redis lost some or all of the data in pages/counters")
        assert several[0].ask("/pages/count/a", "POST") == (200, "1")
        assert not (several[0].state / "store.sqlite").exists()
    finally:
        for one in several:
            one.process.kill()
