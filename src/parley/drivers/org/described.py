"""An agent as its organisation describes it, kept up to date with the organisation's folder."""

from collections.abc import AsyncGenerator, Iterable
from typing import Protocol, runtime_checkable

from parley.core.agents import Agent
from parley.core.runs import Run
from parley.core.turns import Output
from parley.engine.ports import Driver, Forsaken
from parley.engine.turns import Turn
from parley.orgkernel.card import described
from parley.orgkernel.reading import Marks, Places, Problem, Reader, Reading, marks
from parley.telemetry import tell


@runtime_checkable
class Organised(Protocol):
    """A driver with an organisation behind it, which may change at any time."""

    @property
    def agent(self) -> Agent: ...

    @property
    def described(self) -> "Described": ...


class Described:
    def __init__(self, agent: Agent, places: Places) -> None:
        self._defined = agent
        self.places = places
        self._reader = Reader(places)
        self._marks: Marks | None = None
        self.reading = Reading(None, ())
        """The organisation as it was read last, and what is wrong with it."""
        self.agent = agent
        """As it is defined; where that says nothing, as the active organisation says."""
        self.refresh()

    def refresh(self) -> bool:
        """Read the folder again if anything in it has changed; whether the agent is another one now."""
        found = marks(self.places)
        if found == self._marks:
            return False
        told = self.reading.problems
        self._marks, self.reading = found, self._reader.read()
        _tell_problems(self._defined.slug, [one for one in self.reading.problems if one not in told])
        agent = described(self._defined, self.reading.organisation)
        if agent == self.agent:
            return False
        self.agent = agent
        return True


class Front:
    """An organisation's card before a driver that works elsewhere: whoever does the work reads the same folder."""

    def __init__(self, worker: Driver, places: Places) -> None:
        self._worker = worker
        self.described = Described(worker.agent, places)

    @property
    def agent(self) -> Agent:
        return self.described.agent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Front) and (self._worker, self.described.places) == (
            other._worker, other.described.places,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(self._worker)

    def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        return self._worker.run(turn)

    async def forsake(self, run: Run) -> None:
        if isinstance(self._worker, Forsaken):
            await self._worker.forsake(run)


def _tell_problems(slug: str, problems: Iterable[Problem]) -> None:
    for problem in problems:
        tell("org.problem", agent=slug, message=problem.text)
