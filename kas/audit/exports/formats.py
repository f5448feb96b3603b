"""Events of the audit log in the formats of other systems."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kas.audit.exports.reader import Exported
from kas.audit.search import is_denied
from tunnel import __version__
from tunnel.toolkit.webhook_signature import standard_signature

__all__ = [
    "COLUMNS",
    "csv_row",
    "json_lines",
    "otlp_request",
    "syslog_frame",
    "syslog_message",
    "webhook_headers",
]

#: Facility of syslog messages: log audit.
FACILITY = 13

#: Severities of syslog messages: a refused request, and any other event.
WARNING, INFORMATIONAL = 4, 6

#: Severity numbers of OpenTelemetry, for the same.
OTLP_WARN, OTLP_INFO = 13, 9

#: Maximum characters of the fields of a syslog message (RFC 5424).
MAX_HOST, MAX_PROCESS, MAX_MESSAGE_ID = 255, 128, 32

_BOM = b"\xef\xbb\xbf"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
_NOT_PRINTABLE = re.compile("[^!-~]")

#: Fields of an event in a table.
COLUMNS = (
    *("time", "kas", "seq", "id", "stage", "module", "action", "credential"),
    *("operator", "agent", "agent_id", "as", "outcome", "verb", "group", "version"),
    *("resource", "subresource", "namespace", "name", "path", "client"),
    *("user_agent", "bytes_in", "bytes_out", "ms", "reason", "cut"),
    *("exit_code", "method", "status"),
)


def json_lines(events: Iterable[Exported]) -> bytes:
    """Return the stored bytes, one line for each event."""
    return b"".join(one.line + b"\n" for one in events)


def csv_row(event: Mapping[str, Any]) -> list[Any]:
    """Return the `COLUMNS` of an event."""
    return [event.get(name, "") for name in COLUMNS]


def syslog_message(line: bytes, event: Mapping[str, Any], host: str) -> bytes:
    """
    Return a message (RFC 5424) whose text is the stored line.

    :param host: the name of this machine.
    """
    severity = WARNING if is_denied(event) else INFORMATIONAL
    time = str(event.get("time", ""))
    head = " ".join(
        (
            f"<{FACILITY * 8 + severity}>1",
            time if _TIME.fullmatch(time) else "-",
            _word(host, MAX_HOST),
            "kas",
            _word(str(event.get("kas", "")), MAX_PROCESS),
            _word(str(event.get("action", "")), MAX_MESSAGE_ID),
            "-",
        )
    )
    # No receiver may see a line feed as the end of the message.
    return head.encode() + b" " + _BOM + line.replace(b"\n", b" ")


def _word(text: str, most: int) -> str:
    return _NOT_PRINTABLE.sub("?", text[:most]) or "-"


def syslog_frame(message: bytes) -> bytes:
    """Return a message with its length before it (RFC 5425)."""
    return b"%d %b" % (len(message), message)


def webhook_headers(body: bytes, secret: bytes, time: float) -> dict[str, str]:
    """
    Return the header fields of a signed request (Standard Webhooks).

    The same body always has the same id, so that a receiver recognizes a repetition.

    :param secret: see `standard_signature`.
    :param time: seconds since 1970.
    :raises ValueError: if the secret is invalid.
    """
    message_id = f"msg_{hashlib.sha256(body).hexdigest()[:32]}"
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(time)),
        "webhook-signature": standard_signature(secret, message_id, int(time), body),
    }


def otlp_request(events: Iterable[Exported], host: str, now: float) -> bytes:
    """
    Return a request with log records for OpenTelemetry (OTLP), in protobuf.

    :param host: the name of this machine.
    :param now: seconds since 1970.
    """
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
        ExportLogsServiceRequest,
    )

    request: Any = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    for name, value in (
        ("service.name", "kas"),
        ("service.version", __version__),
        ("host.name", host),
    ):
        _set(resource.resource.attributes.add(), name, value)
    scope = resource.scope_logs.add()
    scope.scope.name = "txkas.audit"
    for one in events:
        event = one.event
        record = scope.log_records.add()
        record.time_unix_nano = _nanoseconds(str(event.get("time", "")))
        record.observed_time_unix_nano = int(now * 10**6) * 1000
        denied = is_denied(event)
        record.severity_number = OTLP_WARN if denied else OTLP_INFO
        record.severity_text = "WARN" if denied else "INFO"
        record.event_name = _text(event.get("action", ""))
        for name, value in event.items():
            _set(record.attributes.add(), f"txkas.audit.{_text(name)}", value)
        # The stored bytes, with which a receiver can verify the chain.
        original = one.line.decode("utf-8", "replace")
        _set(record.attributes.add(), "log.record.original", original)
    found: bytes = request.SerializeToString()
    return found


def _text(value: object) -> str:
    """Return a text without halves of characters, which protobuf does not accept."""
    return str(value).encode("utf-8", "replace").decode()


def _set(attribute: Any, name: str, value: Any) -> None:
    attribute.key = name
    _fill(attribute.value, value)


def _fill(target: Any, value: Any) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, list):
        target.array_value.SetInParent()
        for one in value:
            _fill(target.array_value.values.add(), one)
    elif isinstance(value, dict):
        target.kvlist_value.SetInParent()
        for name, one in value.items():
            _set(target.kvlist_value.values.add(), _text(name), one)
    else:
        target.string_value = _text(value)


def _nanoseconds(time: str) -> int:
    """Return nanoseconds since 1970; 0 if *time* is not a time of day."""
    try:
        found = datetime.fromisoformat(time)
        return max(0, int(found.timestamp() * 10**6) * 1000)
    except (ValueError, OverflowError):
        return 0
