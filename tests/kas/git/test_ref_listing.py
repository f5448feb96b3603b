"""Lists of refs with names that their authors choose."""

from __future__ import annotations

import pytest

from kas.git.ref_listing import MAX_LINE, RefListing
from tunnel.errors import CallError

A, B = "a" * 40, "b" * 40
MAIN = "refs/heads/main"


@pytest.mark.parametrize(
    "other",
    [
        "refs/heads/refs/heads/main",
        "refs/heads/x/refs/heads/main",
        "refs/heads/refs/heads/main\u2028/refs/heads/main",
        "refs/heads/x\u2028" + B + "\trefs/heads/main",
        "refs/heads/x\x85" + MAIN,
        "refs/heads/Main",
    ],
)
def test_exact_names(other: str) -> None:
    listing = RefListing([MAIN, "HEAD"], b"\t")
    text = f"{A}\t{MAIN}\n{B}\t{other}\n{B}\trefs/heads/HEAD\n".encode()
    for start in range(0, len(text), 7):
        assert listing.read(b"", text[start : start + 7]) is None
    assert listing.found == {MAIN: (A,)}


def test_twice() -> None:
    listing = RefListing([MAIN], b"\t")
    line = f"{A}\t{MAIN}\n".encode()
    assert listing.read(b"", line) is None
    assert isinstance(listing.read(b"", line), CallError)


def test_odd_lines() -> None:
    """They are not about these refs."""
    listing = RefListing([MAIN], b" ", 3)
    for line in (
        f"{A} commit {MAIN}",
        f"no commit  {MAIN}",
        f"{A} commit  {MAIN} x",
        f"{A[:-1]}\u0661 commit  {MAIN}",
        "",
    ):
        assert listing.read(b"", line.encode() + b"\n") is None
    assert listing.found == {}
    assert listing.read(b"", f"{A} tag {B} {MAIN}\n".encode()) is None
    assert listing.found == {MAIN: (A, "tag", B)}


def test_a_line_without_an_end() -> None:
    listing = RefListing([MAIN], b"\t")
    assert isinstance(listing.read(b"", b"x" * (MAX_LINE + 1)), CallError)


@pytest.mark.parametrize("names", [["HEAD"], ["HEAD", MAIN], [MAIN]])
def test_branch_of_head(names: list[str]) -> None:
    """Only HEAD itself counts: authors choose names that end with it."""
    listing = RefListing(names, b"\t")
    for line in (
        "ref: refs/heads/evil\trefs/heads/x/HEAD",
        "ref: refs/heads/evil\trefs/heads/main",
        "ref: refs/heads/m\u2028n\tHEAD",
        f"{A}\tHEAD",
        f"{B}\trefs/heads/x/HEAD",
    ):
        assert listing.read(b"", line.encode() + b"\n") is None
    wanted = "HEAD" in names
    assert listing.branch == ("refs/heads/m\u2028n" if wanted else "")
    assert listing.found == ({"HEAD": (A,)} if wanted else {})
