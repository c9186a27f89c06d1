"""What runs leave behind when they end: work that goes on elsewhere is ended, and what lies about here goes, also when
nobody was there to see to it at the time."""

from collections.abc import Coroutine, Iterator

from parley.core.runs import Run, State
from parley.engine.ports import Driver, Forsaken, Leaving, Store
from parley.engine.roster import Roster
from parley.errors import ParleyError
from parley.telemetry import tell

_FORSAKEN = frozenset((State.CANCELED, State.FAILED))


def afterwards(driver: Driver | None, run: Run) -> Iterator[Coroutine[None, None, None]]:
    """What is to be done now that a run, of which something was noted, has ended."""
    if isinstance(driver, Forsaken) and run.state in _FORSAKEN:
        yield driver.forsake(run)
    if isinstance(driver, Leaving):
        yield driver.clear(run)


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
