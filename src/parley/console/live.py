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
from parley.engine.streams import Follower, read_all
from parley.faces.sse import KEEP_ALIVE_S, Chunk, frame
from parley.ids import RunId

_SILENCE: Chunk = (b"", False)


async def read_timeline(exchange: Exchange, run_id: RunId, upto: int | None = None) -> Timeline:
    """A run as it is, or as it was at an event."""
    head = await exchange.store.head(run_id)
    kept = View.restored(head.snapshot) if head and head.snapshot else None
    timeline = Timeline(kept)
    for event in await exchange.attachments.told(await read_all(exchange.store, run_id, head.floor if head else 0)):
        if upto is None or event.seq <= upto:
            timeline.feed(event)
    return timeline


async def frames(
    visit: Visit, timeline: Timeline, follower: Follower, attachments: Attachments
) -> AsyncGenerator[Chunk, None]:
    """Ends with the run. `timeline` is what the reader has seen already."""
    while timeline.run is None or not timeline.run.ended:
        events = await follower.next(KEEP_ALIVE_S)
        if not events:
            yield _SILENCE
            continue
        before = timeline.run
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
