"""A listing of runs, in words of SQL.

Each is answered by the index that finds the fewest runs, and no planner is given another choice: SQLite does not know
how many rows have a value, and both databases like an index in the order of the listing, however many runs it walks
through. So every other column is compared as an expression (`agent || ''`), for which there is no index.

| listing | index | then |
|---|---|---|
| of a conversation | `runs_begun` | sorted: a conversation is short |
| of ids that begin with 8 characters or more | the primary key (PostgreSQL: `runs_named`) | sorted |
| by status, of a principal | `runs_listed` | in order; agent and state are in the index too |
| by status, of everybody (administrators) | `runs_listed`, all of it | sorted, without a look at the runs themselves |
| by creation | the `runs_newest…` for its principal, agent and state | in order |
"""

from itertools import count

from parley.engine.ports import Listing

LAST = "\x7f"
"""Behind every character of an id."""
SELECTIVE = 8
"""As many characters of an id as leave few runs: ids begin with the time."""


def filters(listing: Listing, least: str = ">=", below: str = "<") -> tuple[str, list[object]]:
    """The conditions of a listing and their values; `least` and `below` compare ids by their bytes."""
    named = len(listing.prefix) >= SELECTIVE
    alone = listing.conversation is not None or named
    by_status = not (listing.newest or listing.oldest)
    principal, id_ = _hidden("principal", alone), _hidden("run_id", not named)
    agent, state = _hidden("agent", alone or by_status), _hidden("state", alone or by_status)
    asked: list[tuple[str, object]] = [
        (f"{principal} = ?", listing.principal),
        (f"{agent} = ?", listing.agent),
        (f"{_hidden('conversation', named)} = ?", listing.conversation),
        (f"{state} = ?", listing.state and listing.state.value),
        ("status_at >= ?", listing.since),
        (f"{id_} {least} ?", listing.prefix or None),
        (f"{id_} {below} ?", listing.prefix + LAST if listing.prefix else None),
    ]
    given = [(sql, value) for sql, value in asked if value is not None]
    first = "true" if listing.principal is not None else f"{principal} > ''"
    return " AND ".join([first, *(sql for sql, _ in given)]), [value for _, value in given]


def _hidden(column: str, hidden: bool) -> str:
    return f"{column} || ''" if hidden else column


def paged(listing: Listing, where: str, values: list[object]) -> tuple[str, list[object]]:
    """The statement for a page of what fits the conditions, and all of its values. Ids first, from the index alone:
    only the runs of the page are read."""
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
    """With PostgreSQL's places for values."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{piece}" for number, piece in zip(count(1), rest, strict=False))
