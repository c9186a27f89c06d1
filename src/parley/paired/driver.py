"""Driver of agents whose work is done by a paired runtime: a program behind NAT that pulls its tasks.

No turn runs in this process. The agent still has its address and its card; tasks that arrive while no runtime is
connected wait in the log.
"""

from collections.abc import AsyncGenerator
from typing import Literal

from msgspec import Struct

from parley.execution.rules import Output
from parley.execution.turn import Turn
from parley.runs.rules.agents import Agent


class EdgeOptions(Struct, frozen=True):
    """Empty: the runtime knows what the work needs."""


class EdgeDriver(Struct, frozen=True):
    agent: Agent

    @property
    def distant(self) -> Literal[True]:
        return True

    def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        raise NotImplementedError("The paired runtime runs the turns of this agent, not this server.")
