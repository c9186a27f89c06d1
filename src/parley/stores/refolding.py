"""A row is a fold of its log, by the rules of whoever wrote it last."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from parley.core.events import Event
from parley.core.runs import FOLD, Run, evolve
from parley.engine.ports import Head
from parley.ids import RunId

PAGE = 1000

Read = Callable[[RunId, int, int], Awaitable[list[Event]]]


async def refolded(head: Head, read: Read) -> Head:
    """What an older process wrote tells less than its log does: that is folded again, where it still is whole."""
    if head.run.fold == FOLD or head.floor:
        return head
    run: Run | None = None
    while run is None or run.version < head.run.version:
        seq = run.version if run is not None else 0
        events = await read(head.run.id, seq, min(PAGE, head.run.version - seq))
        for event in events:
            if event.payload is None:
                return head
            run = evolve(run, event.run, event.seq, event.at, event.payload)
        if not events:
            return head
    return replace(head, run=run)
