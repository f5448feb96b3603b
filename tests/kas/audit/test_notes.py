"""Signed notes and checkpoints."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from kas.audit.notes import MAX_NOTE, Checkpoint, NoteError, NoteKey, NoteSigner

#: The example in the documentation of Go's package sumdb/note.
KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
NOTE = TEXT + (
    "\n\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2p"
    "ZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
SIGNER = NoteSigner("txkas-audit", Ed25519PrivateKey.from_private_bytes(b"k" * 32))


def test_a_note_of_another_program() -> None:
    key = NoteKey.parse(KEY)
    assert str(key) == KEY
    assert key.read(NOTE) == TEXT


def test_a_note_of_our_own() -> None:
    note = SIGNER.sign("a\n\nb\n")
    key = NoteKey.parse(str(SIGNER.key))
    assert key.read(note) == "a\n\nb\n"
    # Signatures of others do not matter.
    assert key.read(note + NOTE.rpartition("\n\n")[2]) == "a\n\nb\n"


@given(st.integers(0, len(NOTE) - 1), st.characters(codec="utf-8"))
def test_any_edit_is_found(at: int, instead: str) -> None:
    edited = NOTE[:at] + instead + NOTE[at + 1 :]
    key = NoteKey.parse(KEY)
    if edited == NOTE:
        return
    with pytest.raises(NoteError):
        key.read(edited)


def test_only_one_text_has_a_signature() -> None:
    """Base64 could write the last bits in several ways."""
    with pytest.raises(NoteError):
        NoteKey.parse(KEY).read(NOTE.replace("AM=\n", "AN=\n"))


@pytest.mark.parametrize(
    "note",
    [
        "",
        TEXT,
        TEXT + "\n",
        NOTE.rstrip("\n"),
        NOTE.replace("\u2014", "-"),
        SIGNER.sign(TEXT),
        NOTE + "\u2014 a AAAA\n" * 100,
        "x" * MAX_NOTE + NOTE,
    ],
    ids=["empty", "text", "gap", "no-end", "dash", "other-key", "many", "long"],
)
def test_not_a_note_of_the_key(note: str) -> None:
    with pytest.raises(NoteError):
        NoteKey.parse(KEY).read(note)


@pytest.mark.parametrize(
    "text",
    ["", "a+b+c", KEY[:-4], KEY.replace("c74f", "c74e"), KEY.replace("+AR", "+BR")],
    ids=["empty", "words", "short", "id", "type"],
)
def test_not_a_key(text: str) -> None:
    with pytest.raises(NoteError, match="public key"):
        NoteKey.parse(text)


def test_a_checkpoint() -> None:
    checkpoint = Checkpoint("txkas-audit/a1", 5, b"r" * 32)
    assert Checkpoint.parse(str(checkpoint)) == checkpoint
    # Later versions may have further lines.
    more = Checkpoint("txkas-audit/a1", 5, b"r" * 32, ("time 1", "more"))
    assert Checkpoint.parse(f"{checkpoint}time 1\nmore\n") == more
    assert str(more) == f"{checkpoint}time 1\nmore\n"


ROOT = base64.b64encode(b"r" * 32).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n1\n",
        f"a\n-1\n{ROOT}\n",
        f"a\n01\n{ROOT}\n",
        f"a b\n1\n{ROOT}\n",
        "a\n1\nAAAA\n",
    ],
    ids=["empty", "short", "negative", "zero", "origin", "root"],
)
def test_not_a_checkpoint(text: str) -> None:
    with pytest.raises(NoteError):
        Checkpoint.parse(text)
