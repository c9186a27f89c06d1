"""How agents do their work."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from parley.core.agents import Agent
from parley.core.events import Canceled, Failed
from parley.core.runs import Run
from parley.core.turns import Output
from parley.ids import RunId

if TYPE_CHECKING:
    from parley.engine.turns import Turn


class Driver(Protocol):
    """How an agent does its work. `run` yields what happens during one turn."""

    @property
    def agent(self) -> Agent: ...

    def run(self, turn: "Turn") -> AsyncGenerator[Output, None]: ...


def kind_of(driver: Driver) -> str:
    """`function`, `llm`, `remote`, …"""
    return type(driver).__name__.removesuffix("Driver").lower()


@runtime_checkable
class Forsaken(Protocol):
    """A driver whose work goes on elsewhere, so that it must be told when nobody wants it any more."""

    async def forsake(self, run: Run) -> None:
        """The run, of which something was noted, was canceled or has failed. Best effort, within a few seconds."""
        ...


@runtime_checkable
class Gated(Protocol):
    """A driver whose agent has room for now more, now less: its work waits in order, and begins as there is room."""

    async def room(self) -> int:
        """How many turns may be under way at the moment, those that are included."""
        ...


@runtime_checkable
class Approving(Protocol):
    """A driver whose agent uses some tools only with a person's approval."""

    @property
    def approve(self) -> tuple[str, ...]:
        """Which tools: `server/tool`, `server`, `tool`, or `*` for all."""
        ...


@runtime_checkable
class Sampled(Protocol):
    """A driver that asks a model, and lets callers choose how, within the limits of its agent's definition."""

    def check_sampling(self, model: str | None, max_tokens: int | None) -> None:
        """Raise ModelNotAllowed or TokenLimitExceeded for what the definition does not allow."""
        ...


@runtime_checkable
class Leaving(Protocol):
    """A driver whose work leaves something on this machine that nobody needs once the run has ended."""

    async def left(self) -> list[RunId]:
        """The runs of which something is there."""
        ...

    async def clear(self, run: Run) -> None:
        """The run, of which something was noted, has ended, and what it made is in the log."""
        ...


@runtime_checkable
class Salvaging(Protocol):
    """A driver that delivers what a turn has made so far when the turn is canceled, times out or breaks."""

    def salvage(self, turn: "Turn", ending: Failed | Canceled) -> AsyncGenerator[Output, None]:
        """Yield artifacts and notes, and for a failure optionally a `Failed` with a fuller reason. `run` has returned;
        `turn.notes` holds what it noted. The time is limited, and what comes too late is dropped."""
        ...


@runtime_checkable
class Distant(Protocol):
    """A driver whose turns are done elsewhere, by somebody who comes for them (`engine.elsewhere`): nothing of it runs
    in a replica, and `run` is never called."""

    @property
    def distant(self) -> Literal[True]: ...
