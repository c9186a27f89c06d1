"""A chat model of LangChain that speaks OpenAI's wire, without the packages that LangChain's own one brings."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel, agenerate_from_stream
from langchain_core.messages import AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from openai import AsyncOpenAI


class WireModel(BaseChatModel):
    model: str
    base_url: str

    @property
    def _llm_type(self) -> str:
        return "wire"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> Runnable[Any, Any]:
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools])

    def _generate(self, *args: Any, **more: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **more: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, *args, **more))

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **more: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        client = AsyncOpenAI(base_url=self.base_url, api_key="k", max_retries=0)
        said: Any = convert_to_openai_messages(messages)
        async with (
            client,
            await client.chat.completions.create(
                model=self.model, messages=said, stream=True, stream_options={"include_usage": True}, **more
            ) as chunks,
        ):
            async for chunk in chunks:
                message = _message(chunk)
                if run_manager is not None and isinstance(message.content, str):
                    await run_manager.on_llm_new_token(message.content, chunk=ChatGenerationChunk(message=message))
                yield ChatGenerationChunk(message=message)


def _message(chunk: Any) -> AIMessageChunk:
    delta = chunk.choices[0].delta if chunk.choices else None
    calls = [
        tool_call_chunk(name=one.function.name, args=one.function.arguments, id=one.id, index=one.index)
        for one in (delta.tool_calls or () if delta else ())
    ]
    used = chunk.usage and {
        "input_tokens": chunk.usage.prompt_tokens,
        "output_tokens": chunk.usage.completion_tokens,
        "total_tokens": chunk.usage.total_tokens,
    }
    about = {"model_name": chunk.model} if used else {}
    content = (delta.content if delta else "") or ""
    return AIMessageChunk(content=content, tool_call_chunks=calls, usage_metadata=used, response_metadata=about)
