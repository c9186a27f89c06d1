"""An agent whose work is done by a paired runtime: a program elsewhere, behind any NAT, that comes for its tasks.

Nothing of it runs here. The agent has its address and its card all the same; what is asked while nobody is connected
waits in the log.
"""

from collections.abc import AsyncGenerator
from typing import Literal

from msgspec import Struct

from parley.core.agents import Agent
from parley.core.turns import Output
from parley.engine.turns import Turn


class EdgeOptions(Struct, frozen=True):
    """There is nothing to choose: what the work needs is known where it is done."""


class EdgeDriver(Struct, frozen=True):
    agent: Agent

    @property
    def distant(self) -> Literal[True]:
        return True

    def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        raise NotImplementedError("The turns of this agent are done by its runtime.")
