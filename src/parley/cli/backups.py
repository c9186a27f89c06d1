"""Take a copy of a server's data while it runs, and start another one from it."""

import json
import shutil
import tarfile
import tempfile
from pathlib import Path

import msgspec

from parley.cli.operate import run_verify
from parley.errors import ConfigurationError
from parley.security.secrets import FILE as SECRETS_FILE
from parley.settings import Settings, blobs_location, load
from parley.stores.backup import KEYS, Manifest, Places, back_up, restore

_TARS = (".tar", ".tar.gz", ".tgz")


def run_backup(to: Path, data_dir: Path | None, *, secrets: bool, as_json: bool) -> None:
    places = _places(data_dir)
    if not to.name.endswith(_TARS):
        return _tell(back_up(places, to, secrets=secrets), f"Backed up to {to}", as_json=as_json)
    if to.exists():
        raise ConfigurationError(f"There is something at {to} already.")
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}.") as directory:
        copy = Path(directory) / "parley-backup"
        manifest = back_up(places, copy, secrets=secrets)
        growing = Path(directory) / to.name
        with tarfile.open(growing, "w" if to.name.endswith(".tar") else "w:gz") as tar:
            tar.add(copy, copy.name)
        growing.chmod(0o600)
        growing.rename(to)
    return _tell(manifest, f"Backed up to {to}", as_json=as_json)


def run_restore(backup: Path, data_dir: Path | None, *, as_json: bool) -> int:
    """Restored, and every chain walked."""
    places = _places(data_dir)
    if backup.is_file():
        with tempfile.TemporaryDirectory(prefix="parley-restore.") as directory:
            manifest = restore(_unpacked(backup, Path(directory)), places)
    else:
        manifest = restore(backup, places)
    _tell(manifest, f"Restored to {places.data_dir}", as_json=as_json)
    if not manifest.secrets and not places.keys.exists() and not as_json:
        print(f"The key file is not in the backup: put it at {places.keys} before you start a server.")
    return run_verify(None, data_dir, as_json=as_json)


def _unpacked(backup: Path, directory: Path) -> Path:
    try:
        with tarfile.open(backup) as tar:
            for member in tar:
                _unpack(tar, member, directory)
    except (tarfile.TarError, OSError):
        raise ConfigurationError(f"{backup} is no backup, or not a complete one.") from None
    return directory / "parley-backup"


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """Files and folders, all of them below the directory: a backup holds nothing else. Not by `extractall`, which
    knows no filter in the first releases of Python 3.11."""
    place = directory / member.name
    if ".." in place.parts or not place.is_relative_to(directory) or not (member.isfile() or member.isdir()):
        raise tarfile.TarError(member.name)
    folder = place if member.isdir() else place.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (content := tar.extractfile(member)) is not None:
        with content, place.open("xb") as file:
            shutil.copyfileobj(content, file)
        place.chmod(member.mode & 0o700)


def _places(data_dir: Path | None) -> Places:
    settings = load(data_dir=data_dir)
    if settings.store != "sqlite":
        raise ConfigurationError(
            "PostgreSQL is backed up by its own means (pg_dump, or a copy that follows its log): see docs/backup.md.",
            field="store",
        )
    return Places(
        settings.data_dir, _local_blobs(settings), settings.secret_key_file or settings.data_dir / SECRETS_FILE
    )


def _local_blobs(settings: Settings) -> Path | None:
    location = blobs_location(settings)
    return None if "://" in location else Path(location)


def _tell(manifest: Manifest, done: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(msgspec.to_builtins(manifest)))
        return
    blobs = "its blobs are elsewhere" if manifest.blobs is None else f"{manifest.blobs} blobs"
    print(f"{done}: {manifest.runs} runs, {blobs}, {KEYS if manifest.secrets else 'no keys'}.")
