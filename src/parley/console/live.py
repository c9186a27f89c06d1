"""A run's timeline while it grows: each frame has the number of its last event, and says what to change on the page."""

from collections.abc import AsyncGenerator
from functools import partial

import msgspec

from parley.console.rendering import plain
from parley.console.timeline import Change, Timeline
from parley.console.visits import Visit
from parley.console.workers import off_loop
from parley.core.events import Event
from parley.core.runs import Run
from parley.core.views import View
from parley.engine.attachments import Attachments
from parley.engine.exchange import Exchange
from parley.engine.streams import Follower, pages
from parley.faces.sse import KEEP_ALIVE_S, Chunk, frame
from parley.ids import RunId

WINDOW = 1000
"""Events of a run that are read for a page. Of a run that has more, a page shows the entries of so many."""
_SILENCE: Chunk = (b"", False)


async def read_timeline(exchange: Exchange, run_id: RunId, upto: int | None = None) -> Timeline:
    """A run as it is, or as it was at an event; of a long one only the events before that."""
    head = await exchange.store.head(run_id)
    floor, version = (head.floor, head.run.version) if head else (0, 0)
    start = (version if upto is None else min(upto, version)) - WINDOW
    if head is not None and start > floor:
        timeline = Timeline(run=head.run, start=start)
    else:
        timeline = Timeline(View.restored(head.snapshot) if head and head.snapshot else None, start=floor)
    # By the page, which leaves the event loop to others in between.
    async for page in pages(exchange.store, run_id, timeline.start):
        for event in await exchange.attachments.told(page):
            if upto is None or event.seq <= upto:
                timeline.feed(event)
        if upto is not None and page[-1].seq >= upto:
            break
    return timeline


async def read_earlier(exchange: Exchange, run: Run, before: int) -> Timeline:
    """A run with the entries before an event; of a short one with all that has become of them since."""
    if run.version <= WINDOW:
        return await read_timeline(exchange, run.id)
    timeline = await read_timeline(exchange, run.id, before - 1)
    timeline.cut_off()
    return timeline


async def frames(
    visit: Visit, timeline: Timeline, follower: Follower, attachments: Attachments
) -> AsyncGenerator[Chunk, None]:
    """Ends with the run. `timeline` is what the reader has seen already."""
    while timeline.run is None or not timeline.run.ended or timeline.is_behind:
        events = await follower.next(KEEP_ALIVE_S)
        if not events:
            yield _SILENCE
            continue
        before = None if timeline.is_behind else timeline.run
        changes = [change for event in await attachments.told(events) for change in timeline.feed(event)]
        make = partial(_frame, visit, events, changes, before, timeline.run)
        yield (make() if all(change.grown is not None for change in changes) else await off_loop(make)), False
    yield b"event: end\ndata: {}\n\n", True


def _frame(visit: Visit, events: list[Event], changes: list[Change], before: Run | None, run: Run | None) -> bytes:
    told: dict[str, object] = {"changes": [_told(visit, events[0].run, change) for change in _joined(changes)]}
    if run is not None and (before is None or _shown(before) != _shown(run)):
        told |= {"state": run.state.value, "panel": visit.piece("_panel.html", run=run, place=None)}
    return frame(events[-1].seq, msgspec.json.encode(told))


def _shown(run: Run) -> tuple[object, ...]:
    """Whatever the panel of a run depends on."""
    return run.state, run.cancel_requested, run.closing


def _joined(changes: list[Change]) -> list[Change]:
    """Of one entry what it has become last, unless it has only grown; in the order in which entries came."""
    found: dict[str, Change] = {}
    for change in changes:
        before = found.get(change.entry.key)
        if before is None or before.grown is None or change.grown is None:
            whole = before is not None and before.grown is None
            found[change.entry.key] = Change(change.entry) if whole else change
        else:
            found[change.entry.key] = Change(change.entry, before.grown + change.grown)
    return list(found.values())


def _told(visit: Visit, run_id: str, change: Change) -> dict[str, str]:
    key = change.entry.key
    if change.grown is not None:
        return {"key": key, "grow": plain(change.grown)}
    return {"key": key, "html": visit.piece("_entry.html", entry=change.entry, run_id=run_id)}
