"""Commands that operate a server: settings, migrations, verification, backups, push notifications."""

import asyncio
import csv
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from pydantic import SecretStr
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from parley.app import open_audit, open_records, open_secrets
from parley.app.sign_in import stored_sessions
from parley.audit.service import COMMAND, AuditLog, enter, record
from parley.cli.options import ERROR, OK
from parley.errors import BrokenChain, ConfigurationError
from parley.faces.admin import AuditParams, audit_query, entry_view, push_view
from parley.ids import RunId
from parley.push.hooks import HookEntry, Hooks
from parley.records import Place
from parley.runs.log import all_runs, verify_run
from parley.security.files import make_private_folder
from parley.security.groups import GroupMembers
from parley.security.secrets import FILE as SECRETS_FILE
from parley.settings import Settings, blobs_location, load, origins, postgres_url
from parley.stores.backup import KEYS, BackupManifest, BackupPaths, back_up, restore
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.schema import Phase, migrate_postgres, migrate_sqlite, missing
from parley.stores.sqlite import FILE, SqliteReader
from parley.stores.sqlite_file import connect, opening


def print_config(*, as_json: bool) -> None:
    settings = load()
    came_from = origins(settings)
    values = {name: _plain(getattr(settings, name)) for name in came_from}
    if as_json:
        print(json.dumps({name: {"value": values[name], "origin": came_from[name]} for name in values}, indent=2))
        return
    table = Table("setting", "value", "source", "description", box=None, header_style="bold")
    for name, value in values.items():
        about = Settings.model_fields[name].description or ""
        style = "dim" if came_from[name] == "default" else ""
        table.add_row(name, str(value), came_from[name], about, style=style)
    Console().print(table)


def run_migrate(data_dir: Path | None, phase: str | None, *, as_json: bool) -> None:
    if phase not in (None, "pre", "post"):
        raise ConfigurationError("--phase must be pre or post.")
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
        f"{one} is pending: run parley migrate --phase post when no server of the older version runs" for one in waiting
    ]
    print("\n".join(lines or ["up to date"]))


def _migrate_sqlite(directory: Path, phases: tuple[Phase, ...]) -> list[str]:
    with opening(directory / FILE):
        make_private_folder(directory)
        with closing(connect(directory / FILE)) as connection:
            return migrate_sqlite(connection, phases)


async def _migrate_postgres(url: str, phases: tuple[Phase, ...] | None) -> tuple[list[str], list[str]]:
    """Apply migrations; return their ids, and those left for the end of an upgrade."""
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


# Back up a server's data while it runs, and restore it.

_TARS = (".tar", ".tar.gz", ".tgz")


def run_backup(to: Path, data_dir: Path | None, *, secrets: bool, as_json: bool) -> None:
    places = _places(data_dir)
    if not to.name.endswith(_TARS):
        return _print_manifest(back_up(places, to, secrets=secrets), f"Backed up to {to}", as_json=as_json)
    if to.exists():
        raise ConfigurationError(f"{to} already exists. Choose another name.")
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}.") as directory:
        copy = Path(directory) / "parley-backup"
        manifest = back_up(places, copy, secrets=secrets)
        growing = Path(directory) / to.name
        with tarfile.open(growing, "w" if to.name.endswith(".tar") else "w:gz") as tar:
            tar.add(copy, copy.name)
        growing.chmod(0o600)
        growing.rename(to)
    return _print_manifest(manifest, f"Backed up to {to}", as_json=as_json)


def run_restore(backup: Path, data_dir: Path | None, *, as_json: bool) -> int:
    """Restore a backup, then verify every run's hash chain."""
    places = _places(data_dir)
    if backup.is_file():
        with tempfile.TemporaryDirectory(prefix="parley-restore.") as directory:
            manifest = restore(_unpacked(backup, Path(directory)), places)
    else:
        manifest = restore(backup, places)
    _print_manifest(manifest, f"Restored to {places.data_dir}", as_json=as_json)
    if not manifest.secrets and not places.keys.exists() and not as_json:
        print(f"The backup does not contain the key file. Copy it to {places.keys} before you start a server.")
    return run_verify(None, data_dir, as_json=as_json)


