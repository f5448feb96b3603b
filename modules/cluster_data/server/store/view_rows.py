"""
The rows of one view of one agent, within a transaction of the store.

The table ``views`` has their number, their size and their sum.  So the cost of a change
depends on its own rows, whatever the number of other rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import attrs

from modules.cluster_data.server.store.terms import terms_of
from modules.cluster_data.wire import cluster_data_pb2 as wire
from modules.cluster_data.wire.row_sum import row_sum
from tunnel.errors import CallError, Status

__all__ = [
    "MAX_COLUMNS",
    "MAX_NAME",
    "MAX_ROWS",
    "MAX_TERMS",
    "MAX_VIEW_SIZE",
    "ViewRows",
    "clear_agent",
    "clear_view",
    "views_of",
]

#: Maximum number of rows of one view of one agent: a cluster of 5,000 nodes has fewer
#: workloads, and an agent must not fill the disk of kas.
MAX_ROWS = 100_000

#: Maximum number of bytes of all rows of one view of one agent: a hundred thousand rows
#: of the usual size.
MAX_VIEW_SIZE = 32 * 1024 * 1024

#: Maximum number of terms of one view of one agent: five for each row.
MAX_TERMS = 5 * MAX_ROWS

#: Maximum number of bytes of the columns of one row; agentk shortens longer ones.
MAX_COLUMNS = 16 * 1024

#: Maximum number of characters of each part of a key; names in Kubernetes have 253.
MAX_NAME = 400

_OF_VIEW = "view = ? AND agent_id = ? AND staged = ?"
_OF_KEY = (
    f"{_OF_VIEW} AND api_group = ? AND kind = ? AND namespace = ? AND name = ?"
    " AND part = ?"
)
_INSERT = (
    "INSERT INTO rows (id, view, agent_id, staged, api_group, kind, namespace, name,"
    " part, resource, columns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_TERM = "INSERT INTO terms VALUES (?, ?)"
_DELETE_TERM = "DELETE FROM terms WHERE term = ? AND id = ?"


@attrs.define
class _Totals:
    """
    What the table ``views`` has of some rows.

    :ivar sequence: number of the last change; None if a snapshot is needed.
    :ivar sum: the sum of the rows, modulo 2**64.
    """

    sequence: int | None = None
    sum: int = 0
    rows: int = 0
    size: int = 0
    terms: int = 0


class ViewRows:
    """
    Rows that changes of one message read and write; `save` ends the changes.

    :param staged: 1 for the rows of a snapshot that has not arrived as a whole, which
        no reader sees.
    """

    def __init__(
        self, database: sqlite3.Connection, agent: str, view: str, staged: int = 0
    ) -> None:
        self._database = database
        self._where = (view, agent, staged)
        found = database.execute(
            "SELECT sequence, sum, row_count, size, term_count FROM views"
            " WHERE agent_id = ? AND view = ? AND staged = ?",
            (agent, view, staged),
        ).fetchone()
        self._totals = _Totals(*(found or ()))

    @property
    def sequence(self) -> int | None:
        """Return the number of the last change; None if a snapshot is needed."""
        return self._totals.sequence

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return self._totals.rows

    def differs(self, said: wire.ViewSum) -> bool:
        """Return whether agentk has other rows at the same position."""
        sequence = self._totals.sequence
        if sequence is None:
            return True
        # With another number, changes are on their way.
        return sequence == said.sequence and _unsigned(self._totals.sum) != said.sum

    def insert(self, rows: Sequence[wire.Row]) -> None:
        """
        Add rows.

        :raises CallError: INVALID_ARGUMENT if a row exists, or is not a row.
        """
        # Numbers are never used again, because a damaged file may have terms of lost
        # rows.
        (last,) = self._database.execute(
            "SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = 'rows'"
        ).fetchone()
        new, terms = [], []
        for number, row in enumerate(rows, last + 1):
            key = _key(row.key)
            columns, found = _read(row)
            new.append((number, *self._where, *key, row.resource, columns))
            terms += [(term, number) for term in found]
            self._count(1, key, columns, len(found))
        # An index grows faster in its own order.
        terms.sort()
        try:
            self._database.executemany(_INSERT, new)
        except sqlite3.IntegrityError:
            text = f"the view {self._where[0]!r} has two rows with one key"
            raise CallError(Status.INVALID_ARGUMENT, text) from None
        self._database.executemany(_INSERT_TERM, terms)

    def put(self, row: wire.Row) -> None:
        """
        Set a row.

        :raises CallError: INVALID_ARGUMENT for a row that is not a row.
        """
        key = _key(row.key)
        found = self._database.execute(
            f"SELECT id, columns FROM rows WHERE {_OF_KEY}", (*self._where, *key)
        ).fetchone()
        if found is None:
            self.insert([row])
            return
        number, before = found
        columns, terms = _read(row)
        old = set(terms_of(row.key.name, before))
        self._database.execute(
            "UPDATE rows SET resource = ?, columns = ? WHERE id = ?",
            (row.resource, columns, number),
        )
        self._database.executemany(
            _DELETE_TERM, [(term, number) for term in old - terms]
        )
        self._database.executemany(
            _INSERT_TERM, [(term, number) for term in terms - old]
        )
        self._count(-1, key, before, len(old))
        self._count(1, key, columns, len(terms))

    def delete(self, key: wire.RowKey) -> None:
        """Remove a row, if it exists."""
        parts = _key(key)
        found = self._database.execute(
            f"SELECT id, columns FROM rows WHERE {_OF_KEY}", (*self._where, *parts)
        ).fetchone()
        if found is None:
            return
        number, columns = found
        terms = set(terms_of(key.name, columns))
        self._database.executemany(_DELETE_TERM, [(term, number) for term in terms])
        self._database.execute("DELETE FROM rows WHERE id = ?", (number,))
        self._count(-1, parts, columns, len(terms))

    def clear(self) -> None:
        """Remove all rows."""
        if self._totals.rows:
            found = self._database.execute(
                f"SELECT id, name, columns FROM rows WHERE {_OF_VIEW}", self._where
            ).fetchall()
            terms = [
                (term, number)
                for number, name, columns in found
                for term in set(terms_of(name, columns))
            ]
            self._database.executemany(_DELETE_TERM, sorted(terms))
            self._database.execute(f"DELETE FROM rows WHERE {_OF_VIEW}", self._where)
        self._totals = _Totals()

    def take(self, staged: ViewRows) -> None:
        """Move the rows of a snapshot here, in place of the rows so far."""
        self.clear()
        self._database.execute(
            f"UPDATE rows SET staged = 0 WHERE {_OF_VIEW}", staged._where
        )
        self._totals, staged._totals = staged._totals, _Totals()

    def save(self, sequence: int | None = None) -> None:
        """
        Store the totals.

        :param sequence: number of the last change; None if it stays.
        :raises CallError: RESOURCE_EXHAUSTED if there are too many rows.
        """
        totals = self._totals
        if sequence is not None:
            totals.sequence = sequence
        if (
            totals.rows > MAX_ROWS
            or totals.size > MAX_VIEW_SIZE
            or totals.terms > MAX_TERMS
        ):
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                f"a view may have at most {MAX_ROWS} rows, {MAX_VIEW_SIZE >> 20} MiB "
                f"and {MAX_TERMS} names, labels and images",
            )
        view, agent, staged = self._where
        self._database.execute(
            "INSERT OR REPLACE INTO views VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (agent, view, staged, *attrs.astuple(totals)),
        )

    def _count(self, sign: int, key: tuple[str, ...], columns: str, terms: int) -> None:
        """Add a row to the totals, or subtract it."""
        totals = self._totals
        totals.rows += sign
        totals.size += sign * len(columns)
        totals.terms += sign * terms
        total = totals.sum + sign * row_sum(key, columns.encode())
        totals.sum = _signed(total)


def clear_agent(database: sqlite3.Connection, agent: str, *staged: int) -> None:
    """Remove all rows of an agent, or only the staged ones."""
    for one in staged or (0, 1):
        for view in views_of(database, agent):
            clear_view(database, agent, view, one)


def clear_view(
    database: sqlite3.Connection, agent: str, view: str, staged: int = 0
) -> None:
    """Remove the rows of one view of an agent."""
    rows = ViewRows(database, agent, view, staged)
    if rows.count:
        rows.clear()
        rows.save()


def views_of(database: sqlite3.Connection, agent: str) -> list[str]:
    """Return the views of an agent."""
    found = database.execute(
        "SELECT DISTINCT view FROM views WHERE agent_id = ?", (agent,)
    )
    return [view for (view,) in found]


def _read(row: wire.Row) -> tuple[str, set[str]]:
    """Return the columns of a row as text, and its terms."""
    if len(row.columns) > MAX_COLUMNS:
        raise CallError(
            Status.INVALID_ARGUMENT, f"a row of {len(row.columns)} bytes is too long"
        )
    try:
        columns = row.columns.decode()
        return columns, set(terms_of(row.key.name, columns))
    except (ValueError, RecursionError) as error:
        text = f"the columns of a row are invalid: {error}"
        raise CallError(Status.INVALID_ARGUMENT, text) from None


def _key(key: wire.RowKey) -> tuple[str, str, str, str, str]:
    parts = key.group, key.kind, key.namespace, key.name, key.part
    if max(map(len, parts)) > MAX_NAME:
        text = f"a part of a key has more than {MAX_NAME} characters"
        raise CallError(Status.INVALID_ARGUMENT, text)
    return parts


def _signed(number: int) -> int:
    """Return the number modulo 2**64 that SQLite can store."""
    return (number + 2**63) % 2**64 - 2**63


def _unsigned(number: int) -> int:
    return number % 2**64
