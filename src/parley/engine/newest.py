"""Runs as people look for them: the newest first, page after page."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from parley.core.runs import WAITING, Run
from parley.engine.ports import Listing, Store

_ROUNDS = 20
"""How often more is read to fill a page of which much is left out."""


class Shelf(Struct, frozen=True):
    """A page of runs, and where the next one begins."""

    runs: list[Run]
    after: tuple[int, str] | None = None


async def newest(store: Store, listing: Listing) -> Shelf:
    asked = replace(listing, newest=True, oldest=False, counted=False, limit=listing.limit + 1)
    return _shelf((await store.list_runs(asked))[0], listing.limit)


async def waiting(store: Store, listing: Listing) -> Shelf:
    """Those that wait for a person: their agent asked something. A run that is merely open waits for its program."""
    found: list[Run] = []
    after = listing.after
    for _ in range(_ROUNDS):
        page = await _in_either(store, replace(listing, after=after))
        found += [run for run in page if not run.open]
        if len(found) > listing.limit or len(page) <= listing.limit:
            break
        after = _place(page[-1])
    return _shelf(found, listing.limit)


async def orchestrating(store: Store, listing: Listing, agents: Iterable[str]) -> Shelf:
    """Those that began orchestrations, of the agents that can plan: each agent by its index, together in order."""
    found: list[Run] = []
    horizons: list[tuple[int, str]] = []
    for agent in agents:
        after = listing.after
        for _ in range(_ROUNDS):
            page = await newest(store, replace(listing, agent=agent, after=after))
            found += [run for run in page.runs if run.orchestration == run.id]
            after = page.after
            if after is None or len(found) > listing.limit:
                break
        horizons += [after] if after is not None else []
    # What lies beyond the place to which an agent was read may not be all of it.
    horizon = max(horizons, default=None)
    runs = sorted((run for run in found if horizon is None or _place(run) >= horizon), key=_place, reverse=True)
    shelf = _shelf(runs, listing.limit)
    return shelf if shelf.after is not None else Shelf(shelf.runs, horizon)


async def _in_either(store: Store, listing: Listing) -> list[Run]:
    """In one state after the other, each by its index; together in order."""
    asked = replace(listing, newest=True, oldest=False, counted=False, limit=listing.limit + 1)
    runs = [run for state in WAITING for run in (await store.list_runs(replace(asked, state=state)))[0]]
    return sorted(runs, key=_place, reverse=True)[: listing.limit + 1]


def _shelf(runs: list[Run], limit: int) -> Shelf:
    return Shelf(runs[:limit], _place(runs[limit - 1]) if len(runs) > limit else None)


def _place(run: Run) -> tuple[int, str]:
    return run.created_at, run.id
