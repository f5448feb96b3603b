"""
Backend of the stores of modules in one file in the state directory: ``store.sqlite``.

SQLite is used because a change is on disk when its Deferred fires, because an
incomplete change is rolled back after a crash, and because the cost of both is
proportional to the change. Every call waits for the disk, so calls run in a thread, one
after the other.

The database uses a rollback journal, a second file that exists during writes.  It does
not use a write-ahead log, because this needs shared memory, which network volumes do
not support.
"""

from __future__ import annotations

import fcntl
import math
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import DeferredLock
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from kas.state.directory import StateDirectory
from tunnel.api import StoredValue, StoreEvent, StoreEventType
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.hosting.stores import (
    DEFAULT_LIMITS,
    BackendListener,
    StoreLimits,
    next_version,
)

__all__ = ["FILE", "FileBackend"]

_T = TypeVar("_T")

#: Name of the file, and name of the lock that the kas which uses the file holds.
FILE = "store.sqlite"
_LOCK = "store.lock"

#: Numbers in the file's header: the identifier of txkas' files, and the version of the
#: tables below.
_APPLICATION = 0x74786B73  # "txks"
_FORMAT = 1

_TABLES = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_FORMAT};
CREATE TABLE namespaces (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE entries (
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    expires INTEGER,  -- microseconds since 1970
    value BLOB NOT NULL
);
CREATE UNIQUE INDEX by_key ON entries (name, key);
CREATE INDEX by_expiry ON entries (name, expires) WHERE expires IS NOT NULL;
"""

#: SQLite's error codes for a damaged file.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

#: Seconds between two searches for expired values that another worker may have set.
SHARED_SWEEP = 10.0

#: Maximum number of lines of SQLite's own report about a damaged file that are logged.
_REPORTED = 5


@attrs.define(eq=False)
class FileBackend:
    """
    Implementation of `tunnel.hosting.stores.StoreBackend`.

    :param reactor: reactor that provides the threads.
    :param now: returns the time of day.
    :param tell: called with each change of this process if the workers of one kas share
        the file; None if only this process uses the file.
    """

    hears = True

    _state: StateDirectory
    _reactor: Any
    _now: Callable[[], float]
    _limits: StoreLimits = DEFAULT_LIMITS
    _tell: Callable[[str, StoreEvent], None] | None = None
    _listener: BackendListener | None = attrs.field(default=None, init=False)
    _one_at_a_time: DeferredLock = attrs.field(factory=DeferredLock, init=False)
    _database: sqlite3.Connection | None = attrs.field(default=None, init=False)
    #: Descriptor of the lock; -1 while this process does not hold the lock.
    _lock: int = attrs.field(default=-1, init=False)
    #: Changes of the running transaction.
    _changes: list[tuple[str, StoreEvent]] = attrs.field(factory=list, init=False)
    #: Problem that was logged last; empty after the store has worked again.
    _said: str = attrs.field(default="", init=False)
    _stopped: bool = attrs.field(default=False, init=False)
    _log = Logger()

    @property
    def sweep_interval(self) -> float:
        """
        Seconds between two searches for expired values, because another worker may set
        such values.
        """
        return math.inf if self._tell is None else SHARED_SWEEP

    def start(self, listener: BackendListener) -> None:
        self._listener = listener

    async def stop(self) -> None:
        """Close the file after the running operation has ended."""
        self._stopped = True
        await self._one_at_a_time.run(self._in_thread, self._close)

    async def get(self, name: str, key: str) -> StoredValue | None:

        def read(database: sqlite3.Connection) -> StoredValue | None:
            row = database.execute(
                "SELECT value, version FROM entries WHERE name = ? AND key = ?"
                " AND (expires IS NULL OR expires > ?)",
                (name, key, self._microseconds()),
            ).fetchone()
            return None if row is None else StoredValue(*row)

        return await self._do(read)

    async def set(
        self,
        name: str,
        key: str,
        value: bytes,
        version: int | None,
        expires_after: float | None,
    ) -> int:

        def write(database: sqlite3.Connection) -> int:
            self._expire(database, name)
            there, size = _there(database, name, key)
            if version is not None and version != there:
                raise CallError(
                    Status.ABORTED, f"{key} has changed: its version is {there}"
                )
            count = "SELECT count(*) FROM entries WHERE name = ?"
            if not there:
                (keys,) = database.execute(count, (name,)).fetchone()
                if keys >= self._limits.keys:
                    raise CallError(
                        Status.RESOURCE_EXHAUSTED,
                        f"{name} has reached its limit of {self._limits.keys} keys",
                    )
            more = len(key.encode()) + len(value) - size
            done, total = self._change(database, name, more)
            if total > self._limits.bytes:
                raise CallError(
                    Status.RESOURCE_EXHAUSTED,
                    f"{name} would exceed its limit of {self._limits.bytes} bytes",
                )
            expires = None
            if expires_after is not None:
                expires = self._microseconds() + math.ceil(expires_after * 1_000_000)
            database.execute(
                "INSERT INTO entries (name, key, version, expires, value)"
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT (name, key) DO UPDATE SET"
                " version = excluded.version, expires = excluded.expires,"
                " value = excluded.value",
                (name, key, done, expires, value),
            )
            self._changes.append((name, StoreEvent(StoreEventType.SET, key, done)))
            return done

        return await self._do(write)

    async def delete(self, name: str, key: str, version: int | None) -> bool:

        def write(database: sqlite3.Connection) -> bool:
            self._expire(database, name)
            there, size = _there(database, name, key)
            if not there:
                return False
            if version is not None and version != there:
                raise CallError(
                    Status.ABORTED, f"{key} has changed: its version is {there}"
                )
            self._remove(database, name, key, size)
            return True

        return await self._do(write)

    async def page(
        self, name: str, prefix: str, after: str, limit: int
    ) -> tuple[list[str], str]:

        def read(database: sqlite3.Connection) -> tuple[list[str], str]:
            # SQLite sorts TEXT by its bytes, which is also the order of code points.
            rows = database.execute(
                "SELECT key FROM entries WHERE name = ? AND key >= ? AND key > ?"
                " AND (expires IS NULL OR expires > ?) ORDER BY key LIMIT ?",
                (name, prefix, after, self._microseconds(), limit),
            ).fetchall()
            found = [key for (key,) in rows if key.startswith(prefix)]
            return found, found[-1] if len(found) == limit else ""

        return await self._do(read)

    async def sweep(self, name: str) -> float:

        def write(database: sqlite3.Connection) -> float:
            self._expire(database, name)
            first = "SELECT min(expires) FROM entries WHERE name = ?"
            (next_,) = database.execute(first, (name,)).fetchone()
            if next_ is None:
                return math.inf
            return max(0.0, float(next_ - self._microseconds()) / 1_000_000)

        return await self._do(write)

    # Functions that run within a transaction.

    def _microseconds(self) -> int:
        return int(self._now() * 1_000_000)

    def _expire(self, database: sqlite3.Connection, name: str) -> None:
        rows = database.execute(
            "SELECT key, length(value) FROM entries WHERE name = ? AND expires <= ?",
            (name, self._microseconds()),
        ).fetchall()
        for key, length in rows:
            self._remove(database, name, key, len(key.encode()) + length)

    def _remove(
        self, database: sqlite3.Connection, name: str, key: str, size: int
    ) -> None:
        done, _ = self._change(database, name, -size)
        database.execute("DELETE FROM entries WHERE name = ? AND key = ?", (name, key))
        self._changes.append((name, StoreEvent(StoreEventType.DELETED, key, done)))

    def _change(
        self, database: sqlite3.Connection, name: str, more: int
    ) -> tuple[int, int]:
        """
        Return the version of a change, and the size of the namespace after this change.
        """
        ask = "SELECT version, bytes FROM namespaces WHERE name = ?"
        last, size = database.execute(ask, (name,)).fetchone() or (0, 0)
        version = next_version(last, self._now())
        database.execute(
            "INSERT OR REPLACE INTO namespaces (name, version, bytes) VALUES (?, ?, ?)",
            (name, version, size + more),
        )
        return version, size + more

    # Methods about the file.

    async def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        def done_in_thread() -> tuple[_T, list[tuple[str, StoreEvent]]]:
            self._changes = []
            database = self._open()
            # Take the writer's lock at once: SQLite would refuse it later if another
            # program had written after the read.
            database.execute("BEGIN IMMEDIATE")
            try:
                result = work(database)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            return result, self._changes

        try:
            result, changes = await self._one_at_a_time.run(
                self._in_thread, done_in_thread
            )
        except (sqlite3.Error, OSError, ConfigurationError) as error:
            raise self._failed(error) from None
        if self._said:
            self._said = ""
            self._log.info("{file} is usable again", file=self._path)
        for name, event in changes:
            if self._listener is not None:
                self._listener.changed(name, event)
            if self._tell is not None:
                self._tell(name, event)
        return result  # type: ignore[no-any-return]

    def _in_thread(self, work: Callable[[], _T]) -> Any:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), work)

    @property
    def _path(self) -> str:
        return str(self._state.file(FILE))

    def _open(self) -> sqlite3.Connection:
        if self._stopped:
            raise CallError(Status.UNAVAILABLE, "kas is shutting down")
        if self._database is not None:
            return self._database
        self._take()
        file = self._state.file(FILE)
        with self._state.lock():
            if not file.exists() and not file.is_symlink():
                # Replace the file as a whole, because a file that was only truncated
                # would be damaged.
                self._state.write(FILE, _empty())
        if not file.stat().st_size:
            raise sqlite3.DatabaseError("the file is empty")
        database = sqlite3.connect(
            f"file:{_quoted(self._path)}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _check(database)
        except BaseException:
            database.close()
            raise
        self._database = database
        return database

    def _take(self) -> None:
        """
        Lock the file against other kas, unless workers share it.

        The lock is needed because watches in this process would miss the changes of
        another kas.
        """
        if self._lock < 0 and self._tell is None:
            self._lock = lock_file(self._state)

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _failed(self, error: Exception) -> CallError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        damaged = isinstance(error, sqlite3.DatabaseError) and (
            code in _DAMAGED or type(error) is sqlite3.DatabaseError
        )
        reason = str(error)
        if reason != self._said:
            self._said = reason
            if damaged:
                self._log.error(
                    "{file}, the store of modules, is damaged ({reason}); nothing "
                    "was changed: stop kas, and restore the file from a backup, or "
                    "move it away to start with an empty store",
                    file=self._path,
                    reason=reason,
                )
            else:
                self._log.error(
                    "{file} is unusable, so modules cannot store anything: {reason}",
                    file=self._path,
                    reason=reason,
                )
        if damaged:
            return CallError(Status.DATA_LOSS, f"{self._path} is damaged: {reason}")
        return CallError(Status.UNAVAILABLE, f"{self._path}: {reason}")


def lock_file(state: StateDirectory) -> int:
    """
    Lock the file against every other kas.

    :returns: a descriptor, which holds the lock until it is closed.
    :raises ConfigurationError: if another kas uses the file.
    """
    lock = state.open_lock(_LOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConfigurationError(
            [
                "another kas uses it; use a Redis for several kas, or a separate "
                "state directory for each"
            ]
        ) from None
    except OSError:
        os.close(lock)
        raise
    return lock


def _empty() -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_TABLES)
        return database.serialize()


def _check(database: sqlite3.Connection) -> None:
    """
    Configure the connection, and check the database.

    :raises sqlite3.DatabaseError: if the file does not belong to txkas, or is damaged.
    """
    # Have each change on disk before COMMIT returns, including the removal of the
    # journal.
    database.execute("PRAGMA synchronous = EXTRA")
    report = database.execute(f"PRAGMA quick_check({_REPORTED})").fetchall()
    if report != [("ok",)]:
        text = "; ".join(str(line) for (line,) in report)
        raise sqlite3.DatabaseError(" ".join(text.split())[:500])
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise sqlite3.DatabaseError("another program created it")
    if version != _FORMAT:
        raise ConfigurationError(
            [f"it has format {version}, but this kas supports {_FORMAT}"]
        )


def _there(database: sqlite3.Connection, name: str, key: str) -> tuple[int, int]:
    """
    Return the version of the value at a key, and the size of the key and the value in
    bytes; both are 0 if the key has no value.
    """
    row = database.execute(
        "SELECT version, length(value) FROM entries WHERE name = ? AND key = ?",
        (name, key),
    ).fetchone()
    return (0, 0) if row is None else (row[0], len(key.encode()) + row[1])


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
