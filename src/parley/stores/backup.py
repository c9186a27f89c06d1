"""A copy of a data directory while a server writes to it, and back again.

The database is copied in one read transaction. A blob is durable before the event that names it, and may be deleted
when it is forgotten; so blobs are copied before the database and once more after it, and nothing that the copy names is
missing, but for what was written and forgotten in between.
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
from parley.file_modes import make_private_file, make_private_folder
from parley.stores.damage import damage_in, damaged, opening
from parley.stores.locking import LOCK, lock
from parley.stores.schema import missing
from parley.stores.sqlite import FILE

MANIFEST = "manifest.json"
BLOBS = "blobs"
KEYS = "secret.key"
FORMAT = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Manifest(Struct, frozen=True):
    """What a backup holds. `secrets`: whether the key file is in it; `blobs` is None where they are elsewhere."""

    format: int
    made_at: str
    database: str
    """The sha256 of the database."""
    runs: int
    blobs: int | None
    secrets: bool


class Places(Struct, frozen=True):
    """Where a server keeps things; `blobs` is None when it is no directory of this machine."""

    data_dir: Path
    blobs: Path | None
    keys: Path


def back_up(places: Places, to: Path, *, secrets: bool = False) -> Manifest:
    """Copy everything into a directory that is not there yet; it appears when it is complete."""
    source = places.data_dir / FILE
    if not source.is_file():
        raise ConfigurationError(f"There is no database in {places.data_dir}.")
    if to.exists():
        raise ConfigurationError(f"There is something at {to} already.")
    if secrets and not places.keys.is_file():
        raise ConfigurationError(f"There is no key file at {places.keys}, so no secret was ever kept.")
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


def _copied(places: Places, to: Path, *, secrets: bool) -> Manifest:
    if places.blobs is not None:
        copy_blobs(places.blobs, to / BLOBS)
    runs = _copy_database(places.data_dir / FILE, to / FILE)
    if places.blobs is not None:
        copy_blobs(places.blobs, to / BLOBS)
    if secrets:
        _copy_private(places.keys, to / KEYS)
    blobs = None if places.blobs is None else sum(1 for _ in _blobs_in(to / BLOBS))
    manifest = Manifest(FORMAT, iso(now_ms()), digest(to / FILE), runs, blobs, secrets)
    make_private_file(to / MANIFEST)
    (to / MANIFEST).write_text(json.dumps(msgspec.to_builtins(manifest), indent=2) + "\n", "utf-8")
    for path in (to / FILE, to / MANIFEST, to):
        _sync(path)
    return manifest


def _copy_database(source: Path, to: Path) -> int:
    """How many runs there are in the copy. All pages at once: a step of its own for each part would begin anew whenever
    somebody writes in between."""
    make_private_file(to)
    with (
        opening(source),
        closing(sqlite3.connect(source, timeout=30)) as live,
        closing(sqlite3.connect(to)) as copy,
    ):
        live.backup(copy, pages=-1)
        if found := damage_in(copy):
            raise ConfigurationError(f"{damaged(source, found)} Nothing was backed up.")
        # One file without a companion, wherever it is taken.
        copy.execute("PRAGMA journal_mode = DELETE")
        return copy.execute("SELECT count(*) FROM runs").fetchone()[0]


def copy_blobs(source: Path, to: Path) -> None:
    """Those that are not there yet. One that vanishes meanwhile was forgotten."""
    make_private_folder(to)
    for path in _blobs_in(source):
        copy = to / path.relative_to(source)
        if copy.exists():
            continue
        try:
            _copy_private(path, copy)
        except FileNotFoundError:
            copy.unlink(missing_ok=True)


def restore(backup: Path, places: Places) -> Manifest:
    """Put a backup where a server is to be started. Nothing is written over."""
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
        # The database last: a directory without one is no restored server.
        growing = places.data_dir / f".{FILE}.restoring"
        _copy_private(backup / FILE, growing)
        growing.rename(places.data_dir / FILE)
        _sync(places.data_dir)
    finally:
        os.close(held)
    return manifest


def _manifest(backup: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode((backup / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        raise ConfigurationError(f"{backup} is no backup, or not a complete one.") from None
    if manifest.format != FORMAT:
        raise ConfigurationError(f"{backup} was made by a newer Parley.")
    try:
        with closing(sqlite3.connect(f"file:{backup / FILE}?mode=ro", uri=True)) as copy:
            missing("sqlite", {str(row[0]) for row in copy.execute("SELECT id FROM migrations")}, ("pre", "post"))
    except sqlite3.Error:
        raise ConfigurationError(f"The database in {backup} cannot be read: it is damaged.") from None
    return manifest


def _check_blobs(backup: Path, manifest: Manifest, places: Places) -> None:
    """A blob is named by what is in it."""
    if manifest.blobs is None:
        return
    if places.blobs is None:
        raise ConfigurationError("The backup holds blobs, and the setting blobs names no directory to put them into.")
    found = 0
    for path in _blobs_in(backup / BLOBS):
        found += 1
        if digest(path) != path.name:
            raise ConfigurationError(f"The blob {path.name} in {backup} is damaged.")
    if found != manifest.blobs:
        raise ConfigurationError(f"{backup} has {found} blobs, and had {manifest.blobs} when it was made.")


def _blobs_in(directory: Path) -> list[Path]:
    """What is being written has another name until it is complete."""
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
