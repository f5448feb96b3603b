"""
The last known rows of all clusters, in SQLite.

The file is a cache, so nothing waits for the disk: a power failure may lose rows, which
agentk sends again.  All workers of one kas use the same file, and one of them writes at
a time.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import Deferred, DeferredLock, DeferredSemaphore
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from modules.cluster_data.server.terms import terms_of
from modules.cluster_data.wire import cluster_data_pb2 as wire
from modules.cluster_data.wire.row_sum import row_sum
from tunnel.errors import CallError, Status

__all__ = ["MAX_ROWS", "QUERY_SECONDS", "VIEWS", "Publication", "RowStore"]

_T = TypeVar("_T")

#: The views that kas reads; agentk sends no others.
VIEWS = ("summary", "kinds", "workloads", "nodes", "problems", "events")

#: Maximum number of rows of one view of one agent: a cluster of 5,000 nodes has fewer
#: workloads, and an agent must not fill the disk of kas.
MAX_ROWS = 100_000

#: Maximum number of bytes of all rows of one view of one agent: a hundred thousand rows
#: of the usual size.
MAX_VIEW_SIZE = 32 * 1024 * 1024

#: Maximum number of bytes of the columns of one row; agentk shortens longer ones.
MAX_COLUMNS = 16 * 1024

#: Number of queries that run at the same time.
READERS = 2

#: Maximum duration of a query in seconds.
QUERY_SECONDS = 2.0

#: Number of SQLite's instructions between two looks at the time.
_STEPS = 10_000

#: Seconds that a writer waits for another worker.
_BUSY_SECONDS = 30.0

#: Version of the tables; a file with another version is created anew, because agents
#: send all rows again.
_FORMAT = 1

_TABLES = """
CREATE TABLE clusters (
    agent_id TEXT PRIMARY KEY,
    agent_name TEXT NOT NULL,
    cluster_uid TEXT NOT NULL,
    epoch BLOB NOT NULL,
    publisher BLOB NOT NULL,  -- the call that publishes now, or empty
    last_seen REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE views (
    agent_id TEXT NOT NULL,
    view TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (agent_id, view)
) WITHOUT ROWID;
CREATE TABLE rows (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    view TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    api_group TEXT NOT NULL,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    part TEXT NOT NULL,
    resource TEXT NOT NULL,
    columns TEXT NOT NULL,
    staged INTEGER NOT NULL,  -- 1 until the last part of its snapshot has arrived
    UNIQUE (view, agent_id, staged, api_group, kind, namespace, name, part)
);
CREATE TABLE terms (
    term TEXT NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (term, id)
) WITHOUT ROWID;
"""

#: Condition for the rows of one view of one agent, and for one row.
_OF_VIEW = "view = ? AND agent_id = ? AND staged = ?"
_OF_KEY = (
    f"{_OF_VIEW} AND api_group = ? AND kind = ? AND namespace = ? AND name = ?"
    " AND part = ?"
)


@attrs.frozen
class Publication:
    """
    The call in which an agent publishes.

    :ivar call_id: random; a later call of the same agent replaces an earlier one.
    """

    agent_id: str
    agent_name: str
    call_id: bytes


class RowStore:
    """
    Rows by view, agent and key.

    :param path: the file.
    :param reactor: reactor that provides the threads.
    :param now: returns the time in seconds since 1970.
    """

    _log = Logger()

    def __init__(self, path: Path, reactor: Any, now: Callable[[], float]) -> None:
        self._path = path
        self._reactor = reactor
        self._now = now
        self._writing = DeferredLock()
        self._reading = DeferredSemaphore(READERS)
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._waiting: list[tuple[Callable[[sqlite3.Connection], Any], Deferred[Any]]]
        self._waiting = []

    async def start(self) -> None:
        """Open the file."""
        self._writer = await self._thread(self._open)

    async def stop(self) -> None:
        """Close the file after the running operations."""
        await self._writing.acquire()
        for _ in range(READERS):
            await self._reading.acquire()
        for one in (self._writer, *self._readers):
            if one is not None:
                await self._thread(one.close)
        self._writer, self._readers = None, []
        self._writing.release()
        for _ in range(READERS):
            self._reading.release()

    # -- Writes

    async def welcome(
        self, publication: Publication, hello: wire.Hello
    ) -> dict[str, int]:
        """
        Begin a publication; return the sequence numbers that kas has of this epoch.

        The rows of another epoch stay until the first snapshot of each view.
        """

        def begin(database: sqlite3.Connection) -> dict[str, int]:
            found = database.execute(
                "SELECT epoch, cluster_uid FROM clusters WHERE agent_id = ?",
                (publication.agent_id,),
            ).fetchone()
            if found is None or found != (hello.epoch, hello.cluster_uid):
                database.execute(
                    "DELETE FROM views WHERE agent_id = ?", (publication.agent_id,)
                )
            if found is not None and found[1] != hello.cluster_uid:
                # The agent has moved to another cluster.
                _delete_rows(database, publication.agent_id)
            _delete_staged(database, publication.agent_id)
            database.execute(
                "INSERT OR REPLACE INTO clusters VALUES (?, ?, ?, ?, ?, ?)",
                (
                    publication.agent_id,
                    publication.agent_name,
                    hello.cluster_uid,
                    hello.epoch,
                    publication.call_id,
                    self._now(),
                ),
            )
            return dict(
                database.execute(
                    "SELECT view, sequence FROM views WHERE agent_id = ?",
                    (publication.agent_id,),
                )
            )

        return await self._write(begin)

    async def snapshot(self, publication: Publication, message: wire.Snapshot) -> None:
        """Store a part of all rows of a view; the last part replaces the old rows."""

        def store(database: sqlite3.Connection) -> None:
            self._check(database, publication)
            agent, view = publication.agent_id, message.view
            if message.first:
                _delete(database, _OF_VIEW, (view, agent, 1))
            if message.last:
                _delete(database, _OF_VIEW, (view, agent, 0))
            # Most tables fit into one message, and need not be staged.
            staged = 0 if message.first and message.last else 1
            _insert(database, view, agent, staged, message.rows)
            _check_size(database, view, agent, staged)
            if message.last:
                database.execute(
                    f"UPDATE rows SET staged = 0 WHERE {_OF_VIEW}", (view, agent, 1)
                )
                _set_sequence(database, agent, view, message.sequence)

        await self._write(store)

    async def delta(self, publication: Publication, message: wire.Delta) -> None:
        """Store changes of a view."""

        def store(database: sqlite3.Connection) -> None:
            self._check(database, publication)
            agent, view = publication.agent_id, message.view
            known = database.execute(
                "SELECT sequence FROM views WHERE agent_id = ? AND view = ?",
                (agent, view),
            ).fetchone()
            if known is None:
                raise CallError(
                    Status.FAILED_PRECONDITION,
                    f"changes of the view {view!r} came before its rows",
                )
            for one in message.deleted:
                _delete(database, _OF_KEY, (view, agent, 0, *_key(one)))
            is_more = [_put(database, view, agent, row) for row in message.put]
            if any(is_more):
                _check_size(database, view, agent, 0)
            if message.sequence:
                _set_sequence(database, agent, view, message.sequence)

        await self._write(store)

    async def beat(self, publication: Publication, message: wire.Beat) -> list[str]:
        """Record that a cluster is live; return the views whose rows differ."""

        def compare(database: sqlite3.Connection) -> list[str]:
            self._check(database, publication)
            return [
                view
                for view, said in sorted(message.sums.items())
                if _differs(database, publication.agent_id, view, said)
            ]

        return await self._write(compare)

    async def ended(self, publication: Publication) -> None:
        """Record the end of a publication, unless a newer one has begun."""

        def end(database: sqlite3.Connection) -> None:
            database.execute(
                "UPDATE clusters SET publisher = x'' WHERE agent_id = ?"
                " AND publisher = ?",
                (publication.agent_id, publication.call_id),
            )
            _delete_staged(database, publication.agent_id)

        await self._write(end)

    async def forget(self, before: float) -> int:
        """Delete clusters last seen before a time; return their number."""

        def delete(database: sqlite3.Connection) -> int:
            agents = database.execute(
                "SELECT agent_id FROM clusters WHERE last_seen < ?", (before,)
            ).fetchall()
            for (agent,) in agents:
                _delete_rows(database, agent)
                _delete_staged(database, agent)
                for table in ("views", "clusters"):
                    database.execute(
                        f"DELETE FROM {table} WHERE agent_id = ?", (agent,)
                    )
            return len(agents)

        return await self._write(delete)

    def _check(self, database: sqlite3.Connection, publication: Publication) -> None:
        """
        Record that a cluster is live.

        :raises CallError: ABORTED if a newer publication has begun.
        """
        changed = database.execute(
            "UPDATE clusters SET last_seen = ? WHERE agent_id = ? AND publisher = ?",
            (self._now(), publication.agent_id, publication.call_id),
        )
        if not changed.rowcount:
            raise CallError(Status.ABORTED, "another agentk of this agent publishes")

    async def _write(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        """
        Run *change* in a transaction that it shares with others that wait.

        A change that fails is undone alone.
        """
        done: Deferred[_T] = Deferred()
        self._waiting.append((change, done))
        if len(self._waiting) == 1:
            # Not as a part of this call, which may be cancelled.
            self._writing.run(
                lambda: Deferred.fromCoroutine(self._write_waiting())
            ).addErrback(self._failed)
        return await done

    def _failed(self, failure: Failure) -> None:
        self._log.failure("writing live data failed", failure)

    async def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        changes = [change for change, _ in waiting]
        try:
            results = await self._thread(self._transaction, changes)
        except Exception as error:
            # Every change has a caller that waits.
            if not isinstance(error, sqlite3.Error):
                self._log.failure("writing live data failed")
            results = [_unavailable(error) for _ in changes]
        for (_, done), result in zip(waiting, results, strict=True):
            if isinstance(result, CallError):
                done.errback(result)
            else:
                done.callback(result)

    def _transaction(
        self, changes: Sequence[Callable[[sqlite3.Connection], Any]]
    ) -> list[Any]:
        assert self._writer is not None
        database = self._writer
        results: list[Any] = []
        database.execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                database.execute("SAVEPOINT change")
                try:
                    results.append(change(database))
                except CallError as error:
                    database.execute("ROLLBACK TO change")
                    results.append(error)
                except (ValueError, TypeError, OverflowError) as error:
                    # SQLite does not accept a value, such as half of a character.
                    database.execute("ROLLBACK TO change")
                    results.append(_invalid(error))
                database.execute("RELEASE change")
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")
        return results

    # -- Reads

    async def read(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        """
        Return the result of *query*, which runs in a thread.

        :raises CallError: DEADLINE_EXCEEDED after `QUERY_SECONDS`.
        """
        result: _T = await self._reading.run(
            lambda: self._thread(self._with_reader, query)
        )
        return result

    def _with_reader(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._reader() as database:
            deadline = self._reactor.seconds() + QUERY_SECONDS
            database.set_progress_handler(
                lambda: self._reactor.seconds() > deadline, _STEPS
            )
            try:
                return query(database)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    text = f"the query took more than {QUERY_SECONDS:.0f} s"
                    raise CallError(Status.DEADLINE_EXCEEDED, text) from None
                raise _unavailable(error) from None

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        try:
            database = self._readers.pop()
        except IndexError:
            database = self._open()
        try:
            yield database
        finally:
            self._readers.append(database)

    # -- The file

    def _open(self) -> sqlite3.Connection:
        # Rows name the workloads and images of customers.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(
            self._path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FORMAT):
            database.close()
            for end in ("", "-wal", "-shm"):
                Path(f"{self._path}{end}").unlink(missing_ok=True)
            return self._open()
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        if not version:
            database.execute("BEGIN IMMEDIATE")
            # Another worker may have been faster.
            if not database.execute("PRAGMA user_version").fetchone()[0]:
                for statement in _TABLES.split(";"):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {_FORMAT}")
            database.execute("COMMIT")
        return database

    def _thread(self, work: Callable[..., _T], *rest: Any) -> Deferred[_T]:
        pool = self._reactor.getThreadPool()
        return deferToThreadPool(self._reactor, pool, work, *rest)


def _insert(
    database: sqlite3.Connection,
    view: str,
    agent: str,
    staged: int,
    rows: Sequence[wire.Row],
) -> None:
    """
    Add rows.

    :raises CallError: INVALID_ARGUMENT if a row exists, or is not a row.
    """
    # Numbers are never used again, because a damaged file may have terms of lost rows.
    (last,) = database.execute(
        "SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = 'rows'"
    ).fetchone()
    new, terms = [], []
    for number, row in enumerate(rows, last + 1):
        columns, found = _read(row)
        key = _key(row.key)
        new.append((number, view, agent, staged, *key, row.resource, columns))
        terms += [(term, number) for term in found]
    # An index grows faster in its own order.
    terms.sort()
    try:
        database.executemany(
            "INSERT INTO rows (id, view, agent_id, staged, api_group, kind, namespace,"
            " name, part, resource, columns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            new,
        )
    except sqlite3.IntegrityError:
        text = f"the view {view!r} has two rows with one key"
        raise CallError(Status.INVALID_ARGUMENT, text) from None
    database.executemany("INSERT INTO terms VALUES (?, ?)", terms)


def _put(database: sqlite3.Connection, view: str, agent: str, row: wire.Row) -> bool:
    """
    Set a row; return whether the row is new.

    :raises CallError: INVALID_ARGUMENT for a row that is not a row.
    """
    found = database.execute(
        f"SELECT id, columns FROM rows WHERE {_OF_KEY}",
        (view, agent, 0, *_key(row.key)),
    ).fetchone()
    if found is None:
        _insert(database, view, agent, 0, [row])
        return True
    number, before = found
    columns, terms = _read(row)
    database.execute(
        "UPDATE rows SET resource = ?, columns = ? WHERE id = ?",
        (row.resource, columns, number),
    )
    old = set(terms_of(row.key.name, before))
    database.executemany(_DELETE_TERM, [(term, number) for term in old - terms])
    database.executemany(
        "INSERT INTO terms VALUES (?, ?)", [(term, number) for term in terms - old]
    )
    return False


def _read(row: wire.Row) -> tuple[str, set[str]]:
    """Return the columns of a row as text, and its terms."""
    if len(row.columns) > MAX_COLUMNS:
        raise CallError(
            Status.INVALID_ARGUMENT, f"a row of {len(row.columns)} bytes is too long"
        )
    try:
        columns = row.columns.decode()
        return columns, set(terms_of(row.key.name, columns))
    except (ValueError, RecursionError):
        raise CallError(Status.INVALID_ARGUMENT, "a row is not JSON") from None


_DELETE_TERM = "DELETE FROM terms WHERE term = ? AND id = ?"


def _delete(
    database: sqlite3.Connection, where: str, values: tuple[str | int, ...]
) -> None:
    """Delete rows with their terms."""
    found = database.execute(
        f"SELECT id, name, columns FROM rows WHERE {where}", values
    ).fetchall()
    terms = [
        (term, number)
        for number, name, columns in found
        for term in set(terms_of(name, columns))
    ]
    database.executemany(_DELETE_TERM, sorted(terms))
    database.execute(f"DELETE FROM rows WHERE {where}", values)


def _delete_rows(database: sqlite3.Connection, agent: str) -> None:
    for view in VIEWS:
        _delete(database, _OF_VIEW, (view, agent, 0))


def _delete_staged(database: sqlite3.Connection, agent: str) -> None:
    for view in VIEWS:
        _delete(database, _OF_VIEW, (view, agent, 1))


def _key(key: wire.RowKey) -> tuple[str, str, str, str, str]:
    return key.group, key.kind, key.namespace, key.name, key.part


def _check_size(
    database: sqlite3.Connection, view: str, agent: str, staged: int
) -> None:
    count, size = database.execute(
        "SELECT COUNT(*), COALESCE(SUM(LENGTH(columns)), 0) FROM rows"
        f" WHERE {_OF_VIEW}",
        (view, agent, staged),
    ).fetchone()
    if count > MAX_ROWS or size > MAX_VIEW_SIZE:
        raise CallError(
            Status.RESOURCE_EXHAUSTED,
            f"a view may have at most {MAX_ROWS} rows and {MAX_VIEW_SIZE >> 20} MiB",
        )


def _set_sequence(
    database: sqlite3.Connection, agent: str, view: str, sequence: int
) -> None:
    database.execute(
        "INSERT OR REPLACE INTO views VALUES (?, ?, ?)", (agent, view, sequence)
    )


def _differs(
    database: sqlite3.Connection, agent: str, view: str, said: wire.ViewSum
) -> bool:
    known = database.execute(
        "SELECT sequence FROM views WHERE agent_id = ? AND view = ?", (agent, view)
    ).fetchone()
    if known is None or known[0] != said.sequence:
        # Rows are on their way, or were refused.
        return known is None
    rows = database.execute(
        "SELECT api_group, kind, namespace, name, part, columns FROM rows"
        f" WHERE {_OF_VIEW}",
        (view, agent, 0),
    )
    total = sum(row_sum(key, columns.encode()) for *key, columns in rows)
    return total & (2**64 - 1) != said.sum


def _invalid(error: Exception) -> CallError:
    return CallError(Status.INVALID_ARGUMENT, f"a value is invalid: {error}")


def _unavailable(error: Exception) -> CallError:
    return CallError(Status.UNAVAILABLE, f"the store of live data: {error}")
