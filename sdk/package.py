"""The package as it is built: what it needs from npm, and its JavaScript."""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sdk.node import Node, find

HOME = Path(__file__).parent / "typescript"
_STAMP = HOME / "node_modules" / ".installed"
"""Written last, so that half an installation is never taken for the whole."""


def compiled(project: str = "tsconfig.json") -> Node:
    """Compile it, or it and its tests; what the compiler has to say is raised."""
    node = installed()
    with alone(HOME / "build.lock"):
        node.run(node.program, HOME / "node_modules" / "typescript" / "bin" / "tsc", "--project", project, cwd=HOME)
    return node


def installed() -> Node:
    """What the lock file names, once: later nothing needs to be reachable."""
    node, lock = find(), (HOME / "package-lock.json").read_text()
    with alone(HOME / "build.lock"):
        if not _STAMP.is_file() or _STAMP.read_text() != lock:
            node.run(*node.npm, "ci", cwd=HOME)
            _STAMP.write_text(lock)
    return node


def packages(folder: Path) -> Node:
    """Install the packages that a folder's `package.json` names, once."""
    node, wanted = find(), (folder / "package.json").read_text()
    stamp = folder / "node_modules" / ".installed"
    with alone(folder / "build.lock"):
        if not stamp.is_file() or stamp.read_text() != wanted:
            node.run(*node.npm, "install", "--no-package-lock", "--no-audit", "--no-fund", cwd=folder)
            stamp.write_text(wanted)
    return node


@contextmanager
def alone(lock: Path) -> Generator[None, None, None]:
    """While nobody else on this machine does the same: tests run side by side."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
