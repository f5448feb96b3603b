"""Exports of the audit log to real receivers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
)

from tests.integration import needs
from tests.integration.processes import eventually
from tests.integration.stack import Kas, metric
from tests.tunnel.transport import certificates
from tools.ports import free_port

SECRET = base64.b64encode(b"k" * 32).decode()


class HttpReceiver:
    """A receiver of POST requests that answers as the test says."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.status
                if status == 200:
                    headers = {k.lower(): v for k, v in self.headers.items()}
                    receiver.requests.append((self.path, headers, body))
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", f"http://127.0.0.1:{port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ExportingKas:
    """kas with exports."""

    def __init__(self, folder: Path, exports: str, settings: str = "") -> None:
        self.kas = Kas(folder / "kas", settings)
        self.file = self.kas.folder / "audit.jsonl"
        audit = f"audit: {{file: {self.file}, exports: [{exports}]}}"
        self.kas.observability_settings = (audit,)

    def lines(self) -> list[bytes]:
        return self.file.read_bytes().splitlines()

    def kill(self) -> None:
        assert self.kas.process is not None
        self.kas.process.kill()

    def rotate(self) -> None:
        self.file.rename(self.file.with_name("audit.jsonl.1"))
        assert self.kas.process is not None
        self.kas.process.child.send_signal(signal.SIGHUP)


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short name: sockets are in it."""
    return tmp_path_factory.mktemp("k")


@pytest.mark.parametrize("workers", ["", "workers: 2\n"], ids=["alone", "workers"])
def test_webhooks(short: Path, workers: str) -> None:
    """The stored lines arrive signed, also after an error, a kill and a rotation."""
    (short / "secret").write_text(f"whsec_{SECRET}\n")
    port = free_port()
    export = (
        f"{{name: siem, format: webhook, url: 'http://127.0.0.1:{port}/in', "
        f"secret_file: {short / 'secret'}}}"
    )
    world = ExportingKas(short, export, workers)
    receiver = HttpReceiver(port)

    def received() -> list[bytes]:
        return [line for _, _, body in receiver.requests for line in body.splitlines()]

    def all_received() -> bool:
        stored = world.lines()
        return set(stored) <= set(received()) and len(stored) > 2

    try:
        world.kas.start()
        world.kas.ctl("agent", "add", "main")
        eventually(all_received, what="the first events")
        receiver.status = 307
        world.kas.ctl("agent", "rotate", "main")
        if not workers:
            # With workers, each has its own metrics.
            eventually(lambda: failures(world.kas), what="a failure")
        if not workers:
            world.kill()
            world.kas.start()
        receiver.status = 200
        old = world.lines()
        world.rotate()
        world.kas.ctl("agent", "rotate", "main")
        eventually(all_received, what="the events after the rotation")
        assert set(old) <= set(received())
        for path, headers, body in receiver.requests:
            assert path == "/in"
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode()
            mac = hmac.new(b"k" * 32, signed + body, hashlib.sha256).digest()
            assert (
                headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"
            )
        # The order of each chain is kept.
        chains: dict[str, list[int]] = {}
        for line in dict.fromkeys(received()):
            event = json.loads(line)
            chains.setdefault(event["kas"], []).append(event["seq"])
        for numbers in chains.values():
            assert numbers == list(range(len(numbers)))
    finally:
        world.kas.stop()
        receiver.close()


def failures(kas: Kas) -> float:
    """Return the number of failed attempts."""
    return metric(kas.observability, "kas_audit_export_failures_total")


def test_opentelemetry(short: Path) -> None:
    (short / "token").write_text("0123456789abcdef")
    port = free_port()
    export = (
        f"{{name: logs, format: otlp, url: 'http://127.0.0.1:{port}', "
        f"secret_file: {short / 'token'}}}"
    )
    world = ExportingKas(short, export)
    receiver = HttpReceiver(port)

    def received() -> list[str]:
        found = []
        for path, headers, body in receiver.requests:
            assert path == "/v1/logs"
            assert headers["authorization"] == "Bearer 0123456789abcdef"
            request: Any = ExportLogsServiceRequest()
            request.ParseFromString(body)
            for record in request.resource_logs[0].scope_logs[0].log_records:
                found.append(record.event_name)
        return found

    try:
        world.kas.start()
        world.kas.ctl("agent", "add", "main")
        eventually(
            lambda: received().count("agent.add") == 1, what="the event as a log"
        )
        assert received()[0] == "audit.start"
    finally:
        world.kas.stop()
        receiver.close()


RSYSLOG = """
global(
  workDirectory="{folder}"
  maxMessageSize="64k"
  defaultNetstreamDriverCAFile="{authority}"
  defaultNetstreamDriverCertFile="{certificate}"
  defaultNetstreamDriverKeyFile="{key}"
)
module(load="imtcp" streamDriver.name="gtls" streamDriver.mode="1"
  streamDriver.authMode="anon")
