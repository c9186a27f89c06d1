"""Where a profile's things lie, beside the profile file."""

from pathlib import Path

from parley_edge.files import Claim
from parley_edge.ledger import Ledger


def ledger_of(folder: Path, name: str) -> Ledger:
    """What its runtime holds."""
    return Ledger(folder / "runs" / name)


def claim_of(folder: Path, name: str) -> Claim:
    """Held while a runtime works with it."""
    return Claim(folder / f"{name}.running")
