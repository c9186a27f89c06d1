"""The application that serves an executor: in the place of the one that an SDK program builds of routes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from a2a.server.agent_execution import AgentExecutor
from a2a.types import AgentCard
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.app import open_exchange, open_faces
from parley.compat.executors.cards import agent_of, origin_of
from parley.compat.executors.driver import ExecutorDriver
from parley.compat.executors.logs import log_by_logging
from parley.core.agents import Agent, Limits, Rescue, check_agent
from parley.engine.stopping import drain
from parley.errors import ConfigurationError, ParleyError
from parley.settings import Settings, load

UNLIMITED = Limits()


class Durable(ExecutorDriver):
    """An ASGI application for any server that tells it when it starts and stops; and a driver, for `parley serve`."""

    def __init__(self, agent: Agent, executor: AgentExecutor, origin: str | None, given: dict[str, Any]) -> None:
        super().__init__(agent, executor)
        self._origin = origin
        self._given = given
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._app is None:
            raise ConfigurationError("The server did not start this application: it needs its lifespan.")
        else:
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        started = False
        try:
            async with self._opened():
                await send({"type": "lifespan.startup.complete"})
                started = True
                await receive()
        except ParleyError as error:
            if started:
                raise
            await send({"type": "lifespan.startup.failed", "message": error.message})
            return
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None, None]:
        settings = load(**self._given)
        detach = log_by_logging()
        try:
            async with self._serving(settings):
                yield
        finally:
            detach()

    @asynccontextmanager
    async def _serving(self, settings: Settings) -> AsyncGenerator[None, None]:
        async with (
            open_exchange(settings, [self]) as exchange,
            open_faces(exchange, settings, self._base_url(settings)) as self._app,
        ):
            try:
                yield
            finally:
                await drain(exchange, settings.drain_s)
        self._app = None

    def _base_url(self, settings: Settings) -> str:
        return (settings.public_url or self._origin or f"http://{settings.host}:{settings.port}").rstrip("/")


def durable(
    executor: AgentExecutor, card: AgentCard, *, slug: str | None = None, rescue: Rescue = "restart",
    limits: Limits = UNLIMITED, **settings: Any,
) -> Durable:  # fmt: skip
    """An application that serves the executor as an agent of Parley: what `Starlette(routes=…)` was before.

    The agent's address is made of the name in the card, or is the `slug`. `settings` are those of the server, and go
    before the environment and `parley.toml`.
    """
    agent = agent_of(card, slug, rescue, limits)
    check_agent(agent)
    return Durable(agent, executor, origin_of(card), settings)
