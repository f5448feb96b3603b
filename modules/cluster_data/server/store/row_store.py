"""
The last known rows of all clusters, in SQLite.

The file is a cache, so nothing waits for the disk: a power failure may lose rows, which
agentk sends again.  All workers of one kas use the same file, and one of them writes at
a time.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import Deferred, DeferredLock, DeferredSemaphore
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from modules.cluster_data.server.store.queries import cluster_identity
from modules.cluster_data.server.store.view_rows import (
    ViewRows,
    clear_agent,
    clear_view,
    views_of,
)
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tunnel.errors import CallError, Status

__all__ = ["MAX_MESSAGE", "QUERY_SECONDS", "READERS", "Publication", "RowStore"]

_T = TypeVar("_T")

#: Maximum number of rows and keys of one message: agentk sends a thousand at most.
MAX_MESSAGE = 2000

#: Number of queries that run at the same time; one of them is a cheap one, see
#: `OwnRows`.
READERS = 3

#: Maximum duration of a query in seconds.
QUERY_SECONDS = 2.0

#: Number of SQLite's instructions between two looks at the time.
_STEPS = 10_000

#: Seconds that a writer waits for another worker.
_BUSY_SECONDS = 30.0

#: SQLite's error codes for a damaged file.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

#: Version of the tables; kas replaces a file with another version, because agents
#: send all rows again.
_FORMAT = 2

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
    staged INTEGER NOT NULL,
    sequence INTEGER,  -- the last change, or nothing if a snapshot is needed
    sum INTEGER NOT NULL,
    row_count INTEGER NOT NULL,
    size INTEGER NOT NULL,
    term_count INTEGER NOT NULL,
    PRIMARY KEY (agent_id, view, staged)
) WITHOUT ROWID;
CREATE INDEX agents_of_views ON views (view);
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
CREATE TABLE stores (
    id TEXT NOT NULL
);
CREATE TABLE terms (
    term TEXT NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (term, id)
) WITHOUT ROWID;
"""


