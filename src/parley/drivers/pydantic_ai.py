"""A pydantic-ai agent as an agent.

    driver = pydantic_agent("helper", Agent("openai:gpt-5", instructions="Be brief."))

The text of its models is streamed. A tool that needs approval, a deferred tool call and `ask_caller` become questions.
Model requests and tool calls are durable steps.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Unpack, cast

from pydantic import TypeAdapter
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDefinition

from parley.drivers.framework import (
    HISTORY,
    Asked,
    CallerQuestion,
    FrameworkTurn,
    PendingCall,
    framework_agent,
    object_of,
    text_of_part,
    usage_of,
)
from parley.drivers.function import More
from parley.errors import ConfigurationError
from parley.execution.rules import ArtifactChunk, NeedInput, Output
from parley.execution.turn import Turn
from parley.json_values import Json, fields_of
from parley.runs.rules.agents import Agent, Limits, Rescue, Skill
from parley.runs.rules.content import Part, Parts

__all__ = ["pydantic_agent"]

Dependencies = Callable[[Turn], Any]
_RESPONSES: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_RETURNS: TypeAdapter[ToolReturn[Any]] = TypeAdapter(ToolReturn)
_CONTENTS: TypeAdapter[ToolReturnPart] = TypeAdapter(ToolReturnPart)


class PydanticAiDriver:
    def __init__(
        self, agent: Agent, wrapped: PydanticAgent[Any, Any], deps: Dependencies | None = None, history: int = HISTORY
    ) -> None:
        self._agent = agent
        self._wrapped = wrapped
        self._deps = deps
        self._history = history

    @property
    def agent(self) -> Agent:
        return self._agent

    @property
    def wrapped(self) -> PydanticAgent[Any, Any]:
        return self._wrapped

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        work = FrameworkTurn(turn)
        async with aclosing(work.outputs(lambda: self._loop(work))) as outputs:
            async for output in outputs:
                yield output

    async def _loop(self, work: FrameworkTurn) -> None:
        before, new = await work.conversation(self._history)
        history = [message for asked, answer in before for message in _exchange(asked, answer)]
        result = await self._wrapped.run(
            _prompt(new),
            message_history=history,
            deps=await _made(self._deps, work.turn),
            capabilities=[_Durable(work), ReinjectSystemPrompt()],
        )
        await _finish(work, result.output)


async def _made(deps: Dependencies | None, turn: Turn) -> Any:
    made = deps(turn) if deps is not None else None
    return await made if inspect.isawaitable(made) else made


async def _finish(work: FrameworkTurn, output: object) -> None:
    """Deliver the result: text was streamed already, anything else becomes an artifact."""
    if isinstance(output, str):
        if not work.said:
            await work.text(output)
    elif isinstance(output, BinaryContent):
        await work.say(_file(output))
    elif output is not None:
        await work.say(ArtifactChunk(object_of(output), id="result", name=type(output).__name__))


def _file(content: BinaryContent) -> ArtifactChunk:
    return ArtifactChunk(content.data, filename=content.identifier, media_type=content.media_type)


# Messages.


def _exchange(asked: Sequence[Parts], answer: str) -> list[ModelMessage]:
    return [ModelRequest([UserPromptPart(_prompt(asked))]), ModelResponse([TextPart(answer)])]


def _prompt(messages: Sequence[Parts]) -> str | list[UserContent]:
    found = [_content(part) for parts in messages for part in parts]
    return "\n".join(cast(list[str], found)) if all(isinstance(one, str) for one in found) else found


def _content(part: Part) -> UserContent:
    text = text_of_part(part)
    if text is not None:
        return text
    media = part.media_type or "application/octet-stream"
    if part.url is not None:
        return ImageUrl(part.url) if media.startswith("image/") else DocumentUrl(part.url)
    return BinaryContent(part.raw or b"", media_type=media)


# Durable model requests and tool calls.


class _Durable(AbstractCapability[Any]):
    """Runs the model requests and tool calls of one turn as durable steps, and asks the caller for approvals."""

    def __init__(self, work: FrameworkTurn) -> None:
        self._work = work

    def get_wrapper_model(self, model: Model) -> Model:
        return _DurableModel(model, self._work)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Any,
        handler: Callable[[Any], Awaitable[Any]],
    ) -> Any:
        async def used() -> Json:
            return await _outcome(call, handler(args))

        try:
            return _returned(await self._work.tool(_pending(self._work, call), used))
        except Asked as asked:
            # A call that waits for approval does not stop the other calls of the same answer.
            raise ApprovalRequired({"parley": asked.question}) from None

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """Return a person's decisions. If they are not known yet, ask, after all other calls have ended."""
        own = [call for call in requests.approvals if "parley" not in requests.metadata.get(call.tool_call_id, {})]
        decided = self._work.approvals([_pending(self._work, call) for call in own])
        for call in requests.approvals:
            if call not in own:
                self._work.ask(requests.metadata[call.tool_call_id]["parley"])
        values = {call.tool_call_id: self._value(call, requests.metadata) for call in requests.calls}
        return DeferredToolResults(calls=values, approvals={**decided})

    def _value(self, call: ToolCallPart, metadata: Mapping[str, Mapping[str, Any]]) -> Json:
        about = metadata.get(call.tool_call_id) or {}
        pending = _pending(self._work, call)
        words = about.get("question") or f"What is the result of {pending.shown}?"
        need = NeedInput(words, choices=about.get("choices") or (), schema=about.get("schema"))
        return self._work.ask(CallerQuestion((f"call.{pending.round}.{pending.id}",), need))[0]