def _unpacked(backup: Path, directory: Path) -> Path:
    try:
        with tarfile.open(backup) as tar:
            for member in tar:
                _unpack(tar, member, directory)
    except (tarfile.TarError, OSError):
        raise ConfigurationError(f"{backup} is not a backup, or it is incomplete.") from None
    return directory / "parley-backup"


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """Unpack one file or folder below `directory`; refuse everything else, which no backup contains. `extractall` is
    not used: it has no filter in the first releases of Python 3.11."""
    place = directory / member.name
    if ".." in place.parts or not place.is_relative_to(directory) or not (member.isfile() or member.isdir()):
        raise tarfile.TarError(member.name)
    folder = place if member.isdir() else place.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (content := tar.extractfile(member)) is not None:
        with content, place.open("xb") as file:
            shutil.copyfileobj(content, file)
        place.chmod(member.mode & 0o700)


def _places(data_dir: Path | None) -> BackupPaths:
    settings = load(data_dir=data_dir)
    if settings.store != "sqlite":
        raise ConfigurationError(
            "Back up PostgreSQL with its own tools (pg_dump, or continuous archiving): see docs/backup.md.",
            field="store",
        )
    return BackupPaths(
        settings.data_dir, _local_blobs(settings), settings.secret_key_file or settings.data_dir / SECRETS_FILE
    )


def _local_blobs(settings: Settings) -> Path | None:
    location = blobs_location(settings)
    return None if "://" in location else Path(location)


def _print_manifest(manifest: BackupManifest, done: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(msgspec.to_builtins(manifest)))
        return
    blobs = "blobs not included (remote storage)" if manifest.blobs is None else f"{manifest.blobs} blobs"
    print(f"{done}: {manifest.runs} runs, {blobs}, {KEYS if manifest.secrets else 'no keys'}.")


# Push notifications, directly in the database: works while a server runs.

_COLUMNS = ("state", "task", "id", "receiver", "delivered", "attempts", "reason", "since", "nextAt")


def run_list(data_dir: Path | None, *, dead: bool, as_json: bool) -> None:
    views = asyncio.run(_list_hooks(data_dir, dead=dead))
    if as_json:
        print(json.dumps({"push": views}))
        return
    table = Table(*_COLUMNS, box=None, header_style="bold")
    for view in views:
        table.add_row(*("-" if view[name] in (None, "") else str(view[name]) for name in _COLUMNS))
    Console(highlight=False).print(table if views else "No push notification configurations.")


def run_redrive(id_: str | None, data_dir: Path | None, *, everything: bool, as_json: bool) -> int:
    if (id_ is None) != everything:
        raise ConfigurationError("Give either the id of a configuration or --all.")
    views = asyncio.run(_redrive(data_dir, id_))
    if as_json:
        print(json.dumps({"redriven": views}))
    else:
        print("\n".join(f"redriven {view['task']} {view['id']}" for view in views) or "nothing to redrive")
    return OK if views or everything else ERROR


async def _list_hooks(data_dir: Path | None, *, dead: bool) -> list[dict[str, object]]:
    async with _open_hooks(data_dir) as hooks:
        return [push_view(entry) async for entry in _all(hooks, dead=dead)]


async def _redrive(data_dir: Path | None, id_: str | None) -> list[dict[str, object]]:
    """Retry one configuration (also if its receiver is gone, or it waits for its next attempt), or all dead ones."""
    async with _open_hooks(data_dir) as hooks:
        chosen = [entry async for entry in _all(hooks, dead=id_ is None) if id_ is None or _matches(entry, id_)]
        return [push_view(await hooks.redrive(*entry.hook.place)) for entry in chosen]


def _matches(entry: HookEntry, id_: str) -> bool:
    return id_ in entry.hook.place and entry.state in ("retrying", "gone", "dead")


async def _all(hooks: Hooks, *, dead: bool) -> AsyncIterator[HookEntry]:
    after: Place | None = ("", "")
    while after is not None:
        entries, after = await hooks.page(after, dead=dead)
        for entry in entries:
            yield entry


