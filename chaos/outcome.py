"""What came of a run."""

from msgspec import Struct

from chaos.checking import Log, Violation
from chaos.history import History


class Outcome(Struct):
    seed: int
    seconds: float
    history: History
    logs: dict[str, Log]
    violations: list[Violation]
    rest_s: float
    """How long it took until all had come to its end."""