template(name="out" type="list" option.jsonf="on") {{
  property(outname="text" name="msg" format="jsonf")
  property(outname="program" name="programname" format="jsonf")
  property(outname="process" name="procid" format="jsonf")
  property(outname="id" name="msgid" format="jsonf")
  property(outname="priority" name="pri" format="jsonf")
}}
input(type="imtcp" address="127.0.0.1" port="{port}")
action(type="omfile" file="{folder}/out.jsonl" template="out")
"""


@attrs.define
class Rsyslog:
    """Debian's rsyslog with TLS."""

    folder: Path
    authority: str
    certificate: str
    key: str
    port: int = attrs.field(factory=free_port)
    child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = needs.program("rsyslogd", "apt-get install rsyslog rsyslog-gnutls")
        if not list(Path("/usr/lib").glob("*/rsyslog/lmnsd_gtls.so")):
            needs.missing("rsyslog with TLS", "apt-get install rsyslog-gnutls")
        settings = self.folder / "rsyslog.conf"
        settings.write_text(RSYSLOG.format(**attrs.asdict(self)))
        pid = self.folder / "rsyslog.pid"
        pid.unlink(missing_ok=True)
        with (self.folder / "rsyslog.log").open("ab") as log:
            self.child = subprocess.Popen(
                [program, "-n", "-f", settings, "-i", pid], stdout=log, stderr=log
            )

    def stop(self) -> None:
        if self.child is not None:
            self.child.terminate()
            self.child.wait(30)
            self.child = None

    def received(self) -> list[dict[str, Any]]:
        file = self.folder / "out.jsonl"
        if not file.exists():
            return []
        return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def rsyslog(short: Path) -> Iterator[Rsyslog]:
    certificate, key = certificates.server_identity().write(short, "server")
    authority = certificates.authority().write(short)
    found = Rsyslog(short, authority, certificate, key)
    yield found
    found.stop()


def test_syslog(short: Path, rsyslog: Rsyslog) -> None:
    """A real rsyslog gets each event once, also after it was away."""
    export = (
        f"{{name: syslog, format: syslog, url: 'tls://127.0.0.1:{rsyslog.port}', "
        f"ca_certificate_file: {rsyslog.authority}}}"
    )
    world = ExportingKas(short, export)

    def texts() -> list[str]:
        return [one["text"].removeprefix("\ufeff") for one in rsyslog.received()]

    def all_received() -> bool:
        stored = {line.decode() for line in world.lines()}
        return len(stored) > 2 and stored <= set(texts())

    try:
        rsyslog.start()
        world.kas.start()
        world.kas.ctl("agent", "add", "main")
        eventually(all_received, what="the first events")
        rsyslog.stop()
        # Characters that could end a message, or begin another one.
        name = '<13>1 "]\\ é'
        world.kas.ctl("user", "add", "alice", "--agent", "main", "--as", name)
        rsyslog.start()
        eventually(all_received, what="the events after rsyslog was away")
        first = next(one for one in rsyslog.received() if one["id"] == "agent.add")
        assert (first["program"], first["priority"]) == ("kas", "110")
        assert (
            first["process"] == json.loads(first["text"].removeprefix("\ufeff"))["kas"]
        )
        stored = {line.decode() for line in world.lines()}
        assert {one for one in texts() if one not in stored} == set()
        assert any(json.loads(one).get("as") == name for one in texts())
    finally:
        world.kas.stop()
