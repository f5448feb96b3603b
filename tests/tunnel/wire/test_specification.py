"""docs/protocol.rst and the code say the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb
from tunnel.wire import limits
from tunnel.wire.framing import FIN, FrameDecoder, FrameType, encode_frame
from tunnel.wire.stream import TRANSITIONS

SPECIFICATION = (Path(__file__).parents[3] / "docs" / "protocol.rst").read_text()

MESSAGES = {
    "HELLO": pb.Hello,
    "WELCOME": pb.Welcome,
    "OPEN": pb.Open,
    "CREDIT": pb.Credit,
    "RESET": pb.Reset,
    "PING": pb.Ping,
    "PONG": pb.Ping,
    "GO_AWAY": pb.GoAway,
    "RESUME": pb.Resume,
    "RESUMED": pb.Resumed,
    "ACK": pb.Ack,
}


def between(name: str) -> str:
    """The part of the specification that is marked with *name*."""
    return SPECIFICATION.split(f".. {name}-begin")[1].split(f".. {name}-end")[0]


def vectors() -> list[tuple[str, bytes]]:
    """Each vector: its description, its bytes."""
    found = []
    for block in re.split(r"\n\s*\n", between("vectors")):
        lines = [line.strip() for line in block.strip().splitlines()]
        if lines and lines[0].split()[0] in FrameType.__members__:
            found.append((lines[0], bytes.fromhex("".join(lines[1:]))))
    return found


def value(text: str) -> object:
    """What a description says a field is."""
    if repeated := re.fullmatch(r"0x([0-9a-f]{2})\*(\d+)", text):
        return bytes.fromhex(repeated[1]) * int(repeated[2])
    return {"true": True}.get(text) or ast.literal_eval(text)


@pytest.mark.parametrize(("description", "data"), vectors())
def test_vector_is_what_it_says(description: str, data: bytes) -> None:
    name, *words = re.findall(r'\w+=(?:"[^"]*"|\S+)|\S+', description)
    fields = {k: value(v) for k, _, v in (w.partition("=") for w in words) if v}
    flags = FIN if "FIN" in words else 0
    stream = fields.pop("stream", 0)
    if name in ("HEADERS", "DATA"):
        (text,) = fields.values()
        payload = str(text).encode()
    else:
        message = MESSAGES[name]()
        for field, wanted in fields.items():
            kind = message.DESCRIPTOR.fields_by_name[field]
            if isinstance(wanted, list):
                getattr(message, field).extend(wanted)
            elif kind.type == kind.TYPE_BYTES and isinstance(wanted, str):
                setattr(message, field, wanted.encode())
            else:
                setattr(message, field, wanted)
        payload = message.SerializeToString()
    assert isinstance(stream, int)
    assert encode_frame(FrameType[name], flags, stream, payload).hex() == data.hex()
    ((kind_number, got_flags, got_stream, got_payload),) = FrameDecoder().feed(data)
    assert (kind_number, got_flags, got_stream) == (FrameType[name], flags, stream)
    assert got_payload == payload


def test_there_is_a_vector_for_each_type_of_frame() -> None:
    assert {d.split()[0] for d, _ in vectors()} == set(FrameType.__members__)


def test_states_are_those_of_the_table() -> None:
    rows = re.findall(
        r"^(open|half-closed \(\w+\)) +((?:send|receive) \w+) +(\S.*)$",
        between("stream-states"),
        re.MULTILINE,
    )
    table = {(state, by): after.strip() for state, by, after in rows}
    assert table == {
        (state.value, by.value): after.value
        for (state, by), after in TRANSITIONS.items()
    }


def test_limits_are_those_of_the_table() -> None:
    rows = re.findall(r"^(\w+) {2,}(\d+) ", between("limits"), re.MULTILINE)
    assert len(rows) == 22
    for name, number in rows:
        known = getattr(limits, name, None)
        if known is None:
            known = getattr(limits.DEFAULT_LIMITS, name)
        assert known == int(number), name


def test_every_limit_is_in_the_table() -> None:
    text = between("limits")
    for name in vars(limits.DEFAULT_LIMITS.__class__)["__attrs_attrs__"]:
        if name.name != "max_payload":
            assert name.name in text


def test_codes_are_those_of_the_table() -> None:
    section = SPECIFICATION.split("12. Codes")[1].split("13. Limits")[0]
    rows = re.findall(r"\* - (\d+)\n +- (\w+)\n", section)
    assert {int(n): name for n, name in rows} == {c.value: c.name for c in ErrorCode}


def test_frame_types_are_those_of_the_table() -> None:
    section = SPECIFICATION.split("2. Frames")[1].split("3. Greeting")[0]
    rows = re.findall(r"\* - (\d+)\n +- (\w+)\n", section)
    assert {int(n): name for n, name in rows} == {t.value: t.name for t in FrameType}
