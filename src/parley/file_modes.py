"""Modes of what is stored on this machine: files and folders that only their owner can read."""

import os
from contextlib import suppress
from pathlib import Path

OTHERS = 0o077
"""Bits of the group and of everybody else."""


def make_private_folder(path: Path) -> None:
    """Create a folder of mode 0700, and those above it, where there is none.

    A folder that is there stays as it is: its mode may be the operator's choice.
    """
    if not path.exists():
        # Not `parents=True`: that gives the folders above the usual mode.
        make_private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Create an empty file of mode 0600 if there is none, and restrict one that is there.

    One that is there is not opened: to close it would drop the locks that this process has on a database.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        restrict(path)


def restrict(*paths: Path) -> None:
    """Take from others the rights on files and folders that Parley made; those of another user cannot be changed."""
    for path in paths:
        with suppress(FileNotFoundError, PermissionError):
            mode = path.stat().st_mode
            if mode & OTHERS:
                path.chmod(mode & 0o700)
