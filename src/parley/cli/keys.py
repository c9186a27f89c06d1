"""Look after API keys and signing keys, in the database itself: before the first start, and while a server runs."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, cast

from rich.console import Console
from rich.table import Table

from parley.app import open_records, signing_keys
from parley.clock import iso, now_ms
from parley.core.access import USER_SCOPES
from parley.engine.ports import Records
from parley.errors import ConfigurationError
from parley.faces.admin import expiry, key_view
from parley.security.keys import ApiKeys
from parley.security.signing import SigningKey, SigningKeys
from parley.settings import Settings, load

T = TypeVar("T")


def run_create(
    name: str,
    scopes: list[str] | None,
    agents: list[str] | None,
    expires_days: float | None,
    data_dir: Path | None,
    *,
    as_json: bool,
) -> None:
    async def create(records: Records, settings: Settings) -> tuple[dict[str, object], str]:
        expires_at = expiry(expires_days, now_ms())
        key, token = await ApiKeys(records).create(name, scopes or USER_SCOPES, agents or (), expires_at)
        return key_view(key), token

    view, token = _with_records(data_dir, create)
    if as_json:
        print(json.dumps({**view, "token": token}))
        return
    Console(stderr=True, highlight=False).print(f"Key [bold]{name}[/bold] ({view['id']}). Its token is shown only now:")
    print(token)


def run_list(data_dir: Path | None, *, as_json: bool) -> None:
    async def listed(records: Records, settings: Settings) -> list[dict[str, object]]:
        return [key_view(key) for key in await ApiKeys(records).list()]

    views = _with_records(data_dir, listed)
    if as_json:
        print(json.dumps({"keys": views}))
        return
    table = Table("name", "id", "scopes", "agents", "created", "expires", "last used", box=None, header_style="bold")
    for view in views:
        table.add_row(*(_cell(view[name]) for name in _COLUMNS))
    Console(highlight=False).print(table if views else "no keys")


def run_revoke(id_or_name: str, data_dir: Path | None, *, as_json: bool) -> None:
    async def revoke(records: Records, settings: Settings) -> dict[str, object]:
        return key_view(await ApiKeys(records).revoke(id_or_name))

    view = _with_records(data_dir, revoke)
    print(json.dumps(view) if as_json else f"revoked {view['name']} ({view['id']}); running servers know within 2 s")


def run_rotate(data_dir: Path | None, *, as_json: bool) -> None:
    async def rotate(records: Records, settings: Settings) -> SigningKey:
        return await signing_keys(settings, records).rotate()

    key = _with_records(data_dir, rotate)
    print(json.dumps(_signing_view(key)) if as_json else f"signing with {key.kid}; running servers follow within 60 s")


def run_signing_list(data_dir: Path | None, *, as_json: bool) -> None:
    async def listed(records: Records, settings: Settings) -> list[SigningKey]:
        keys: SigningKeys = signing_keys(settings, records)
        return await keys.list()

    views = [_signing_view(key) for key in _with_records(data_dir, listed)]
    if as_json:
        print(json.dumps({"keys": views}))
        return
    table = Table("kid", "created", "retired", box=None, header_style="bold")
    for view in views:
        table.add_row(*(_cell(value) for value in view.values()))
    Console(highlight=False).print(table if views else "no keys yet; a server makes one when it needs it")


_COLUMNS = ("name", "id", "scopes", "agents", "createdAt", "expiresAt", "lastUsedAt")


def _signing_view(key: SigningKey) -> dict[str, object]:
    return {
        "kid": key.kid, "createdAt": iso(key.created_at),
        "retiredAt": None if key.retired_at is None else iso(key.retired_at),
    }  # fmt: skip


def _cell(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, cast(list[object], value))) or "any"
    return "-" if value is None else str(value)


def _with_records(data_dir: Path | None, work: Callable[[Records, Settings], Awaitable[T]]) -> T:
    settings = load(data_dir=data_dir)
    if settings.store == "memory":
        raise ConfigurationError("The store memory keeps nothing, so there are no keys to look after.", field="store")

    async def run() -> T:
        async with open_records(settings) as records:
            return await work(records, settings)

    return asyncio.run(run())
