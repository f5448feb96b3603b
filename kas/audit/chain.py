"""
The hash chain of one process of kas.

Each line has its number in the chain (``seq``), the process (``kas``), and the hash of
the line before (``prev``).  The lines are the leaves of a Merkle tree, whose root kas
signs from time to time.  The signed checkpoint is a line of the chain, too.

All methods run in the thread that writes the log, so a line that is dropped before has
no number.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

from kas.audit.last import LastCheckpoints
from kas.audit.notes import Checkpoint, NoteError, NoteSigner
from kas.audit.tree import MerkleTree, leaf_hash
from tunnel.program.log_writer import FileSink

__all__ = [
    "CHECKPOINT",
    "CONTINUE",
    "MAX_TORN",
    "MAX_UNSIGNED",
    "START",
    "STOP",
    "Chain",
    "origin_of",
]

#: Actions of the lines that the chain itself writes.
START, STOP = "audit.start", "audit.stop"
CONTINUE, CHECKPOINT = "audit.continue", "audit.checkpoint"

#: Maximum number of lines without a signed checkpoint.  A checkpoint costs a signature
#: (50 microseconds) and a wait for the disk (milliseconds).
MAX_UNSIGNED = 256

#: Maximum number of incomplete lines that the next line names.  There is one if the
#: disk becomes full, and at most one each time some bytes become free.
MAX_TORN = 32


def origin_of(kas: str) -> str:
    """Return the name of the chain of the process *kas*, for its checkpoints."""
    return f"txkas-audit/{kas}"


class Chain:
    """
    Sink that links the lines of one process, and writes them to a file.

    The lines of several processes may be in one file.

    :param kas: identifies the process; no other process ever has the same.
    :param body: returns a line with an action and fields, without the chain's fields.
    """

    def __init__(
        self,
        file: FileSink,
        kas: str,
        signer: NoteSigner,
        last: LastCheckpoints,
        body: Callable[[str, Mapping[str, Any]], str],
        about: Mapping[str, Any],
    ) -> None:
        self._file = file
        self._kas = kas
        self._signer = signer
        self._last = last
        self._body = body
        self._about = about
        self._tree = MerkleTree()
        self._prev = ""
        #: Number of lines that are signed, or are signatures.
        self._signed = 0
        #: Number of lines after which kas signs next.
        self._due = MAX_UNSIGNED
        self._torn: list[str] = []
        #: Number of checkpoints that were signed.
        self.checkpoints = 0

    def begin(self) -> None:
        """
        Write the first line, unless it is written.

        It names the last checkpoints of other chains, such as the chains of this kas
        before a restart, so that a verifier notices missing lines at their ends.
        """
        if self._tree.size:
            return
        before = []
        for note in self._last.read():
            with suppress(NoteError):
                found = Checkpoint.parse(note.partition("\n\n")[0] + "\n")
                root = base64.b64encode(found.root).decode()
                before.append(
                    {"origin": found.origin, "size": found.size, "root": root}
                )
        self._append(self._body(START, {**self._about, "before": before}).encode())
        self._last.remove_old()

    def write(self, data: bytes) -> None:
        """
        Write *data*, the body of one line.

        :raises OSError: if the file cannot be written; the chain does not contain the
            line.
        """
        self.begin()
        self._append(data)
        if self._tree.size >= self._due:
            # The next lines try again.
            self._due = self._tree.size + MAX_UNSIGNED
            with suppress(OSError):
                self.sign()

    def _append(self, body: bytes) -> None:
        torn = ""
        if self._torn:
            torn = '"torn":["' + '","'.join(self._torn) + '"],'
        line = b'{"v":1,"seq":%d,"kas":"%b","prev":"%b",%b%b' % (
            self._tree.size,
            self._kas.encode(),
            self._prev.encode(),
            torn.encode(),
            body[1:],
        )
        try:
            self._file.write(line)
        except OSError:
            # The file may contain a part of the line.  The next line names this part,
            # so that a verifier can distinguish it from an insertion.
            if fragment := self._file.take_fragment():
                self._torn.append(sha256(fragment).hexdigest())
                del self._torn[:-MAX_TORN]
            raise
        self._torn.clear()
        leaf = leaf_hash(line[:-1])
        self._tree.append(leaf)
        self._prev = leaf.hex()

    def sign(self) -> None:
        """
        Write a signed checkpoint of all lines, unless the last line is a checkpoint.

        :raises OSError: if the disk does not accept the lines.
        """
        size = self._tree.size
        if size == self._signed:
            return
        # The lines must be on disk before a signature says that they exist: after a
        # power failure, the log would seem to be cut.
        self._file.sync()
        root = self._tree.root()
        note = self._signer.sign(str(Checkpoint(origin_of(self._kas), size, root)))
        self._append(self._body(CHECKPOINT, {"note": note}).encode())
        self._signed = size + 1
        self._due = self._signed + MAX_UNSIGNED
        self.checkpoints += 1
        self._last.write(self._kas, note)

    def end(self) -> None:
        """Write the last line, and sign all lines."""
        self.begin()
        self._append(self._body(STOP, {}).encode())
        self.sign()

    def reopen(self) -> None:
        """
        Continue in another file with the same name.

        The first line there has the hashes of the tree, so that the lines can be
        verified without the earlier files.
        """
        with suppress(OSError):
            self.sign()
        self._file.reopen()
        self._go_on()

    def rotate(self) -> None:
        """Rename the file, and continue in a new one."""
        with suppress(OSError):
            self.sign()
        self._file.rotate()
        self._go_on()

    def _go_on(self) -> None:
        if self._tree.size:
            hashes = [base64.b64encode(one).decode() for one in self._tree.hashes]
            self._append(self._body(CONTINUE, {"hashes": hashes}).encode())
