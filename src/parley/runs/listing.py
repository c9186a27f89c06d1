"""Pages of runs, the newest first, and sums of their usage."""

from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from parley.ids import RunId
from parley.runs.rules.state import WAITING, Run
from parley.runs.rules.usage import ModelTotals, merged
from parley.runs.service import Exchange
from parley.runs.store import Listing, Store

MOST_FOUND = 1000
"""Runs with the words of a search that are read for one page."""
_ROUNDS = 20
"""Maximum number of reads to fill a page when many runs are left out."""


class RunListing(Struct, frozen=True):
    """A page of runs, and the position of the next page."""

    runs: list[Run]
    after: tuple[int, str] | None = None


async def newest(store: Store, listing: Listing) -> RunListing:
    if listing.text:
        return await _found(store, listing, lambda run: _fits(run, listing))
    asked = replace(listing, newest=True, oldest=False, counted=False, limit=listing.limit + 1)
    return _page((await store.list_runs(asked))[0], listing.limit)


async def _found(store: Store, listing: Listing, fits: Callable[[Run], bool]) -> RunListing:
    """Search runs by their words. The index knows words, principal and agent; the rest of the listing is compared with
    each run found, of which at most `MOST_FOUND` are read for a page: the next page continues there."""
    after = listing.after or ((listing.created_before, "") if listing.created_before is not None else None)
    found: list[Run] = []
    for _ in range(MOST_FOUND // PAGE):
        batch = await store.search(replace(listing, after=after, limit=PAGE))
        found += [run for run in batch if fits(run)]
        past = bool(batch) and listing.created_from is not None and batch[-1].created_at < listing.created_from
        if len(found) > listing.limit or len(batch) < PAGE or past:
            return _page(found, listing.limit)
        after = _place(batch[-1])
    return RunListing(found, after)


def _fits(run: Run, listing: Listing) -> bool:
    return (
        listing.state in (None, run.state)
        and listing.conversation in (None, run.conversation)
        and listing.principal in (None, run.principal)
        and listing.agent in (None, run.agent)
        and (listing.created_from is None or run.created_at >= listing.created_from)
        and run.id.startswith(listing.prefix)
    )


async def waiting(store: Store, listing: Listing) -> RunListing:
    """List runs that wait for a person, because their agent asked a question. Open runs are left out: they wait for a
    program."""
    if listing.text:
        return await _found(store, listing, lambda run: run.state in WAITING and not run.open and _fits(run, listing))
    found: list[Run] = []
    after = listing.after
    for _ in range(_ROUNDS):
        page = await _in_either(store, replace(listing, after=after))
        found += [run for run in page if not run.open]
        if len(found) > listing.limit or len(page) <= listing.limit:
            break
        after = _place(page[-1])
    return _page(found, listing.limit)


async def orchestrating(store: Store, listing: Listing, agents: Iterable[str]) -> RunListing:
    """List runs that began orchestrations, for agents that can plan. Each agent is read by its index, and the results
    are merged."""
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
    # Beyond the point up to which an agent was read, the list may be incomplete.
    horizon = max(horizons, default=None)
    runs = sorted((run for run in found if horizon is None or _place(run) >= horizon), key=_place, reverse=True)
    page = _page(runs, listing.limit)
    return page if page.after is not None else RunListing(page.runs, horizon)


async def _in_either(store: Store, listing: Listing) -> list[Run]:
    """Read each waiting state by its index, and merge the results in order."""
    asked = replace(listing, newest=True, oldest=False, counted=False, limit=listing.limit + 1)
    runs = [run for state in WAITING for run in (await store.list_runs(replace(asked, state=state)))[0]]
    return sorted(runs, key=_place, reverse=True)[: listing.limit + 1]


def _page(runs: list[Run], limit: int) -> RunListing:
    return RunListing(runs[:limit], _place(runs[limit - 1]) if len(runs) > limit else None)


def _place(run: Run) -> tuple[int, str]:
    return run.created_at, run.id


# Pages of conversations, ordered by their newest run, the newest first.

_BATCH = 100
_CONVERSATION_ROUNDS = 10
"""Maximum number of batches read to fill a page: a conversation with many runs takes many rows."""


class ConversationSummary(Struct, frozen=True):
    """A conversation, represented by its newest run."""

    principal: str
    conversation: str
    latest: Run


class ConversationListing(Struct, frozen=True):
    talks: list[ConversationSummary]
    after: tuple[int, str] | None = None


async def recent_conversations(store: Store, listing: Listing) -> ConversationListing:
    """List conversations. Each appears on one page only, at the position of its newest run. There is no table of
    conversations: they are derived from their runs, whichever face started these."""
    found: dict[tuple[str, str], ConversationSummary] = {}
    after = listing.after
    for _ in range(_CONVERSATION_ROUNDS):
        page = await newest(store, replace(listing, after=after, limit=_BATCH))
        for run in page.runs:
            if len(found) == listing.limit:
                return ConversationListing(list(found.values()), after)
            after = run.created_at, run.id
            key = run.principal, run.conversation
            if key not in found and await _is_newest(store, run, known=listing.after is None):
                found[key] = ConversationSummary(*key, run)
        if page.after is None:
            return ConversationListing(list(found.values()))
    return ConversationListing(list(found.values()), after)


async def _is_newest(store: Store, run: Run, *, known: bool) -> bool:
    """Return whether a run is the newest of its conversation. On the first page, the first run found is the newest;
    later, the conversation may have been on an earlier page."""
    if run.gone or run.parent is not None:
        return False
    if known:
        return True
    asked = Listing(run.principal, conversation=run.conversation, limit=20)
    latest = [one for one in (await newest(store, asked)).runs if one.parent is None]
    return not latest or latest[0].id == run.id


# Position of a run in the queue of its agent.

MOST_COUNTED = 1000


async def place_in_queue(exchange: Exchange, run: Run) -> int | None:
    """Return the position of a run that waits because its agent works on others: 1 for the next run to begin. None for
    any other run, and when too many runs are ahead to be counted."""
    agent = exchange.agents.get(run.agent)
    if agent is None or agent.limits.max_concurrent is None or not run.ready:
        return None
    ahead = await exchange.store.ahead(run.id, agent.slug, MOST_COUNTED)
    if ahead is None or ahead == MOST_COUNTED:
        return None
    # The first runs may be about to begin: they do not count as waiting.
    place = ahead + 1 - await exchange.execution.free_slots(agent)
    return place if place > 0 else None


# Usage of several runs. Only the rows of runs are read, never their events.

PAGE = 200
"""Rows per read: decoding them takes about a millisecond of the event loop."""
MOST_RUNS = 5_000
"""Runs per request; the caller continues with `after`."""
MOST_IN_TREE = 1_000
MOST_MODELS = 100


class UsageQuery(Struct, frozen=True):
    """A filter for runs by their creation; a field that is None is not used."""

    principal: str | None = None
    conversation: str | None = None
    since: int | None = None
    until: int | None = None
    """Only runs created before this time (ms)."""
    after: tuple[int, str] | None = None
    """Continue after the run with this `created_at` and id."""


class UsageSum(Struct, frozen=True):
    totals: dict[str, ModelTotals]
    runs: int
    complete: bool = True
    """False if there are more runs than one request adds up."""
    after: tuple[int, str] | None = None
    """Where the next request continues; None if there is nothing more, or for a tree."""


# Why: docs/decisions/runs.md#add-up-usage-from-the-rows-of-runs
async def sum_runs(store: Store, query: UsageQuery) -> UsageSum:
    """Add up the usage of the runs that match, the newest first."""
    totals: dict[str, ModelTotals] = {}
    after = query.after or ((query.until, "") if query.until is not None else None)
    listing = Listing(query.principal, conversation=query.conversation, after=after, limit=PAGE)
    runs = 0
    while runs < MOST_RUNS:
        page = await newest(store, listing)
        found = [run for run in page.runs if query.since is None or run.created_at >= query.since]
        for run in found:
            totals = merged(totals, run.usage, MOST_MODELS) if run.usage else totals
        runs += len(found)
        if page.after is None or len(found) < len(page.runs):
            return UsageSum(totals, runs)
        listing = replace(listing, after=page.after)
    return UsageSum(totals, runs, complete=False, after=listing.after)


async def sum_principals(store: Store, query: UsageQuery, principals: Iterable[str]) -> UsageSum:
    """Add up the usage of several principals, of each at most as many runs as `sum_runs` reads."""
    totals: dict[str, ModelTotals] = {}
    runs, complete = 0, True
    for principal in principals:
        found = await sum_runs(store, replace(query, principal=principal))
        totals, runs = merged(totals, found.totals, MOST_MODELS), runs + found.runs
        complete = complete and found.complete
    return UsageSum(totals, runs, complete)


async def sum_tree(store: Store, run: Run) -> UsageSum:
    """Add up the usage of a run and of all runs that it started, directly or not."""
    totals, seen = dict(run.usage), {run.id}
    waiting = list(run.children)
    while waiting and len(seen) < MOST_IN_TREE:
        child = waiting.pop()
        if child in seen:
            continue
        seen.add(child)
        if (head := await store.head(RunId(child))) is not None:
            totals = merged(totals, head.run.usage, MOST_MODELS)
            waiting += head.run.children
    return UsageSum(totals, len(seen), complete=not set(waiting) - seen)
