"""Backup of a data directory while a server writes to it, and its restore.

The database is copied in one read transaction. A blob is durable before the event that names it, and may be deleted
later. So blobs are copied before the database and once more after it, and no blob that the copy names is missing,
except for blobs that were written and deleted in between.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from parley.clock import iso, now_ms
from parley.errors import ConfigurationError
from parley.security.files import make_private_file, make_private_folder
from parley.stores.schema import missing
from parley.stores.sqlite import FILE
from parley.stores.sqlite_file import LOCK, damage_in, damaged, lock, opening

MANIFEST = "manifest.json"
BLOBS = "blobs"
KEYS = "secret.key"
FORMAT = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")


class BackupManifest(Struct, frozen=True):
    """Content of a backup. `secrets`: the key file is included; `blobs` is None if they are stored elsewhere."""

    format: int
    made_at: str
    database: str
    """sha256 of the database."""
    runs: int
    blobs: int | None
    secrets: bool


class BackupPaths(Struct, frozen=True):
    """Paths of a server's data; `blobs` is None if it is not a local directory."""

    data_dir: Path
    blobs: Path | None
    keys: Path


def back_up(places: BackupPaths, to: Path, *, secrets: bool = False) -> BackupManifest:
    """Copy everything into a new directory, which appears only when it is complete."""
    source = places.data_dir / FILE
    if not source.is_file():
        raise ConfigurationError(f"There is no database in {places.data_dir}.")
    if to.exists():
        raise ConfigurationError(f"{to} already exists; choose another path.")
    if secrets and not places.keys.is_file():
        raise ConfigurationError(f"There is no key file at {places.keys}, so no secret has been stored.")
    growing = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        growing.mkdir(mode=0o700, parents=True)
        manifest = _copied(places, growing, secrets=secrets)
        growing.rename(to)
    except OSError as error:
        raise ConfigurationError(f"The backup could not be written to {to}: {error.strerror}.") from error
    finally:
        shutil.rmtree(growing, ignore_errors=True)
    return manifest


def _copied(places: BackupPaths, to: Path, *, secrets: bool) -> BackupManifest:
    if places.blobs is not None:
        copy_blobs(places.blobs, to / BLOBS)
    runs = _copy_database(places.data_dir / FILE, to / FILE)
    if places.blobs is not None:
        copy_blobs(places.blobs, to / BLOBS)
    if secrets:
        _copy_private(places.keys, to / KEYS)
    blobs = None if places.blobs is None else sum(1 for _ in _blobs_in(to / BLOBS))
    manifest = BackupManifest(FORMAT, iso(now_ms()), digest(to / FILE), runs, blobs, secrets)
    make_private_file(to / MANIFEST)
    (to / MANIFEST).write_text(json.dumps(msgspec.to_builtins(manifest), indent=2) + "\n", "utf-8")
    for path in (to / FILE, to / MANIFEST, to):
        _sync(path)
    return manifest


def _copy_database(source: Path, to: Path) -> int:
    """Copy the database and return the number of runs in it. All pages are copied in one step: with several steps, the
    copy would start again at every write in between."""
    make_private_file(to)
    with (
        opening(source),
        closing(sqlite3.connect(source, timeout=30)) as live,
        closing(sqlite3.connect(to)) as copy,
    ):
        live.backup(copy, pages=-1)
        if found := damage_in(copy):
            raise ConfigurationError(f"{damaged(source, found)} Nothing was backed up.")
        # One file without a WAL file beside it, which can be moved anywhere.
        copy.execute("PRAGMA journal_mode = DELETE")
        return copy.execute("SELECT count(*) FROM runs").fetchone()[0]


def copy_blobs(source: Path, to: Path) -> None:
    """Copy the blobs that are missing in the target. One that disappears meanwhile was deleted by the server."""
    make_private_folder(to)
    for path in _blobs_in(source):
        copy = to / path.relative_to(source)
        if copy.exists():
            continue
        try:
            _copy_private(path, copy)
        except FileNotFoundError:
            copy.unlink(missing_ok=True)


def restore(backup: Path, places: BackupPaths) -> BackupManifest:
    """Restore a backup to the paths of a server that is not running. Nothing is overwritten."""
    manifest = _manifest(backup)
    if digest(backup / FILE) != manifest.database:
        raise ConfigurationError(f"The database in {backup} is not the one that was backed up: it is damaged.")
    if (places.data_dir / FILE).exists():
        raise ConfigurationError(f"There is a database in {places.data_dir} already.")
    if manifest.secrets and places.keys.exists() and places.keys.read_bytes() != (backup / KEYS).read_bytes():
        raise ConfigurationError(f"There is another key file at {places.keys} already.")
    _check_blobs(backup, manifest, places)
    make_private_folder(places.data_dir)
    held = lock(places.data_dir / LOCK)
    try:
        if manifest.blobs is not None and places.blobs is not None:
            copy_blobs(backup / BLOBS, places.blobs)
        if manifest.secrets:
            _copy_private(backup / KEYS, places.keys)
        # The database is moved last: a directory without it does not count as restored.
        growing = places.data_dir / f".{FILE}.restoring"
        _copy_private(backup / FILE, growing)
        growing.rename(places.data_dir / FILE)
        _sync(places.data_dir)
    finally:
        os.close(held)
    return manifest


def _manifest(backup: Path) -> BackupManifest:
    try:
        manifest = msgspec.json.decode((backup / MANIFEST).read_bytes(), type=BackupManifest)
    except (OSError, msgspec.MsgspecError):
        raise ConfigurationError(f"{backup} is not a backup, or is not complete.") from None
    if manifest.format != FORMAT:
        raise ConfigurationError(f"{backup} was made by a newer version of Parley.")
    try:
        with closing(sqlite3.connect(f"file:{backup / FILE}?mode=ro", uri=True)) as copy:
            missing("sqlite", {str(row[0]) for row in copy.execute("SELECT id FROM migrations")}, ("pre", "post"))
    except sqlite3.Error:
        raise ConfigurationError(f"The database in {backup} cannot be read: it is damaged.") from None
    return manifest


def _check_blobs(backup: Path, manifest: BackupManifest, places: BackupPaths) -> None:
    """Check all blobs. The name of a blob is the hash of its content."""
    if manifest.blobs is None:
        return
    if places.blobs is None:
        raise ConfigurationError(
            "The backup contains blobs, but the setting blobs does not name a directory to restore them to."
        )
    found = 0
    for path in _blobs_in(backup / BLOBS):
        found += 1
        if digest(path) != path.name:
            raise ConfigurationError(f"The blob {path.name} in {backup} is damaged.")
    if found != manifest.blobs:
        raise ConfigurationError(f"{backup} contains {found} blobs, but {manifest.blobs} were backed up.")


def _blobs_in(directory: Path) -> list[Path]:
    """Return all complete blobs. A blob that is being written has another name until it is complete."""
    return [path for path in directory.rglob("*") if _SHA256.fullmatch(path.name) and path.is_file()]


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy_private(source: Path, to: Path) -> None:
    make_private_folder(to.parent)
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as copy, source.open("rb") as file:
        shutil.copyfileobj(file, copy)
        copy.flush()
        os.fsync(copy.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
