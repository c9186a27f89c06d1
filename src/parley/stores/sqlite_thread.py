"""One SQLite connection on its own thread, for occasional statements beside the log."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from parley.errors import StoreUnavailable
from parley.security.files import make_private_folder
from parley.stores.schema import migrate_sqlite
from parley.stores.sqlite import connect
from parley.stores.sqlite_file import unavailable

T = TypeVar("T")


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
