"""An agent that is a workflow: whatever it is asked, the same steps, each for another agent."""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from parley.core.agents import Agent
from parley.core.planning import Candidate
from parley.core.plans import Rules, Steps
from parley.core.turns import Output
from parley.engine.turns import Turn


class WorkflowDriver(Struct, frozen=True):
    agent: Agent
    steps: Steps
    rules: Rules = Rules()

    async def plan(self, turn: Turn, agents: Sequence[Candidate]) -> Steps:
        return self.steps

    def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        raise NotImplementedError("The steps of a workflow are carried out as an orchestration.")
