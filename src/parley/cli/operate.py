"""Look after a server: its settings, its database, its logs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from parley.cli.exits import ERROR, OK
from parley.engine.audit import all_runs, verify_run
from parley.errors import BrokenChain, ConfigurationError
from parley.file_modes import make_private_folder
from parley.ids import RunId
from parley.settings import Settings, load, origins, postgres_url
from parley.stores.damage import opening
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.schema import Phase, migrate_postgres, migrate_sqlite, missing
from parley.stores.sqlite import FILE, SqliteReader, connect


def print_config(*, as_json: bool) -> None:
    settings = load()
    came_from = origins(settings)
    values = {name: _plain(getattr(settings, name)) for name in came_from}
    if as_json:
        print(json.dumps({name: {"value": values[name], "origin": came_from[name]} for name in values}, indent=2))
        return
    table = Table("setting", "value", "from", "what it is", box=None, header_style="bold")
    for name, value in values.items():
        about = Settings.model_fields[name].description or ""
        style = "dim" if came_from[name] == "default" else ""
        table.add_row(name, str(value), came_from[name], about, style=style)
    Console().print(table)


def run_migrate(data_dir: Path | None, phase: str | None, *, as_json: bool) -> None:
    if phase not in (None, "pre", "post"):
        raise ConfigurationError("--phase is pre or post.")
    settings = load(data_dir=data_dir)
    if settings.store == "postgres":
        applied, waiting = asyncio.run(_migrate_postgres(postgres_url(settings), (phase,) if phase else None))
    else:
        applied, waiting = _migrate_sqlite(settings.data_dir, (phase,) if phase else ("pre", "post")), []
    if as_json:
        print(json.dumps({"applied": applied, "waiting": waiting}))
        return
    lines = [f"applied {one}" for one in applied]
    lines += [
        f"{one} waits: parley migrate --phase post, when no server of the older version is left" for one in waiting
    ]
    print("\n".join(lines or ["up to date"]))


def _migrate_sqlite(directory: Path, phases: tuple[Phase, ...]) -> list[str]:
    with opening(directory / FILE):
        make_private_folder(directory)
        with closing(connect(directory / FILE)) as connection:
            return migrate_sqlite(connection, phases)


async def _migrate_postgres(url: str, phases: tuple[Phase, ...] | None) -> tuple[list[str], list[str]]:
    """What was applied, and what is left for the end of an upgrade."""
    pool = await open_pool(url, phases=())
    try:
        async with pool.acquire() as connection:
            applied = await migrate_postgres(connection, phases)
            done = {str(row[0]) for row in await connection.fetch("SELECT id FROM migrations")}
            return applied, [one.id for one in missing("postgres", done, ("post",))]
    finally:
        await pool.close()


def run_verify(run: str | None, data_dir: Path | None, *, as_json: bool) -> int:
    settings = load(data_dir=data_dir)
    if settings.store == "sqlite" and not (settings.data_dir / FILE).is_file():
        raise ConfigurationError(f"There is no database in {settings.data_dir}.")
    return asyncio.run(_verify(settings, run, as_json))


async def _verify(settings: Settings, run: str | None, as_json: bool) -> int:
    if settings.store == "postgres":
        store = PostgresStore(await open_pool(postgres_url(settings), phases=()))
    else:
        store = SqliteReader(settings.data_dir / FILE)
    checked, broken = 0, cast(list[dict[str, Any]], [])
    try:
        with Progress(console=Console(stderr=True), transient=True, disable=as_json) as progress:
            task = progress.add_task("Verifying", total=None)
            async for run_id in all_runs(store) if run is None else _only(run):
                try:
                    await verify_run(store, run_id)
                except BrokenChain as error:
                    broken.append({"run": run_id, "seq": error.details.get("seq"), "error": error.message})
                checked += 1
                progress.update(task, completed=checked, description=f"Verified {checked}")
    finally:
        await store.close()
    if as_json:
        print(json.dumps({"checked": checked, "broken": broken}))
    else:
        for one in broken:
            print(f"BROKEN {one['run']} at {one['seq']}: {one['error']}")
        print(f"{checked} runs verified, {len(broken)} broken")
    return ERROR if broken else OK


async def _only(run: str) -> AsyncIterator[RunId]:
    yield RunId(run)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in cast(dict[str, object], value).items()}
    return str(value) if isinstance(value, Path | SecretStr) else value
