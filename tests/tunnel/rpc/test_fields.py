"""Metadata as one block of bytes."""

from __future__ import annotations

from tunnel.rpc.fields import MAX_FIELDS, MAX_LINES, decode_fields


def test_many_fields() -> None:
    """No more of them than a limit are read, with few other lines."""
    fields = [b"a%d: b" % number for number in range(2 * MAX_FIELDS)]
    assert len(decode_fields(b"\r\n".join(fields))) == MAX_FIELDS
    assert decode_fields(b"\r\n" * (MAX_LINES - 1) + b"a: b") == {"a": "b"}
    assert decode_fields(b"\r\n" * MAX_LINES + b"a: b") == {}
