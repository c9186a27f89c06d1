"""Private files (readable by their owner only), atomic writes, and locks between processes."""

import hashlib
import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from parley_edge.system import WINDOWS

_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700
_BESIDE = re.compile(r"\.(.+)\.\d+\.[0-9a-f]{8}")


def make_private_folder(folder: Path) -> None:
    """Create a folder that only its owner can read; an existing folder is not changed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=_PRIVATE_FOLDER)


def write(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file atomically: readers, also after a crash, see either the old or the new content."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        _fill(beside, content, durable=durable)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    if durable:
        _sync_folder(path.parent)


def identity(path: Path) -> str:
    """An id of this file, which is created if it is missing. A copy of the file has another id."""
    with suppress(FileExistsError):
        _fill(path, os.urandom(16), durable=True)
    content, known = path.read_bytes(), path.stat()
    what = f"{known.st_dev}/{known.st_ino}/{known.st_ctime_ns}/"
    return hashlib.sha256(what.encode() + content).hexdigest()[:32]


def sweep(folder: Path, name: str = "") -> None:
    """Remove temporary files of processes killed while writing. Call it only while no other process writes."""
    for path in folder.iterdir():
        left = _BESIDE.fullmatch(path.name)
        if left is not None and name in ("", left[1]):
            path.unlink(missing_ok=True)


def _fill(path: Path, content: bytes, *, durable: bool) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE), "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Flush a folder to disk. Windows cannot open folders and does not need it."""
    if WINDOWS:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path) -> Generator[None, None, None]:
    """Hold a lock; other processes wait. The file is never deleted, so that all processes lock the same one."""
    handle = _open_lock(path)
    try:
        wait_for_lock(handle)
        yield
    finally:
        os.close(handle)


class Claim:
    """A lock held while a program runs; the file contains the holder's pid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Take the lock; False if another process holds it. The system releases it when this process ends."""
        handle = _open_lock(self._path)
        if not try_lock(handle):
            os.close(handle)
            return False
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        self._handle = handle
        return True

    def release(self) -> None:
        if self._handle is not None:
            os.truncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None

    def holder(self) -> int | None:
        """The pid of the holder (0 if unknown); None if the lock is free."""
        if not self._path.exists():
            return None
        probe = Claim(self._path)
        pid = self._path.read_text().strip()
        if probe.take():
            probe.release()
            return None
        return int(pid) if pid.isdigit() else 0


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), _PRIVATE_FILE)


# File locks between processes: `flock`, or on Windows a lock on a byte far behind the content.

if sys.platform == "win32":
    import msvcrt
    import time

    _PLACE = 1 << 30
    """Offset of the locked byte: on Windows others cannot read a locked range, so the pid must be outside of it."""
    _LOOK_S = 0.05

    def try_lock(handle: int) -> bool:
        """Lock the file; False if it is locked. The lock ends when the handle is closed or the process ends."""
        os.lseek(handle, _PLACE, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
        return True

    def wait_for_lock(handle: int) -> None:
        while not try_lock(handle):
            time.sleep(_LOOK_S)

else:
    import fcntl

    def try_lock(handle: int) -> bool:
        """Lock the file; False if it is locked. The lock ends when the handle is closed or the process ends."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait_for_lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX)
