"""Flags of a command line, read along a schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest

from tunnel.config import ExistingFile, Invalid, Text, field, read_flags
from tunnel.errors import ConfigurationError


def pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not value:
        raise ValueError("no value")
    return name, value


@attrs.frozen(kw_only=True)
class Inner:
    size: int = field(default=1, doc="how many")
    name: str = field(default="", doc="of it")


@attrs.frozen(kw_only=True)
class Outer:
    server_url: str = field(doc="an address, such as tls://a")
    ca_file: ExistingFile | None = field(default=None, doc="a file")
    label: tuple[Annotated[tuple[str, str], Text(pair, "a=b")], ...] = field(
        default=(), secret=True, doc="labels"
    )
    loud: bool = field(default=False, doc="say more")
    inner: Inner = field(factory=Inner, doc="a section")

    def __attrs_post_init__(self) -> None:
        if self.loud and self.label:
            raise Invalid("and labels exclude each other", "loud")


NAMES = {"inner.size": "size", "inner.name": "name-of-it"}


def problems(given: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_flags(given, Outer, NAMES)
    return list(caught.value.problems)


def test_defaults() -> None:
    """What was not said, or is blank, is as the schema has it."""
    given: dict[str, Any] = {
        "server-url": "x",
        "ca-file": None,
        "label": [],
        "size": "  ",
    }
    assert read_flags(given, Outer, NAMES) == Outer(server_url="x")


def test_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths start in the working directory; text may look like a number."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca").touch()
    got = read_flags(
        {
            "server-url": "null",
            "ca-file": "ca",
            "label": ["a=b", " c=d "],
            "loud": 0,
            "size": "7",
            "name-of-it": "0815",
        },
        Outer,
        NAMES,
    )
    assert got == Outer(
        server_url="null",
        ca_file=tmp_path / "ca",
        label=(("a", "b"), ("c", "d")),
        inner=Inner(size=7, name="0815"),
    )


def test_other_flags() -> None:
    """The program has more of them than this schema."""
    got = read_flags({"server-url": "x", "verbose": "yes"}, Outer, NAMES)
    assert got == Outer(server_url="x")


def test_all_problems(tmp_path: Path) -> None:
    """Each names its flag, and no secret."""
    assert problems(
        {
            "ca-file": f"{tmp_path}/gone",
            "label": ["s3cret"],
            "size": "many",
        }
    ) == [
        f"--ca-file: {tmp_path}/gone does not exist; "
        "correct the path, or create the file",
        "--label: expected a=b, got something else",
        "--size: expected a whole number, got 'many'",
        "--server-url: is missing; pass an address, such as tls://a",
    ]


def test_together() -> None:
    """What does not go together is said at the flag that it names."""
    assert problems({"server-url": "x", "loud": 1, "label": ["a=b"]}) == [
        "--loud: and labels exclude each other"
    ]
