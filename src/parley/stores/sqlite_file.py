"""A SQLite database file: connections, a thread for occasional statements beside the log, the lock of its data
directory, and errors explained for its operator."""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from parley.errors import ConfigurationError, StoreUnavailable
from parley.security.files import make_private_file, make_private_folder, restrict
from parley.stores.schema import migrate_sqlite

T = TypeVar("T")

CHECKED_AT_START = 32 * 1024 * 1024
"""A larger file is not checked completely at each start; `parley doctor` does that."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_NOT_OURS = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)


def connect(path: Path) -> sqlite3.Connection:
    """Open a database; create it if it does not exist. Its WAL files get the same file mode."""
    with suppress(OSError):  # SQLite reports it in its own error
        make_private_file(path)
    restrict(*(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm")))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    return connection


class SqliteThread:
    """A connection that is opened at first use. Needs no lock on the data directory: SQLite lets writers take turns."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._opened()))
        except sqlite3.Error as error:
            words = "The store could not be written or read."
            raise unavailable(self._path, error, words) from error

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._thread.shutdown)
        if self._connection is not None:
            self._connection.close()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            make_private_folder(self._path.parent)
            connection = connect(self._path)
            migrate_sqlite(connection)
            self._connection = connection
        return self._connection


# Errors.


def is_damage(error: sqlite3.Error) -> bool:
    return _primary(error) in _DAMAGED


def described(path: Path, error: sqlite3.Error) -> str:
    if is_damage(error):
        return damaged(path, str(error))
    if _primary(error) in _NO_ROOM:
        return f"The database {path} cannot be written: {error}. Is the disk full?"
    if _primary(error) in _NOT_OURS:
        return (
            f"The database {path} cannot be opened for writing: {error}. Check the owner of the file and its directory."
        )
    return f"The database {path} cannot be used: {error}."


def damaged(path: Path, what: str) -> str:
    return f"The database {path} is damaged: {what}. Move it away and restore a backup: parley restore."


def unavailable(path: Path, error: sqlite3.Error, otherwise: str) -> StoreUnavailable:
    return StoreUnavailable(f"The database {path.name} is damaged." if is_damage(error) else otherwise)


@contextmanager
def opening(path: Path) -> Generator[None, None, None]:
    """Turn errors while a database is opened into ConfigurationError with the reason."""
    try:
        yield
    except sqlite3.Error as error:
        raise ConfigurationError(described(path, error)) from None
    except OSError as error:
        raise ConfigurationError(f"{error.filename or path} cannot be used: {error.strerror}.") from None


def damage_in(connection: sqlite3.Connection) -> str | None:
    """Check a whole database; return its first problem."""
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return str(error)
    return None if found == "ok" else " ".join(str(found).split())


def check(path: Path, connection: sqlite3.Connection) -> None:
    """Check at start: a small database completely; a larger one is checked only as far as it is read."""
    if path.stat().st_size <= CHECKED_AT_START and (found := damage_in(connection)):
        raise ConfigurationError(damaged(path, found))


def damage_at(path: Path) -> str | None:
    """Check a database file, which a server may be using. None also if it cannot be read at all."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as connection:
            return damage_in(connection)
    except sqlite3.Error as error:
        return str(error) if is_damage(error) else None


def _primary(error: sqlite3.Error) -> int:
    """Return the primary result code, without the extended part."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


# One process per data directory: SQLite may rely on being the only writer.

LOCK = "parley.lock"


def lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ConfigurationError(
            f"Another process uses the data directory {path.parent}; SQLite serves one process at a time."
        ) from None
    return descriptor
