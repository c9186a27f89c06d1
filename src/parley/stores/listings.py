"""A listing of runs, in words of SQL."""

from parley.engine.ports import Listing


def filters(listing: Listing) -> tuple[str, list[object]]:
    """The conditions of a listing and their values."""
    asked: list[tuple[str, object]] = [
        ("principal = ?", listing.principal),
        ("agent = ?", listing.agent),
        ("conversation = ?", listing.conversation),
        ("state = ?", listing.state and listing.state.value),
        ("status_at >= ?", listing.since),
    ]
    given = [(sql, value) for sql, value in asked if value is not None]
    first = "1" if listing.principal is not None else "principal <> ''"
    return " AND ".join([first, *(sql for sql, _ in given)]), [value for _, value in given]


def paging(listing: Listing) -> tuple[str, str]:
    """Where a page goes on, and in which order."""
    if listing.oldest:
        return "(created_at, run_id) >", "ORDER BY created_at, run_id"
    return "(status_at, run_id) <", "ORDER BY status_at DESC, run_id DESC"