def _pending(work: FrameworkTurn, call: ToolCallPart) -> PendingCall:
    return work.call(call.tool_call_id, call.tool_name, cast(Json, call.args_as_dict()))


async def _outcome(call: ToolCallPart, result: Awaitable[Any]) -> Json:
    """Return the result of a tool as JSON. A failure that the model is told about is a result too."""
    try:
        value = await result
    except ModelRetry as error:
        return {"retry": error.message}
    except ToolFailed as error:
        return {"failed": error.message}
    if isinstance(value, ToolReturn):
        return {"return": _RETURNS.dump_python(cast(ToolReturn[Any], value), mode="json")}
    part = ToolReturnPart(call.tool_name, value, call.tool_call_id)
    return {"value": _CONTENTS.dump_python(part, mode="json")}


def _returned(outcome: Json) -> Any:
    found = fields_of(outcome)
    if "retry" in found:
        raise ModelRetry(str(found["retry"]))
    if "failed" in found:
        raise ToolFailed(str(found["failed"]))
    if "return" in found:
        return _RETURNS.validate_python(found["return"])
    return _CONTENTS.validate_python(found["value"]).content


class _DurableModel(WrapperModel):
    """Streams the text of a model to the caller, and records its response."""

    def __init__(self, wrapped: Model, work: FrameworkTurn) -> None:
        super().__init__(wrapped)
        self._work = work

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        shown = model_request_parameters.output_mode not in ("native", "prompted")

        async def called() -> Json:
            response = await self._called(messages, model_settings, model_request_parameters, shown)
            self._record(response)
            return cast(Json, _RESPONSES.dump_python(response, mode="json"))

        recorded, again = await self._work.model(called)
        response = _RESPONSES.validate_python(recorded)
        if again and shown:
            await self._work.text(_text(response), begins=True)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)

    async def _called(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        shown: bool,
    ) -> ModelResponse:
        try:
            async with self.wrapped.request_stream(messages, settings, parameters) as stream:
                await self._streamed(stream, shown)
                return stream.get()
        except (NotImplementedError, AssertionError):
            # The model cannot stream.
            response = await self.wrapped.request(messages, settings, parameters)
            await self._work.text(_text(response) if shown else "", begins=True)
            return response

    async def _streamed(self, stream: StreamedResponse, shown: bool) -> None:
        begins = True
        async for event in stream:
            if isinstance(event, PartStartEvent) and isinstance(event.part, FilePart):
                await self._work.say(_file(event.part.content))
            text = _delta(event) if shown else ""
            await self._work.text(text, begins=begins)
            begins = begins and not text

    def _record(self, response: ModelResponse) -> None:
        used = response.usage
        usage = usage_of(response.model_name, used.input_tokens, used.output_tokens, used.cache_read_tokens)
        if usage is not None:
            self._work.turn.record(usage)


def _delta(event: object) -> str:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _text(response: ModelResponse) -> str:
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def pydantic_agent(
    slug: str,
    wrapped: PydanticAgent[Any, Any],
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
    skills: Sequence[Skill] = (),
    limits: Limits | None = None,
    rescue: Rescue = "restart",
    deps: Dependencies | None = None,
    history: int = HISTORY,
    **more: Unpack[More],
) -> PydanticAiDriver:
    """Serve a pydantic-ai agent. `deps` makes the dependencies of its tools from a turn. `history` is the number of
    earlier exchanges of the conversation that the model reads."""
    if not isinstance(cast(object, wrapped), PydanticAgent):
        raise ConfigurationError(f"Agent {slug}: {type(wrapped).__name__} is not an Agent of pydantic-ai.")
    spec = framework_agent(
        slug, name=name, description=description, version=version, skills=skills, limits=limits, rescue=rescue, **more
    )
    return PydanticAiDriver(spec, wrapped, deps, history)
