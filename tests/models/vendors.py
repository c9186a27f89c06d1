"""Servers that speak the wires of LLM vendors, and break them on purpose."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec import Struct

KEY = "sk-never-to-be-seen-7f3a"
CUT = "cut"
"""Break the connection here."""
HANG = "hang"
"""Say nothing more until the client hangs up."""

Step = bytes | float | str | asyncio.Event
"""An event is waited for."""


class Reply(Struct, frozen=True):
    """A status and what follows: bytes are sent, numbers are seconds to wait."""

    steps: tuple[Step, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    kind: str = "text/event-stream"
    """Media type of an answer that is no error."""


class Asked(Struct, frozen=True):
    path: str
    headers: dict[str, str]
    body: Any


class Vendor:
    """Answers requests with the replies in order; the last one again and again."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.asked: list[Asked] = []
        self.began = asyncio.Event()
        self.hung_up = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            asked = Asked(head[0].split(" ")[1], headers, json.loads(body))
            reply = self.reply_to(asked)
            self.asked.append(asked)
            await self._play(reply, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()

    def reply_to(self, asked: Asked) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    async def _play(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind = reply.kind if reply.status == 200 else "application/json"
        lines = [f"{name}: {value}" for name, value in (("content-type", kind), *reply.headers)]
        head = [f"HTTP/1.1 {reply.status} Words", *lines, "transfer-encoding: chunked", "connection: close", "", ""]
        writer.write("\r\n".join(head).encode())
        for step in reply.steps:
            if isinstance(step, bytes):
                writer.write(b"%x\r\n%b\r\n" % (len(step), step))
                await writer.drain()
                self.began.set()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif step == CUT:
                writer.transport.abort()
                return
            elif await reader.read() == b"":
                self.hung_up.set()
                return
        writer.write(b"0\r\n\r\n")
        await writer.drain()


AnyVendor = TypeVar("AnyVendor", bound=Vendor)


@asynccontextmanager
async def vendor() -> AsyncIterator[Vendor]:
    async with serving_vendor(Vendor()) as made:
        yield made


@asynccontextmanager
async def serving_vendor(made: AnyVendor) -> AsyncIterator[AnyVendor]:
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()


def refusal(status: int, *headers: tuple[str, str]) -> Reply:
    """Some vendors repeat the key in what they say about it."""
    body = {"type": "error", "error": {"type": "some_error", "message": f"Incorrect API key provided: {KEY}"}}
    return Reply((json.dumps(body).encode(),), status, headers)


class OpenAi:
    """Chat completions."""

    name = "openai:gpt-test"
    path = "/chat/completions"

    @staticmethod
    def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None and finish is None else [
            {"index": 0, "delta": delta or {}, "finish_reason": finish}
        ]  # fmt: skip
        wire = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test-0613", **more}
        return b"data: " + json.dumps({**wire, "choices": choices}).encode() + b"\n\n"

    @classmethod
    def start(cls) -> list[Step]:
        return [cls.chunk({"role": "assistant", "content": ""})]

    @classmethod
    def word(cls, word: str) -> bytes:
        return cls.chunk({"content": word})

    @classmethod
    def call(cls, place: int, id_: str, name: str, given: str) -> list[Step]:
        """Written in pieces, as they come."""
        begun = {"index": place, "id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
        pieces = [{"index": place, "function": {"arguments": one}} for one in (given[:5], given[5:])]
        return [cls.chunk({"tool_calls": [one]}) for one in (begun, *pieces)]

    calling = "tool_calls"

    @staticmethod
    def results(asked: Asked) -> list[tuple[str, str]]:
        return [(one["tool_call_id"], one["content"]) for one in asked.body["messages"] if one["role"] == "tool"]

    @classmethod
    def end(cls, reason: str = "stop") -> list[Step]:
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        return [cls.chunk(finish=reason), cls.chunk(usage=usage), b"data: [DONE]\n\n"]

    @classmethod
    def trouble(cls) -> bytes:
        return b'data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n'

    @staticmethod
    def said(asked: Asked) -> list[tuple[str, Any]]:
        return [(one["role"], one["content"]) for one in asked.body["messages"]]


class OpenAiResponses:
    """The part of OpenAI's responses that clients need: pieces of text, and the whole at the end."""

    path = "/responses"

    @staticmethod
    def event(type_: str, **more: Any) -> bytes:
        return f"event: {type_}\ndata: {json.dumps({'type': type_, 'sequence_number': 1, **more})}\n\n".encode()

    @classmethod
    def answer(cls, *words: str) -> Reply:
        place = {"item_id": "m-1", "output_index": 0, "content_index": 0}
        text = {"type": "output_text", "text": "".join(words), "annotations": [], "logprobs": []}
        message = {"id": "m-1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
        begun = {**message, "status": "in_progress", "content": []}
        return Reply(
            (
                cls.event("response.output_item.added", output_index=0, item=begun),
                cls.event("response.content_part.added", part={**text, "text": ""}, **place),
                *(cls.event("response.output_text.delta", delta=word, logprobs=[], **place) for word in words),
                cls.event("response.output_item.done", output_index=0, item=message),
                cls._completed(message),
            )
        )

    @classmethod
    def calling(cls, id_: str, name: str, given: str) -> Reply:
        call = {"id": f"fc-{id_}", "type": "function_call", "call_id": id_, "name": name, "arguments": given}
        place = {"item_id": call["id"], "output_index": 0}
        return Reply(
            (
                cls.event("response.output_item.added", output_index=0, item={**call, "arguments": ""}),
                cls.event("response.function_call_arguments.delta", delta=given, **place),
                cls.event("response.output_item.done", output_index=0, item={**call, "status": "completed"}),
                cls._completed({**call, "status": "completed"}),
            )
        )

    @classmethod
    def _completed(cls, *output: Any) -> bytes:
        details = {"input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0}}
        usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18, **details}
        response = {
            "id": "r-1", "object": "response", "created_at": 1, "model": "gpt-test-0613", "status": "completed",
            "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
            "usage": {**usage, "output_tokens_details": {"reasoning_tokens": 0}},
        }  # fmt: skip
        return cls.event("response.completed", response=response)


class ObligingModel(Vendor):
    """Calls the tool that the user names, with the last word of the message, and repeats what the tool returned.
    Without such a tool it repeats the message. Speaks chat completions and responses."""

    def reply_to(self, asked: Asked) -> Reply:
        said = asked.body.get("messages") or asked.body["input"]
        last = said[-1]
        returned = last.get("output") if last.get("type") == "function_call_output" else None
        returned = last["content"] if last.get("role") == "tool" else returned
        if returned is not None:
            return self._answer(asked, str(returned))
        content = last["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        for tool in asked.body.get("tools") or ():
            about = tool.get("function", tool)
            if about["name"] in text.lower():
                (name,) = about["parameters"]["properties"]
                return self._call(asked, about["name"], json.dumps({name: text.split()[-1]}))
        return self._answer(asked, f"You said: {text}")

    @staticmethod
    def _answer(asked: Asked, text: str) -> Reply:
        words = [f"{word} " for word in text.split(" ")[:-1]] + text.split(" ")[-1:]
        return OpenAiResponses.answer(*words) if asked.path == OpenAiResponses.path else answer(OpenAi, *words)

    @staticmethod
    def _call(asked: Asked, tool: str, given: str) -> Reply:
        if asked.path == OpenAiResponses.path:
            return OpenAiResponses.calling("call-1", tool, given)
        return calling(OpenAi, ("call-1", tool, given))


class Anthropic:
    """Messages."""

    name = "anthropic:claude-test"
    path = "/v1/messages"

    @staticmethod
    def event(type_: str, **more: Any) -> bytes:
        return f"event: {type_}\ndata: {json.dumps({'type': type_, **more})}\n\n".encode()

    @classmethod
    def start(cls) -> list[Step]:
        message = {
            "id": "m-1", "type": "message", "role": "assistant", "model": "claude-test-1", "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 11, "output_tokens": 1},
        }  # fmt: skip
        block = {"type": "text", "text": ""}
        begun = cls.event("content_block_start", index=0, content_block=block)
        return [cls.event("message_start", message=message), begun, cls.event("ping")]

    @classmethod
    def word(cls, word: str) -> bytes:
        return cls.event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})

    @classmethod
    def call(cls, place: int, id_: str, name: str, given: str) -> list[Step]:
        """Written in pieces, as they come."""
        block = {"type": "tool_use", "id": id_, "name": name, "input": {}}
        pieces = [{"type": "input_json_delta", "partial_json": one} for one in (given[:5], given[5:])]
        return [
            cls.event("content_block_start", index=place + 1, content_block=block),
            *(cls.event("content_block_delta", index=place + 1, delta=one) for one in pieces),
            cls.event("content_block_stop", index=place + 1),
        ]

    calling = "tool_use"

    @staticmethod
    def results(asked: Asked) -> list[tuple[str, str]]:
        blocks = [block for one in asked.body["messages"] for block in one["content"]]
        return [(one["tool_use_id"], one["content"]) for one in blocks if one["type"] == "tool_result"]

    @classmethod
    def end(cls, reason: str = "end_turn") -> list[Step]:
        delta = {"stop_reason": reason, "stop_sequence": None}
        return [
            cls.event("content_block_stop", index=0),
            cls.event("message_delta", delta=delta, usage={"output_tokens": 7}),
            cls.event("message_stop"),
        ]

    @classmethod
    def trouble(cls) -> bytes:
        return cls.event("error", error={"type": "overloaded_error", "message": "Overloaded"})

    @staticmethod
    def said(asked: Asked) -> list[tuple[str, Any]]:
        system = [("system", asked.body["system"])] if "system" in asked.body else []
        return [*system, *((one["role"], one["content"][0]["text"]) for one in asked.body["messages"])]


Wire = type[OpenAi] | type[Anthropic]
WIRES: tuple[Wire, ...] = (OpenAi, Anthropic)


def answer(wire: Wire, *words: str) -> Reply:
    return Reply((*wire.start(), *map(wire.word, words), *wire.end()))


def calling(wire: Wire, *calls: tuple[str, str, str], words: tuple[str, ...] = ()) -> Reply:
    """An answer that wants tools called: the vendor's id, the function, and what it is given."""
    pieces = [step for place, call in enumerate(calls) for step in wire.call(place, *call)]
    return Reply((*wire.start(), *map(wire.word, words), *pieces, *wire.end(wire.calling)))
