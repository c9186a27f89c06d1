"""A Python function as an agent.

    @agent("echo")
    async def echo(turn):
        yield Text(turn.text)

An async generator yields outputs; a coroutine or a plain function returns the answer. A plain function runs in a
thread, so it may block, but it cannot be interrupted there. An instance of a data class, a msgspec Struct or a pydantic
model becomes a JSON artifact.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import update_wrapper
from typing import Any, TypedDict, Unpack, cast, get_args

from msgspec.structs import replace

from parley.errors import AgentError, OutputInvalid
from parley.execution.rules import ArtifactChunk, Content, Done, NeedAuth, NeedInput, Output, Reply, Text
from parley.execution.turn import Turn
from parley.json_values import Json
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
from parley.runs.rules.events import Failed, Rejected
from parley.tools.rules.mcp import McpServer
from parley.typed import instance_of, is_described, json_of, schema_of

TYPED_OUTPUT = "urn:parley:extension:typed-output:1"
"""Extension of the card that describes an agent's output: `params` has the JSON Schema and the name of the artifact."""
JSON = "application/json"
_OUTPUTS = get_args(Output)
_ENDINGS = (NeedInput, NeedAuth, Reply, Failed, Rejected)
"""Outputs with which a turn may end without the agent's output."""

Streaming = Callable[[Turn], AsyncIterator[Output | str]]
Returning = Callable[[Turn], Awaitable[Any]]
Blocking = Callable[[Turn], Any]
Function = Streaming | Returning | Blocking


class FunctionDriver:
    """A function as an agent. It can still be called like the function: `await echo(turn)`."""

    __name__: str
    __wrapped__: Function

    def __init__(self, agent: Agent, function: Function, output: type | None = None) -> None:
        update_wrapper(self, function)
        self._agent = agent if output is None else _with_output(agent, output)
        self._function = function
        self._output = output
        self._start = _starter(agent, function, output)

    @property
    def agent(self) -> Agent:
        return self._agent

    @property
    def function(self) -> Function:
        return self._function

    @property
    def output(self) -> type | None:
        """The class of the agent's output, if it declares one."""
        return self._output

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
    output: type | None = None,
    **more: Unpack[More],
) -> Callable[[Function], FunctionDriver]:
    """Serve a function as an agent. The name defaults to the slug, the description to the function's docstring.

    `output` is a data class, a msgspec Struct or a pydantic model. The agent returns or yields an instance of it, which
    becomes a JSON artifact, and the card shows its schema.
    """

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
        return FunctionDriver(spec, function, output)

    return decorate


def _with_output(agent: Agent, output: type) -> Agent:
    """Return the agent with its output on the card."""
    params: dict[str, object] = {"artifact": output.__name__, "schema": schema_of(output, output=True)}
    extension = Extension(TYPED_OUTPUT, f"The answer has an artifact of JSON, {output.__name__}.", params=params)
    others = (one for one in agent.extensions if one.uri != TYPED_OUTPUT)
    return replace(agent, extensions=(*others, extension))


# The values that a function yields or returns, as outputs of a turn.


def _starter(agent: Agent, function: Function, output: type | None) -> Callable[[Turn], AsyncGenerator[Output, None]]:
    if inspect.isasyncgenfunction(function):
        return lambda turn: _yielded(function(turn), _Outputs(turn, output))
    if inspect.iscoroutinefunction(function):
        return lambda turn: _returned(agent, function(turn), _Outputs(turn, output))
    return lambda turn: _returned(agent, asyncio.to_thread(function, turn), _Outputs(turn, output))


class _Outputs:
    """Converts the values of one turn, and checks that the declared output is among them."""

    def __init__(self, turn: Turn, output: type | None) -> None:
        self._turn = turn
        self._output = output
        self._missing = output is not None

    def converted(self, value: object) -> Output:
        if isinstance(value, str):
            return Text(value)
        if isinstance(value, Done):
            self.check()
        if isinstance(value, _OUTPUTS):
            return cast(Output, value)
        if self._output is not None and isinstance(value, (self._output, Mapping)):
            self._missing = False
            return _artifact(self._output, cast(object, value))
        if is_described(type(value)) and not isinstance(value, Part):
            return _artifact(type(value), value)
        if isinstance(value, bytes | Mapping | Part):
            return ArtifactChunk(cast(Content, value))
        raise AgentError(
            f"The agent gave {type(value).__name__}: return or yield text, bytes, a dict, a Part, an Output, "
            "or an instance of a data class, a msgspec Struct or a pydantic model."
        )

    def check(self) -> None:
        """Raise OutputInvalid if the turn ends without the output. A resumed turn may have given it before."""
        if self._missing and self._output is not None:
            name = self._output.__name__
            if all(one.name != name for one in self._turn.artifacts):
                raise OutputInvalid(f"The agent ended without its output: return or yield a {name}.")


async def _yielded(values: AsyncGenerator[Any, None], outputs: _Outputs) -> AsyncGenerator[Output, None]:
    async with aclosing(values):
        async for value in values:
            yield outputs.converted(value)
    outputs.check()


async def _returned(agent: Agent, answer: Awaitable[Any], outputs: _Outputs) -> AsyncGenerator[Output, None]:
    value = await answer
    made = None if value is None else outputs.converted(value)
    if not isinstance(value, _ENDINGS):
        outputs.check()
    if agent.replies == "message" and value is not made and isinstance(made, Text | ArtifactChunk):
        yield Reply(made.text if isinstance(made, Text) else made.content)
    elif made is not None:
        yield made


def _artifact(kind: type[object], value: object) -> ArtifactChunk:
    """Return the artifact of an instance of a class, or of a dict from which one can be made."""
    try:
        made = value if isinstance(value, kind) else instance_of(kind, cast(Json, value))
        return ArtifactChunk(Part(data=json_of(made), media_type=JSON), name=kind.__name__)
    except AgentError as error:
        raise OutputInvalid(error.message) from None
