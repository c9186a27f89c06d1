"""An agent of the OpenAI Agents SDK as an agent.

    driver = openai_agent("tutor", Agent(name="Tutor", instructions="Explain briefly."))

The text of its models is streamed. A tool that needs approval and `ask_caller` become questions. Model calls and tool
calls are durable steps, also after a handoff. Tracing of the SDK, which sends data to OpenAI, is off unless a
`run_config` turns it on.
"""

import base64
import copy
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from typing import Any, Unpack, cast

import msgspec
from agents import Agent as OpenAiAgent
from agents import FunctionTool, Handoff, ModelProvider, ModelResponse, RunConfig, Runner, RunResult, Tool
from agents import Usage as OpenAiUsage
from agents.exceptions import InputGuardrailTripwireTriggered, MaxTurnsExceeded, OutputGuardrailTripwireTriggered
from agents.items import ToolApprovalItem, TResponseInputItem
from agents.models.interface import Model
from agents.run_context import RunContextWrapper
from agents.tool_context import ToolContext
from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent
from pydantic import BaseModel, TypeAdapter

from parley.drivers.framework import (
    HISTORY,
    FrameworkTurn,
    PendingCall,
    framework_agent,
    object_of,
    text_of_part,
    usage_of,
)
from parley.drivers.function import More
from parley.errors import AgentError, ConfigurationError, TooManyRounds
from parley.execution.rules import ArtifactChunk, Output
from parley.execution.turn import Turn
from parley.json_values import Json
from parley.runs.rules.agents import Agent, Limits, Rescue, Skill
from parley.runs.rules.content import Part, Parts

__all__ = ["openai_agent"]

Context = Callable[[Turn], Any]
MAX_TURNS = 10
_RESPONSES: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


class OpenAiAgentsDriver:
    def __init__(
        self,
        agent: Agent,
        wrapped: OpenAiAgent[Any],
        context: Context | None = None,
        history: int = HISTORY,
        max_turns: int = MAX_TURNS,
        run_config: RunConfig | None = None,
    ) -> None:
        self._agent = agent
        self._wrapped = wrapped
        self._context = context
        self._history = history
        self._max_turns = max_turns
        self._run_config = run_config or RunConfig(tracing_disabled=True)

    @property
    def agent(self) -> Agent:
        return self._agent

    @property
    def wrapped(self) -> OpenAiAgent[Any]:
        return self._wrapped

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        work = FrameworkTurn(turn)
        async with aclosing(work.outputs(lambda: self._loop(work))) as outputs:
            async for output in outputs:
                yield output

    async def _loop(self, work: FrameworkTurn) -> None:
        before, new = await work.conversation(self._history)
        said = [item for asked, answer in before for item in _exchange(asked, answer)]
        try:
            output = await self._answer(work, [*said, _user(new)])
        except MaxTurnsExceeded:
            raise TooManyRounds(f"The model was called more than {self._max_turns} times in a row.") from None
        except (InputGuardrailTripwireTriggered, OutputGuardrailTripwireTriggered) as error:
            raise AgentError(f"A guardrail stopped the agent: {error.guardrail_result.guardrail.get_name()}.") from None
        await _finish(work, output)

    async def _answer(self, work: FrameworkTurn, messages: list[TResponseInputItem]) -> object:
        """Run the agent until it answers. A run that stops for an approval goes on with the decision."""
        agent = _Converted(work).agent(self._wrapped)
        context = self._context(work.turn) if self._context is not None else None
        context = await context if inspect.isawaitable(context) else context
        config = replace(self._run_config, model_provider=_DurableProvider(self._run_config.model_provider, work))
        if isinstance(config.model, Model):
            config = replace(config, model=_DurableModel(config.model, work))
        given: Any = messages
        while True:
            result: RunResult = await Runner.run(
                agent, given, context=context, run_config=config, max_turns=self._max_turns
            )
            if not result.interruptions:
                return result.final_output
            given = _decided(work, result)


