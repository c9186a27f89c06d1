"""Outcome of a chaos run."""

from msgspec import Struct

from dev.chaos.checking import Log, Violation
from dev.chaos.history import History


class Outcome(Struct):
    seed: int
    seconds: float
    history: History
    logs: dict[str, Log]
    violations: list[Violation]
    rest_s: float
    """Time until all tasks had ended."""
