"""Anthropic's Messages API. It is used without a temperature; a definition that sets one is refused."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import anthropic
import httpx2
from anthropic.types import RawMessageStreamEvent
from msgspec.structs import replace

from parley.errors import ReplyTooLarge
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

BASE_URL = "https://api.anthropic.com"
KEY_FROM = "ANTHROPIC_API_KEY"
MAX_TOKENS = 4096
"""Default when the definition sets none: the vendor requires a number."""
_ROLES = {"user": "user", "agent": "assistant"}
_REASONS = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}


@dataclass(frozen=True)
class AnthropicModel:
    endpoint: ModelEndpoint

    @property
    def reads(self) -> tuple[str, ...]:
        return READS

    async def stream(self, messages: Sequence[Speech], sampling: Sampling) -> AsyncGenerator[Answered, None]:
        request = self._request(messages, sampling)
        async with (
            self._client() as client,
            await self._opened(client, request) as events,
            aclosing(self._read_stream(events)) as outputs,
        ):
            async for output in outputs:
                yield output

    def _client(self) -> anthropic.AsyncAnthropic:
        end = self.endpoint
        return anthropic.AsyncAnthropic(
            api_key=end.key(),
            base_url=end.base_url,
            max_retries=end.retries,
            http_client=end.http(),
            timeout=end.timeout,
            open_telemetry=False,
        )

    async def _opened(
        self, client: anthropic.AsyncAnthropic, request: dict[str, Any]
    ) -> anthropic.AsyncStream[RawMessageStreamEvent]:
        """The stream, once the vendor has accepted the request."""
        try:
            return await cast(Any, client.messages).create(**request)
        except anthropic.APIStatusError as error:
            raise self.endpoint.refused(error.status_code, error.message) from None
        except anthropic.APIConnectionError as error:
            raise self.endpoint.unreachable(error, late=isinstance(error, anthropic.APITimeoutError)) from None
        except (anthropic.AnthropicError, httpx2.HTTPError, httpx2.InvalidURL, ReplyTooLarge) as error:
            raise self.endpoint.unreachable(error, late=False) from None

    async def _read_stream(
        self, events: anthropic.AsyncStream[RawMessageStreamEvent]
    ) -> AsyncGenerator[Answered, None]:
        usage, reason, ended, calls = TokenUsage(self.endpoint.model), "unknown", False, CallFragments()
        try:
            async for event in cast(AsyncIterator[Any], events):
                match event.type:
                    case "message_start":
                        counted = event.message.usage
                        usage = _usage(event.message.model, counted)
                        yield usage
                    case "content_block_delta" if event.delta.type == "text_delta":
                        yield Delta(event.delta.text)
                    case "content_block_start" if event.content_block.type == "tool_use":
                        calls.begin(event.index, event.content_block.id, event.content_block.name)
                    case "content_block_delta" if event.delta.type == "input_json_delta":
                        calls.more(event.index, event.delta.partial_json)
                    case "message_delta":
                        reason = event.delta.stop_reason or reason
                        usage = replace(usage, output_tokens=event.usage.output_tokens)
                        yield usage
                    case "message_stop":
                        ended = True
                    case _:
                        continue
        except (anthropic.AnthropicError, httpx2.HTTPError, ReplyTooLarge, OSError) as error:
            raise self.endpoint.broken_off(f"{type(error).__name__}: {error}") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise self.endpoint.invalid_response(error) from None
        if not ended:
            raise self.endpoint.broken_off("The stream ended without message_stop.")
        for wanted in calls.ended():
            yield wanted
        yield Finish(_REASONS.get(reason, reason))

    def _request(self, messages: Sequence[Speech], sampling: Sampling) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": sampling.model or self.endpoint.model,
            "messages": [{"role": _ROLES[one.role], "content": _content(one)} for one in messages],
            "max_tokens": sampling.max_tokens or MAX_TOKENS,
            "stream": True,
        }
        if sampling.instructions:
            request["system"] = sampling.instructions
        if sampling.functions:
            request["tools"] = [
                {"name": one.name, "description": one.description, "input_schema": schema_of(one)}
                for one in sampling.functions
            ]
        return request


def _usage(model: str, counted: Any) -> TokenUsage:
    """Return the tokens at the start of an answer. The vendor counts tokens in its cache apart from `input_tokens`."""
    cached = getattr(counted, "cache_read_input_tokens", None) or 0
    written = getattr(counted, "cache_creation_input_tokens", None) or 0
    return TokenUsage(
        model,
        counted.input_tokens,
        counted.output_tokens,
        cached_tokens=cached,
        uncounted_tokens=cached + written,
    )


def _content(speech: Speech) -> list[dict[str, Any]]:
    """Return the content blocks of a message. Tool results must come first."""
    results = [
        {"type": "tool_result", "tool_use_id": one.id, "content": one.text, "is_error": one.failed}
        for one in speech.results
    ]
    calls = [{"type": "tool_use", "id": one.id, "name": one.name, "input": one.input or {}} for one in speech.calls]
    return [*results, *(_block(piece) for piece in pieces(speech.parts)), *calls]


def _block(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, TextContent):
        return {"type": "text", "text": piece.text}
    return {"type": "image" if piece.is_image else "document", "source": _source(piece)}


def _source(file: ModelFile) -> dict[str, Any]:
    if file.url is not None:
        return {"type": "url", "url": file.url}
    return {"type": "base64", "media_type": file.media_type, "data": file.base64}
