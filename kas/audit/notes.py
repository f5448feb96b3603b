"""
Signed notes and checkpoints, in the formats of C2SP.

A note is a text and its signatures (c2sp.org/signed-note).  The text of a checkpoint
names a log, its number of lines, and the root of their tree (c2sp.org/tlog-checkpoint).
"""

from __future__ import annotations

import base64
import re
from hashlib import sha256

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from kas.audit.tree import HASH_BYTES

__all__ = ["MAX_NOTE", "Checkpoint", "NoteError", "NoteKey", "NoteSigner"]

#: Maximum bytes of a note: a checkpoint with a hundred signatures has less.
MAX_NOTE = 16 * 1024

#: Maximum number of signatures of a note, so that a forged note does not cost much.
MAX_SIGNATURES = 100

#: Type of the signatures and keys: Ed25519.
_ED25519 = b"\x01"

#: Number of bytes that identify the key of a signature.
_ID_BYTES = 4

_SIGNATURE = re.compile("\u2014 ([^ +\n]+) ([A-Za-z0-9+/=]+)")
_KEY = re.compile(r"([^ +\s]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)")
_ORIGIN = re.compile(r"[!-~]{1,256}")


class NoteError(Exception):
    """Error for a note or a key that cannot be accepted."""


@attrs.frozen
class NoteKey:
    """A public key, and the name of its owner."""

    name: str
    public: bytes

    @classmethod
    def parse(cls, text: str) -> NoteKey:
        """
        Parse the text of a key, ``NAME+ID+KEY``.

        :raises NoteError: if *text* is not a key for Ed25519.
        """
        found = _KEY.fullmatch(text.strip())
        data = b"" if found is None else _decoded(found[3])
        if found is None or data[:1] != _ED25519 or len(data) != 1 + HASH_BYTES:
            raise NoteError("not the text of a public key, NAME+ID+KEY, for Ed25519")
        key = cls(found[1], data[1:])
        if key.id.hex() != found[2]:
            raise NoteError("the id of the public key does not belong to the key")
        return key

    @property
    def id(self) -> bytes:
        """The bytes that identify the key in a signature."""
        name = self.name.encode()
        return sha256(name + b"\n" + _ED25519 + self.public).digest()[:_ID_BYTES]

    def __str__(self) -> str:
        data = base64.b64encode(_ED25519 + self.public).decode()
        return f"{self.name}+{self.id.hex()}+{data}"

    def read(self, note: str) -> str:
        """
        Return the text of a note that this key has signed; signatures of other keys are
        ignored.

        :raises NoteError: if the key has not signed the note.
        """
        if len(note) > MAX_NOTE:
            raise NoteError(f"a note has more than {MAX_NOTE} characters")
        text, gap, signatures = note.rpartition("\n\n")
        text += "\n"
        lines = signatures.split("\n")
        if not gap or lines.pop() or len(lines) > MAX_SIGNATURES:
            raise NoteError("not a signed note")
        for line in lines:
            found = _SIGNATURE.fullmatch(line)
            if found is None:
                raise NoteError("not a signed note")
            data = _decoded(found[2])
            if found[1] != self.name or data[:_ID_BYTES] != self.id:
                continue
            try:
                key = Ed25519PublicKey.from_public_bytes(self.public)
                key.verify(data[_ID_BYTES:], text.encode())
            except (InvalidSignature, ValueError):
                raise NoteError(f"the signature of {self.name} is wrong") from None
            return text
        raise NoteError(f"{self.name} ({self.id.hex()}) has not signed the note")


class NoteSigner:
    """A private key, and the name of its owner."""

    def __init__(self, name: str, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.key = NoteKey(name, private.public_key().public_bytes_raw())

    def sign(self, text: str) -> str:
        """Return a note with *text*, which ends with a line feed."""
        signature = self.key.id + self._private.sign(text.encode())
        encoded = base64.b64encode(signature).decode()
        return f"{text}\n\u2014 {self.key.name} {encoded}\n"


@attrs.frozen
class Checkpoint:
    """
    The state of a log: its name, its number of lines, and the root of its tree.

    :ivar extensions: further lines of the text.
    """

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """
        Parse the text of a note.

        :raises NoteError: if *text* is not a checkpoint.
        """
        origin, size, root, *extensions = text.split("\n") + [""] * 3
        data = _decoded(root)
        if (
            _ORIGIN.fullmatch(origin) is None
            or re.fullmatch("0|[1-9][0-9]{0,18}", size) is None
            or len(data) != HASH_BYTES
        ):
            raise NoteError("not a checkpoint: origin, size and root on three lines")
        return cls(origin, int(size), data, tuple(one for one in extensions if one))

    def __str__(self) -> str:
        root = base64.b64encode(self.root).decode()
        lines = (self.origin, str(self.size), root, *self.extensions)
        return "".join(f"{line}\n" for line in lines)


def _decoded(text: str) -> bytes:
    """Return the bytes of a text in base64; nothing if the text is malformed."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return b""
    # Several texts may have the same bytes, and only one of them is correct.
    return data if base64.b64encode(data).decode() == text else b""
