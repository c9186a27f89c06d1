"""A real server on a free port: inside the test's own event loop, or in a thread for tests without one."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Literal, TypeVar

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp

from parley.app import open_exchange, open_faces
from parley.client import Client, Content, SendAnswer
from parley.execution.driver import Driver
from parley.http.connections import GuardedConnection
from parley.http.server import Prompt, bind, url_of
from parley.runs.service import Exchange
from parley.settings import Settings

__all__ = ["Server", "ServerThread", "hosting", "serving"]

T = TypeVar("T")


class Server(Struct, frozen=True):
    """A server of a test: its URL, its exchange, its application."""

    url: str
    exchange: Exchange
    app: ASGIApp
    """The ASGI application: all faces, with authentication."""

    def agent(self, slug: str) -> str:
        """Return the URL of an agent."""
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
        await stack.enter_async_context(hosting(app, listener, GuardedConnection))
        yield Server(url, exchange, app)


@asynccontextmanager
async def hosting(
    app: ASGIApp, listener: socket.socket | None = None, http: type[asyncio.Protocol] | Literal["auto"] = "auto"
) -> AsyncGenerator[str, None]:
    """Serve any application on its own socket; yields the URL."""
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


class ServerThread:
    """A real server in a thread of its own, for tests with or without an event loop."""

    def __init__(self, directory: Path, drivers: Sequence[Driver], **settings: object) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._started: Future[str] = Future()
        self._thread = Thread(target=self._main, args=(serving(directory, drivers, **settings),), daemon=True)
        self._thread.start()
        self.url = self._started.result()

    def agent(self, slug: str) -> str:
        """Return the address of an agent."""
        return f"{self.url}/agents/{slug}"

    def ask(self, slug: str, content: Content, *, task: str | None = None, context: str | None = None) -> SendAnswer:
        """Ask an agent over HTTP, and wait. In a coroutine use `parley.client.Client`, which does not block."""
        return self._wait(self._ask(slug, content, task, context))

    def stop(self) -> None:
        """Stop the server, if it is still running."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    async def _ask(self, slug: str, content: Content, task: str | None, context: str | None) -> SendAnswer:
        async with Client(self.agent(slug)) as client:
            return await client.send(content, task=task, context=context)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _main(self, server: AbstractAsyncContextManager[Server]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live(server))

    async def _live(self, server: AbstractAsyncContextManager[Server]) -> None:
        try:
            async with server as started:
                self._started.set_result(started.url)
                await self._stop.wait()
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
