"""Header lines: how some are cut out, and which pass where there is no head."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tunnel.http1.fields import (
    HeadError,
    clean_trailers,
    cut,
    lines_of,
    named_lines,
)


class TrailerTests(SynchronousTestCase):
    """`clean_trailers`."""

    def test_kept_and_dropped(self) -> None:
        """Nothing that would change the head survives in a trailer."""
        self.assertEqual(clean_trailers(b""), b"")
        self.assertEqual(
            clean_trailers(b"A: b\r\nContent-Length: 1\r\nImpersonate_User: x\r\n"),
            b"\r\nA: b",
        )

    def test_malformed(self) -> None:
        """As strict as a head."""
        for lines in (b"A: b", b"A b\r\n", b"A: \0\r\n", b" A: b\r\n"):
            self.assertRaises(HeadError, clean_trailers, lines)


def _is_one(name: bytes, names: list[bytes], underscores: bool) -> bool:
    name = name.lower()
    if underscores:
        name = name.replace(b"_", b"-")
    return any(
        name.startswith(one[:-1]) if one.endswith(b"*") else name == one
        for one in names
    )


_PIECES = st.sampled_from([b"a", b"B", b"te", b"-", b"_", b"x", b"."])
_NAMES = st.lists(_PIECES, min_size=1, max_size=4).map(b"".join)
_WANTED = st.lists(
    st.tuples(_NAMES, st.sampled_from([b"", b"*"])).map(
        lambda pair: b"".join(pair).lower().replace(b"_", b"-")
    ),
    min_size=1,
    max_size=6,
)


@given(wanted=_WANTED, lines=st.lists(_NAMES, max_size=6), underscores=st.booleans())
def test_cut(wanted: list[bytes], lines: list[bytes], underscores: bool) -> None:
    """Those that are named go, whatever they share with others; the rest stays."""
    block = [b"\r\n%b:  v%d " % (name, number) for number, name in enumerate(lines)]
    pattern = lines_of(wanted, underscores=underscores)
    kept, taken = cut(pattern, b"".join(block))
    gone = [_is_one(name, wanted, underscores) for name in lines]
    assert kept == b"".join(b for b, out in zip(block, gone, strict=True) if not out)
    expected: dict[bytes, list[bytes]] = {}
    for number, (name, out) in enumerate(zip(lines, gone, strict=True)):
        if out:
            expected.setdefault(name.lower(), []).append(b"v%d" % number)
    assert taken == expected


def test_star_of_a_client() -> None:
    """In a Connection it is a character of a name, and stands for nothing else."""
    block = b"\r\nUser-Agent: u\r\nu*: v"
    assert cut(named_lines(frozenset({b"u*"})), block) == (
        b"\r\nUser-Agent: u",
        {b"u*": [b"v"]},
    )
