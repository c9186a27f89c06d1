"""The tools of MCP servers: put together where an agent or the settings name a server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

from parley import extras
from parley.definitions.servers import common_servers
from parley.engine.documents import Documents
from parley.engine.exchange import Exchange
from parley.engine.membership import TIDY_S, Loop
from parley.engine.ports import Records
from parley.engine.tablesteps import TableSteps
from parley.engine.toolcalls import ToolCalls
from parley.security.netguard import Guard, GuardedTransport
from parley.settings import Settings
from parley.tools.mcp.host import Host


@asynccontextmanager
async def open_toolcalls(
    exchange: Exchange, settings: Settings, records: Records, guard: Guard, keep_ms: int | None
) -> AsyncGenerator[ToolCalls, None]:
    """Agents can use their tools while it is open. What is under way has to be waited for before the exchange closes:
    its log is told what came of it."""
    host = open_host(settings, guard)
    if settings.mcp or any(agent.mcp for agent in exchange.agents.values()):
        _load()
    toolcalls = ToolCalls(exchange, records, host, keep_ms=keep_ms)

    async def tidy() -> None:
        await host.keep(exchange.agents.values())
        if exchange.membership.leads:
            await toolcalls.tick()

    loop = Loop("toolcalls", TIDY_S, tidy)
    exchange.execution.toolcalls = toolcalls
    exchange.steps = TableSteps(exchange, toolcalls, Documents(exchange))
    loop.start()
    try:
        yield toolcalls
    finally:
        await loop.stop()
        await host.close()


def _load() -> None:
    """It takes a while, and would hold up everybody at the first call."""
    extras.check("mcp", "Every MCP server", field="mcp")
    import_module("parley.tools.mcp.session")


def open_host(settings: Settings, guard: Guard) -> Host:
    return Host(common_servers(settings.mcp, Path()), lambda: GuardedTransport(guard))
