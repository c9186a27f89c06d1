"""A real server on a free port, inside the test's own event loop."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp

from parley.app import open_exchange, open_faces
from parley.engine.exchange import Exchange
from parley.engine.ports import Driver
from parley.faces.connections import Connection
from parley.listening import Prompt, bind, url_of
from parley.settings import Settings


class Server(Struct, frozen=True):
    url: str
    exchange: Exchange
    app: ASGIApp
    """What it serves: every face, and who may enter."""

    def agent(self, slug: str) -> str:
        return f"{self.url}/agents/{slug}"


@asynccontextmanager
async def serving(directory: Path, drivers: Sequence[Driver], **settings: object) -> AsyncGenerator[Server, None]:
    """Serve some agents from a data directory until the block ends."""
    values = Settings.model_validate({"data_dir": directory, **settings})
    async with AsyncExitStack() as stack:
        exchange = await stack.enter_async_context(open_exchange(values, drivers))
        listener = stack.enter_context(bind("127.0.0.1", 0))
        url = url_of(listener)
        app = await stack.enter_async_context(open_faces(exchange, values, url, values.grpc_port))
        await stack.enter_async_context(hosting(app, listener, Connection))
        yield Server(url, exchange, app)


@asynccontextmanager
async def hosting(
    app: ASGIApp, listener: socket.socket | None = None, http: type[asyncio.Protocol] | Literal["auto"] = "auto"
) -> AsyncGenerator[str, None]:
    """Any application on a socket of its own, at the address that this yields."""
    config = uvicorn.Config(app, http=http, log_level="critical", lifespan="off", ws="none")
    config.timeout_graceful_shutdown = 1
    server = Prompt(config)
    with listener or socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        try:
            yield url_of(listener)
        finally:
            server.should_exit = True
            await task