@attrs.frozen
class Publication:
    """
    Call of an agent that publishes its rows.

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
    :param fail: called if the file is damaged; the store then has to be restarted.
    :param processor: returns the processor time of the calling thread, in seconds.
    """

    _log = Logger()

    def __init__(
        self,
        path: Path,
        reactor: Any,
        now: Callable[[], float],
        fail: Callable[[Exception], None],
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self._path = path
        self._processor = processor
        self._fail = fail
        #: Whether the last change could not be stored, so that rows may be old.
        self.is_failing = False
        #: Whether the file is damaged, and is removed when the store stops.
        self.is_damaged = False
        self._reactor = reactor
        self._now = now
        self._writing = DeferredLock()
        self._reading = DeferredSemaphore(READERS)
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._waiting: list[tuple[Callable[[sqlite3.Connection], Any], Deferred[Any]]]
        self._waiting = []

    async def start(self) -> None:
        """Open the file; a damaged file is replaced, because agents send all rows."""
        try:
            self._writer = await self._thread(self._open)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in _DAMAGED:
                raise
            self._log.warn(
                "{path}: {error}; kas begins a new file", path=self._path, error=error
            )
            self._remove()
            self._writer = await self._thread(self._open)

    async def stop(self) -> None:
        """Close the file after the running operations."""
        await self._writing.acquire()
        for _ in range(READERS):
            await self._reading.acquire()
        for one in (self._writer, *self._readers):
            if one is not None:
                await self._thread(one.close)
        if self.is_damaged:
            self._remove()
        self._writer, self._readers = None, []
        self._writing.release()
        for _ in range(READERS):
            self._reading.release()

    # -- Writes

    async def welcome(
        self, publication: Publication, hello: wire.Hello
    ) -> dict[str, int]:
        """
        Begin a publication; return kas' sequence number of each view in this epoch.

        The rows of another epoch stay until the first snapshot of their view; the rows
        of another cluster, or of an unknown one, are deleted at once.
        """

        def begin(database: sqlite3.Connection) -> dict[str, int]:
            found = database.execute(
                "SELECT epoch, cluster_uid FROM clusters WHERE agent_id = ?",
                (publication.agent_id,),
            ).fetchone()
            if found is None or found != (hello.epoch, hello.cluster_uid):
                database.execute(
                    "UPDATE views SET sequence = NULL WHERE agent_id = ?",
                    (publication.agent_id,),
                )
            identity = cluster_identity(hello.cluster_uid, hello.epoch)
            if found is not None and cluster_identity(found[1], found[0]) != identity:
                # The agent has moved to another cluster.
                clear_agent(database, publication.agent_id, 0)
            clear_agent(database, publication.agent_id, 1)
            for view in views_of(database, publication.agent_id):
                if view not in hello.views:
                    # Its module was removed.
                    clear_view(database, publication.agent_id, view)
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
                    "SELECT view, sequence FROM views WHERE agent_id = ?"
                    " AND staged = 0 AND sequence IS NOT NULL",
                    (publication.agent_id,),
                )
            )

        return await self._write(begin)

    async def snapshot(self, publication: Publication, message: wire.Snapshot) -> None:
        """Store a part of all rows of a view; the last part replaces the old rows."""

        _check_number(len(message.rows))

        def store(database: sqlite3.Connection) -> None:
            self._check(database, publication)
            rows = ViewRows(database, publication.agent_id, message.view)
            staged = ViewRows(database, publication.agent_id, message.view, 1)
            if message.first:
                staged.clear()
            if message.first and message.last:
                # Most tables fit into one message, and need not be staged.
                rows.clear()
                rows.insert(message.rows)
            else:
                staged.insert(message.rows)
            if message.last and not message.first:
                rows.take(staged)
            staged.save()
            rows.save(message.sequence if message.last else None)

        await self._write(store)

    async def delta(self, publication: Publication, message: wire.Delta) -> None:
        """Store changes of a view."""

        _check_number(len(message.put) + len(message.deleted))

        def store(database: sqlite3.Connection) -> None:
            self._check(database, publication)
            rows = ViewRows(database, publication.agent_id, message.view)
            if rows.sequence is None:
                raise CallError(
                    Status.FAILED_PRECONDITION,
                    f"changes of the view {message.view!r} came before its rows",
                )
            for key in message.deleted:
                rows.delete(key)
            for row in message.put:
                rows.put(row)
            rows.save(message.sequence or None)

        await self._write(store)

    async def beat(self, publication: Publication, message: wire.Beat) -> list[str]:
        """Record that a cluster is live; return the views whose rows differ."""

        def compare(database: sqlite3.Connection) -> list[str]:
            self._check(database, publication)
            return [
                view
                for view, said in sorted(message.sums.items())
                if ViewRows(database, publication.agent_id, view).differs(said)
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
            clear_agent(database, publication.agent_id, 1)

        await self._write(end)

    async def forget(self, before: float) -> int:
        """Delete clusters last seen before a time; return their number."""

        def delete(database: sqlite3.Connection) -> int:
            agents = database.execute(
                "SELECT agent_id FROM clusters WHERE last_seen < ?", (before,)
            ).fetchall()
            return _forget(database, [agent for (agent,) in agents])

        return await self._write(delete)

    async def forget_moved(self, agents: Collection[str]) -> int:
        """Delete clusters that do not publish to this kas; return their number."""

        def delete(database: sqlite3.Connection) -> int:
            found = database.execute(
                "SELECT agent_id FROM clusters WHERE publisher = x''"
                " AND agent_id IN (SELECT value FROM json_each(?))",
                (json.dumps(sorted(agents)),),
            ).fetchall()
            return _forget(database, [agent for (agent,) in found])

        return await self._write(delete)

    def _check(self, database: sqlite3.Connection, publication: Publication) -> None:
        """
        Check that no newer publication has begun, and update the time when the cluster
        was last seen.

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
            self.is_failing = False
        except Exception as error:
            # Every change has a caller that waits.
            if not isinstance(error, sqlite3.Error):
                self._log.failure("writing live data failed")
            self.is_failing = True
            results = [self._failed_file(error) for _ in changes]
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

    async def read(
        self,
        query: Callable[[sqlite3.Connection], _T],
        spent: Callable[[float], object] = lambda seconds: None,
    ) -> _T:
        """
        Return the result of *query*, which runs in a thread.

        :param spent: called with the processor time of the query, in seconds, also if
            the caller has left.
        :raises CallError: DEADLINE_EXCEEDED after `QUERY_SECONDS`.
        """
        times: list[float] = []

        def work() -> _T:
            before = self._processor()
            try:
                return self._with_reader(query)
            finally:
                times.append(self._processor() - before)

        def ended(result: _T | Failure) -> _T | Failure:
            spent(sum(times))
            return result

        reading = self._reading.run(lambda: self._thread(work)).addBoth(ended)
        # The thread goes on if the caller leaves, and occupies its place until then.
        waiter: Deferred[_T] = Deferred()
        reading.addCallbacks(waiter.callback, waiter.errback)
        return await waiter

    def _with_reader(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._reader() as database:
            deadline = self._reactor.seconds() + QUERY_SECONDS
            database.set_progress_handler(
                lambda: self._reactor.seconds() > deadline, _STEPS
            )
            try:
                return query(database)
            except sqlite3.Error as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    text = f"the query took more than {QUERY_SECONDS:.0f} s"
                    raise CallError(Status.DEADLINE_EXCEEDED, text) from None
                raise self._failed_file(error) from None
            except UnicodeError as error:
                raise _invalid(error) from None

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
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error:
            database.close()
            raise
        if version not in (0, _FORMAT):
            database.close()
            self._remove()
            return self._open()
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        if not version:
            database.execute("BEGIN IMMEDIATE")
            # Another worker may have been faster.
            if not database.execute("PRAGMA user_version").fetchone()[0]:
                for statement in _TABLES.split(";"):
                    database.execute(statement)
                # Distinguishes this store from those of other kas.
                database.execute(
                    "INSERT INTO stores VALUES (?)", (os.urandom(16).hex(),)
                )
                database.execute(f"PRAGMA user_version = {_FORMAT}")
            database.execute("COMMIT")
        return database

    def _remove(self) -> None:
        for end in ("", "-wal", "-shm"):
            Path(f"{self._path}{end}").unlink(missing_ok=True)

    def _failed_file(self, error: Exception) -> CallError:
        """Return the error for a caller; restart the module if the file is damaged."""
        code = getattr(error, "sqlite_errorcode", None)
        if code in _DAMAGED and not self.is_damaged:
            self.is_damaged = True
            self._reactor.callFromThread(self._fail, error)
        return CallError(Status.UNAVAILABLE, f"the store of live data: {error}")

    def _thread(self, work: Callable[..., _T], *rest: Any) -> Deferred[_T]:
        pool = self._reactor.getThreadPool()
        return deferToThreadPool(self._reactor, pool, work, *rest)


def _forget(database: sqlite3.Connection, agents: Sequence[str]) -> int:
    for agent in agents:
        clear_agent(database, agent)
        for table in ("views", "clusters"):
            database.execute(f"DELETE FROM {table} WHERE agent_id = ?", (agent,))
    return len(agents)


def _check_number(number: int) -> None:
    if number > MAX_MESSAGE:
        # Changes of other agents wait for it.
        text = f"a message may have at most {MAX_MESSAGE} rows"
        raise CallError(Status.INVALID_ARGUMENT, text)


def _invalid(error: Exception) -> CallError:
    return CallError(Status.INVALID_ARGUMENT, f"a value is invalid: {error}")
