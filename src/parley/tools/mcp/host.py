"""The servers that agents may use, each with one session; what an agent may not use does not exist for it."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from parley import extras
from parley.core.agents import Agent
from parley.core.canonical import Fields
from parley.core.mcp import McpServer, Offer, Progressed, called, permits, servers_for
from parley.engine.ports import ToolResult
from parley.errors import ToolAmbiguous, ToolNotFound
from parley.tools.mcp.faults import Fault, NotStarted
from parley.tools.mcp.words import OpenTransport, State

if TYPE_CHECKING:
    from parley.tools.mcp.session import Session

Place = tuple[str, str]
"""Whose server it is (an agent's slug, empty for everybody's), and its name."""


class ServerStatus(Struct, frozen=True):
    """How a server fares, for its operator."""

    name: str
    agent: str
    """Whose it is; empty for everybody's."""
    kind: str
    state: State
    reason: str
    starts: int
    tools: tuple[Offer, ...]


class Host:
    def __init__(self, common: Sequence[McpServer], open_transport: OpenTransport) -> None:
        self._common = list(common)
        self._open_transport = open_transport
        self._sessions: dict[Place, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def offers(self, agent: Agent) -> list[Offer]:
        found, _ = await self._listed(agent)
        return found

    async def find(self, agent: Agent, tool: str, within_s: float) -> Offer:
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
        # Whether it has the tool is not known; that it cannot be reached is what its caller has to hear.
        unknown = [Offer(one.name, name if wanted else tool) for one in silent if wanted or not slash]
        allowed = [one for one in unknown if self._permits(agent, one)]
        if allowed:
            return allowed[0]
        raise ToolNotFound(f"Agent {agent.slug} has no tool {tool}.")

    def server(self, agent: Agent, offer: Offer) -> McpServer:
        return next(one for one in self._servers(agent) if one.name == offer.server)

    async def call(
        self, agent: Agent, offer: Offer, given: Fields, progressed: Progressed | None = None
    ) -> ToolResult:  # fmt: skip
        try:
            session = self._session(agent, self.server(agent, offer))
            return ToolResult("succeeded", {"output": await session.call(offer.name, given, progressed)})
        except Fault as fault:
            return ToolResult(
                "failed", {"code": fault.code}, message=fault.message, effect="none" if fault.unsent else "unknown",
                well=not fault.ill,
            )  # fmt: skip

    async def status(self, agents: Iterable[Agent]) -> list[ServerStatus]:
        """All servers, each asked for its tools."""
        places = {**{("", one.name): one for one in self._common}}
        places |= {(agent.slug, one.name): one for agent in agents for one in agent.mcp}
        return list(await asyncio.gather(*(self._status(place, one) for place, one in places.items())))

    async def keep(self, agents: Iterable[Agent]) -> None:
        """Let go of servers that no definition names any more."""
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
    ) -> tuple[list[Offer], list[McpServer]]:
        """What the agent may use, and the servers that did not say."""
        asked = self._servers(agent) if servers is None else servers
        answers = await asyncio.gather(*(self._offers_of(agent, one, within_s or one.start_timeout_s) for one in asked))
        found = [offer for offers in answers if offers is not None for offer in offers]
        silent = [one for one, offers in zip(asked, answers, strict=True) if offers is None]
        return [one for one in found if self._permits(agent, one)], silent

    async def _offers_of(self, agent: Agent, server: McpServer, within_s: float) -> list[Offer] | None:
        try:
            async with asyncio.timeout(within_s):
                return await self._session(agent, server).offers()
        except (Fault, TimeoutError):
            return None

    async def _status(self, place: Place, server: McpServer) -> ServerStatus:
        kind = "stdio" if server.url is None else "http"
        try:
            session = self._at(place, server)
        except NotStarted as fault:
            return ServerStatus(server.name, place[0], kind, "failed", fault.message, 0, ())
        try:
            tools = tuple(await session.offers())
        except Fault:
            tools = ()
        return ServerStatus(server.name, place[0], kind, session.state, session.reason, session.starts, tools)

    def _servers(self, agent: Agent) -> list[McpServer]:
        return servers_for(agent.tools, agent.mcp, self._common)

    def _permits(self, agent: Agent, offer: Offer) -> bool:
        return permits(agent.tools, offer, own=any(one.name == offer.server for one in agent.mcp))

    def _session(self, agent: Agent, server: McpServer) -> "Session":
        return self._at((agent.slug if server in agent.mcp else "", server.name), server)

    def _at(self, place: Place, server: McpServer) -> "Session":
        session = self._sessions.get(place)
        if session is not None and session.server != server:
            closing = asyncio.get_running_loop().create_task(session.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            session = None
        if session is None:
            session = self._sessions[place] = _session_type()(server, self._open_transport)
        return session


def _session_type() -> "type[Session]":
    try:
        extras.check("mcp", "Every MCP server")
    except extras.ExtraMissing as error:
        raise NotStarted(error.message) from None
    from parley.tools.mcp.session import Session

    return Session
