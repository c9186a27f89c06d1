"""What was said before a run in its conversation."""

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from parley.core.dialogue import Round, rounds
from parley.core.documents import Kind
from parley.core.drafting import spoken
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
    if not _history_end(run):
        return []
    listing = Listing(principal=run.principal, agent=run.agent, conversation=run.conversation, limit=most + 1)
    listed, _ = await store.list_runs(listing)
    for _ in range(MORE_PAGES):
        # Runs that only called a tool were no talk, and must not hide what was.
        if len(listed) < listing.limit or sum(one.turns > 0 and _recalled(run, one) for one in listed) > most:
            break
        last = listed[-1]
        listing = replace(listing, after=(last.status_at, last.id), limit=listing.limit + len(listed))
        listed += (await store.list_runs(listing))[0]
    before = [one for one in listed if one.settled and one.id != run.id and _recalled(run, one)]
    found: list[Round] = []
    for one in sorted(before, key=lambda one: one.created_at, reverse=True):
        if len(found) >= most:
            break
        events = await read_all(store, one.id)
        if events and events[0].seq == 1:
            events = await told(events) if one.beside or one.fold != FOLD else events
            talked = await off_loop(len(events), partial(rounds, events))
            found = [*(_shown(run, one, each) for each in talked), *found]
    return found[-most:]


def _history_end(run: Run) -> int:
    """Latest creation time of a run whose words are history for this one; 0 if it is given no history."""
    end = run.assignment.history if run.assignment is not None else None
    return run.created_at if end is None else max(0, end - 1)


def _recalled(run: Run, earlier: Run) -> bool:
    if earlier.created_at > _history_end(run):
        return False
    made_for = run.assignment
    return made_for is None or not made_for.anew or made_for.document != _document_of(earlier)


def _shown(run: Run, earlier: Run, one: Round) -> Round:
    """A round without the context that was added to a request for a document. A run that makes a document itself is
    shown the current version, so it sees that earlier versions were made, but not their content."""
    kind = _document_of(earlier)
    if kind is None:
        return one
    asked = tuple(replace(message, parts=spoken(message.parts)) for message in one.asked)
    made = one.answer and _document_of(run) is not None
    return Round(asked, f"(The answer became a version of the {kind}.)" if made else one.answer)


def _document_of(run: Run) -> Kind | None:
    return run.assignment.document if run.assignment is not None else None


LOOK_BACK = 20
"""How many runs of a conversation are looked at for what an agent noted in them."""


async def earlier_notes(store: Store, run: Run) -> dict[str, str]:
    """Of the newest run of the same principal that has any: what an agent knows of one it must not tell another."""
    listing = Listing(principal=run.principal, agent=run.agent, conversation=run.conversation, limit=LOOK_BACK)
    listed, _ = await store.list_runs(listing)
    noted = [one.notes for one in listed if one.id != run.id and one.notes]
    return noted[0] if noted else {}
