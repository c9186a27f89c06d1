"""Look after push notifications, in the database itself: works while a server runs."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from parley.app import open_records, open_secrets
from parley.cli.exits import ERROR, OK
from parley.engine.hooks import Entry, Hooks
from parley.engine.ports import Place
from parley.errors import ConfigurationError
from parley.faces.admin import push_view
from parley.settings import load

_COLUMNS = ("state", "task", "id", "receiver", "delivered", "attempts", "reason", "since", "nextAt")


def run_list(data_dir: Path | None, *, dead: bool, as_json: bool) -> None:
    views = asyncio.run(_listed(data_dir, dead=dead))
    if as_json:
        print(json.dumps({"push": views}))
        return
    table = Table(*_COLUMNS, box=None, header_style="bold")
    for view in views:
        table.add_row(*("-" if view[name] in (None, "") else str(view[name]) for name in _COLUMNS))
    Console(highlight=False).print(table if views else "none")


def run_redrive(id_: str | None, data_dir: Path | None, *, everything: bool, as_json: bool) -> int:
    if (id_ is None) != everything:
        raise ConfigurationError("Name a configuration, or --all.")
    views = asyncio.run(_redriven(data_dir, id_))
    if as_json:
        print(json.dumps({"redriven": views}))
    else:
        print("\n".join(f"redriven {view['task']} {view['id']}" for view in views) or "nothing to redrive")
    return OK if views or everything else ERROR


async def _listed(data_dir: Path | None, *, dead: bool) -> list[dict[str, object]]:
    async with _opened(data_dir) as hooks:
        return [push_view(entry) async for entry in _all(hooks, dead=dead)]


async def _redriven(data_dir: Path | None, id_: str | None) -> list[dict[str, object]]:
    """By name also one whose receiver wanted no more, or that waits for its next attempt."""
    async with _opened(data_dir) as hooks:
        chosen = [entry async for entry in _all(hooks, dead=id_ is None) if id_ is None or _is_meant(entry, id_)]
        return [push_view(await hooks.redrive(*entry.hook.place)) for entry in chosen]


def _is_meant(entry: Entry, id_: str) -> bool:
    return id_ in entry.hook.place and entry.state in ("retrying", "gone", "dead")


async def _all(hooks: Hooks, *, dead: bool) -> AsyncIterator[Entry]:
    after: Place | None = ("", "")
    while after is not None:
        entries, after = await hooks.page(after, dead=dead)
        for entry in entries:
            yield entry


@asynccontextmanager
async def _opened(data_dir: Path | None) -> AsyncGenerator[Hooks, None]:
    settings = load(data_dir=data_dir)
    if settings.store == "memory":
        raise ConfigurationError("The store memory keeps nothing to look after.", field="store")
    async with open_records(settings) as records:
        yield Hooks(records, open_secrets(settings))
