"""What runs leave on this machine goes when they have ended, also when that was while nobody was there to see to it."""

from parley.engine.ports import Leaving, Store
from parley.engine.roster import Roster
from parley.errors import ParleyError
from parley.telemetry import tell


async def clear_left(agents: Roster, store: Store) -> None:
    """Of runs that are known here and have ended; whatever else is there is not ours to touch."""
    for slug in list(agents):
        driver = agents.driver(slug)
        if isinstance(driver, Leaving):
            try:
                await _clear(driver, store)
            except ParleyError as error:
                tell("leavings.kept", agent=slug, code=error.code)


async def _clear(driver: Leaving, store: Store) -> None:
    for run_id in await driver.left():
        head = await store.head(run_id)
        if head is not None and head.run.ended:
            await driver.clear(head.run)
