"""Reading views of runs, one page of the log at a time."""

from collections import OrderedDict
from functools import partial

from msgspec import Struct

from parley.ids import RunId
from parley.offload import off_loop_bytes, paced
from parley.runs.attachments import Attachments
from parley.runs.rules.answers import Expected
from parley.runs.rules.events import ENDINGS, Event, InputRequired
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import STATUS_TYPES, View
from parley.runs.store import Head, Readable, Store
from parley.runs.streams import PAGE, pages, read_all

MOST_RECENT = 200
"""Maximum number of messages that are read from the end of a history; for more, the whole log is read."""
NEW = 3
"""Most events with which a run begins, unless it is a fork: none of them is an artifact."""
SPARE = 16
"""Number of events read in addition to the requested messages, because some events contain no message."""


async def restored_view(head: Head) -> View:
    """Return the view at the floor of a log; an empty view if no events were deleted."""
    if not head.snapshot:
        return View()
    return await off_loop_bytes(len(head.snapshot), partial(View.restored, head.snapshot))


async def read_view(
    store: Readable, head: Head, upto: int | None = None, attachments: Attachments | None = None
) -> View:
    """Return the whole view, up to an event. With attachments, all message texts are loaded, however long they are."""
    view = await restored_view(head)
    async for page in pages(store, head.run.id, head.floor):
        events = page if upto is None or page[-1].seq <= upto else [event for event in page if event.seq <= upto]
        view.feed(await attachments.told(events) if attachments is not None else events)
        if upto is not None and page[-1].seq >= upto:
            break
    return view


async def recent_view(store: Readable, head: Head, length: int, *, artifacts: bool = True) -> View | None:
    """Return the view with the last `length` messages of its history, and with its artifacts if wanted. Reads only
    these. None if the whole log must be read, or is short anyway."""
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


async def folded(events: list[Event], run: Run | None = None) -> View:
    """Return the view of a complete log that is in memory. `run` is the run after it, if it is known: then the few
    events of a new run need no fold."""
    if run is not None and len(events) <= NEW and run.origin is None and run.orchestration is None:
        recent = View.recent(run, events)
        if recent is not None:
            return recent
    view = View()
    async for some in paced(events):
        view.feed(some)
    return view


# Cached logs of runs that had a turn here recently: the next turn reads only the new events.

MOST_BYTES = 16 * 1024 * 1024
_EACH = 600
"""Memory of an event in bytes, in addition to its body."""


class _Log(Struct):
    events: list[Event]
    size: int = 0
    view: View | None = None
    viewed: int = 0
    """The version of the view."""

    @property
    def version(self) -> int:
        return self.events[-1].seq if self.events else 0

    def add(self, events: list[Event]) -> int:
        """Append events. Return their size."""
        more = sum(_EACH + len(event.body or b"") for event in events)
        self.events += events
        self.size += more
        return more

    def take_view(self) -> tuple[View, int]:
        """Take out the view of the log, or an empty one, and its version."""
        view, self.view = self.view, None
        return (View(), 0) if view is None else (view, self.viewed)

    def keep_view(self, view: View, version: int) -> None:
        self.view, self.viewed = view, version


# Why: docs/decisions/runs.md#cache-the-logs-of-active-runs-up-to-16-mib
class RecentLogs:
    """Cache of logs. Entries never become wrong, because a log only grows. The least recently used are dropped
    first."""

    def __init__(self, store: Store, most: int = MOST_BYTES) -> None:
        self._store = store
        self._most = most
        self._logs: OrderedDict[RunId, _Log] = OrderedDict()
        self.size = 0

    async def read(self, run_id: RunId, version: int) -> list[Event]:
        """Return a run's events, at least up to this version, for one turn."""
        log = self._taken(run_id) or _Log([])
        if log.version < version:
            log.add(await read_all(self._store, run_id, log.version))
        self._keep(run_id, log)
        return list(log.events)

    async def view(self, run_id: RunId, events: list[Event]) -> View:
        """Return the view of the events that `read` returned. The next turn's view is made from it."""
        log = self._logs.get(run_id)
        if log is None or log.viewed > events[-1].seq:
            return await folded(events)
        # Taken out meanwhile: a view that was fed in part must not be used again.
        view, after = log.take_view()
        async for some in paced(events[max(0, after + 1 - events[0].seq) :]):
            view.feed(some)
        log.keep_view(view, events[-1].seq)
        return view

    def last(self, run: Run, type: str) -> Event | None:
        """Return the last event of a type, if the log is cached up to the version of the run."""
        log = self._logs.get(run.id)
        if log is None or log.version < run.version:
            return None
        return next((event for event in reversed(log.events) if event.seq <= run.version and event.type == type), None)

    def heard(self, run_id: RunId, events: list[Event]) -> None:
        """Add events that were just appended here. The log of a run that has ended is dropped, because no turn needs
        it."""
        log = self._logs.get(run_id)
        if log is None:
            return
        if events[-1].type in ENDINGS:
            self._taken(run_id)
        elif events[0].seq == log.version + 1:
            self.size += log.add(events)
            self._shrink()

    def _keep(self, run_id: RunId, log: _Log) -> None:
        self._taken(run_id)
        self._logs[run_id] = log
        self.size += log.size
        self._shrink()

    def _shrink(self) -> None:
        while self.size > self._most:
            self._taken(next(iter(self._logs)))

    def _taken(self, run_id: RunId) -> _Log | None:
        log = self._logs.pop(run_id, None)
        self.size -= log.size if log else 0
        return log


async def expected_answer(store: Store, logs: RecentLogs, run: Run) -> Expected | None:
    """Return the answer that a run's open question expects; None if every answer will do."""
    if run.state is not State.INPUT_REQUIRED or not run.turns:
        return None
    asked = logs.last(run, "input_required")
    if asked is None:
        asked = next(iter(await store.read_last(run.id, ("input_required",), 1)), None)
    payload = asked.payload if asked else None
    return payload.expects if isinstance(payload, InputRequired) else None
