"""Where in the queue of its agent a run stands."""

from parley.core.runs import Run, State
from parley.engine.exchange import Exchange


async def place_in_queue(exchange: Exchange, run: Run) -> int | None:
    """The how-manieth to begin, for a run that waits because its agent works on others; None for any other."""
    agent = exchange.agents.get(run.agent)
    if agent is None or agent.limits.max_concurrent is None or not run.ready:
        return None
    waiting = await exchange.store.runs_in(State.SUBMITTED, agent=agent.slug)
    # The first ones may be about to begin: they do not count as waiting.
    place = 1 - await exchange.execution.free_slots(agent)
    found = next((place for place, other in enumerate(waiting, place) if other.id == run.id), 0)
    return found if found > 0 else None
