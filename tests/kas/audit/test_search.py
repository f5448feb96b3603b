"""Search for events."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.audit import files
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

ENDED = {
    **EXEC,
    "stage": "ended",
    "outcome": "101",
    "reason": "finished",
    "exit_code": 7,
}

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


@pytest.mark.parametrize(
    "event",
    [
        {**EXEC, "action": 5},
        {**EXEC, "time": 7},
        {**EXEC, "time": None},
        {**EXEC, "credential": ["user:alice"], "outcome": {}, "agent": []},
        ["edge"],
    ],
    ids=str,
)
def test_lines_with_other_types(event: Any) -> None:
    """They do not end a search."""
    for query in (
        AuditQuery(),
        AuditQuery(action="k*", since="2026", until="2027"),
        AuditQuery(user="alice", denied=True, namespace="prod"),
    ):
        lines = [encoded(event), encoded({**DENIED, "credential": "user:alice"})]
        assert [str(one) for one in query.find(lines)][-1].endswith("403")


def test_two_lines_without_a_line_feed() -> None:
    """The disk was full, and another worker wrote the next line."""
    both = encoded(EXEC).rstrip() + encoded(DENIED)
    assert [one.event for one in AuditQuery().find([both])] == [EXEC, DENIED]


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
        (
            "ended",
            "2026-05-01T12:00:00Z  user:alice  edge  "
            "create pods/exec prod/web-0  101  (finished, exit code 7)",
        ),
    ],
)
def test_the_text_of_an_event(name: str, text: str) -> None:
    (one,) = AuditQuery().find([encoded({**EVENTS, "ended": ENDED}[name])])
    assert str(one) == text


# Files.


def names(paths: list[Path]) -> list[Path]:
    with in_order(paths) as files:
        return [one.path for one in files]


def test_the_order_of_files(tmp_path: Path) -> None:
    paths = [tmp_path / one for one in ("a", "b", "c")]
    paths[0].write_bytes(b"half a line\n" + encoded(CHANGED))
    paths[1].write_bytes(encoded(OLD))
    paths[2].write_bytes(encoded(EXEC))
    wanted = [paths[1], paths[2], paths[0]]
    assert names([*paths, paths[0]]) == wanted


def test_long_lines_are_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * (2 * MAX_LINE + 5))
    with open_log(path) as file:
        assert [len(one) for one in lines_of(file)] == [MAX_LINE, MAX_LINE, 5]


def place(kas: str, seq: int, hour: int) -> bytes:
    time = f"2026-05-01T{hour:02}:00:00.000000+00:00"
    return encoded({"v": 1, "seq": seq, "kas": kas, "time": time, "x": "x" * 200})


def test_the_order_of_files_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """Also if a chain began at the end of a file."""
    paths = [tmp_path / one for one in ("a", "b", "c", "d")]
    paths[0].write_bytes(place("a", 7, 3))
    paths[1].write_bytes(
        b"".join(place("a", seq, 4) for seq in range(7))
        + 500 * b"x\n"
        + place("b", 0, 5)
    )
    paths[2].write_bytes(place("b", 1, 2))
    paths[3].write_bytes(place("c", 0, 1))
    wanted = [paths[3], paths[1], paths[2], paths[0]]
    assert names(paths) == wanted
    assert names(paths[::-1]) == wanted


def test_files_that_contradict_each_other(tmp_path: Path) -> None:
    """Each of them is read once."""
    paths = [tmp_path / one for one in ("a", "b")]
    paths[0].write_bytes(place("a", 1, 1) + place("b", 2, 1))
    paths[1].write_bytes(place("a", 2, 2) + place("b", 1, 2))
    assert names(paths) == paths


def test_a_rotation_after_the_files_were_opened(tmp_path: Path) -> None:
    """The order and the lines are those before it."""
    log, old = tmp_path / "log", tmp_path / "log.1"
    old.write_bytes(encoded(EXEC))
    log.write_bytes(encoded(CHANGED))
    with in_order([log, old]) as files:
        log.rename(old)
        log.write_bytes(b"new\n")
        lines = [[*lines_of(one.file)] for one in files]
    assert lines == [[encoded(EXEC)], [encoded(CHANGED)]]


@pytest.mark.parametrize("attempts", [1, 5], ids=str)
def test_a_rotation_while_the_files_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    monkeypatch.setattr(files, "MAX_ATTEMPTS", attempts)
    log, old = tmp_path / "log", tmp_path / "log.1"
    log.write_bytes(encoded(CHANGED))
    old.write_bytes(encoded(EXEC))
    real = files.open_log
    opened: list[Path] = []

    def open_log(path: Path) -> Any:
        opened.append(path)
        if len(opened) == 2:
            log.rename(old)
            log.write_bytes(encoded(DENIED))
        return real(path)

    monkeypatch.setattr(files, "open_log", open_log)
    with in_order([log, old]) as found:
        lines = [line for one in found for line in lines_of(one.file)]
    # One attempt opened the same file under both names.
    assert lines == [encoded(one) for one in (DENIED, CHANGED)][-len(found) :]
    assert len(found) == (1 if attempts == 1 else 2)


DAMAGED = gzip.compress(encoded(EXEC) + random.Random(1).randbytes(10**5), mtime=0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (DAMAGED[:-500], "is damaged or incomplete"),
        (DAMAGED[:20] + b"\xff" + DAMAGED[21:], "is damaged or incomplete"),
        (DAMAGED + b"x", "is damaged or incomplete"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 100, "is compressed with zstd"),
        (b"\xfd7zXZ\x00" + b"x" * 100, "is compressed with xz"),
        (b"BZh9" + b"x" * 100, "is compressed with bzip2"),
    ],
    ids=["cut", "changed", "longer", "zstd", "xz", "bzip2"],
)
def test_a_damaged_file(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(OSError, match=why) as caught, in_order([path]) as files:
        for one in files:
            for _ in lines_of(one.file):
                pass
    assert caught.value.filename == str(path)


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
