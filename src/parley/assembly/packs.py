"""The tool packs of a server, with what their providers need."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from parley.engine.exchange import Exchange
from parley.engine.membership import TIDY_S, Loop
from parley.engine.ports import Records
from parley.engine.tools import Tools
from parley.errors import ConfigurationError
from parley.security.netguard import Guard, Outbound
from parley.settings import Settings
from parley.tools.coding import Coding
from parley.tools.github import GitHub, Token, TokenFile, fixed_token


@asynccontextmanager
async def open_tools(
    exchange: Exchange, settings: Settings, records: Records, guard: Guard, keep_ms: int | None
) -> AsyncGenerator[Tools, None]:
    """What is under way when it closes is waited for."""
    outbound = Outbound(guard)
    coding = Coding(GitHub(outbound, github_token(settings), settings.github_api))
    tools = Tools(exchange, records, [coding], keep_ms=keep_ms)

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
