"""Drivers: the protocols by which agents do their work."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from msgspec import Struct

from parley.execution.rules import Output
from parley.ids import RunId
from parley.orchestrations.rules.plan import Rules, Steps
from parley.orchestrations.rules.prompts import Candidate
from parley.runs.rules.agents import Agent
from parley.runs.rules.events import Canceled, Failed
from parley.runs.rules.state import Run

if TYPE_CHECKING:
    from parley.execution.turn import Turn


class Driver(Protocol):
    """Does the work of an agent. `run` yields the outputs of one turn."""

    @property
    def agent(self) -> Agent: ...

    def run(self, turn: "Turn") -> AsyncGenerator[Output, None]: ...


def kind_of(driver: Driver) -> str:
    """Return the kind of a driver: `function`, `llm`, `remote`, …"""
    return type(driver).__name__.removesuffix("Driver").lower()


@runtime_checkable
class Cancellable(Protocol):
    """A driver whose work continues at another server, which must be notified when the work is no longer wanted."""

    async def cancel_work(self, run: Run) -> None:
        """Cancel the work of a run with notes that was canceled or has failed. Best effort, within a few seconds."""
        ...


@runtime_checkable
class Throttled(Protocol):
    """A driver whose agent has a variable capacity: its work waits in order, and begins when there is capacity."""

    async def room(self) -> int:
        """Return the number of turns that may run now, including those already running."""
        ...


@runtime_checkable
class Approving(Protocol):
    """A driver whose agent uses some tools only with a person's approval."""

    @property
    def approve(self) -> tuple[str, ...]:
        """The tools: `server/tool`, `server`, `tool`, or `*` for all."""
        ...


@runtime_checkable
class Sampled(Protocol):
    """A driver that uses a model, and lets callers choose sampling options within the limits of its definition."""

    def check_sampling(self, model: str | None, max_tokens: int | None) -> None:
        """Raise ModelNotAllowed or TokenLimitExceeded for options that the definition does not allow."""
        ...


@runtime_checkable
class Cleanable(Protocol):
    """A driver that keeps files on this machine that are not needed after the run has ended."""

    async def left(self) -> list[RunId]:
        """Return the runs that have such files."""
        ...

    async def clear(self, run: Run) -> None:
        """Remove the files of a run with notes that has ended. Its outputs are in the log."""
        ...


@runtime_checkable
class Salvaging(Protocol):
    """A driver that delivers the results so far when a turn is canceled, times out or breaks."""

    def salvage(self, turn: "Turn", ending: Failed | Canceled) -> AsyncGenerator[Output, None]:
        """Yield artifacts and notes, and for a failure optionally a `Failed` with a fuller reason. `run` has returned;
        `turn.notes` contains its notes. The time is limited, and late outputs are dropped."""
        ...


@runtime_checkable
class PairedWork(Protocol):
    """A driver whose turns run at a paired runtime, which pulls them (`parley.paired`). No turn runs in a replica, and
    `run` is never called."""

    @property
    def distant(self) -> Literal[True]: ...


@runtime_checkable
class Planner(Protocol):
    """A driver that can plan the steps to fulfil a request."""

    async def plan(self, turn: "Turn", agents: Sequence[Candidate]) -> "Steps | ModelPlan":
        """Return a plan for these agents to carry out. Raise PlanInvalid or AgentError."""
        ...


@runtime_checkable
class Orchestrating(Planner, Protocol):
    """A driver that creates an orchestration for every message; its `run` is never called."""

    @property
    def rules(self) -> Rules: ...


class ModelPlan(Struct, frozen=True):
    """A plan, the model that made it, and the tokens used, if the vendor reported them."""

    steps: Steps
    model: str = ""
    tokens: int | None = None
