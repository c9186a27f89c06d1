"""What an orchestration needs from the outside: somebody who makes its plan, and somebody who carries out a step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct

from parley.core.access import Principal
from parley.core.artifacts import Parts
from parley.core.canonical import Json
from parley.core.planning import Candidate
from parley.core.plans import Rules, Step, Steps
from parley.core.steps import Result
from parley.ids import RunId
from parley.telemetry.trace import Trace

if TYPE_CHECKING:
    from parley.engine.turns import Turn


@runtime_checkable
class Planner(Protocol):
    """A driver that can say which steps lead to what it is asked for."""

    async def plan(self, turn: "Turn", agents: Sequence[Candidate]) -> "Steps | ModelPlan":
        """The plan, for these agents to carry out. Raises PlanInvalid or AgentError."""
        ...


@runtime_checkable
class Orchestrating(Planner, Protocol):
    """A driver that makes an orchestration of every message; its `run` is never called."""

    @property
    def rules(self) -> Rules: ...


class ModelPlan(Struct, frozen=True):
    """A plan, the model that made it, and the tokens that took as far as its vendor told."""

    steps: Steps
    model: str = ""
    tokens: int | None = None


class Order(Struct, frozen=True):
    """One attempt of one step."""

    run: RunId
    """The id of the run that carries it out. It follows from the orchestration, the step and the attempt, so whoever
    carries out the same order again finds what was begun."""
    parent: RunId
    step: Step
    input: Json
    """What the step is given, everything filled in."""
    parts: Parts
    """The same as the parts of a message."""
    principal: Principal
    """On whose behalf, with the limits of the orchestration's caller."""
    hops: int = 0
    trace: Trace | None = None


class StepRunner(Protocol):
    """Carries out steps as runs of their own."""

    def refusal(self, step: Step, principal: Principal) -> str | None:
        """Why the step cannot be carried out on behalf of the principal; None when it can."""
        ...

    async def carry_out(self, order: Order) -> Result:
        """Begin the run `order.run`, or find it, and wait for its end. To cancel this only ends the waiting."""
        ...
