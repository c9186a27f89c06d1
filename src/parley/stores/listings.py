"""A listing of runs, in words of SQL."""

from itertools import count

from parley.engine.ports import Listing

LAST = "\x7f"
"""Behind every character of an id."""


def filters(listing: Listing, least: str = ">=", below: str = "<") -> tuple[str, list[object]]:
    """The conditions of a listing and their values; `least` and `below` compare ids by their bytes."""
    # One conversation is found by its own index. SQLite would rather walk through all runs of its owner in their order:
    # it is not given the choice.
    owned = "principal = ?" if listing.conversation is None else "principal || '' = ?"
    asked: list[tuple[str, object]] = [
        (owned, listing.principal),
        ("agent = ?", listing.agent),
        ("conversation = ?", listing.conversation),
        ("state = ?", listing.state and listing.state.value),
        ("status_at >= ?", listing.since),
        (f"run_id {least} ?", listing.prefix or None),
        (f"run_id {below} ?", listing.prefix + LAST if listing.prefix else None),
    ]
    given = [(sql, value) for sql, value in asked if value is not None]
    first = "true" if listing.principal is not None else "principal <> ''"
    return " AND ".join([first, *(sql for sql, _ in given)]), [value for _, value in given]


def paged(listing: Listing, where: str, values: list[object]) -> tuple[str, list[object]]:
    """The statement for a page of what fits the conditions, and all of its values."""
    place, order = _paging(listing)
    if listing.after is not None:
        where, values = f"{where} AND {place} (?, ?)", [*values, *listing.after]
    return f"SELECT body FROM runs WHERE {where} {order} LIMIT ?", [*values, listing.limit]


def numbered(sql: str) -> str:
    """With PostgreSQL's places for values."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{piece}" for number, piece in zip(count(1), rest, strict=False))


def _paging(listing: Listing) -> tuple[str, str]:
    """Where a page goes on, and in which order."""
    if listing.newest:
        return "(created_at, run_id) <", "ORDER BY created_at DESC, run_id DESC"
    if listing.oldest:
        return "(created_at, run_id) >", "ORDER BY created_at, run_id"
    return "(status_at, run_id) <", "ORDER BY status_at DESC, run_id DESC"
