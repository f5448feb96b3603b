"""Events in the formats of other systems, read back by independent parsers."""

from __future__ import annotations

import base64
import csv
import hashlib
import hmac
import io
import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
)
from twisted.internet.task import Clock

from kas.audit.exports.cursor import Cursor
from kas.audit.exports.formats import (
    COLUMNS,
    csv_row,
    json_lines,
    otlp_request,
    syslog_frame,
    syslog_message,
    webhook_headers,
)
from kas.audit.exports.reader import Exported
from kas.audit.log import AuditLog
from tests.kas.audit.test_log import ALICE, runtime
from tunnel.api import AuditEvent
from tunnel.toolkit.csv_text import csv_text

#: Texts that end a line or a field in one of the formats, or are not valid in it.
HOSTILE = st.one_of(
    st.text(st.characters(), max_size=60),
    st.sampled_from(
        [
            "a\r\nb",
            "x\n<110>1 - forged kas - - - forged",
            "\x1b[2J",
            "\x00",
            "\ud800",
            "\u2028\u2029\x85",
            '"]\\ [a@1 b="c"]',
            "=cmd|'/c calc'!A1",
            '","action":"forged',
            "12 <13>1 ",
            "\ufeff",
            "x" * 5000,
        ]
    ),
)


def events_of(names: list[str]) -> list[Exported]:
    """Return the events that kas writes for objects with these names."""
    log = AuditLog(None, runtime(Clock()), _NO_STATE)
    found = []
    for seq, name in enumerate(names):
        details: dict[str, str | int | bool] = {"name": name, "user_agent": name}
        details |= {"verb": "create", "bytes_in": seq, "dry": True}
        body = log._event_line("echo", AuditEvent("echo.say", ALICE, "403", details))
        line = (
            b'{"v":1,"seq":%d,"kas":"a1","prev":"",' % seq
            + body.encode("utf-8", "replace").strip()[1:]
        )
        found.append(Exported(line, json.loads(line), Cursor("", 0)))
    return found


_NO_STATE: Any = None
NAMES = st.lists(HOSTILE, min_size=1, max_size=5)


@given(NAMES)
def test_json_lines(names: list[str]) -> None:
    """The stored bytes, unchanged."""
    events = events_of(names)
    body = json_lines(events)
    assert body.decode().splitlines() == [one.line.decode() for one in events]
    assert [json.loads(one) for one in body.splitlines()] == [
        one.event for one in events
    ]


#: RFC 5424, 6: the header, without structured data, and the text.
MESSAGE = re.compile(
    rb"<(?P<pri>\d{1,3})>1 (?P<time>\S+) (?P<host>[!-~]{1,255}) (?P<app>[!-~]{1,48}) "
    rb"(?P<pid>[!-~]{1,128}) (?P<msgid>[!-~]{1,32}) - \xef\xbb\xbf(?P<text>.*)",
    re.DOTALL,
)


def frames(data: bytes) -> list[bytes]:
    """Read frames with octet counting (RFC 5425, 4.3)."""
    found = []
    while data:
        count, _, rest = data.partition(b" ")
        found.append(rest[: int(count)])
        data = rest[int(count) :]
    return found


@given(NAMES, HOSTILE)
def test_syslog(names: list[str], host: str) -> None:
    """As many messages as events, however they are framed."""
    events = events_of(names)
    messages = [syslog_message(one.line, one.event, host) for one in events]
    data = b"".join(map(syslog_frame, messages))
    assert frames(data) == messages
    for message, one in zip(messages, events, strict=True):
        # A receiver that frames by line feeds sees one message, too.
        assert b"\n" not in message and b"\r" not in message
        found = MESSAGE.fullmatch(message)
        assert found is not None
        assert (found["pri"], found["app"]) == (b"108", b"kas")
        assert (found["pid"], found["msgid"]) == (b"a1", b"echo.say")
        assert found["text"] == one.line


def test_other_fields_of_syslog() -> None:
    event = {"time": "x y", "kas": "k" * 300, "action": "é" * 40}
    found = MESSAGE.fullmatch(syslog_message(b"{}", event, ""))
    assert found is not None
    assert (found["time"], found["host"], found["pri"]) == (b"-", b"-", b"110")
    assert (len(found["pid"]), found["msgid"]) == (128, b"?" * 32)


def plain(value: Any) -> Any:
    """Return the value of an attribute."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {one.key: plain(one.value) for one in value.kvlist_value.values}
    return getattr(value, kind)


@given(NAMES)
def test_opentelemetry(names: list[str]) -> None:
    events = events_of(names)
    request: Any = ExportLogsServiceRequest()
    request.ParseFromString(otlp_request(events, "host", 2.5))
    (resource,) = request.resource_logs
    (scope,) = resource.scope_logs
    attributes = {one.key: plain(one.value) for one in resource.resource.attributes}
    assert (attributes["service.name"], attributes["host.name"]) == ("kas", "host")
    assert len(scope.log_records) == len(events)
    for record, one in zip(scope.log_records, events, strict=True):
        assert (record.event_name, record.severity_number) == ("echo.say", 13)
        assert record.observed_time_unix_nano == 2_500_000_000
        found = {each.key: plain(each.value) for each in record.attributes}
        assert found.pop("log.record.original").encode() == one.line
        assert found == {f"txkas.audit.{key}": v for key, v in one.event.items()}


def test_nested_values_of_opentelemetry() -> None:
    before = [{"origin": "a", "size": 3, "big": 2**70, "part": 0.5, "none": None}]
    event = {"action": "audit.start", "before": before, "time": "2026-05-01T00:00:00Z"}
    request: Any = ExportLogsServiceRequest()
    one = Exported(b"{}", event, Cursor("", 0))
    request.ParseFromString(otlp_request([one], "host", 0))
    record = request.resource_logs[0].scope_logs[0].log_records[0]
    assert record.time_unix_nano == 1_777_593_600 * 10**9
    found = {each.key: plain(each.value) for each in record.attributes}
    before[0].update(big=str(2**70), none="None")
    assert found["txkas.audit.before"] == before


@given(NAMES)
def test_csv(names: list[str]) -> None:
    """As many rows as events, and no cell is a formula."""
    events = events_of(names)
    text = csv_text(COLUMNS, [csv_row(one.event) for one in events])
    head, *rows = csv.reader(io.StringIO(text))
    assert tuple(head) == COLUMNS
    assert len(rows) == len(events)
    for row, one in zip(rows, events, strict=True):
        found = dict(zip(head, row, strict=True))
        assert found["name"].removeprefix("'") == one.event["name"].removeprefix("'")
        assert not found["name"].startswith(("=", "+", "-", "@"))
        assert found["action"] == "echo.say"


SECRET = b"0123456789abcdef01234567"


def test_a_signature() -> None:
    """As a receiver checks it (Standard Webhooks); each secret of the file signs."""
    encoded = base64.b64encode(SECRET).decode()
    secret = f"whsec_{encoded}\nwhsec_{'A' * 32}".encode()
    body = b'{"v":1}\n'
    found = webhook_headers(body, secret, 1234.9)
    assert found["webhook-timestamp"] == "1234"
    signed = f"{found['webhook-id']}.1234.".encode() + body
    wanted = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest())
    first, second = found["webhook-signature"].split(" ")
    assert first == f"v1,{wanted.decode()}"
    assert second.startswith("v1,") and second != first
    # A repetition has the same id.
    assert webhook_headers(body, secret, 99)["webhook-id"] == found["webhook-id"]
