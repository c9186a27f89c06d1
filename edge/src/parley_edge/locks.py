"""Locks on files between processes, on every system: `flock`, or on Windows a lock on a byte far behind the content."""

import sys

__all__ = ["try_lock", "wait_for_lock"]

if sys.platform == "win32":
    import msvcrt
    import os
    import time

    _PLACE = 1 << 30
    """Windows keeps others from reading what is locked, so what the file says must lie elsewhere."""
    _LOOK_S = 0.05

    def try_lock(handle: int) -> bool:
        """Whether the file is ours now; it is until the handle is closed or the process ends."""
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
        """Whether the file is ours now; it is until the handle is closed or the process ends."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait_for_lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX)
