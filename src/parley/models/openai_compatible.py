"""OpenAI's Chat Completions API, and servers that are compatible with it."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import httpx2
import msgspec
import openai
from msgspec.structs import replace
from openai.types.chat import ChatCompletionChunk

from parley.errors import ContentNotSupported, ModelError, ReplyTooLarge
from parley.models.endpoint import ModelEndpoint
from parley.models.llm import (
    READS,
    Answered,
    CallFragments,
    Delta,
    Finish,
    ModelFile,
    Piece,
    Sampling,
    Speech,
    TextContent,
    TokenUsage,
    pieces,
    schema_of,
)
from parley.telemetry.trace import current
from parley.tools.rules.mcp import Function, WantedCall

BASE_URL = "https://api.openai.com/v1"
KEY_FROM = "OPENAI_API_KEY"
_ROLES = {"user": "user", "agent": "assistant"}


@dataclass(frozen=True)
class OpenAiCompatible:
    endpoint: ModelEndpoint

    @property
    def reads(self) -> tuple[str, ...]:
        return READS

    async def stream(self, messages: Sequence[Speech], sampling: Sampling) -> AsyncGenerator[Answered, None]:
        request = self._request(messages, sampling)
        async with (
            self._client() as client,
            await self._opened(client, request) as chunks,
            aclosing(self._read_stream(chunks, sampling)) as outputs,
        ):
            async for output in outputs:
                yield output

    def _client(self) -> openai.AsyncOpenAI:
        end = self.endpoint
        return openai.AsyncOpenAI(
            api_key=end.key(),
            base_url=end.base_url,
            max_retries=end.retries,
            http_client=end.http(),
            timeout=end.timeout,
        )

    async def _opened(
        self, client: openai.AsyncOpenAI, request: dict[str, Any]
    ) -> openai.AsyncStream[ChatCompletionChunk]:
        """The stream, once the vendor has accepted the request."""
        try:
            return await cast(Any, client.chat.completions).create(**request)
        except openai.APIStatusError as error:
            raise self.endpoint.refused(error.status_code, error.message) from None
        except openai.APIConnectionError as error:
            raise self.endpoint.unreachable(error, late=isinstance(error, openai.APITimeoutError)) from None
        except (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, ReplyTooLarge) as error:
            raise self.endpoint.unreachable(error, late=False) from None

    async def _read_stream(
        self, chunks: openai.AsyncStream[ChatCompletionChunk], sampling: Sampling
    ) -> AsyncGenerator[Answered, None]:
        reason: str | None = None
        calls = CallFragments()
        usage = TokenUsage(sampling.model or self.endpoint.model, temperature=sampling.temperature)
        try:
            async for chunk in cast(AsyncIterator[Any], chunks):
                # Some servers count no tokens; every chunk names the model.
                if (told := _usage(chunk, usage)) != usage:
                    yield (usage := told)
                _note_calls(chunk, calls)
                for output in _outputs(chunk):
                    if isinstance(output, Finish):
                        reason = output.reason
                    else:
                        yield output
        except ModelError:
            raise
        except (openai.OpenAIError, httpx2.HTTPError, ReplyTooLarge, OSError) as error:
            raise self.endpoint.broken_off(f"{type(error).__name__}: {error}") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise self.endpoint.invalid_response(error) from None
        # Yielded last, because vendors send the token usage after the finish reason.
        if reason is None:
            raise self.endpoint.broken_off("The stream ended without a finish_reason.")
        for wanted in calls.ended():
            yield wanted
        yield Finish(reason)

    def _request(self, messages: Sequence[Speech], sampling: Sampling) -> dict[str, Any]:
        system = [{"role": "system", "content": sampling.instructions}] if sampling.instructions else []
        request: dict[str, Any] = {
            "model": sampling.model or self.endpoint.model,
            "messages": [*system, *(wire for one in messages for wire in _messages(one))],
            "stream": True,
            "stream_options": {"include_usage": True},
            "extra_headers": self._traced(),
        }
        if sampling.functions:
            request["tools"] = [_function(one) for one in sampling.functions]
        if sampling.temperature is not None:
            request["temperature"] = sampling.temperature
        if sampling.max_tokens is not None:
            # OpenAI renamed this parameter; most compatible servers know only the old name.
            own = self.endpoint.base_url == BASE_URL
            request["max_completion_tokens" if own else "max_tokens"] = sampling.max_tokens
        return request

    def _traced(self) -> dict[str, str]:
        """Return trace headers for the operator's own server. The public vendor gets none: it must not learn about the
        callers' traces."""
        trace = current()
        if self.endpoint.base_url == BASE_URL or not trace.traceparent:
            return {}
        state = {"tracestate": trace.tracestate} if trace.tracestate else {}
        return {"traceparent": trace.traceparent, **state}


