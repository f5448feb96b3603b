"""The rows of one view, with the order of their changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import attrs
import msgspec

from modules.cluster_data.wire.row_sum import row_sum

__all__ = ["MAX_COLUMNS", "MAX_DELETED", "Table", "TableKey", "TableRow"]

#: Maximum number of bytes of the columns of a row, which kas accepts.  A longer row
#: keeps only its most important columns.
MAX_COLUMNS = 16 * 1024

#: The columns of a row that is too long; each is short.
_KEPT = ("health", "state", "ready", "wanted", "since", "total")

#: Maximum number of deleted keys that a table remembers: a reader that is further
#: behind reads all rows again.
MAX_DELETED = 5000


class TableKey(NamedTuple):
    """TableKey of a row: the object, and the part of it."""

    group: str
    kind: str
    namespace: str
    name: str
    part: str = ""


class TableRow(NamedTuple):
    """
    A row as it is sent.

    :ivar resource: the plural of the kind, for access reviews.
    :ivar columns: a JSON object.
    """

    resource: str
    columns: bytes


@attrs.define(eq=False)
class Table:
    """
    Rows of a view by key.  Each change has a sequence number, and a newer change of a
    key replaces the older one: a slow reader costs no memory.

    :ivar sequence: number of the last change.
    :ivar sum: sum of the hashes of all rows, to find differences from kas.
    :ivar size: bytes of all rows and keys.
    """

    name: str
    rows: dict[TableKey, TableRow] = attrs.field(factory=dict)
    sequence: int = 0
    sum: int = 0
    size: int = 0
    #: The last change of each key in the order of changes; deleted keys included.
    _changes: dict[TableKey, int] = attrs.field(factory=dict)
    _deleted: dict[TableKey, None] = attrs.field(factory=dict)
    #: Number of the newest change that is not in *_changes* any more.
    _forgotten: int = 0

    def put(self, key: TableKey, resource: str, columns: Mapping[str, Any]) -> bool:
        """Set a row; return False if it already has these columns."""
        text = msgspec.json.encode(columns, order="sorted")
        if len(text) > MAX_COLUMNS:
            few = {name: columns[name] for name in _KEPT if name in columns}
            text = msgspec.json.encode(few | {"shortened": True}, order="sorted")
        row = TableRow(resource, text)
        before = self.rows.get(key)
        if before == row:
            return False
        if before is not None:
            self._uncount(key, before)
        self.rows[key] = row
        self.sum = (self.sum + row_sum(key, row.columns)) & (2**64 - 1)
        self.size += _size(key, row)
        self._deleted.pop(key, None)
        self._changed(key)
        return True

    def delete(self, key: TableKey) -> None:
        """Remove a row, if it exists."""
        before = self.rows.pop(key, None)
        if before is None:
            return
        self._uncount(key, before)
        self._deleted[key] = None
        self._changed(key)
        if len(self._deleted) > MAX_DELETED:
            oldest = next(iter(self._deleted))
            del self._deleted[oldest]
            self._forgotten = max(self._forgotten, self._changes.pop(oldest))

    def has_since(self, sequence: int) -> bool:
        """Return whether the changes after *sequence* are known."""
        return self._forgotten <= sequence <= self.sequence

    def since(self, sequence: int) -> tuple[list[TableKey], list[TableKey]]:
        """Return the keys of rows set after *sequence*, and of deleted rows."""
        put: list[TableKey] = []
        deleted: list[TableKey] = []
        for key in reversed(self._changes):
            if self._changes[key] <= sequence:
                break
            (put if key in self.rows else deleted).append(key)
        return put, deleted

    def items(self, keys: Iterable[TableKey]) -> Iterator[tuple[TableKey, TableRow]]:
        """Yield the rows of *keys* that still exist."""
        for key in keys:
            if (row := self.rows.get(key)) is not None:
                yield key, row

    def _changed(self, key: TableKey) -> None:
        self.sequence += 1
        # The key moves to the end.
        self._changes.pop(key, None)
        self._changes[key] = self.sequence

    def _uncount(self, key: TableKey, row: TableRow) -> None:
        self.sum = (self.sum - row_sum(key, row.columns)) & (2**64 - 1)
        self.size -= _size(key, row)


def _size(key: TableKey, row: TableRow) -> int:
    # The parts of a key are mostly shared with other rows.
    return len(row.columns) + len(key.name) + ROW_OVERHEAD


#: Bytes of the Python objects of a row beside its columns and its name.
ROW_OVERHEAD = 400
