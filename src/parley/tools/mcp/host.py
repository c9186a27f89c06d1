"""MCP servers that agents may use, each with one session. Servers that an agent may not use are reported as not
found."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from parley import extras
from parley.errors import ToolAmbiguous, ToolNotFound
from parley.json_values import Fields
from parley.runs.rules.agents import Agent
from parley.tools.mcp.errors import McpError, NotStarted, OpenTransport, State
from parley.tools.providers import ToolResult
from parley.tools.rules.mcp import McpServer, Progressed, ToolOffer, called, permits, servers_for

if TYPE_CHECKING:
    from parley.tools.mcp.session import McpSession

Place = tuple[str, str]
"""Owner of the server (an agent's slug, empty for a common server), and its name."""

_SHOWN = 200
"""Characters of an unknown name that an error repeats."""
_MOST = 50
"""Number of tools that an error names."""


class ServerStatus(Struct, frozen=True):
    """Status of a server, for its operator."""

    name: str
    agent: str
    """Slug of the agent that owns it; empty for a common server."""
    kind: str
    state: State
    reason: str
    starts: int
    tools: tuple[ToolOffer, ...]


class Host:
    def __init__(self, common: Sequence[McpServer], open_transport: OpenTransport) -> None:
        self._common = list(common)
        self._open_transport = open_transport
        self._sessions: dict[Place, McpSession] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def offers(self, agent: Agent) -> list[ToolOffer]:
        found, _ = await self._listed(agent)
        return found

    async def find(self, agent: Agent, tool: str, within_s: float) -> ToolOffer:
        server, slash, name = tool.partition("/")
        named = {one.name for one in self._servers(agent)}
        wanted = [one for one in self._servers(agent) if one.name == server] if slash and server in named else None
        found, silent = await self._listed(agent, wanted, within_s)
        meant = called(found, tool)
        if len(meant) > 1:
            names = [one.full for one in meant]
            raise ToolAmbiguous(f"Several servers have a tool {tool}: write {' or '.join(names)}.", tools=names)
        if meant:
            return meant[0]
        # It is not known whether the server has the tool. The error must say that the server cannot be reached.
        unknown = [ToolOffer(one.name, name if wanted else tool) for one in silent if wanted or not slash]
        allowed = [one for one in unknown if self._permits(agent, one)]
        if allowed:
            return allowed[0]
        raise _no_tool(agent, tool, [one.full for one in found])

    def server(self, agent: Agent, offer: ToolOffer) -> McpServer:
        return next(one for one in self._servers(agent) if one.name == offer.server)

    async def call(
        self, agent: Agent, offer: ToolOffer, given: Fields, progressed: Progressed | None = None
    ) -> ToolResult:
        try:
            session = self._session(agent, self.server(agent, offer))
            return ToolResult("succeeded", {"output": await session.call(offer.name, given, progressed)})
        except McpError as fault:
            return ToolResult(
                "failed",
                {"code": fault.code},
                message=_words(offer, fault),
                effect="none" if fault.unsent else "unknown",
                well=not fault.ill,
            )

    async def status(self, agents: Iterable[Agent]) -> list[ServerStatus]:
        """Return the status of all servers; each is asked for its tools."""
        places = {**{("", one.name): one for one in self._common}}
        places |= {(agent.slug, one.name): one for agent in agents for one in agent.mcp}
        return list(await asyncio.gather(*(self._status(place, one) for place, one in places.items())))

    async def keep(self, agents: Iterable[Agent]) -> None:
        """Close sessions of servers that no definition names any more."""
        places = {("", one.name): one for one in self._common}
        places |= {(agent.slug, one.name): one for agent in agents for one in agent.mcp}
        for place, session in list(self._sessions.items()):
            if places.get(place) != session.server:
                del self._sessions[place]
                await session.close()

    async def close(self) -> None:
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(one.close() for one in sessions), *self._closing)

    async def _listed(
        self, agent: Agent, servers: Sequence[McpServer] | None = None, within_s: float | None = None
    ) -> tuple[list[ToolOffer], list[McpServer]]:
        """Return the tools that the agent may use, and the servers that did not answer."""
        asked = self._servers(agent) if servers is None else servers
        answers = await asyncio.gather(*(self._offers_of(agent, one, within_s or one.start_timeout_s) for one in asked))
        found = [offer for offers in answers if offers is not None for offer in offers]
        silent = [one for one, offers in zip(asked, answers, strict=True) if offers is None]
        return [one for one in found if self._permits(agent, one)], silent

    async def _offers_of(self, agent: Agent, server: McpServer, within_s: float) -> list[ToolOffer] | None:
        try:
            async with asyncio.timeout(within_s):
                return await self._session(agent, server).offers()
        except (McpError, TimeoutError):
            return None

    async def _status(self, place: Place, server: McpServer) -> ServerStatus:
        kind = "stdio" if server.url is None else "http"
        try:
            session = self._at(place, server)
        except NotStarted as fault:
            return ServerStatus(server.name, place[0], kind, "failed", fault.message, 0, ())
        try:
            tools = tuple(await session.offers())
        except McpError:
            tools = ()
        return ServerStatus(server.name, place[0], kind, session.state, session.reason, session.starts, tools)

    def _servers(self, agent: Agent) -> list[McpServer]:
        return servers_for(agent.tools, agent.mcp, self._common)

    def _permits(self, agent: Agent, offer: ToolOffer) -> bool:
        return permits(agent.tools, offer, own=any(one.name == offer.server for one in agent.mcp))

    def _session(self, agent: Agent, server: McpServer) -> "McpSession":
        return self._at((agent.slug if server in agent.mcp else "", server.name), server)

    def _at(self, place: Place, server: McpServer) -> "McpSession":
        session = self._sessions.get(place)
        if session is not None and session.server != server:
            closing = asyncio.get_running_loop().create_task(session.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            session = None
        if session is None:
            session = self._sessions[place] = _session_type()(server, self._open_transport)
        return session


def _words(offer: ToolOffer, fault: McpError) -> str:
    """Return the message of a fault; it names the server if the fault says something about it."""
    if not fault.ill:
        return fault.message
    how = "is not available" if fault.unsent else "failed"
    return f"The MCP server {offer.server} {how}: {fault.message}"


def _no_tool(agent: Agent, tool: str, names: list[str]) -> ToolNotFound:
    shown = ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")
    message = f"Agent {agent.slug} has no tool {tool[:_SHOWN]}; it has {shown or 'none'}."
    return ToolNotFound(message, tool=tool[:_SHOWN], available=names[:_MOST])


def _session_type() -> "type[McpSession]":
    try:
        extras.check("mcp", "Every MCP server")
    except extras.ExtraMissing as error:
        raise NotStarted(error.message) from None
    from parley.tools.mcp.session import McpSession

    return McpSession
