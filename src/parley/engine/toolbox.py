"""What the engine needs of whoever speaks to servers of tools."""

from typing import Protocol

from parley.core.agents import Agent
from parley.core.canonical import Fields
from parley.core.mcp import McpServer, Offer, Progressed
from parley.engine.ports import ToolResult


class Toolbox(Protocol):
    """The tools that agents may use, and their servers."""

    async def offers(self, agent: Agent) -> "list[Offer]":
        """Those of all servers that can be reached."""
        ...

    async def find(self, agent: Agent, tool: str, within_s: float) -> Offer:
        """The one that a name means; ToolNotFound or ToolAmbiguous. A server that says nothing in that time counts as
        one that may have the tool."""
        ...

    def server(self, agent: Agent, offer: Offer) -> McpServer: ...

    async def call(self, agent: Agent, offer: Offer, given: Fields, progressed: Progressed | None = None) -> ToolResult:
        """`data` holds the `output`, or the `code` of what went wrong. To cancel it is to break it off."""
        ...
