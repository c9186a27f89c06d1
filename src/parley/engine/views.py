"""Read what can be seen of a run, a page of its log at a time."""

from functools import partial

from parley.core.events import Event
from parley.core.views import STATUS_TYPES, View
from parley.engine.attachments import Attachments
from parley.engine.offload import off_loop_bytes, paced
from parley.engine.ports import Head, Readable
from parley.engine.streams import PAGE, pages

MOST_RECENT = 200
"""Messages of a history that are read from its end; for more of them the whole log is read."""
SPARE = 16
"""Events that are read beyond the messages that are asked for: some say nothing."""


async def restored_view(head: Head) -> View:
    """The view at the floor of a log; an empty one where the log is whole."""
    if not head.snapshot:
        return View()
    return await off_loop_bytes(len(head.snapshot), partial(View.restored, head.snapshot))


async def read_view(
    store: Readable, head: Head, upto: int | None = None, attachments: Attachments | None = None
) -> View:
    """The whole view, up to an event. With attachments: what was said is in place, however long it is."""
    view = await restored_view(head)
    async for page in pages(store, head.run.id, head.floor):
        events = page if upto is None or page[-1].seq <= upto else [event for event in page if event.seq <= upto]
        view.feed(await attachments.told(events) if attachments is not None else events)
        if upto is not None and page[-1].seq >= upto:
            break
    return view


async def recent_view(store: Readable, head: Head, length: int, *, artifacts: bool = True) -> View | None:
    """The view with the last `length` messages of its history, and without its artifacts where they are not wanted.
    Reads no more than these. None where the whole log must be read, or is short anyway."""
    run = head.run
    if head.floor or run.version <= PAGE or length > MOST_RECENT or run.orchestration is not None:
        return None
    latest = await store.read_last(run.id, STATUS_TYPES, length + SPARE)
    latest = [event for event in latest if event.seq <= run.version]
    view = View.recent(run, latest)
    if view is None or (len(view.history) < length and latest[0].type != "submitted"):
        return None
    del view.history[: max(0, len(view.history) - length)]
    if artifacts:
        async for page in pages(store, run.id, types=("artifact",)):
            view.add_artifacts(event for event in page if event.seq <= run.version)
    return view


async def folded(events: list[Event]) -> View:
    """The view of a whole log that is at hand."""
    view = View()
    async for some in paced(events):
        view.feed(some)
    return view
