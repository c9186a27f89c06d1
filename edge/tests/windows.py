"""`a2a-runtime` in a process that has what Python has on Windows, and nothing else: `python -m edge.tests.windows …`.

The loop, sockets and files stay those of this system. What is not there on Windows is taken away before the program is
imported: `fcntl`, SIGHUP, SIGKILL, process groups, O_CLOEXEC, signal handlers of the loop, opening a folder. `msvcrt`
is there instead, with the same lock on a range of bytes.
"""

import asyncio
import errno
import fcntl
import importlib
import os
import pkgutil
import signal
import sys
import types
from pathlib import Path
from typing import Any

NOT_THERE = ((signal, "SIGHUP"), (signal, "SIGKILL"), (os, "killpg"), (os, "O_CLOEXEC"), (os, "getuid"))


def locking(handle: int, mode: int, size: int) -> None:
    """As there: from the current place on, for this process alone; others cannot read it either."""
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, size, 0, os.SEEK_CUR)
    except OSError:
        raise OSError(errno.EACCES, "Permission denied") from None


def opened(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
    if Path(path).is_dir():
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return _open(path, flags, mode, **more)


def no_handlers(*_: Any) -> None:
    raise NotImplementedError


_open = os.open


def become_windows() -> None:
    for name in ("email.utils", "h11", "shlex", "ssl", "subprocess", "urllib.parse"):
        # What is not ours is loaded before, as this system has it.
        importlib.import_module(name)
    msvcrt = types.ModuleType("msvcrt")
    msvcrt.locking, msvcrt.LK_NBLCK = locking, 2  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = msvcrt
    sys.modules["fcntl"] = None  # type: ignore[assignment]
    kept = {name: getattr(place, name) for place, name in NOT_THERE if place is signal}
    for place, name in NOT_THERE:
        delattr(place, name)
    os.open = opened  # type: ignore[assignment]
    asyncio.SelectorEventLoop.add_signal_handler = no_handlers  # type: ignore[assignment,method-assign]
    before, sys.platform = sys.platform, "win32"
    try:
        package = importlib.import_module("parley_edge")
        for module in pkgutil.walk_packages(package.__path__, "parley_edge."):
            if module.name != "parley_edge.__main__":
                importlib.import_module(module.name)
    finally:
        sys.platform = before
        # What `subprocess` of this system needs to end a program.
        signal.SIGKILL = kept["SIGKILL"]  # type: ignore[misc]
    assert not any(hasattr(place, name) for place, name in NOT_THERE if name != "SIGKILL")


if __name__ == "__main__":
    become_windows()
    from parley_edge.cli import main

    sys.exit(main())
