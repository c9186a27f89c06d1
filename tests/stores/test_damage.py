"""A database that cannot be used is named, with what is wrong and what to do."""

import asyncio
import json
import os
import resource
import sys
from pathlib import Path

import pytest

from parley.stores.sqlite import FILE, SqliteStore
from parley.testing.logs import LogWriter, put

AGENT = "from parley import Turn, agent\n\n@agent('echo')\nasync def echo(turn: Turn):\n    yield turn.text\n"


async def parley(folder: Path, *arguments: str, largest: int | None = None) -> tuple[int, str, str]:
    """Run the program to its end."""

    def limited() -> None:
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley", *arguments, cwd=folder, preexec_fn=limited, env={**os.environ, "NO_COLOR": "1"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 40)
    return process.returncode or 0, out.decode(), err.decode()


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A project with a database of some runs."""
    (tmp_path / "echo.py").write_text(AGENT)
    store = SqliteStore(tmp_path / "data")
    for _ in range(200):
        await put(store, LogWriter().start())
    await store.close()
    return tmp_path


def damage(folder: Path, how: str) -> None:
    path = folder / "data" / FILE
    content = path.read_bytes()
    if how == "no database":
        path.write_bytes(b"something else" * 1000)
    elif how == "cut off":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.write_bytes(content[: len(content) // 2] + os.urandom(40_000) + content[len(content) // 2 + 40_000 :])


@pytest.mark.parametrize("how", ["no database", "cut off", "written over"])
async def test_a_damaged_database_is_called_so_by_every_command(folder: Path, how: str) -> None:
    damage(folder, how)
    for command in (
        ("serve", "echo.py", "--data-dir", "data", "--port", "0"),
        ("backup", "copy", "--data-dir", "data"),
        ("backup", "copy.tar", "--data-dir", "data"),
    ):
        code, _, err = await parley(folder, *command)
        assert code != 0
        assert "is damaged" in err
        assert "Traceback" not in err
    assert not (folder / "copy").exists()
    assert not (folder / "copy.tar").exists()
    code, out, err = await parley(folder, "doctor", "echo.py", "--data-dir", "data", "--json")
    assert code == 1
    assert "database_damaged" in [one["code"] for one in json.loads(out)["findings"]]
    assert "Traceback" not in err


async def test_a_full_disk_at_start_is_called_so(folder: Path) -> None:
    code, _, err = await parley(folder, "serve", "echo.py", "--data-dir", "new", "--port", "0", largest=1024)
    assert code != 0
    assert "Is the disk full?" in err
    assert "Traceback" not in err


async def test_a_data_directory_that_cannot_be_made_is_called_so(folder: Path) -> None:
    for directory in ("echo.py/data", "/proc/parley"):
        code, _, err = await parley(folder, "serve", "echo.py", "--data-dir", directory, "--port", "0")
        assert code != 0
        assert directory.split("/")[-1] in err
        assert "cannot be used" in err
        assert "Traceback" not in err


async def test_a_sound_database_is_backed_up_and_not_complained_of(folder: Path) -> None:
    assert (await parley(folder, "backup", "copy", "--data-dir", "data"))[0] == 0
    _, out, _ = await parley(folder, "doctor", "echo.py", "--data-dir", "data", "--json")
    assert "database_damaged" not in out
