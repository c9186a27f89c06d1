"""A Python function as an agent.

    @agent("echo")
    async def echo(turn):
        yield Text(turn.text)

An async generator yields outputs; a coroutine or a plain function returns the answer. A plain function runs in a
thread, so it may block, but it cannot be interrupted there.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Any, TypedDict, Unpack, cast, get_args

from parley.errors import AgentError
from parley.execution.rules import ArtifactChunk, Content, Output, Reply, Text
from parley.execution.turn import Turn
from parley.runs.rules.agents import (
    Agent,
    Extended,
    Extension,
    Limits,
    Provider,
    Replies,
    Rescue,
    Skill,
    Visibility,
    plain_name,
    plain_skill,
)
from parley.runs.rules.content import Part
from parley.tools.rules.mcp import McpServer

Streaming = Callable[[Turn], AsyncIterator[Output | str]]
Returning = Callable[[Turn], Awaitable[Any]]
Blocking = Callable[[Turn], Any]
Function = Streaming | Returning | Blocking


class FunctionDriver:
    """A function as an agent. It can still be called like the function: `await echo(turn)`."""

    __name__: str
    __wrapped__: Function

    def __init__(self, agent: Agent, function: Function) -> None:
        update_wrapper(self, function)
        self._agent = agent
        self._function = function
        self._start = _starter(agent, function)

    @property
    def agent(self) -> Agent:
        return self._agent

    @property
    def function(self) -> Function:
        return self._function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<agent {self._agent.slug}: {self._function!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionDriver) and (self._agent, self._function) == (other._agent, other._function)

    def __hash__(self) -> int:
        return hash((self._agent.slug, self._function))

    def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        return self._start(turn)


class More(TypedDict, total=False):
    """Further keyword arguments of `agent`; they are fields of `Agent`."""

    model: str | None
    capabilities: tuple[str, ...]
    tools: tuple[str, ...]
    mcp: tuple[McpServer, ...]
    visibility: Visibility
    allow: tuple[str, ...]
    streaming: bool
    push: bool
    extended: Extended | None
    extensions: tuple[Extension, ...]
    provider: Provider | None
    documentation_url: str | None
    icon_url: str | None
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]


def agent(
    slug: str,
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
    skills: Sequence[Skill] = (),
    max_concurrent: int | None = None,
    max_queued: int | None = None,
    timeout_s: float | None = None,
    max_per_second: float | None = None,
    max_burst: int | None = None,
    rescue: Rescue = "restart",
    replies: Replies = "task",
    **more: Unpack[More],
) -> Callable[[Function], FunctionDriver]:
    """Serve a function as an agent. The name defaults to the slug, the description to the function's docstring."""

    def decorate(function: Function) -> FunctionDriver:
        about = description or inspect.getdoc(function) or f"The agent {slug}."
        spec = Agent(
            slug=slug,
            name=name or plain_name(slug),
            description=about,
            version=version,
            skills=tuple(skills) or (plain_skill(slug, name or slug, about),),
            limits=Limits(max_concurrent, max_queued, timeout_s, max_per_second, max_burst),
            rescue=rescue,
            replies=replies,
            **more,
        )
        return FunctionDriver(spec, function)

    return decorate


def _starter(agent: Agent, function: Function) -> Callable[[Turn], AsyncGenerator[Output, None]]:
    if inspect.isasyncgenfunction(function):
        return lambda turn: _yielded(function(turn))
    if inspect.iscoroutinefunction(function):
        return lambda turn: _returned(agent, function(turn))
    return lambda turn: _returned(agent, asyncio.to_thread(function, turn))


async def _yielded(outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[Output, None]:
    try:
        async for output in outputs:
            yield Text(output) if isinstance(output, str) else output
    finally:
        await outputs.aclose()


async def _returned(agent: Agent, answer: Awaitable[Any]) -> AsyncGenerator[Output, None]:
    value = await answer
    if value is None:
        return
    if isinstance(value, get_args(Output)):
        yield value
    elif agent.replies == "message":
        yield Reply(value)
    elif isinstance(value, str):
        yield Text(value)
    elif isinstance(value, bytes | Mapping | Part):
        yield ArtifactChunk(cast(Content, value))
    else:
        raise AgentError(f"The agent returned {type(value).__name__}; return text, bytes, a dict, a Part or an Output.")
