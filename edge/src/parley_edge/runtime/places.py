"""Paths of a profile's files, next to the profile file."""

import os
from pathlib import Path

from parley_edge.runtime.ledger import Ledger
from parley_edge.storage.files import Claim, identity


def ledger_of(folder: Path, name: str) -> Ledger:
    """The ledger of the profile's runtime."""
    return Ledger(folder / "runs" / name)


def claim_of(folder: Path, name: str) -> Claim:
    """The lock held while a runtime runs with the profile."""
    return Claim(folder / f"{name}.running")


def instance_of(folder: Path, name: str) -> str:
    """The id of the process that runs with this profile in this folder. The claim allows only one, and a copy of the
    folder has another id."""
    try:
        return identity(_instance(folder, name))
    except OSError:
        # Work also with a full disk: a random id only means that a later process cannot take over its tasks.
        return os.urandom(16).hex()


def forget(folder: Path, name: str) -> None:
    """Remove the files of a profile that no runtime uses."""
    ledger_of(folder, name).clear()
    (folder / f"{name}.running").unlink(missing_ok=True)
    _instance(folder, name).unlink(missing_ok=True)


def _instance(folder: Path, name: str) -> Path:
    return folder / f"{name}.instance"
