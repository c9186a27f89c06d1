"""ASGI application that serves an A2A SDK executor, in place of the application an SDK program builds from routes."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from a2a.server.agent_execution import AgentExecutor
from a2a.types import AgentCard
from google.protobuf import json_format
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.app import open_exchange, open_faces
from parley.app.application import drain
from parley.compat.executor_driver import ExecutorDriver
from parley.errors import ConfigurationError
from parley.http.server import live
from parley.runs.rules.agents import Agent, Extension, Limits, Provider, Rescue, Skill, check_agent, plain_skill
from parley.settings import Settings, load
from parley.telemetry.logs import log_by_logging

# From the card of an SDK program to an agent.

_OTHERS = re.compile(r"[^a-z0-9]+")


def agent_of(card: AgentCard, slug: str | None, rescue: Rescue, limits: Limits) -> Agent:
    """Build the agent from a card. URLs, security and signatures are left out, because the server adds its own."""
    slug = slug or slug_of(card.name)
    skills = tuple(
        Skill(one.id, one.name, one.description, tuple(one.tags), tuple(one.examples)) for one in card.skills
    )
    described = card.description or f"The agent {card.name}."
    agent = Agent(
        slug,
        card.name or slug,
        described,
        card.version or "1.0.0",
        skills or (plain_skill(slug, card.name or slug, described),),
        limits=limits,
        rescue=rescue,
        replies="either",
        streaming=card.capabilities.streaming,
        extensions=tuple(
            Extension(one.uri, one.description, one.required, json_format.MessageToDict(one.params))
            for one in card.capabilities.extensions
        ),
        provider=Provider(card.provider.organization, card.provider.url) if card.HasField("provider") else None,
        documentation_url=card.documentation_url or None,
        icon_url=card.icon_url or None,
    )
    # A card without modes sets no limit, and an executor accepts any content that the SDK passes to it.
    inputs, outputs = tuple(card.default_input_modes), tuple(card.default_output_modes)
    return replace(agent, input_modes=inputs or ("*/*",), output_modes=outputs or agent.output_modes)


def slug_of(name: str) -> str:
    slug = _OTHERS.sub("-", name.lower()).strip("-")[:63].rstrip("-")
    if not slug:
        raise ConfigurationError("The card has no name to derive the slug from; pass slug=….", field="slug")
    return slug


def origin_of(card: AgentCard) -> str | None:
    """Return the origin of the URL in the program's card, without its path: paths are chosen by our server."""
    for one in card.supported_interfaces:
        address = urlsplit(one.url)
        if address.scheme in ("http", "https") and address.netloc:
            return f"{address.scheme}://{address.netloc}"
    return None


UNLIMITED = Limits()


class Durable(ExecutorDriver):
    """An ASGI application for any server with lifespan support; also a driver, for `parley serve`."""

    def __init__(self, agent: Agent, executor: AgentExecutor, origin: str | None, given: dict[str, Any]) -> None:
        super().__init__(agent, executor)
        self._origin = origin
        self._given = given
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(self._opened(), receive, send)
        elif self._app is None:
            raise ConfigurationError("The application was not started; use an ASGI server that supports lifespan.")
        else:
            await self._app(scope, receive, send)

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


# Why: docs/decisions/drivers.md#adopt-sdk-programs-by-replacing-their-application
def durable(
    executor: AgentExecutor,
    card: AgentCard,
    *,
    slug: str | None = None,
    rescue: Rescue = "restart",
    limits: Limits = UNLIMITED,
    **settings: Any,
) -> Durable:
    """Return an application that serves the executor as an agent of Parley. It replaces `Starlette(routes=…)`.

    The agent's slug is derived from the name in the card unless `slug` is given. `settings` are settings of the server,
    and override the environment and `parley.toml`.
    """
    agent = agent_of(card, slug, rescue, limits)
    check_agent(agent)
    return Durable(agent, executor, origin_of(card), settings)
