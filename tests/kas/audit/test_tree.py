"""Merkle trees."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.audit.tree import MerkleTree, leaf_hash

#: The leaves of the tests of Certificate Transparency, and the roots of one and of
#: eight of them.
LEAVES = [
    bytes.fromhex(one)
    for one in (
        *("", "00", "10", "2021", "3031", "40414243", "5051525354555657"),
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def root_of(leaves: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, word by word."""
    if not leaves:
        return sha256().digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    both = root_of(leaves[:half]) + root_of(leaves[half:])
    return sha256(b"\x01" + both).digest()


@pytest.mark.parametrize("count", ROOTS)
def test_known_roots(count: int) -> None:
    tree = MerkleTree()
    for one in LEAVES[:count]:
        tree.append(leaf_hash(one))
    assert tree.root().hex() == ROOTS[count]


@given(st.lists(st.binary(max_size=4), max_size=40), st.integers(0, 40))
def test_continued_at_any_size(leaves: list[bytes], at: int) -> None:
    tree = MerkleTree()
    for one in leaves[:at]:
        tree.append(leaf_hash(one))
    tree = MerkleTree(tree.size, tree.hashes)
    for one in leaves[at:]:
        tree.append(leaf_hash(one))
    assert tree.size == len(leaves)
    assert tree.root() == root_of(leaves)


@pytest.mark.parametrize(
    ("size", "hashes"),
    [(1, []), (2, [b"x" * 32] * 2), (1, [b"x"]), (-1, [b"x" * 32])],
    ids=["none", "many", "short", "negative"],
)
def test_hashes_of_no_tree(size: int, hashes: list[bytes]) -> None:
    with pytest.raises(ValueError, match="hash"):
        MerkleTree(size, hashes)
