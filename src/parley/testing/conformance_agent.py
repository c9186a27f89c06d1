"""Agent for conformance kits: the beginning of the message's id or text selects its behaviour."""

import asyncio
import re
from collections.abc import AsyncGenerator

from parley.drivers.function import FunctionDriver, agent
from parley.execution.rules import ArtifactChunk, Done, NeedAuth, NeedInput, Note, Output, Reply, Status, Text
from parley.execution.turn import Turn
from parley.runs.rules.agents import Extended, Extension, Skill
from parley.runs.rules.content import Part
from parley.runs.rules.events import Failed, Rejected

REQUIRED_EXTENSION = "urn:a2a:tck:required-extension"
LONG_S = 10.0
"""Duration of a task that a kit subscribes to: twice the kit's own timeout."""
PAUSE_S = 0.1
_MULTI_TURN = "multi-turn"
"""Note of a task whose further messages do not name its behaviour."""

Outputs = AsyncGenerator[Output, None]


async def _complete(turn: Turn) -> Outputs:
    yield Done("Hello from TCK")


async def _text(turn: Turn) -> Outputs:
    yield ArtifactChunk("Generated text content")


async def _file(turn: Turn) -> Outputs:
    yield ArtifactChunk(b"tck", filename="output.txt", media_type="text/plain")


async def _file_url(turn: Turn) -> Outputs:
    part = Part(url="https://example.com/output.txt", filename="output.txt", media_type="text/plain")
    yield ArtifactChunk(part)


async def _data(turn: Turn) -> Outputs:
    yield ArtifactChunk({"key": "value", "count": 42})


async def _message(turn: Turn) -> Outputs:
    yield Reply("Direct message response")


async def _input(turn: Turn) -> Outputs:
    """Ask until another message selects another behaviour."""
    yield NeedInput("What should I do?")


async def _auth(turn: Turn) -> Outputs:
    yield NeedAuth("Please log in.")


async def _reject(turn: Turn) -> Outputs:
    yield Rejected("rejected", "rejected")


async def _fail(turn: Turn) -> Outputs:
    yield Failed("task_failure", "The task failed, as it was told to.")


async def _multi_turn(turn: Turn) -> Outputs:
    """Ask until the answer is "done"."""
    if turn.text.strip().lower() == "done":
        yield Done("Then it is done.")
        return
    yield Note({_MULTI_TURN: "yes"})
    yield NeedInput("And then?")


async def _stream(turn: Turn) -> Outputs:
    yield ArtifactChunk("Stream hello from TCK")


async def _stream_life(turn: Turn) -> Outputs:
    yield ArtifactChunk("Stream task lifecycle")


async def _stream_ordered(turn: Turn) -> Outputs:
    yield ArtifactChunk("Ordered output")


async def _stream_text(turn: Turn) -> Outputs:
    yield ArtifactChunk("Streamed text content")


async def _stream_chunked(turn: Turn) -> Outputs:
    yield ArtifactChunk("chunk-1 ", id="chunked", last=False)
    yield ArtifactChunk("chunk-2", id="chunked", append=True, last=True)


async def _nothing(turn: Turn) -> Outputs:
    yield Done()


async def _long(turn: Turn) -> Outputs:
    yield Status("working")
    await asyncio.sleep(LONG_S)
    yield ArtifactChunk("Result of long work")


async def _until_canceled(turn: Turn) -> Outputs:
    yield Status("working")
    await asyncio.Event().wait()


async def _conversation(turn: Turn) -> Outputs:
    """Behave as the kit for 0.3 expects of any task: it can be continued, and canceled."""
    yield Status("working")
    await asyncio.sleep(PAUSE_S)
    yield NeedInput(f"You said: {turn.text}")


async def _echo(turn: Turn) -> Outputs:
    yield Text(turn.text)


BEHAVIOURS = {
    "tck-complete-task": _complete,
    "tck-artifact-text": _text,
    "tck-artifact-file-url": _file_url,
    "tck-artifact-file": _file,
    "tck-artifact-data": _data,
    "tck-message-response": _message,
    "tck-input-required": _input,
    "tck-auth-required": _auth,
    "tck-reject-task": _reject,
    "tck-task-failure": _fail,
    "tck-multi-turn": _multi_turn,
    "tck-cancel": _until_canceled,
    "tck-long-running": _long,
    "tck-stream-001": _stream,
    "tck-stream-002": _nothing,
    "tck-stream-003": _stream_life,
    "tck-stream-ordering-001": _stream_ordered,
    "tck-stream-artifact-text": _stream_text,
    "tck-stream-artifact-file": _file,
    "tck-stream-artifact-chunked": _stream_chunked,
    "tck-stream-chunked": _stream_chunked,
    "tck-stream-basic": _stream,
    "test-resubscribe-message-id": _long,
}
"""A longer name comes before a name that it begins with."""


_KIT_0_3 = re.compile(r"[a-z][a-z0-9-]*-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[a-z][a-z0-9-]*-[0-9a-f]{8,32}")
"""The kit for 0.3 builds its ids from some words and a random part."""


def behaviour(message_id: str, text: str):
    for prefix, found in BEHAVIOURS.items():
        if message_id.startswith(prefix) or text.startswith(prefix):
            return found
    return _conversation if _KIT_0_3.fullmatch(message_id) else _echo


def conformance(
    *, streaming: bool = True, push: bool = True, extended: bool = True, required_extension: bool = False
) -> FunctionDriver:
    """Return the agent, with some of its capabilities turned off."""
    more = Extended(skills=(Skill("more", "More", "Seen only by callers with credentials.", ("tck",)),))

    @agent(
        "conformance",
        name="Parley conformance agent",
        description="Behaves as conformance kits require.",
        skills=[Skill("tck", "Conformance", "Behaves as the message's id or text requests.", ("tck",))],
        replies="either",
        streaming=streaming,
        push=push,
        input_modes=("*/*",),
        extended=more if extended else None,
        extensions=(Extension(REQUIRED_EXTENSION, "Required by one test.", True),) if required_extension else (),
    )
    async def run(turn: Turn) -> Outputs:
        found = behaviour(turn.message.id, turn.text)
        if found in (_echo, _conversation) and _MULTI_TURN in turn.notes:
            found = _multi_turn
        async for output in found(turn):
            yield output

    return run
