"""Which agents are served, and by which drivers."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from parley.core.agents import Agent, check_agent
from parley.core.plans import Rules
from parley.engine.bells import Bells
from parley.engine.planning import Orchestrating
from parley.engine.ports import Driver
from parley.errors import AgentNotFound, Invalid


class Changed(Struct, frozen=True):
    """Which agents came, changed and went, by their slugs."""

    added: list[str]
    replaced: list[str]
    removed: list[str]


AGENTS = "agents"
_UNCHANGED = Changed([], [], [])

Unlisted = Callable[[str], Driver | None]
"""Finds the drivers of agents that are in no list, because there are too many of them and they come and go: nodes'."""


class Roster(Mapping[str, Agent]):
    """Agents as their drivers describe them at the moment: one that is served elsewhere may learn more about itself."""

    def __init__(self) -> None:
        self._served: dict[str, Driver] = {}
        self._rules: dict[str, Rules] = {}
        self.hosts: list[Driver] = []
        """Those that the server was told to serve."""
        self.guests: dict[str, Driver] = {}
        """Those that somebody added while it ran. A host with the slug of a guest has its place."""
        self.unlisted: Unlisted = lambda _: None
        self.changes = Bells()
        """Rung under the name AGENTS when some have come, changed or gone."""

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

    def rules(self, slug: str) -> Rules | None:
        """Those of an agent that makes an orchestration of every message."""
        return self._rules.get(slug)

    def add(self, driver: Driver) -> None:
        self._serve(_by_slug([*self._served.values(), driver]))
        self.hosts = [*self.hosts, driver]
        self.changes.ring(AGENTS)

    def replace(self, drivers: Sequence[Driver]) -> Changed:
        """Serve these and the guests, all or none of the change; those that are equal stay the ones they were."""
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
            self.changes.ring(AGENTS)
        return changed

    def _serve(self, drivers: dict[str, Driver]) -> None:
        self._served = drivers
        self._rules = {slug: one.rules for slug, one in drivers.items() if isinstance(one, Orchestrating)}


def no_agent(slug: str) -> AgentNotFound:
    """The same words for an agent that does not exist and for one that the caller may not use."""
    return AgentNotFound(f"There is no agent {slug!r} here.")


def _by_slug(drivers: Sequence[Driver]) -> dict[str, Driver]:
    found: dict[str, Driver] = {}
    for driver in drivers:
        check_agent(driver.agent)
        if driver.agent.slug in found:
            raise Invalid(f"There are two agents with the slug {driver.agent.slug!r}.", field="slug")
        found[driver.agent.slug] = driver
    return found
