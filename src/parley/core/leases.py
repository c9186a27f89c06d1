"""A turn that is done elsewhere: who holds it, and how it stands."""

from typing import Literal

from msgspec import Struct

from parley.core.runs import Run, State
from parley.ids import RunId

Standing = Literal["held", "canceled", "lost", "over"]
"""`canceled`: still held or not, it is to be stopped. `lost`: taken away. `over`: its holder has ended the turn."""


class Lease(Struct, frozen=True):
    """One claim of a run's turn. The epoch is the claim's: whoever reports under another one is not heard."""

    owner: str
    run: RunId
    epoch: int
    instance: str = ""
    """The process of the owner that speaks, where it says which; only the process that claimed the turn is heard."""


def standing(run: Run | None, owner: str, epoch: int | None = None) -> Standing:
    """How a claim stands, as the log has it; without an epoch, any claim of this owner.

    A turn that its holder has just ended is not lost: whoever asks in that moment must not be told so.
    """
    if run is None or epoch not in (None, run.epoch):
        return "lost"
    match run.state:
        case State.WORKING if run.owner == owner:
            return "canceled" if run.cancel_requested else "held"
        case State.CANCELED:
            return "canceled"
        case State.SUBMITTED if not run.resuming:
            return "over"
        case State.COMPLETED | State.INPUT_REQUIRED | State.AUTH_REQUIRED:
            return "over"
        case _:
            return "lost"


def last_claim(run: Run, owner: str, instance: str = "") -> Lease | None:
    """The claim that a report of `owner` is about when it names no lease: the one it holds, or the one that has ended.

    None while nobody can have claimed the run, or somebody else holds it.
    """
    waiting = run.epoch == 0 or (run.state is State.SUBMITTED and run.resuming)
    if waiting or (run.state is State.WORKING and run.owner != owner):
        return None
    return Lease(owner, run.id, run.epoch, instance)


def time_left(run: Run, timeout_s: float | None) -> int | None:
    """How long (ms) the run's next turn may take, if its agent's time is limited."""
    return None if timeout_s is None else max(0, int(timeout_s * 1000) - run.spent_ms)
