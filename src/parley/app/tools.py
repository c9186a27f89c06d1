"""The extensions of a server's exchange: documents, orchestrations, and the tools of MCP servers."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

from parley import extras
from parley.definitions.agents import common_servers
from parley.documents.service import Documents
from parley.errors import ConfigurationError
from parley.execution.membership import TIDY_S, Loop
from parley.orchestrations.conductor import Conductor
from parley.orchestrations.runners import TableSteps
from parley.records import Records
from parley.runs.requests import Extensions
from parley.runs.service import Exchange
from parley.security.netguard import Guard, GuardedTransport, Outbound
from parley.settings import Settings
from parley.tools.github import Coding, GitHub, Token, TokenFile, fixed_token
from parley.tools.mcp.host import Host
from parley.tools.mcp_calls import ToolCalls
from parley.tools.service import ToolService


class ServerExtensions(Extensions, frozen=True, kw_only=True):
    """The extensions of a server's exchange, and the parts of them that its faces use too."""

    guard: Guard
    documents: Documents
    calls: ToolCalls


def extended(records: Records, host: Host, guard: Guard, keep_ms: int | None, exchange: Exchange) -> ServerExtensions:
    """Build the documents, the tool calls and the conductor of an exchange."""
    documents, calls = Documents(exchange), ToolCalls(exchange, records, host, keep_ms=keep_ms)
    conductor = Conductor(exchange, TableSteps(exchange, calls, documents))
    return ServerExtensions(calls, conductor.conducted, documents.fulfil, guard=guard, documents=documents, calls=calls)


def extensions_of(exchange: Exchange) -> ServerExtensions:
    if not isinstance(exchange.extensions, ServerExtensions):
        raise TypeError("This exchange was not opened by open_exchange.")
    return exchange.extensions


@asynccontextmanager
async def serving_tools(
    exchange: Exchange, settings: Settings, host: Host, toolcalls: ToolCalls
) -> AsyncGenerator[None, None]:
    """Let agents use their tools while open. Running tool calls must end before the exchange closes, because their
    results are written to its log."""
    if settings.mcp or any(agent.mcp for agent in exchange.agents.values()):
        _load()

    async def tidy() -> None:
        await host.keep(exchange.agents.values())
        if exchange.membership.leads:
            await toolcalls.tick()

    loop = Loop("toolcalls", TIDY_S, tidy)
    loop.start()
    try:
        yield
    finally:
        await loop.stop()
        await host.close()


def _load() -> None:
    """Load MCP support at the start: it takes a while, and would delay all callers at the first call."""
    extras.check("mcp", "Every MCP server", field="mcp")
    import_module("parley.tools.mcp.session")


def open_host(settings: Settings, guard: Guard) -> Host:
    return Host(common_servers(settings.mcp, Path()), lambda: GuardedTransport(guard))


# The tool packs of a server, with the services that their providers need.


@asynccontextmanager
async def open_tools(
    exchange: Exchange, settings: Settings, records: Records, guard: Guard, keep_ms: int | None
) -> AsyncGenerator[ToolService, None]:
    """Open the tool packs. Closing waits for calls that are running."""
    outbound = Outbound(guard)
    coding = Coding(GitHub(outbound, github_token(settings), settings.github_api))
    tools = ToolService(exchange, records, [coding], keep_ms=keep_ms)

    async def tidy() -> None:
        if exchange.membership.leads:
            await tools.tick()

    loop = Loop("tools", TIDY_S, tidy)
    loop.start()
    try:
        yield tools
    finally:
        await loop.stop()
        await tools.close()
        await outbound.close()


def github_token(settings: Settings) -> Token:
    given, file = settings.github_token, settings.github_token_file
    if given is not None and file is not None:
        raise ConfigurationError("Set github_token or github_token_file, not both.", field="github_token")
    return TokenFile(file) if file is not None else fixed_token(given.get_secret_value() if given else "")
