"""
Bodies in protobuf: kubectl sends them for what it knows by heart, and nothing else.

Only the messages that can be created here are known, and of them only what is kept.
Answers are JSON, which every client takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from demo.sandbox.status import ApiError

__all__ = ["CONTENT_TYPE", "decode"]

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"

#: Field number -> name and kind: text, map of texts, or the fields of a message.
_Fields = dict[int, tuple[str, Any]]
_TEXT, _TEXTS = "text", "texts"

_METADATA: _Fields = {
    1: ("name", _TEXT),
    2: ("generateName", _TEXT),
    3: ("namespace", _TEXT),
    6: ("resourceVersion", _TEXT),
    11: ("labels", _TEXTS),
    12: ("annotations", _TEXTS),
}
_KINDS: dict[str, _Fields] = {
    "ConfigMap": {1: ("metadata", _METADATA), 2: ("data", _TEXTS)},
    "Namespace": {1: ("metadata", _METADATA)},
    # What they ask is answered with yes, whatever it is.
    "SelfSubjectAccessReview": {},
    "SelfSubjectRulesReview": {},
    "SelfSubjectReview": {},
    "DeleteOptions": {},
}


def decode(body: bytes) -> dict[str, Any]:
    """:raises ApiError: nothing that is known here."""
    if not body.startswith(_MAGIC):
        raise ApiError(400, "the body is not what it should be: no magic number")
    try:
        envelope = dict(_fields(body[4:]))
        about = {number: value.decode() for number, value in _fields(envelope[1])}
        api_version, kind = about[1], about[2]
        if kind not in _KINDS:
            raise ApiError(415, f"the sandbox takes a {kind} only as JSON")
        content = _message(envelope.get(2, b""), _KINDS[kind])
    except (ValueError, IndexError, KeyError):
        raise ApiError(400, "the body is not what it should be: no protobuf") from None
    return {"apiVersion": api_version, "kind": kind, **content}


def _message(data: bytes, known: _Fields) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in known:
            continue
        name, kind = known[number]
        if kind == _TEXTS:
            entry = {n: part.decode() for n, part in _fields(value)}
            content.setdefault(name, {})[entry.get(1, "")] = entry.get(2, "")
        elif kind == _TEXT:
            if value:
                content[name] = value.decode()
        else:
            content[name] = _message(value, kind)
    return content


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields that have bytes; numbers are skipped."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == 0:
            _, position = _varint(data, position)
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        elif kind == 2:
            size, position = _varint(data, position)
            if size > len(data) - position:
                raise ValueError
            yield key >> 3, data[position : position + size]
            position += size
        else:
            raise ValueError


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise ValueError
