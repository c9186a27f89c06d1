"""asyncpg, which has no type annotations, behind the few types that we need; its errors become one error of ours."""

import importlib
from typing import Any

from parley import extras
from parley.errors import ConfigurationError, Invalid, StoreUnavailable

_asyncpg: Any = importlib.import_module("asyncpg") if extras.has("postgres") else None

Kinds = tuple[type[Exception], ...]
TROUBLE: Kinds = (
    (_asyncpg.PostgresError, _asyncpg.InterfaceError, _asyncpg.InternalClientError, OSError) if _asyncpg else (OSError,)
)
"""asyncpg raises an internal client error for a connection that broke while it was being released."""
RIVALRY: Kinds = (_asyncpg.DeadlockDetectedError, _asyncpg.SerializationError) if _asyncpg else ()
MAX_CONNECTIONS = 8

Row = tuple[Any, ...]
Connection = Any


class Pool:
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @staticmethod
    async def open(url: str, most: int = MAX_CONNECTIONS) -> "Pool":
        extras.check("postgres", "The setting store = postgres", field="store")
        try:
            return Pool(await _asyncpg.create_pool(url, min_size=min(2, most), max_size=most, reset=_as_it_is))
        except (*TROUBLE, ValueError) as error:
            raise ConfigurationError(f"The database cannot be opened: {error}") from error

    async def fetch(self, sql: str, *values: object) -> list[Row]:
        try:
            return await self._pool.fetch(sql, *values)
        except _asyncpg.CharacterNotInRepertoireError:
            # PostgreSQL cannot store NUL in text. The caller sent it, so this is not a failure of the database.
            raise Invalid("Text must not contain NUL characters.") from None
        except TROUBLE as error:
            raise StoreUnavailable("The database does not answer.") from error

    def acquire(self) -> Any:
        """Return a connection for the duration of an `async with`."""
        return self._pool.acquire()

    async def close(self) -> None:
        await self._pool.close()


# Why: docs/decisions/stores.md#do-not-reset-pooled-connections
async def _as_it_is(_connection: Connection) -> None:
    """Reset nothing when a connection is released, except that asyncpg ends an open transaction. Its default reset
    costs one more statement after each of ours, to undo session changes that this code never makes: all our locks and
    settings end with their transaction."""


async def connect(url: str, **settings: str) -> Connection:
    extras.check("postgres", "The setting store = postgres", field="store")
    return await _asyncpg.connect(url, server_settings=settings)
