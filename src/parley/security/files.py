"""File modes of stored data: files and folders that only their owner can read."""

import os
from contextlib import suppress
from pathlib import Path

OTHERS = 0o077
"""Permission bits of the group and of all other users."""


def make_private_folder(path: Path) -> None:
    """Create a folder of mode 0700, and missing folders above it.

    An existing folder is not changed: its mode may be the operator's choice.
    """
    if not path.exists():
        # Not `parents=True`, which gives the folders above the default mode.
        make_private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Create an empty file of mode 0600 if there is none, and restrict an existing one.

    An existing file is not opened: closing it would drop the locks that this process has on a database.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        restrict(path)


def restrict(*paths: Path) -> None:
    """Remove the permissions of other users on files and folders that Parley made. Files of another owner cannot be
    changed."""
    for path in paths:
        with suppress(FileNotFoundError, PermissionError):
            mode = path.stat().st_mode
            if mode & OTHERS:
                path.chmod(mode & 0o700)
