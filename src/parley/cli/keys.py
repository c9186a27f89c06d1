"""Manage API keys and signing keys directly in the database: before the first start, and while a server runs."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import quote, urlsplit

from rich.console import Console
from rich.table import Table

from parley.app import open_audit, open_records, signing_keys
from parley.app.sign_in import stored_sessions
from parley.audit.service import COMMAND, enter, record
from parley.cli.addresses import ask_server
from parley.client import Json, RemoteError
from parley.clock import iso, now_ms
from parley.errors import ConfigurationError, Unsupported
from parley.faces.admin import expiry, key_view
from parley.faces.sign_in import session_view
from parley.records import Records
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
    role: str | None = None,
    groups: list[str] | None = None,
    as_json: bool,
) -> None:
    async def create(records: Records, settings: Settings) -> tuple[dict[str, object], str]:
        expires_at = expiry(expires_days, now_ms())
        key, token = await ApiKeys(records).create(
            name, scopes or None, agents or (), expires_at, role=role, groups=groups or ()
        )
        return key_view(key), token

    view, token = _with_records(data_dir, create)
    if as_json:
        print(json.dumps({**view, "token": token}))
        return
    Console(stderr=True, highlight=False).print(
        f"Key [bold]{name}[/bold] ({view['id']}). Its token is shown only once:"
    )
    print(token)


def run_list(data_dir: Path | None, *, as_json: bool) -> None:
    async def listed(records: Records, settings: Settings) -> list[dict[str, object]]:
        return [key_view(key) for key in await ApiKeys(records).list()]

    views = _with_records(data_dir, listed)
    if as_json:
        print(json.dumps({"keys": views}))
        return
    table = Table(
        "name", "id", "role", "groups", "agents", "created", "expires", "last used", box=None, header_style="bold"
    )
    for view in views:
        table.add_row(*(_cell(view[name], "-" if name == "groups" else "any") for name in _COLUMNS))
    Console(highlight=False).print(table if views else "No API keys.")


def run_revoke(id_or_name: str, data_dir: Path | None, *, as_json: bool) -> None:
    async def revoke(records: Records, settings: Settings) -> dict[str, object]:
        return key_view(await ApiKeys(records).revoke(id_or_name))

    view = _with_records(data_dir, revoke)
    print(
        json.dumps(view) if as_json else f"revoked {view['name']} ({view['id']}); running servers refuse it within 2 s"
    )


def run_sessions(principal: str | None, data_dir: Path | None, *, as_json: bool) -> None:
    async def listed(records: Records, settings: Settings) -> list[dict[str, object]]:
        return [session_view(one) for one in await stored_sessions(settings, records).list(principal)]

    views = _with_records(data_dir, listed)
    if as_json:
        print(json.dumps({"sessions": views}))
        return
    table = Table(*_SESSION_HEADERS, box=None, header_style="bold")
    for view in views:
        table.add_row(*(_cell(value, "-") for value in view.values()))
    Console(highlight=False).print(table if views else "No sessions.")


def run_revoke_sessions(id_or_principal: str, data_dir: Path | None, *, as_json: bool) -> None:
    async def revoke(records: Records, settings: Settings) -> list[str]:
        return [one.id for one in await stored_sessions(settings, records).revoke(id_or_principal)]

    ended = _with_records(data_dir, revoke)
    print(json.dumps({"revoked": ended}) if as_json else f"revoked {' '.join(ended)}")


def run_rotate(data_dir: Path | None, *, as_json: bool) -> None:
    async def rotate(records: Records, settings: Settings) -> SigningKey:
        key = await signing_keys(settings, records).rotate()
        await record("signing.rotated", "key", key.kid)
        return key

    key = _with_records(data_dir, rotate)
    print(json.dumps(_signing_view(key)) if as_json else f"signing with {key.kid}; running servers use it within 60 s")


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
    Console(highlight=False).print(table if views else "No signing keys yet. A server creates one when it needs it.")


_SESSION_HEADERS = ("id", "principal", "method", "groups", "began", "last used", "expires")
_COLUMNS = ("name", "id", "role", "groups", "agents", "createdAt", "expiresAt", "lastUsedAt")


def _signing_view(key: SigningKey) -> dict[str, object]:
    return {
        "kid": key.kid,
        "createdAt": iso(key.created_at),
        "retiredAt": None if key.retired_at is None else iso(key.retired_at),
    }


def _cell(value: object, nothing: str = "any") -> str:
    if isinstance(value, list):
        return " ".join(map(str, cast(list[object], value))) or nothing
    return "-" if value is None else str(value)


def _with_records(data_dir: Path | None, work: Callable[[Records, Settings], Awaitable[T]]) -> T:
    settings = load(data_dir=data_dir)
    if settings.store == "memory":
        raise ConfigurationError("The memory store keeps no keys. Use store = sqlite or postgres.", field="store")

    async def run() -> T:
        async with open_records(settings) as records, open_audit(settings) as audit:
            # Changes of keys record themselves: by the user of this machine, from the command line.
            enter(audit, COMMAND, "local")
            return await work(records, settings)

    return asyncio.run(run())


# Pair an agent's runtime through the server, which knows its agents and its own address.

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def run_pair(agent: str, url: str, token: str | None, *, as_json: bool) -> None:
    answer = _call_server("POST", url, agent, "pairing", token)
    if as_json:
        print(json.dumps(answer))
        return
    notes = Console(stderr=True, highlight=False)
    notes.print(f"Give this to the AI assistant on the computer that will do the work of [bold]{agent}[/bold]:\n")
    print(answer["instruction"])
    if urlsplit(str(answer["api_base"])).hostname in _LOOPBACK:
        notes.print(
            f"Other computers cannot reach {answer['api_base']}. Set public_url to an address that they can reach."
        )


def run_unpair(agent: str, url: str, token: str | None, *, as_json: bool) -> None:
    answer = _call_server("DELETE", url, agent, "runtime", token)
    print(json.dumps(answer) if as_json else f"revoked {answer['runtime_id']}; its tasks wait for the next runtime")


def _call_server(method: str, url: str, agent: str, what: str, token: str | None) -> Json:
    address = f"{url.rstrip('/')}/admin/agents/{quote(agent, safe='')}/{what}"
    answer = asyncio.run(ask_server(method, address, token, name=url))
    body = answer.read(Json)
    if body is None:
        raise Unsupported(f"{url} is not a Parley server.")
    if not answer.ok:
        raise RemoteError(answer.error or {}, answer.status)
    return body
