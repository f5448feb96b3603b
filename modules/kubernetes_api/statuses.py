"""
Errors as a Kubernetes Status, in the format that the client accepts: JSON, YAML,
protobuf.
"""

from __future__ import annotations

import json
import re
from typing import Final

from tunnel.kubernetes import STATUS_REASONS, status_object
from tunnel.toolkit.texts import clean, json_for_yaml

__all__ = ["INTERNAL_ERROR", "status_answer"]

#: Message for a request that failed because of a bug; the log contains the traceback.
INTERNAL_ERROR: Final = "kas: an internal error; see the log of kas"

#: Paths that Kubernetes clients request first, and whose error texts they drop: kubectl
#: prints only "the server is currently unable to handle the request".
_DISCOVERY: Final = (b"/api", b"/apis")

#: Maximum characters of a warning; clients truncate all warnings together at 4096.
_MAX_WARNING: Final = 1000

_ACCEPT: Final = re.compile(rb"\r\naccept:([^\r]*)", re.IGNORECASE)

_JSON: Final = b"application/json"
_YAML: Final = b"application/yaml"
_PROTOBUF: Final = b"application/vnd.kubernetes.protobuf"
_TEXT: Final = b"text/plain; charset=utf-8"
_FORMS: Final = {
    b"*/*": _JSON,
    b"application/*": _JSON,
    _JSON: _JSON,
    _YAML: _YAML,
    _PROTOBUF: _PROTOBUF,
}

#: Maximum number of media ranges that are read; a browser sends eight.
_MAX_RANGES: Final = 50


def status_answer(
    code: int, message: str, target: bytes, fields: bytes
) -> tuple[int, bytes, bytes]:
    """
    Return the status code, fields and body of an error, as kubectl prints it.

    :param target: the requested target.  For targets whose error texts clients drop,
        the text is also sent as a warning, which clients show.
    :param fields: the fields of the request, for its ``Accept``; a client that accepts
        none of the formats gets 406 and the text.
    """
    form = _wanted(fields)
    if form == _JSON:
        body = json.dumps(status_object(code, message)).encode() + b"\n"
    elif form == _YAML:
        body = _yaml(code, message)
    elif form == _PROTOBUF:
        body = _protobuf(code, message)
    else:
        code = 406
        body = message.encode("utf-8", "replace") + b"\n"
    lines = b"\r\nContent-Type: %b\r\nCache-Control: no-store" % form
    if target.partition(b"?")[0].endswith(_DISCOVERY):
        text = clean(message, _MAX_WARNING, " ").replace("\\", "/").replace('"', "'")
        lines += b'\r\nWarning: 299 - "%b"' % text.encode("ascii", "replace")
    return code, lines, body


def _wanted(fields: bytes) -> bytes:
    """
    Return the content type that the client prefers; plain text if the client accepts
    none of the formats.
    """
    accepted = b",".join(_ACCEPT.findall(fields)).strip(b" \t,")
    if not accepted:
        return _JSON
    best, form = 0.0, _TEXT
    for one in accepted.lower().split(b",", _MAX_RANGES)[:_MAX_RANGES]:
        kind, *parameters = (part.strip(b" \t") for part in one.split(b";"))
        found = _FORMS.get(kind)
        quality = _quality(parameters)
        if found is not None and quality > best:
            best, form = quality, found
    return form


def _quality(parameters: list[bytes]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name == b"q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _yaml(code: int, message: str) -> bytes:
    text = json_for_yaml(clean(message, len(message)))
    reason = STATUS_REASONS.get(code, '""')
    return (
        f"apiVersion: v1\ncode: {code}\nkind: Status\nmessage: {text}\n"
        f"metadata: {{}}\nreason: {reason}\nstatus: Failure\n"
    ).encode()


# Source: k8s.io/apimachinery: runtime.Unknown around metav1.Status, including empty
# texts.


def _protobuf(code: int, message: str) -> bytes:
    metadata = _bytes(1, b"") + _bytes(2, b"") + _bytes(3, b"")
    status = (
        _bytes(1, metadata)
        + _bytes(2, b"Failure")
        + _bytes(3, message.encode("utf-8", "replace"))
        + _bytes(4, STATUS_REASONS.get(code, "").encode())
        + b"\x30"
        + _number(code)
    )
    kind = _bytes(1, _bytes(1, b"v1") + _bytes(2, b"Status"))
    return b"k8s\0" + kind + _bytes(2, status) + _bytes(3, b"") + _bytes(4, b"")


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _number(len(value)) + value


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