@asynccontextmanager
async def _open_hooks(data_dir: Path | None) -> AsyncGenerator[Hooks, None]:
    settings = load(data_dir=data_dir)
    if settings.store == "memory":
        raise ConfigurationError(
            "The memory store keeps no push notification configurations. Use store = sqlite or postgres.", field="store"
        )
    async with open_records(settings) as records:
        yield Hooks(records, open_secrets(settings))


# The audit log, directly in the database, also while a server runs.

T = TypeVar("T")
Filter = tuple[str | None, str | None, str | None, str | None, str | None, str | None]
"""Actor, action, target, result, since and until."""

_AUDIT_COLUMNS = ("at", "actor", "action", "kind", "target", "result", "code", "count", "address")


def run_audit_list(chosen: Filter, limit: int, data_dir: Path | None, *, as_json: bool) -> None:
    async def read(log: AuditLog, settings: Settings) -> list[dict[str, object]]:
        return [entry_view(one) for one in await log.read(audit_query(AuditParams(*chosen), limit))]

    views = _with_audit(data_dir, read)
    if as_json:
        print(json.dumps({"entries": views}))
        return
    table = Table(*_AUDIT_COLUMNS, box=None, header_style="bold")
    for view in views:
        table.add_row(*(_shown_person(view[name]) for name in _AUDIT_COLUMNS))
    Console(highlight=False).print(table if views else "No matching entries.")


def run_audit_export(chosen: Filter, data_dir: Path | None, *, as_json: bool) -> None:
    async def write(log: AuditLog, settings: Settings) -> None:
        rows = csv.writer(sys.stdout)
        first = True
        async for entry in log.entries(audit_query(AuditParams(*chosen))):
            view = entry_view(entry)
            if as_json:
                print(json.dumps(view))
                continue
            if first:
                rows.writerow(view)
                first = False
            rows.writerow("" if value is None else value for value in view.values())

    _with_audit(data_dir, write)


def run_audit_verify(data_dir: Path | None, *, as_json: bool) -> int:
    async def check(log: AuditLog, settings: Settings) -> dict[str, object]:
        try:
            found = await log.verify()
        except BrokenChain as error:
            return {"broken": {"seq": error.details.get("seq"), "error": error.message}}
        head, floor = found.head, found.floor
        numbers: dict[str, object] = {"checked": found.checked, "erased": found.erased, "floor": floor.seq}
        return {**numbers, "seq": head.seq, "hash": head.hash.hex(), "broken": None}

    outcome = _with_audit(data_dir, check)
    if as_json:
        print(json.dumps(outcome))
    elif isinstance(broken := outcome["broken"], dict):
        print(f"BROKEN at {broken['seq']}: {broken['error']}")
    else:
        print(
            f"{outcome['checked']} entries verified; the last one is {outcome['seq']} with the hash {outcome['hash']}"
        )
    return ERROR if outcome["broken"] else OK


def run_audit_erase(principal: str, data_dir: Path | None, *, as_json: bool) -> None:
    async def erase(log: AuditLog, settings: Settings) -> int:
        count = await log.erase(principal)
        async with open_records(settings) as records:
            await GroupMembers(records).forget(principal)
            await stored_sessions(settings, records).forget(principal)
        enter(log, COMMAND, "local")
        await record("audit.erased", count=count)
        return count

    count = _with_audit(data_dir, erase)
    print(json.dumps({"erased": count}) if as_json else f"erased {principal} from {count} entries")


def _shown_person(value: object) -> str:
    return "erased" if value is None else str(value)


def _with_audit(data_dir: Path | None, work: Callable[[AuditLog, Settings], Awaitable[T]]) -> T:
    settings = load(data_dir=data_dir)
    if settings.store == "memory":
        raise ConfigurationError("The memory store keeps no audit log. Use store = sqlite or postgres.", field="store")
    if settings.store == "sqlite" and not (settings.data_dir / FILE).is_file():
        raise ConfigurationError(f"There is no database in {settings.data_dir}.")

    async def run() -> T:
        async with open_audit(settings) as log:
            return await work(log, settings)

    return asyncio.run(run())
