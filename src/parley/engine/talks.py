"""Conversations as people look for them: the one in which something was begun last first, page after page."""

from msgspec import Struct
from msgspec.structs import replace

from parley.core.runs import Run
from parley.engine.newest import newest
from parley.engine.ports import Listing, Store

_BATCH = 100
_ROUNDS = 10
"""How much is read to fill a page: a conversation of many runs takes the place of as many others."""


class Talk(Struct, frozen=True):
    """A conversation by the run that was begun last in it."""

    principal: str
    conversation: str
    latest: Run


class Talks(Struct, frozen=True):
    talks: list[Talk]
    after: tuple[int, str] | None = None


async def recent_talks(store: Store, listing: Listing) -> Talks:
    """Each is on one page only, at its newest run. There is no table of conversations to read: they are what their
    runs say, whichever face these came by."""
    found: dict[tuple[str, str], Talk] = {}
    after = listing.after
    for _ in range(_ROUNDS):
        shelf = await newest(store, replace(listing, after=after, limit=_BATCH))
        for run in shelf.runs:
            if len(found) == listing.limit:
                return Talks(list(found.values()), after)
            after = run.created_at, run.id
            key = run.principal, run.conversation
            if key not in found and await _is_newest(store, run, known=listing.after is None):
                found[key] = Talk(*key, run)
        if shelf.after is None:
            return Talks(list(found.values()))
    return Talks(list(found.values()), after)


async def _is_newest(store: Store, run: Run, *, known: bool) -> bool:
    """On the first page the first that is met is the newest; later a page before may have shown it."""
    if run.gone or run.parent is not None:
        return False
    if known:
        return True
    asked = Listing(run.principal, conversation=run.conversation, limit=20)
    latest = [one for one in (await newest(store, asked)).runs if one.parent is None]
    return not latest or latest[0].id == run.id
