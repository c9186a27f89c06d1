"""asyncpg, which has no types, behind the few that we need; and its troubles as one error of ours."""

import importlib
from typing import Any

from parley import extras
from parley.errors import ConfigurationError, Invalid, StoreUnavailable

_asyncpg: Any = importlib.import_module("asyncpg") if extras.has("postgres") else None

Kinds = tuple[type[Exception], ...]
TROUBLE: Kinds = (
    (_asyncpg.PostgresError, _asyncpg.InterfaceError, _asyncpg.InternalClientError, OSError) if _asyncpg else (OSError,)
)
"""An internal error of the client is what it says of a connection that broke while it was being handed back."""
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
            # PostgreSQL has no text with a zero character: that is a matter of who asked, not of the database.
            raise Invalid("A zero character cannot be part of this.") from None
        except TROUBLE as error:
            raise StoreUnavailable("The database does not answer.") from error

    def acquire(self) -> Any:
        """A connection for the length of an `async with`."""
        return self._pool.acquire()

    async def close(self) -> None:
        await self._pool.close()


async def _as_it_is(_connection: Connection) -> None:
    """What asyncpg does when a connection comes back, beside ending a transaction that was left open: nothing. Its own
    way is one more statement after each of ours, to undo what nobody here does to a session: every lock and setting of
    ours ends with its transaction."""


async def connect(url: str, **settings: str) -> Connection:
    extras.check("postgres", "The setting store = postgres", field="store")
    return await _asyncpg.connect(url, server_settings=settings)