def _decided(work: FrameworkTurn, result: RunResult) -> object:
    """Return the state of a run with a person's decisions about the calls that it waits for."""
    state = result.to_state()
    pending = [(item, _pending(work, item)) for item in result.interruptions]
    decisions = work.approvals([call for _, call in pending])
    for item, call in pending:
        decide = state.approve if decisions[call.id] else state.reject
        decide(item)
    return state


def _pending(work: FrameworkTurn, item: ToolApprovalItem) -> PendingCall:
    return work.call(item.call_id or "", item.tool_name or "", _decoded(item.arguments or ""))


def _decoded(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError):
        return text


async def _finish(work: FrameworkTurn, output: object) -> None:
    """Deliver the result: text was streamed already, anything else becomes an artifact."""
    if isinstance(output, str):
        if not work.said:
            await work.text(output)
    elif output is not None:
        await work.say(ArtifactChunk(object_of(output), id="result", name=type(output).__name__))


# Messages.


def _exchange(asked: Sequence[Parts], answer: str) -> list[TResponseInputItem]:
    return [_user(asked), cast(TResponseInputItem, {"role": "assistant", "content": answer})]


def _user(messages: Sequence[Parts]) -> TResponseInputItem:
    content = [_content(part) for parts in messages for part in parts]
    return cast(TResponseInputItem, {"role": "user", "content": content})


def _content(part: Part) -> dict[str, object]:
    text = text_of_part(part)
    if text is not None:
        return {"type": "input_text", "text": text}
    media = part.media_type or "application/octet-stream"
    url = part.url or f"data:{media};base64,{base64.b64encode(part.raw or b'').decode()}"
    if media.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    name = part.filename or "file"
    return {"type": "input_file", "filename": name, "file_url" if part.url is not None else "file_data": url}


# Durable model and tool calls.


class _Converted:
    """Copies of an agent and of the agents that it hands over to, with durable tools and models."""

    def __init__(self, work: FrameworkTurn) -> None:
        self._work = work
        self._made: dict[int, OpenAiAgent[Any]] = {}

    def agent(self, given: OpenAiAgent[Any]) -> OpenAiAgent[Any]:
        if id(given) not in self._made:
            values: dict[str, Any] = {one.name: getattr(given, one.name) for one in fields(given) if one.init}
            model = _DurableModel(given.model, self._work) if isinstance(given.model, Model) else given.model
            handoffs: list[OpenAiAgent[Any] | Handoff[Any, Any]] = []
            values |= {"model": model, "handoffs": handoffs}
            self._made[id(given)] = _DurableAgent(**values, work=self._work)
            # Two agents may hand over to each other.
            handoffs.extend(self._handoff(one) for one in given.handoffs)
        return self._made[id(given)]

    def _handoff(self, given: OpenAiAgent[Any] | Handoff[Any, Any]) -> OpenAiAgent[Any] | Handoff[Any, Any]:
        if not isinstance(given, Handoff):
            return self.agent(given)

        async def invoked(context: RunContextWrapper[Any], text: str) -> OpenAiAgent[Any]:
            return self.agent(await given.on_invoke_handoff(context, text))

        return replace(given, on_invoke_handoff=invoked)


@dataclass
class _DurableAgent(OpenAiAgent[Any]):
    work: FrameworkTurn | None = None

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        assert self.work is not None
        return [_durable(one, self.work) for one in await super().get_all_tools(run_context)]


def _durable(tool: Tool, work: FrameworkTurn) -> Tool:
    if not isinstance(tool, FunctionTool):
        return tool
    invoke = tool.on_invoke_tool

    async def invoked(context: ToolContext[Any], given: str) -> object:
        async def used() -> Json:
            return _plain(await invoke(context, given))

        return await work.tool(work.call(context.tool_call_id, tool.name, _decoded(given)), used, settle=True)

    copied = copy.copy(tool)
    copied.on_invoke_tool = invoked
    return copied


