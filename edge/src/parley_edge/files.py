"""Files that nobody else may read, written whole or not at all."""

import hashlib
import os
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from parley_edge.locks import try_lock, wait_for_lock
from parley_edge.system import WINDOWS

_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700
_BESIDE = re.compile(r"\.(.+)\.\d+\.[0-9a-f]{8}")


def make_private_folder(folder: Path) -> None:
    """Made for its owner alone; one that exists is left as it is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=_PRIVATE_FOLDER)


def write(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace `path`: readers see the old content or the new one, and after a crash there is one of them."""
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
    """An id of this very file, which is made if it is not there. A copy of it, wherever that lies, has another one."""
    with suppress(FileExistsError):
        _fill(path, os.urandom(16), durable=True)
    content, known = path.read_bytes(), path.stat()
    what = f"{known.st_dev}/{known.st_ino}/{known.st_ctime_ns}/"
    return hashlib.sha256(what.encode() + content).hexdigest()[:32]


def sweep(folder: Path, name: str = "") -> None:
    """Remove what a process left that was killed while it wrote; for one who knows that nobody else is writing."""
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
    """Windows opens no folders, and needs no such thing."""
    if WINDOWS:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path) -> Generator[None, None, None]:
    """Only one process at a time; the others wait. The file stays, so that all lock the same one."""
    handle = _open_lock(path)
    try:
        wait_for_lock(handle)
        yield
    finally:
        os.close(handle)


class Claim:
    """A lock that is held for as long as a program runs, and tells by whom."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Whether it is ours; it ends with this process, however that ends."""
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
        """The process that holds it, if one does."""
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
