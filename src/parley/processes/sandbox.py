"""Bubblewrap: runs a program with its own file system and namespaces.

The program sees the system's programs and libraries and the Python that runs the server, all read-only, an empty /tmp,
and the named folders. It has no network and sees no other process.
"""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from msgspec import Struct

PROBE_S = 10.0
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/etc/alternatives",
    "/etc/ld.so.cache", "/etc/ssl", "/etc/localtime",
)  # fmt: skip
_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ca-certificates", "/etc/pki")


class Sandbox(Struct, frozen=True):
    """Absolute paths that a program may see in addition to the system."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Folders that appear empty although a folder above them can be read; folders of `write` inside them stay
    visible."""
    network: bool = False


class Bubblewrap(Struct, frozen=True):
    """The program `bwrap` on this machine. `reason` says why it cannot be used; empty if it can."""

    path: str = ""
    proc: bool = True
    """True if its own /proc can be mounted: containers often forbid that."""
    reason: str = ""


@cache
def bubblewrap() -> Bubblewrap:
    """Find bubblewrap and try it once per process. It starts a program: do not call it on the event loop."""
    path = shutil.which("bwrap")
    if path is None:
        return Bubblewrap(reason="the program bwrap is not installed")
    reason = ""
    for proc in (True, False):
        found = Bubblewrap(path, proc)
        reason = _failure(sandboxed(found, Sandbox(), (sys.executable, "-I", "-S", "-c", ""), "/"))
        if not reason:
            return found
    return Bubblewrap(path, reason=reason)


def sandboxed(found: Bubblewrap, sandbox: Sandbox, run: tuple[str, ...], cwd: str) -> tuple[str, ...]:
    """Return the command that runs a program in a sandbox; raise OSError if bubblewrap does not work."""
    if found.reason:
        raise OSError(f"bubblewrap cannot be used: {found.reason}")
    return (
        found.path,
        "--die-with-parent",
        "--unshare-all",
        *(("--share-net",) if sandbox.network else ()),
        *_system(sandbox),
        "--dev",
        "/dev",
        *(("--proc", "/proc") if found.proc else ()),
        "--tmpfs",
        "/tmp",
        *_bound("--ro-bind", (*_python(), *_program(run[0]), *sandbox.read)),
        *(word for folder in sandbox.hidden if Path(folder).is_dir() for word in ("--tmpfs", folder)),
        *_bound("--bind", sandbox.write),
        "--chdir",
        cwd,
        "--",
        *run,
    )


def _system(sandbox: Sandbox) -> list[str]:
    words: list[str] = []
    for name in (*_SYSTEM, *(_NETWORK if sandbox.network else ())):
        path = Path(name)
        if path.is_symlink() and path.parent == Path("/"):
            words += ["--symlink", str(path.readlink()), name]
        elif path.exists():
            words += ["--ro-bind", name, name]
    return words


def _python() -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in (sys.base_prefix, sys.prefix) if not one.startswith("/usr")))


def _program(path: str) -> tuple[str, ...]:
    inside = ("/usr/", "/bin/", "/sbin/", f"{sys.prefix}/")
    return () if path.startswith(inside) else (path,)


def _bound(how: str, paths: tuple[str, ...]) -> list[str]:
    """Return mount options, outer folders first, so that they do not cover inner ones."""
    return [word for path in sorted(set(paths), key=len) for word in (how, path, path)]


def _failure(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROBE_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.decode(errors="replace").strip()
    return "" if done.returncode == 0 else said[-300:] or f"bwrap ended with exit code {done.returncode}"
