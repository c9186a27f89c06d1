"""Where a profile's things lie, beside the profile file."""

import os
from pathlib import Path

from parley_edge.files import Claim, identity
from parley_edge.ledger import Ledger


def ledger_of(folder: Path, name: str) -> Ledger:
    """What its runtime holds."""
    return Ledger(folder / "runs" / name)


def claim_of(folder: Path, name: str) -> Claim:
    """Held while a runtime works with it."""
    return Claim(folder / f"{name}.running")


def instance_of(folder: Path, name: str) -> str:
    """The id of the one process that works with this profile in this place: the claim lets no other one do so, and a
    copy of the folder has another id."""
    try:
        return identity(_instance(folder, name))
    except OSError:
        # A disk that is full is no reason not to work: what it claims is its own, and not its successor's.
        return os.urandom(16).hex()


def forget(folder: Path, name: str) -> None:
    """Remove what was kept for a profile that nobody works with."""
    ledger_of(folder, name).clear()
    (folder / f"{name}.running").unlink(missing_ok=True)
    _instance(folder, name).unlink(missing_ok=True)


def _instance(folder: Path, name: str) -> Path:
    return folder / f"{name}.instance"
