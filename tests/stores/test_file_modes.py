"""Stored files are readable by their owner only, with any umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from parley.security.secrets import Secrets
from parley.stores.backup import BackupPaths, back_up, restore
from parley.stores.blobs import open_blobs
from parley.stores.sqlite import FILE, SqliteStore
from parley.testing.logs import LogWriter, put
from parley.testing.processes import ServerProcess


@pytest.fixture(autouse=True)
def loose() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(directory: Path) -> dict[str, str]:
    """Everything in a directory, and itself, that others could read, with its mode."""
    paths = [directory, *directory.rglob("*")]
    modes = {str(path.relative_to(directory.parent)): stat.S_IMODE(path.stat().st_mode) for path in paths}
    return {name: oct(mode) for name, mode in modes.items() if mode & 0o077}


async def test_a_data_directory_its_backup_and_what_is_restored_are_private(tmp_path: Path) -> None:
    data, blobs = tmp_path / "data", open_blobs(str(tmp_path / "data" / "blobs"))
    store = SqliteStore(data)
    await put(store, LogWriter().start())
    await blobs.put(b"x" * 1000)
    Secrets(data / "secret.key").encrypt(b"secret")
    assert {f"{FILE}-wal", f"{FILE}-shm"} <= {path.name for path in data.iterdir()}
    assert open_to_others(data) == {}
    await store.close()
    back_up(BackupPaths(data, data / "blobs", data / "secret.key"), tmp_path / "backup", secrets=True)
    assert open_to_others(tmp_path / "backup") == {}
    there = tmp_path / "there"
    restore(tmp_path / "backup", BackupPaths(there, there / "blobs", there / "secret.key"))
    assert open_to_others(there) == {}


async def test_a_server_and_the_programs_it_starts_write_for_their_user_alone(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(
        f"slug: toucher\ndriver: command\ncommand:\n  run: [touch, {tmp_path / 'touched'}]\n"
    )
    server = await ServerProcess.start([tmp_path / "agents.yaml"], tmp_path / "data")
    async with httpx2.AsyncClient(base_url=server.url, headers={"A2A-Version": "1.0"}) as http:
        said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x" * 100_000}]}
        await http.post("/agents/toucher/message:send", json={"message": said}, timeout=30)
    await server.stop()
    assert open_to_others(tmp_path / "data") == {}
    assert stat.S_IMODE((tmp_path / "touched").stat().st_mode) == 0o600


async def test_what_was_made_before_is_restricted_and_what_others_made_is_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    store = SqliteStore(data)
    await store.close()
    blob = await open_blobs(str(data / "blobs")).put(b"before")
    for path in (data, *data.rglob("*"), data / "blobs"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (data / "mine").mkdir(mode=0o755)
    store = SqliteStore(data)
    blobs = open_blobs(str(data / "blobs"))
    assert await blobs.get(blob) == b"before"
    assert stat.S_IMODE((data / FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE((data / "blobs" / blob[:2]).stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "mine").stat().st_mode) == 0o755
    assert stat.S_IMODE(data.stat().st_mode) == 0o755, "it may be so on purpose: parley doctor tells of it"
    await store.close()
