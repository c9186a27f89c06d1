"""A copy that is taken while a server writes is a server of its own."""

import asyncio
import json
import os
import stat
import sys
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.client import Client
from parley.errors import ConfigurationError
from parley.stores.backup import BLOBS, FILE, KEYS, MANIFEST, BackupPaths, back_up, restore
from parley.stores.blobs import open_blobs
from parley.stores.sqlite import SqliteStore
from parley.testing.logs import LogWriter, put
from parley.testing.processes import ServerProcess

AGENT = '''
from parley import ArtifactChunk, Text, Turn, agent

@agent("echo")
async def echo(turn: Turn):
    """Says what you said, and makes a file too large for the log."""
    yield Text(turn.text)
    yield ArtifactChunk(turn.text.encode() * 20_000, id="large")
'''


async def parley(*arguments: str, cwd: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley", *arguments, cwd=cwd,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.mark.slow
async def test_a_backup_taken_under_load_is_restored_verified_and_served(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    data, elsewhere, backup = tmp_path / "data", tmp_path / "elsewhere", tmp_path / "backup.tar.gz"
    server = await ServerProcess.start([tmp_path / "agents.py"], data)
    sent: dict[str, str] = {}
    stop, enough = asyncio.Event(), asyncio.Event()

    async def load(name: str) -> None:
        async with Client(f"{server.url}/agents/echo") as client:
            while not stop.is_set():
                text = f"{name} {len(sent)} "
                task = (await client.send(text))["task"]
                sent[task["id"]] = text
                if len(sent) > 20:
                    enough.set()

    loading = [asyncio.ensure_future(load(f"client {number}")) for number in range(4)]
    await enough.wait()
    acknowledged = dict(sent)
    code, said = await parley("backup", str(backup), "--data-dir", str(data), "--json", cwd=tmp_path)
    assert code == 0, said
    stop.set()
    await asyncio.gather(*loading)
    await server.stop()
    assert json.loads(said)["runs"] >= len(acknowledged)
    assert len(sent) > len(acknowledged)

    code, said = await parley("restore", str(backup), "--data-dir", str(elsewhere), cwd=tmp_path)
    assert code == 0, said
    assert ", 0 broken" in said
    async with _serving(tmp_path / "agents.py", elsewhere) as restored, Client(f"{restored}/agents/echo") as client:
        for task, text in acknowledged.items():
            found = await client.get(task)
            assert found["status"]["state"] == "TASK_STATE_COMPLETED"
            assert found["artifacts"][0]["parts"][0]["text"] == text
            assert len(found["artifacts"][1]["parts"][0]["raw"]) > len(text) * 20_000
        assert (await client.send("and on it goes "))["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@asynccontextmanager
async def _serving(agents: Path, data: Path) -> AsyncGenerator[str, None]:
    server = await ServerProcess.start([agents], data)
    yield server.url
    await server.stop()


@pytest.fixture
async def places(tmp_path: Path) -> BackupPaths:
    """Data of a stopped server: one run and one blob."""
    data = tmp_path / "data"
    store = SqliteStore(data)
    await put(store, LogWriter().start())
    await open_blobs(str(data / "blobs")).put(b"x" * 1000)
    (data / "secret.key").write_text("a key")
    await store.close()
    return BackupPaths(data, data / "blobs", data / "secret.key")


def moved(places: BackupPaths, to: Path) -> BackupPaths:
    return BackupPaths(to, to / "blobs", to / "secret.key")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_copied_only_when_asked_for_and_nobody_else_may_read_them(places: BackupPaths, tmp_path: Path) -> None:
    without = back_up(places, tmp_path / "without")
    assert not without.secrets
    assert not (tmp_path / "without" / KEYS).exists()
    manifest = back_up(places, tmp_path / "with", secrets=True)
    assert (manifest.secrets, manifest.runs, manifest.blobs) == (True, 1, 1)
    assert {mode(tmp_path / "with" / name) for name in (FILE, KEYS)} == {0o600}
    assert mode(tmp_path / "with") == 0o700
    restored = moved(places, tmp_path / "restored")
    restore(tmp_path / "with", restored)
    assert restored.keys.read_text() == "a key"
    assert mode(restored.keys) == 0o600


def test_nothing_is_written_over(places: BackupPaths, tmp_path: Path) -> None:
    back_up(places, tmp_path / "backup", secrets=True)
    with pytest.raises(ConfigurationError, match="already exists"):
        back_up(places, tmp_path / "backup")
    with pytest.raises(ConfigurationError, match="a database in"):
        restore(tmp_path / "backup", places)
    other = moved(places, tmp_path / "other")
    other.data_dir.mkdir()
    other.keys.write_text("another key")
    with pytest.raises(ConfigurationError, match="another key file"):
        restore(tmp_path / "backup", other)
    assert other.keys.read_text() == "another key"


def test_a_damaged_backup_is_not_restored(places: BackupPaths, tmp_path: Path) -> None:
    def spoilt(name: str) -> Path:
        backup = tmp_path / name
        back_up(places, backup)
        return backup

    target = moved(places, tmp_path / "target")
    flipped = spoilt("flipped") / FILE
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"!")
    with pytest.raises(ConfigurationError, match="damaged"):
        restore(flipped.parent, target)
    blob = next((spoilt("blob") / BLOBS).rglob("?" * 64))
    blob.write_bytes(b"something else")
    with pytest.raises(ConfigurationError, match=f"blob {blob.name}"):
        restore(tmp_path / "blob", target)
    next((spoilt("lost") / BLOBS).rglob("?" * 64)).unlink()
    with pytest.raises(ConfigurationError, match="contains 0 blobs"):
        restore(tmp_path / "lost", target)
    (spoilt("half") / MANIFEST).unlink()
    with pytest.raises(ConfigurationError, match="is not complete"):
        restore(tmp_path / "half", target)
    assert not (target.data_dir / FILE).exists()


def test_a_directory_that_a_server_uses_is_not_restored_into(places: BackupPaths, tmp_path: Path) -> None:
    from parley.stores.sqlite_file import LOCK, lock

    back_up(places, tmp_path / "backup")
    target = moved(places, tmp_path / "target")
    target.data_dir.mkdir()
    held = lock(target.data_dir / LOCK)
    with pytest.raises(ConfigurationError, match="Another process"):
        restore(tmp_path / "backup", target)
    os.close(held)


async def test_postgres_is_not_backed_up_so(tmp_path: Path) -> None:
    (tmp_path / "parley.toml").write_text('store = "postgres"\npostgres_url = "postgresql://nowhere/x"\n')
    code, said = await parley("backup", "copy", cwd=tmp_path)
    assert code == 2
    assert "docs/backup.md" in said


async def test_a_file_that_is_no_backup_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"nothing")
    assert (await parley("restore", "x.tar", "--data-dir", "d", cwd=tmp_path))[0] == 2
    with tarfile.open(tmp_path / "y.tar", "w"):
        pass
    assert (await parley("restore", "y.tar", "--data-dir", "d", cwd=tmp_path))[0] == 2


LEAVING = {
    "a path upwards": tarfile.TarInfo("parley-backup/../../x"),
    "an absolute path": tarfile.TarInfo("/tmp/x"),
    "a link": tarfile.TarInfo("parley-backup/link"),
    "a device": tarfile.TarInfo("parley-backup/null"),
    "the same name twice": tarfile.TarInfo("parley-backup/twice"),
}
LEAVING["a link"].type, LEAVING["a link"].linkname = tarfile.SYMTYPE, "/etc"
LEAVING["a device"].type = tarfile.CHRTYPE


@pytest.mark.parametrize("what", LEAVING)
async def test_a_backup_that_leads_elsewhere_is_refused(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "deep" / "down"
    folder.mkdir(parents=True)
    with tarfile.open(folder / "x.tar", "w") as tar:
        for _ in range(2):
            tar.addfile(LEAVING[what])
    code, said = await parley("restore", "x.tar", "--data-dir", "d", cwd=folder)
    assert code == 2
    assert "is not a backup" in said
    assert [os.listdir(place) for place in (tmp_path, folder.parent, folder)] == [["deep"], ["down"], ["x.tar"]]