def _outputs(chunk: Any) -> list[Delta | Finish]:
    """Return the outputs of a chunk. Compatible servers may leave out fields that OpenAI always sends."""
    found: list[Delta | Finish] = []
    choices = cast(list[Any], chunk.choices or [])
    for choice in choices[:1]:
        text = choice.delta.content if choice.delta else None
        if text:
            if not isinstance(text, str):
                raise TypeError("delta.content is not text")
            found.append(Delta(text))
        if choice.finish_reason:
            found.append(Finish(str(choice.finish_reason)))
    return found


def _usage(chunk: Any, known: TokenUsage) -> TokenUsage:
    """Return the model and tokens, as far as this chunk and the chunks before it report them."""
    model = str(chunk.model or known.model)
    if not chunk.usage:
        return replace(known, model=model)
    details = getattr(chunk.usage, "prompt_tokens_details", None)
    return replace(
        known,
        model=model,
        input_tokens=chunk.usage.prompt_tokens,
        output_tokens=chunk.usage.completion_tokens,
        cached_tokens=getattr(details, "cached_tokens", None),
    )


def _note_calls(chunk: Any, calls: CallFragments) -> None:
    for choice in cast(list[Any], chunk.choices or [])[:1]:
        for place, piece in enumerate(cast(list[Any], (choice.delta.tool_calls if choice.delta else None) or [])):
            # Not every compatible server numbers the calls.
            index = piece.index if isinstance(piece.index, int) else place
            calls.begin(index, piece.id, piece.function.name if piece.function else None)
            calls.more(index, piece.function.arguments if piece.function else None)


def _function(function: Function) -> dict[str, Any]:
    about = {"name": function.name, "description": function.description, "parameters": schema_of(function)}
    return {"type": "function", "function": about}


def _messages(speech: Speech) -> list[dict[str, Any]]:
    """Convert a message to API messages. Each tool result is a message of its own; a message with only tool calls has
    no content."""
    results = [{"role": "tool", "tool_call_id": one.id, "content": one.text} for one in speech.results]
    if not speech.parts and not speech.calls:
        return results
    message: dict[str, Any] = _message(speech)
    if speech.calls:
        message |= {"content": message["content"] or None, "tool_calls": [_call(one) for one in speech.calls]}
    return [*results, message]


def _call(wanted: WantedCall) -> dict[str, Any]:
    arguments = msgspec.json.encode(wanted.input or {}).decode()
    return {"id": wanted.id, "type": "function", "function": {"name": wanted.name, "arguments": arguments}}


def _message(speech: Speech) -> dict[str, Any]:
    found = pieces(speech.parts)
    if all(isinstance(piece, TextContent) for piece in found):
        text = "\n".join(piece.text for piece in found if isinstance(piece, TextContent))
        return {"role": _ROLES[speech.role], "content": text}
    return {"role": _ROLES[speech.role], "content": [_block(piece) for piece in found]}


def _block(piece: Piece) -> dict[str, Any]:
    match piece:
        case TextContent(text):
            return {"type": "text", "text": text}
        case ModelFile(url=str()) if not piece.is_image:
            raise ContentNotSupported(f"This agent's model accepts {piece.media_type} only as bytes, not as a URL.")
        case ModelFile() if piece.is_image:
            return {"type": "image_url", "image_url": {"url": piece.url or piece.data_url}}
        case ModelFile():
            return {"type": "file", "file": {"filename": piece.name or "file.pdf", "file_data": piece.data_url}}
