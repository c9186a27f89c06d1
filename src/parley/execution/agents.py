"""The agents that are served, and their drivers."""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence

from msgspec import Struct

from parley.errors import AgentNotFound, Invalid, ParleyError
from parley.execution.driver import Cancellable, Cleanable, Driver, Orchestrating
from parley.orchestrations.rules.plan import Rules
from parley.runs.rules.agents import Agent, check_agent
from parley.runs.rules.state import Run, State
from parley.runs.store import Store
from parley.runs.wakeups import Wakeups
from parley.telemetry import tell


class Changed(Struct, frozen=True):
    """The slugs of the agents that were added, replaced and removed."""

    added: list[str]
    replaced: list[str]
    removed: list[str]


AGENTS = "agents"
_UNCHANGED = Changed([], [], [])

Unlisted = Callable[[str], Driver | None]
"""Finds the driver of an agent that is in no list. Agents of nodes are not listed, because they are many and change
often."""


def no_unlisted(slug: str) -> Driver | None:
    """Find nothing: only listed agents are served."""
    return None


class Roster(Mapping[str, Agent]):
    """Agents as their drivers describe them now. The description can change: the driver of a remote agent may learn
    more about it."""

    def __init__(self, unlisted: Unlisted = no_unlisted) -> None:
        self._served: dict[str, Driver] = {}
        self._rules: dict[str, Rules] = {}
        self.hosts: list[Driver] = []
        """The agents that the server was configured to serve."""
        self.guests: dict[str, Driver] = {}
        """The agents that were added while the server runs. A host with the same slug replaces a guest."""
        self._unlisted = unlisted
        self.changes = Wakeups()
        """Woken under the name AGENTS when agents are added, replaced or removed."""

    def __getitem__(self, slug: str) -> Agent:
        return self._served[slug].agent

    def __contains__(self, slug: object) -> bool:
        return slug in self._served

    def __iter__(self) -> Iterator[str]:
        return iter(self._served)

    def __len__(self) -> int:
        return len(self._served)

    def agent(self, slug: str) -> Agent:
        driver = self.driver(slug)
        if driver is None:
            raise no_agent(slug)
        return driver.agent

    def driver(self, slug: str) -> Driver | None:
        return self._served.get(slug) or self.unlisted(slug)

    def unlisted(self, slug: str) -> Driver | None:
        """Return the driver of an agent that is in no list."""
        return self._unlisted(slug)

    def serve_unlisted(self, find: Unlisted) -> None:
        """Use this function to find agents that are in no list from now on."""
        self._unlisted = find

    def rules(self, slug: str) -> Rules | None:
        """Return the rules of an agent that creates an orchestration for every message."""
        return self._rules.get(slug)

    def add(self, driver: Driver) -> None:
        self._serve(_by_slug([*self._served.values(), driver]))
        self.hosts = [*self.hosts, driver]
        self.changes.wake(AGENTS)

    def replace(self, drivers: Sequence[Driver]) -> Changed:
        """Serve these drivers and the guests, as one change. A driver that equals its predecessor is not replaced."""
        hosts, before = _by_slug(drivers), dict(self._served)
        wanted = hosts | {slug: guest for slug, guest in self.guests.items() if slug not in hosts}
        changed = Changed(
            added=[slug for slug in wanted if slug not in before],
            replaced=[slug for slug in wanted if slug in before and wanted[slug] != before[slug]],
            removed=[slug for slug in before if slug not in wanted],
        )
        kept = {slug: before[slug] for slug in wanted if slug in before and slug not in changed.replaced}
        self._serve({**wanted, **kept})
        self.hosts = list(drivers)
        if changed != _UNCHANGED:
            self.changes.wake(AGENTS)
        return changed

    def _serve(self, drivers: dict[str, Driver]) -> None:
        self._served = drivers
        self._rules = {slug: one.rules for slug, one in drivers.items() if isinstance(one, Orchestrating)}


def no_agent(slug: str) -> AgentNotFound:
    """Return the error for a missing agent. An agent that the caller may not use gets the same message."""
    return AgentNotFound(f"There is no agent {slug!r} here.")


def _by_slug(drivers: Sequence[Driver]) -> dict[str, Driver]:
    found: dict[str, Driver] = {}
    for driver in drivers:
        check_agent(driver.agent)
        if driver.agent.slug in found:
            raise Invalid(f"There are two agents with the slug {driver.agent.slug!r}.", field="slug")
        found[driver.agent.slug] = driver
    return found


# Cleanup after runs: cancel work at other servers, and remove files that a driver kept, also for runs that ended while
# this process was not running.

_CANCELS_WORK = frozenset((State.CANCELED, State.FAILED))


def cleanup_work(driver: Driver | None, run: Run) -> Iterator[Coroutine[None, None, None]]:
    """Return the driver's cleanup hooks to run after a run with notes has ended."""
    if isinstance(driver, Cancellable) and run.state in _CANCELS_WORK:
        yield driver.cancel_work(run)
    if isinstance(driver, Cleanable):
        yield driver.clear(run)


async def clear_ended_runs(agents: Roster, store: Store) -> None:
    """Run the cleanup of all ended runs of this store. Files of unknown runs are left alone."""
    for slug in list(agents):
        driver = agents.driver(slug)
        if isinstance(driver, Cleanable):
            try:
                await _clear(driver, store)
            except ParleyError as error:
                tell("leavings.kept", agent=slug, code=error.code)


async def _clear(driver: Cleanable, store: Store) -> None:
    for run_id in await driver.left():
        head = await store.head(run_id)
        if head is not None and head.run.ended:
            await driver.clear(head.run)
