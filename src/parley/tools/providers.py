"""Protocols of tools and their providers."""

from typing import Literal, Protocol

from msgspec import Struct

from parley.json_values import Fields
from parley.runs.rules.agents import Agent
from parley.tools.rules.mcp import McpServer, Progressed, ToolOffer
from parley.tools.rules.packs import Manifest, Pack
from parley.tools.rules.policy import ReasonCode


class ToolResult(Struct, frozen=True):
    """A provider's answer to one call, or the reason why there is none. `data` and `message` are unchanged."""

    state: Literal["succeeded", "failed"]
    data: Fields = {}
    code: ReasonCode | None = None
    """Reason of a failure, if there is a specific code for it."""
    message: str = ""
    effect: Literal["done", "none", "unknown"] = "done"
    """Effect of the call: it happened, it did not, or that is unknown."""
    well: bool = True
    """True if the provider works; a refusal does not mean that it does not."""


class ToolPack(Protocol):
    """Tools of one kind, with their provider."""

    @property
    def rules(self) -> Pack: ...

    def host(self, manifest: Manifest) -> str:
        """Return the host that would be called; failures are counted per host."""
        ...

    async def call(self, operation: str, request: Fields, manifest: Manifest) -> ToolResult:
        """Carry out a valid request. Cancelling this stops the call."""
        ...


# The engine's view of the MCP host.


class Toolbox(Protocol):
    """The tools that agents may use, and their servers."""

    async def offers(self, agent: Agent) -> "list[ToolOffer]":
        """Return the tools of all servers that can be reached."""
        ...

    async def find(self, agent: Agent, tool: str, within_s: float) -> ToolOffer:
        """Return the tool with this name; raise ToolNotFound or ToolAmbiguous. A server that does not answer in time
        counts as one that may have the tool."""
        ...

    def server(self, agent: Agent, offer: ToolOffer) -> McpServer: ...

    async def call(
        self, agent: Agent, offer: ToolOffer, given: Fields, progressed: Progressed | None = None
    ) -> ToolResult:
        """Call a tool. `data` holds the `output`, or the `code` of the error. Cancelling this stops the call."""
        ...
