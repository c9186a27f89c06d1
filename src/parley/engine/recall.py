"""What was said before a run in its conversation."""

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from parley.core.dialogue import Round, rounds
from parley.core.events import Event
from parley.core.runs import FOLD, Run
from parley.engine.offload import off_loop
from parley.engine.ports import Listing, Store
from parley.engine.streams import read_all

Tell = Callable[[list[Event]], Awaitable[list[Event]]]
"""Puts in its place what is kept beside a log."""
MORE_PAGES = 3


async def earlier_rounds(store: Store, run: Run, most: int, told: Tell) -> list[Round]:
    """The latest rounds of the runs that the same principal had with the same agent, oldest first.

    Runs under way are left out, and so are those whose events were forgotten: what retention takes is gone.
    """
    listing = Listing(principal=run.principal, agent=run.agent, conversation=run.conversation, limit=most + 1)
    listed, _ = await store.list_runs(listing)
    for _ in range(MORE_PAGES):
        # Runs that only called a tool were no talk, and must not hide what was.
        if len(listed) < listing.limit or sum(one.turns > 0 for one in listed) > most:
            break
        last = listed[-1]
        listing = replace(listing, after=(last.status_at, last.id), limit=listing.limit + len(listed))
        listed += (await store.list_runs(listing))[0]
    before = [one for one in listed if one.settled and one.id != run.id and one.created_at <= run.created_at]
    found: list[Round] = []
    for one in sorted(before, key=lambda one: one.created_at, reverse=True):
        if len(found) >= most:
            break
        events = await read_all(store, one.id)
        if events and events[0].seq == 1:
            events = await told(events) if one.beside or one.fold != FOLD else events
            found = [*await off_loop(len(events), partial(rounds, events)), *found]
    return found[-most:]


LOOK_BACK = 20
"""How many runs of a conversation are looked at for what an agent noted in them."""


async def earlier_notes(store: Store, run: Run) -> dict[str, str]:
    """Of the newest run of the same principal that has any: what an agent knows of one it must not tell another."""
    listing = Listing(principal=run.principal, agent=run.agent, conversation=run.conversation, limit=LOOK_BACK)
    listed, _ = await store.list_runs(listing)
    noted = [one.notes for one in listed if one.id != run.id and one.notes]
    return noted[0] if noted else {}
