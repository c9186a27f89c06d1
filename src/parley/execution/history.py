"""History: earlier messages and notes of a run's conversation."""

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from parley.documents.rules import Kind, spoken
from parley.offload import off_loop
from parley.runs.rules.events import Event
from parley.runs.rules.state import FOLD, Run
from parley.runs.rules.transcript import TurnRound, rounds
from parley.runs.store import Listing, Store
from parley.runs.streams import read_all

Tell = Callable[[list[Event]], Awaitable[list[Event]]]
"""Loads contents that are stored outside the log into the events."""
MORE_PAGES = 3


# Why: docs/decisions/models-and-llm.md#remember-the-conversation-not-only-the-task
async def earlier_rounds(store: Store, run: Run, most: int, told: Tell) -> list[TurnRound]:
    """Return the latest rounds of earlier runs of the same principal with the same agent, oldest first.

    Running runs are left out, and so are runs whose events were deleted by retention.
    """
    if not _history_end(run):
        return []
    listing = Listing(principal=run.principal, agent=run.agent, conversation=run.conversation, limit=most + 1)
    listed, _ = await store.list_runs(listing)
    for _ in range(MORE_PAGES):
        # Runs that only called a tool contain no conversation, and must not push out those that do.
        if len(listed) < listing.limit or sum(one.turns > 0 and _recalled(run, one) for one in listed) > most:
            break
        last = listed[-1]
        listing = replace(listing, after=(last.status_at, last.id), limit=listing.limit + len(listed))
        listed += (await store.list_runs(listing))[0]
    before = [one for one in listed if one.settled and one.id != run.id and _recalled(run, one)]
    found: list[TurnRound] = []
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
    """Return the latest creation time of runs that belong to this run's history; 0 if it gets no history."""
    end = run.assignment.history if run.assignment is not None else None
    return run.created_at if end is None else max(0, end - 1)


def _recalled(run: Run, earlier: Run) -> bool:
    if earlier.created_at > _history_end(run):
        return False
    made_for = run.assignment
    return made_for is None or not made_for.anew or made_for.document != _document_of(earlier)


def _shown(run: Run, earlier: Run, one: TurnRound) -> TurnRound:
    """Return a round without the context that was added to a request for a document. A run that makes a document gets
    the current version separately, so of earlier versions it sees only that they were made, not their content."""
    kind = _document_of(earlier)
    if kind is None:
        return one
    asked = tuple(replace(message, parts=spoken(message.parts)) for message in one.asked)
    made = one.answer and _document_of(run) is not None
    return TurnRound(asked, f"(The answer became a version of the {kind}.)" if made else one.answer)


def _document_of(run: Run) -> Kind | None:
    return run.assignment.document if run.assignment is not None else None


LOOK_BACK = 20
"""Number of runs of a conversation that are searched for notes."""


async def earlier_notes(store: Store, run: Run) -> dict[str, str]:
    """Return the notes of the newest run of the same principal that has any. Notes of other principals stay hidden,
    because the agent must not reveal to one what it knows of another."""
    listing = Listing(principal=run.principal, agent=run.agent, conversation=run.conversation, limit=LOOK_BACK)
    listed, _ = await store.list_runs(listing)
    noted = [one.notes for one in listed if one.id != run.id and one.notes]
    return noted[0] if noted else {}
