"""Listings of runs, as SQL.

Each listing uses the index that finds the fewest runs, and the planner has no other choice: SQLite does not know how
many rows have a value, and both databases prefer an index in the order of the listing, however many runs it has to walk
through. So every other column is compared as an expression (`agent || ''`), for which there is no index.

| listing | index | then |
|---|---|---|
| of a conversation | `runs_begun` | sorted: a conversation is short |
| of ids that begin with 8 characters or more | the primary key (PostgreSQL: `runs_named`) | sorted |
| by status, of a principal | `runs_listed` | in order; agent and state are in the index too |
| by status, of all principals (administrators) | `runs_listed`, all of it | sorted, without reading the runs |
| by creation | the `runs_newest…` for its principal, agent and state | in order |
"""

from collections.abc import Awaitable, Callable
from itertools import count

from msgspec.structs import replace

from parley.ids import RunId
from parley.runs.rules.events import Event
from parley.runs.rules.state import FOLD, Run, State, evolve
from parley.runs.rules.view import generation_known, snapshot_run
from parley.runs.store import Head, Listing

LAST = "\x7f"
"""Sorts after every character of an id."""
SLEEPING = "sleeping"
"""Value of the column `state` for a suspended run, so that no replica takes it for one that waits in the queue. Its
column `owner` then holds the time at which it is woken."""
SELECTIVE = 8
"""Length of an id prefix that leaves few runs: ids begin with the time."""


def state_column(run: Run) -> str:
    return SLEEPING if run.due else run.state.value


def owner_column(run: Run) -> str:
    return wake_time(run.due) if run.due else run.owner


def wake_time(due: int) -> str:
    """Return a time (ms) as text of a fixed length, which sorts by time."""
    return f"{due:015d}"


def filters(listing: Listing, least: str = ">=", below: str = "<") -> tuple[str, list[object]]:
    """Return the conditions of a listing and their values; `least` and `below` compare ids by their bytes."""
    named = len(listing.prefix) >= SELECTIVE
    alone = listing.conversation is not None or named
    by_status = not (listing.newest or listing.oldest)
    principal, id_ = _hidden("principal", alone), _hidden("run_id", not named)
    created = "created_at + 0" if named or by_status else "created_at"
    agent, state = _hidden("agent", alone or by_status), _hidden("state", alone or by_status)
    asked: list[tuple[str, object]] = [
        (f"{principal} = ?", listing.principal),
        (f"{agent} = ?", listing.agent),
        (f"{_hidden('conversation', named)} = ?", listing.conversation),
        (f"{state} {_states(listing.state)}", listing.state and listing.state.value),
        ("status_at >= ?", listing.since),
        (f"{created} >= ?", listing.created_from),
        (f"{created} < ?", listing.created_before),
        (f"{id_} {least} ?", listing.prefix or None),
        (f"{id_} {below} ?", listing.prefix + LAST if listing.prefix else None),
    ]
    given = [(sql, value) for sql, value in asked if value is not None]
    first = "true" if listing.principal is not None else f"{principal} > ''"
    return " AND ".join([first, *(sql for sql, _ in given)]), [value for _, value in given]


def _states(state: State | None) -> str:
    """Return the condition for a state. Suspended runs are submitted too."""
    return f"IN (?, '{SLEEPING}')" if state is State.SUBMITTED else "= ?"


def _hidden(column: str, hidden: bool) -> str:
    return f"{column} || ''" if hidden else column


def paged(listing: Listing, where: str, values: list[object]) -> tuple[str, list[object]]:
    """Return the statement for one page that matches the conditions, and all of its values. Ids come first, from the
    index alone, so that only the runs of the page are read."""
    column, order = ("created_at", "") if listing.oldest else ("created_at", " DESC")
    if not (listing.newest or listing.oldest):
        column = "status_at"
    place = f"{column} + 0" if len(listing.prefix) >= SELECTIVE else column
    sorting = f"ORDER BY {place}{order}, run_id{order}"
    if listing.after is not None:
        where = f"{where} AND ({place}, run_id) {'<' if order else '>'} (?, ?)"
        values = [*values, *listing.after]
    ids = f"SELECT run_id FROM runs WHERE {where} {sorting} LIMIT ?"
    return f"SELECT body FROM runs WHERE run_id IN ({ids}) {sorting}", [*values, listing.limit]


def numbered(sql: str) -> str:
    """Return the SQL with PostgreSQL's parameters."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{piece}" for number, piece in zip(count(1), rest, strict=False))


# A row is a fold of its log, by the rules of the process that wrote it last.

PAGE = 1000

Read = Callable[[RunId, int, int], Awaitable[list[Event]]]


# Why: docs/decisions/runs.md#fold-a-row-again-when-other-rules-wrote-it
async def refolded(head: Head, read: Read) -> Head:
    """Fold the log again if an older process wrote the row, which then has less than its log; only if the log is still
    complete. Otherwise only the generation is added."""
    if head.run.fold == FOLD:
        return head
    if head.floor:
        return await _with_generation(head, read)
    run: Run | None = None
    while run is None or run.version < head.run.version:
        seq = run.version if run is not None else 0
        events = await read(head.run.id, seq, min(PAGE, head.run.version - seq))
        for event in events:
            if event.payload is None:
                return replace(head, run=generation_known(head.run))
            run = evolve(run, event.run, event.seq, event.at, event.payload)
        if not events:
            return replace(head, run=generation_known(head.run))
    return replace(head, run=run)


async def _with_generation(head: Head, read: Read) -> Head:
    """Take the generation of an ended run from its snapshot and the few events that may be left after it."""
    if not head.snapshot:
        return replace(head, run=generation_known(head.run))
    run = snapshot_run(head.snapshot)
    for event in await read(run.id, head.floor, PAGE):
        if event.payload is not None:
            run = evolve(run, event.run, event.seq, event.at, event.payload)
    return replace(head, run=replace(head.run, generation=run.generation))
