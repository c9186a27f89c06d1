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

from collections.abc import Awaitable, Callable, Collection, Iterable
from itertools import chain, count
from typing import Any

from msgspec.structs import replace

from parley.budgets.rules import TREE, CounterPlace, Spent, merged_spends
from parley.execution.turn_order import AgentQueue, QueueHead
from parley.ids import RunId
from parley.runs.rules.events import Event
from parley.runs.rules.state import FOLD, TERMINAL, Run, State, evolve
from parley.runs.rules.view import generation_known, snapshot_run
from parley.runs.store import Append, Head, Listing

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


# Counters of what was spent, and the turns that principals got from the queues of agents, for both databases.

Row = tuple[Any, ...]

MOST_HEADS = 100
"""Principals that are read to find the next one."""
KEEP_TURNS = 10_000
"""A principal that had none of the last turns of an agent counts as one that had none at all."""
DAY_MS = 24 * 3600 * 1000
KEEP_TREES_DAYS = 40
KEEP_PERIODS_DAYS = 400

_RAISED = """
ON CONFLICT (subject, period) DO UPDATE SET
  tokens = spending.tokens + excluded.tokens, cost = spending.cost + excluded.cost,
  runs = spending.runs + excluded.runs, at = {greatest}(spending.at, excluded.at)"""
_SERVED = """
ON CONFLICT (agent, principal) DO UPDATE SET number = {greatest}(turns_served.number, excluded.number)"""

_RAISE_SQLITE = "INSERT INTO spending (subject, period, tokens, cost, runs, at) VALUES (?, ?, ?, ?, ?, ?)" + (
    _RAISED.format(greatest="max")
)
_SERVE_SQLITE = "INSERT INTO turns_served (agent, principal, number) VALUES (?, ?, ?)" + _SERVED.format(greatest="max")
_RAISE_POSTGRES = """
INSERT INTO spending (subject, period, tokens, cost, runs, at)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])""" + (
    _RAISED.format(greatest="greatest")
)
_SERVE_POSTGRES = """
INSERT INTO turns_served (agent, principal, number) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])""" + (
    _SERVED.format(greatest="greatest")
)
_LIVE = (*(state.value for state in State if state not in TERMINAL), SLEEPING)
_UNFINISHED_OF = "SELECT " + " + ".join(
    # The state is in the SQL text, so that the partial indexes are used.
    f"(SELECT count(*) FROM (SELECT 1 FROM runs WHERE state = '{state}' AND agent = ? LIMIT ?) AS few)"
    for state in _LIVE
)
FORGET = f"""
DELETE FROM spending WHERE at < CASE WHEN period = '{TREE}' THEN cast(? AS bigint) ELSE cast(? AS bigint) END"""
FORGET_TURNS = f"""
DELETE FROM turns_served WHERE number < (
  SELECT max(number) - {KEEP_TURNS} FROM turns_served AS last WHERE last.agent = turns_served.agent)"""


def queue_sql(agent: str, without: Collection[RunId]) -> tuple[str, *tuple[object, ...]]:
    """Return the statement for the queue of an agent, and its values. It goes from one principal to the next in the
    index of waiting runs, so that its cost does not grow with the number of runs that a principal has waiting."""
    waiting = "FROM runs WHERE state = 'submitted' AND agent = ?"
    others = f" AND run_id NOT IN ({', '.join('?' * len(without))})" if without else ""
    sql = f"""
WITH RECURSIVE names (principal) AS (
  SELECT (SELECT principal {waiting} ORDER BY principal LIMIT 1)
  UNION ALL
  SELECT (SELECT principal {waiting} AND principal > names.principal ORDER BY principal LIMIT 1)
  FROM names WHERE principal IS NOT NULL
), heads AS (
  SELECT principal,
    (SELECT min(arrival) {waiting} AND runs.principal = names.principal{others}) AS first,
    (SELECT number FROM turns_served WHERE agent = ? AND turns_served.principal = names.principal) AS served
  FROM names WHERE principal IS NOT NULL
)
SELECT heads.principal, runs.run_id, heads.first, coalesce(heads.served, 0),
  coalesce((SELECT max(number) FROM turns_served WHERE agent = ?), 0)
FROM heads JOIN runs ON runs.agent = ? AND runs.state = 'submitted' AND runs.principal = heads.principal
  AND runs.arrival = heads.first
ORDER BY coalesce(heads.served, 0), heads.first LIMIT {MOST_HEADS}"""
    return sql, agent, agent, agent, *without, agent, agent, agent


def queue_of(rows: Iterable[Row]) -> AgentQueue:
    found = list(rows)
    return AgentQueue(tuple(QueueHead(*row[:4]) for row in found), found[0][4] if found else 0)


def unfinished_of(agent: str, most: int) -> tuple[str, *tuple[object, ...]]:
    """Return the statement that counts the unfinished runs of an agent, and its values."""
    return _UNFINISHED_OF, *[agent, most] * len(_LIVE)


SQLITE_LEDGER = (_RAISE_SQLITE, _SERVE_SQLITE)
POSTGRES_LEDGER = (_RAISE_POSTGRES, _SERVE_POSTGRES)


def ledger_rows(appends: Collection[Append], statements: tuple[str, str]) -> list[tuple[str, list[Row]]]:
    """Return the statements that raise the counters and the turns of a batch, each with its rows if it has any."""
    rows = (_spend_rows(appends), _served_rows(appends))
    return [(sql, found) for sql, found in zip(statements, rows, strict=True) if found]


def _spend_rows(appends: Iterable[Append]) -> list[Row]:
    spends = [one for append in appends for one in append.spends]
    if not spends:
        return []
    return [(one.subject, one.period, one.tokens, one.cost, one.runs, one.at) for one in merged_spends(spends)]


def _served_rows(appends: Iterable[Append]) -> list[Row]:
    """Return the turns of a batch, one for each principal, in the order in which rows are locked."""
    found: dict[tuple[str, str], int] = {}
    for append in appends:
        if (one := append.served) is not None:
            place = one.agent, one.principal
            found[place] = max(one.number, found.get(place, 0))
    return [(*place, found[place]) for place in sorted(found)]


def spent_of(rows: Iterable[Row]) -> dict[CounterPlace, Spent]:
    return {(row[0], row[1]): Spent(*row[2:5]) for row in rows}


def forgotten_before(now: int) -> tuple[int, int]:
    """Return the times (ms) before which counters of trees and of periods are deleted, at the time `now`."""
    return now - KEEP_TREES_DAYS * DAY_MS, now - KEEP_PERIODS_DAYS * DAY_MS


def spent_sql(places: Collection[CounterPlace]) -> tuple[str, list[str]]:
    """Return the statement that reads some counters, and its values."""
    listed = ", ".join(["(?, ?)"] * len(places))
    sql = f"SELECT subject, period, tokens, cost, runs FROM spending WHERE (subject, period) IN (VALUES {listed})"
    return sql, list(chain(*places))