def _plain(value: object) -> Json:
    """Return the result of a tool as JSON: text and files as the SDK reads them, all else as text."""
    if isinstance(value, BaseModel):
        return cast(Json, value.model_dump(mode="json", exclude_none=True))
    if isinstance(value, list):
        return [_plain(one) for one in cast(list[object], value)]
    return cast(Json, value) if isinstance(value, str | dict) else str(value)


class _DurableProvider(ModelProvider):
    def __init__(self, wrapped: ModelProvider, work: FrameworkTurn) -> None:
        self._wrapped = wrapped
        self._work = work

    def get_model(self, model_name: str | None) -> Model:
        return _DurableModel(self._wrapped.get_model(model_name), self._work)


class _DurableModel(Model):
    """Streams the text of a model to the caller, and records its response."""

    def __init__(self, wrapped: Model, work: FrameworkTurn) -> None:
        self._wrapped = wrapped
        self._work = work

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        schema = kwargs.get("output_schema", args[4] if len(args) > 4 else None)
        shown = schema is None or schema.is_plain_text()

        async def called() -> Json:
            response = await self._called(args, kwargs, shown)
            # The SDK refuses items with members that the vendor did not send.
            return cast(Json, _RESPONSES.dump_python(response, mode="json", by_alias=True, exclude_unset=True))

        recorded, again = await self._work.model(called)
        response = _RESPONSES.validate_python(recorded)
        if again and shown:
            await self._work.text(_text(response), begins=True)
        return response

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError("Runs are not streamed by the SDK: the model streams to the caller itself.")
        yield

    async def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any], shown: bool) -> ModelResponse:
        try:
            streamed = await self._streamed(self._wrapped.stream_response(*args, **kwargs), shown)
        except NotImplementedError:
            streamed = None
        if streamed is not None:
            self._record(streamed.model, _usage(streamed))
            return ModelResponse(output=streamed.output, usage=_usage(streamed), response_id=streamed.id)
        response = await self._wrapped.get_response(*args, **kwargs)
        self._record(getattr(self._wrapped, "model", None), response.usage)
        await self._work.text(_text(response) if shown else "", begins=True)
        return response

    async def _streamed(self, events: AsyncIterator[Any], shown: bool) -> Response | None:
        begins, response = True, None
        async for event in events:
            if isinstance(event, ResponseCompletedEvent):
                response = event.response
            elif shown and isinstance(event, ResponseTextDeltaEvent):
                await self._work.text(event.delta, begins=begins)
                begins = begins and not event.delta
        return response

    def _record(self, model: object, used: OpenAiUsage) -> None:
        cached = used.input_tokens_details.cached_tokens
        usage = usage_of(model, used.input_tokens, used.output_tokens, cached)
        if usage is not None:
            self._work.turn.record(usage)


def _usage(response: Response) -> OpenAiUsage:
    used = response.usage
    if used is None:
        return OpenAiUsage(requests=1)
    return OpenAiUsage(
        requests=1,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.total_tokens,
        input_tokens_details=used.input_tokens_details,
        output_tokens_details=used.output_tokens_details,
    )


def _text(response: ModelResponse) -> str:
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    return "".join(part.text for part in parts if part.type == "output_text")


def openai_agent(
    slug: str,
    wrapped: OpenAiAgent[Any],
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
    skills: Sequence[Skill] = (),
    limits: Limits | None = None,
    rescue: Rescue = "restart",
    context: Context | None = None,
    history: int = HISTORY,
    max_turns: int = MAX_TURNS,
    run_config: RunConfig | None = None,
    **more: Unpack[More],
) -> OpenAiAgentsDriver:
    """Serve an agent of the OpenAI Agents SDK. `context` makes the context of its tools from a turn. `history` is the
    number of earlier exchanges of the conversation that the model reads."""
    if not isinstance(cast(object, wrapped), OpenAiAgent):
        raise ConfigurationError(f"Agent {slug}: {type(wrapped).__name__} is not an Agent of the OpenAI Agents SDK.")
    spec = framework_agent(
        slug, name=name, description=description, version=version, skills=skills, limits=limits, rescue=rescue, **more
    )
    return OpenAiAgentsDriver(spec, wrapped, context, history, max_turns, run_config)
