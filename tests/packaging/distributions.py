"""The two distributions as they are published, and environments that hold nothing else."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
ALONE = ("PYTHONPATH", "VIRTUAL_ENV")
"""Variables through which our own environment would shine into another."""


class Distribution(NamedTuple):
    wheel: Path
    sdist: Path

    def wheel_files(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    def sdist_files(self) -> set[str]:
        """Without the folder that everything lies in."""
        with tarfile.open(self.sdist) as archive:
            return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}

    def metadata(self) -> str:
        with zipfile.ZipFile(self.wheel) as archive:
            (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
            return archive.read(name).decode()


def build(source: Path, to: Path) -> Distribution:
    _run(sys.executable, "-m", "hatchling", "build", "--directory", to, cwd=source)
    (wheel,), (sdist,) = to.glob("*.whl"), to.glob("*.tar.gz")
    return Distribution(wheel, sdist)


class Environment:
    """An interpreter with pip and nothing besides; what it holds was installed into it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        _run(sys.executable, "-m", "venv", place)

    def program(self, name: str) -> Path:
        return self.place / "bin" / name

    def install(self, *requirements: str | Path) -> None:
        quietly = ("--quiet", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt")
        self.check("python", "-m", "pip", "install", *quietly, *requirements)

    def installed(self) -> set[str]:
        listed = self.check("python", "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check")
        return {line.partition("==")[0].lower() for line in listed.splitlines()}

    def check(self, name: str, *arguments: str | Path, cwd: Path | None = None) -> str:
        """Output of the program; it must exit with 0."""
        return _run(self.program(name), *arguments, cwd=cwd or self.place)

    def run(self, name: str, *arguments: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.program(name)), *map(str, arguments)]
        return subprocess.run(
            command, cwd=cwd, env=surroundings(**env), capture_output=True, text=True, check=False, timeout=60
        )


def surroundings(**env: str) -> dict[str, str]:
    """This process's variables, but none that lead to our own packages or settings."""
    kept = {name: one for name, one in os.environ.items() if name not in ALONE and not name.startswith("PARLEY_")}
    return {**kept, **env}


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=surroundings(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}"
    return done.stdout
