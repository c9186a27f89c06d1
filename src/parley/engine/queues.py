"""Where in the queue of its agent a run stands."""

from parley.core.runs import Run
from parley.engine.exchange import Exchange

MOST_COUNTED = 1000


async def place_in_queue(exchange: Exchange, run: Run) -> int | None:
    """Return 1 for the next run to begin, for a run that waits because its agent works on others; None for any other,
    and for one with so many before it that they are not counted."""
    agent = exchange.agents.get(run.agent)
    if agent is None or agent.limits.max_concurrent is None or not run.ready:
        return None
    ahead = await exchange.store.ahead(run.id, agent.slug, MOST_COUNTED)
    if ahead is None or ahead == MOST_COUNTED:
        return None
    # The first ones may be about to begin: they do not count as waiting.
    place = ahead + 1 - await exchange.execution.free_slots(agent)
    return place if place > 0 else None
