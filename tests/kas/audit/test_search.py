"""Search for events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.audit.files import MAX_LINE, follow, in_order, lines_of, open_log
from kas.audit.search import AuditQuery, ObjectPattern

EXEC = {
    "v": 1,
    "seq": 1,
    "stage": "begun",
    "time": "2026-05-01T12:00:00.000000+00:00",
    "action": "kubernetes.request",
    "credential": "user:alice",
    "agent": "edge",
    "agent_id": "7",
    "outcome": "",
    "verb": "create",
    "resource": "pods",
    "subresource": "exec",
    "namespace": "prod",
    "name": "web-0",
}
DENIED = {
    **EXEC,
    "stage": "denied",
    "time": "2026-05-01T13:00:00.000000+00:00",
    "credential": "user:bob",
    "outcome": "403",
    "subresource": "",
    "name": "web-0/x",
}
CHANGED = {
    "v": 1,
    "stage": "changed",
    "time": "2026-05-01T14:00:00.000000+00:00",
    "action": "user.add",
    "operator": "root",
    "outcome": "OK",
    "name": "carol",
}
CHECKPOINT = {**CHANGED, "action": "audit.checkpoint", "operator": ""}
#: Written by an earlier version.
OLD = {**EXEC, "time": "2025-05-01T12:00:00+00:00", "agent": "old"}
del OLD["v"], OLD["stage"]

EVENTS = {
    "exec": EXEC,
    "denied": DENIED,
    "changed": CHANGED,
    "checkpoint": CHECKPOINT,
    "old": OLD,
}


def encoded(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def found(**query: Any) -> list[str]:
    """Return the names of the events that match."""
    lines = {encoded(event).rstrip(): name for name, event in EVENTS.items()}
    matching = AuditQuery(**query).find(encoded(one) for one in EVENTS.values())
    return [lines[one.line] for one in matching]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["exec", "denied", "changed", "old"]),
        ({"user": "user:alice"}, ["exec", "old"]),
        ({"user": "bob"}, ["denied"]),
        ({"user": "root"}, ["changed"]),
        ({"user": "user"}, []),
        ({"user": "ali"}, []),
        ({"agent": "edge"}, ["exec", "denied"]),
        ({"agent": "7"}, ["exec", "denied", "old"]),
        ({"namespace": "prod", "agent": "edge"}, ["exec", "denied"]),
        ({"namespace": "pro"}, []),
        ({"action": "user.add"}, ["changed"]),
        ({"action": "user.*"}, ["changed"]),
        ({"action": "audit.checkpoint"}, ["checkpoint"]),
        ({"action": "user"}, []),
        ({"denied": True}, ["denied"]),
        ({"since": "2026-05-01T12:30"}, ["denied", "changed"]),
        ({"until": "2026-05-01T12:30"}, ["exec", "old"]),
        ({"object": ObjectPattern.parse("pods/exec:prod/web-0")}, ["exec", "old"]),
        ({"object": ObjectPattern.parse("pods")}, ["exec", "denied", "old"]),
        ({"object": ObjectPattern.parse(":web-0")}, ["exec", "old"]),
        ({"object": ObjectPattern.parse("/exec"), "user": "bob"}, []),
    ],
    ids=str,
)
def test_queries(query: dict[str, Any], names: list[str]) -> None:
    assert found(**query) == names


@pytest.mark.parametrize("text", ["", "a/b/c", "pods:a/b/c", "Pods", "pods/"])
def test_not_an_object(text: str) -> None:
    with pytest.raises(ValueError, match="is not RESOURCE"):
        ObjectPattern.parse(text)


@given(st.text(min_size=1))
def test_any_user(text: str) -> None:
    """However JSON writes the text."""
    event = {**EXEC, "credential": text}
    query = AuditQuery(user=text)
    assert [one.event for one in query.find([encoded(event)])] == [event]
    raw = json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    if text.isascii():
        assert len(list(query.find([raw]))) == 1


@given(st.lists(st.one_of(st.binary(), st.just(encoded(EXEC)))))
def test_lines_that_are_not_events(lines: list[bytes]) -> None:
    wanted = sum(one == encoded(EXEC) for one in lines)
    assert len(list(AuditQuery(user="alice").find(lines))) == wanted


def test_a_line_after_a_fragment() -> None:
    line = encoded(EXEC)
    (one,) = AuditQuery().find([b'{"v":1,"seq":5,"kas' + line])
    assert one.line + b"\n" == line


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "exec",
            "2026-05-01T12:00:00Z  user:alice  edge  "
            "create pods/exec prod/web-0  begun",
        ),
        ("changed", "2026-05-01T14:00:00Z  root  -  user.add carol  OK"),
    ],
)
def test_the_text_of_an_event(name: str, text: str) -> None:
    (one,) = AuditQuery().find([encoded(EVENTS[name])])
    assert str(one) == text


# Files.


def test_the_order_of_files(tmp_path: Path) -> None:
    paths = [tmp_path / one for one in ("a", "b", "c")]
    paths[0].write_bytes(b"half a line\n" + encoded(CHANGED))
    paths[1].write_bytes(encoded(OLD))
    paths[2].write_bytes(encoded(EXEC))
    wanted = [paths[1], paths[2], paths[0]]
    assert in_order([*paths, paths[0]]) == wanted


def test_long_lines_are_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * (2 * MAX_LINE + 5))
    with open_log(path) as file:
        assert [len(one) for one in lines_of(file)] == [MAX_LINE, MAX_LINE, 5]


class _Stop(Exception):
    pass


def test_follow_a_file(tmp_path: Path) -> None:
    """Through incomplete lines, a rotation and a truncation."""
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")

    def append(data: bytes) -> None:
        with path.open("ab") as file:
            file.write(data)

    def move() -> None:
        path.rename(tmp_path / "log.1")

    def last_of_old() -> None:
        with (tmp_path / "log.1").open("ab") as file:
            file.write(b"four\n")

    def stop() -> None:
        raise _Stop

    steps = iter(
        [
            lambda: append(b"o\nthr"),
            lambda: append(b"ee\n"),
            move,
            lambda: path.write_bytes(b"five\n"),
            last_of_old,
            lambda: path.write_bytes(b"6\n"),
            lambda: None,
            stop,
        ]
    )
    lines = []
    with pytest.raises(_Stop):
        for line in follow(path, lambda: next(steps)()):
            lines.append(line)
    assert lines == [b"one\n", b"two\n", b"three\n", b"four\n", b"five\n", b"6\n"]
