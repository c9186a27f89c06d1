"""Builds the distributions of a commit twice, and compares the results."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (".", "edge")
"""Folders with a pyproject.toml: `parley-a2a` and `parley-edge`."""


class NotReproducible(Exception):
    """Raised when two builds of one commit differ, or when a commit cannot be built."""


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


def changed() -> list[str]:
    """Files that differ from the commit, and so would be missing in the release."""
    return git("status", "--porcelain").decode().splitlines()


def committed_at() -> int:
    """The time of the commit, which is the time of every file in the distributions."""
    return int(git("log", "-1", "--format=%ct"))


def built_twice(folder: Path) -> list[Path]:
    """Build in two folders that differ in name, hash seed and umask; return the files of the first build."""
    first = _built(folder / "first", seed="0", umask=0o022)
    second = _built(folder / "again" / "elsewhere", seed="1", umask=0o077)
    contents = [{file.name: file.read_bytes() for file in files} for files in (first, second)]
    if contents[0] != contents[1]:
        names = [name for name in contents[0] if contents[0][name] != contents[1].get(name)]
        raise NotReproducible(f"Two builds of one commit differ: {', '.join(names)}.")
    return first


def _built(folder: Path, *, seed: str, umask: int) -> list[Path]:
    source, to = folder / "source", folder / "dist"
    source.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as archive:
        archive.extractall(source, filter="data")
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(committed_at()), "PYTHONHASHSEED": seed}
    for part in SOURCES:
        command = [sys.executable, "-m", "hatchling", "build", "--directory", str(to)]
        done = subprocess.run(command, cwd=source / part, env=env, umask=umask, capture_output=True, text=True)
        if done.returncode:
            raise NotReproducible(f"hatchling ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return sorted(to.iterdir())
