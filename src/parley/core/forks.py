"""A run that begins as a copy of another."""

from msgspec.structs import replace

from parley.core.access import Reach
from parley.core.artifacts import Parts, text_part
from parley.core.events import (
    ArtifactAdded,
    Canceled,
    CancelRequested,
    ChildStarted,
    Closing,
    Completed,
    Ending,
    Failed,
    Noted,
    Omitted,
    Origin,
    Payload,
    Progress,
    Rejected,
    Replied,
    Submitted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    type_of,
)
from parley.core.runs import Run, State, evolve
from parley.errors import (
    Invalid,
)
from parley.ids import RunId


def copied(
    origin: Origin, entries: tuple[Payload, ...], by: str, reach: Reach | None = None
) -> tuple[list[Payload], Run]:  # fmt: skip
    """Entry for entry, so that a number means the same in both logs up to the fork; and the state there. A fork by the
    run's owner has the rights that the owner has now; one by an administrator stays limited as the run was."""
    copy: list[Payload] = []
    run: Run | None = None
    for seq, entry in enumerate(entries, 1):
        if isinstance(entry, Submitted) and entry.principal == by:
            entry = replace(entry, reach=reach)
        copy.append(_copied(run, entry, origin))
        run = evolve(run, RunId(""), seq, 0, copy[-1])
    if run is None or run.version != origin.seq:
        raise Invalid("A fork needs the log from its beginning.", field="at")
    return copy, run


def _copied(run: Run | None, entry: Payload, origin: Origin) -> Payload:
    """What an entry is in a fork: the same; but children, tools, cancels and ends are the other run's own affair, and
    so is what its agent noted for itself: a fork must not go on with another run's work elsewhere. What the other one
    was made for it has done, or does, itself.

    The last words of a turn stay said, also where they ended the run.
    """
    match entry:
        case Submitted():
            return replace(entry, parent=None, origin=origin, assignment=None)
        case ChildStarted() | ToolCalled() | ToolReturned() | CancelRequested() | Closing() | Noted():
            return Omitted(type_of(entry))
        case Progress() | ArtifactAdded() if entry.mark:
            return replace(entry, mark="")
        case Completed() | Replied() | Failed() | Canceled() | Rejected():
            under_way = run is not None and run.state is State.WORKING
            return TurnEnded(_last_words(entry)) if under_way else Omitted(type_of(entry))
        case _:
            return entry


def _last_words(ending: Ending) -> Parts:
    if isinstance(ending, Completed | Replied):
        return ending.parts
    return (text_part(ending.reason),) if ending.reason else ()
