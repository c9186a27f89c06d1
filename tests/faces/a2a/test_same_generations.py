"""A run read in every way that A2A 1.1 has shows the same generations, whatever its agent does."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dev.conformance.a2a11.wires import Wire, state_of, update_in, wires_of
from parley import ArtifactChunk, Done, Failed, NeedInput, Status, Text, Turn, agent
from parley.client import message
from parley.execution.rules import Output
from parley.testing.processes import until
from parley.testing.receivers import Receiver, receiving
from parley.testing.servers import serving

Json = dict[str, Any]
OUTPUTS: dict[str, Output] = {
    "status": Status("busy"),
    "silence": Status(()),
    "text": Text("words "),
    "file": ArtifactChunk(b"bytes", id="file", filename="a.bin"),
    "chunk": ArtifactChunk("more", id="grown", append=True),
    "ask": NeedInput("More?"),
    "done": Done("Ready."),
    "fail": Failed("broken", "It broke."),
}
SCRIPTS = st.lists(
    st.tuples(st.lists(st.sampled_from(["status", "silence", "text", "file", "chunk"]), max_size=5), st.just("ask")),
    max_size=2,
)


@agent("scripted")
async def scripted(turn: Turn):
    """Does what the words of the message say."""
    for word in turn.text.split():
        yield OUTPUTS[word]
        await asyncio.sleep(0)


class Setting:
    def __init__(self, wires: list[Wire], receiver: Receiver) -> None:
        self.wires = {wire.name: wire for wire in wires}
        self.receiver = receiver


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            serving(tmp_path / "data", [scripted], grpc_port=0, long_poll_s=5, allow_hosts=["127.0.0.1"])
        )
        receiver = await stack.enter_async_context(receiving())
        made = Setting(await wires_of(server.agent("scripted")), receiver)
        yield made
        for wire in made.wires.values():
            await wire.close()


async def polled(wire: Wire, task: str) -> list[Json]:
    """The task after each change that a long poll saw, until it waits or ends."""
    seen = [await wire.get(task)]
    while state_of({"task": seen[-1]}) in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"):
        seen.append(await wire.get(task, currentGeneration=seen[-1]["generation"]))
    return seen


async def numbers_in(stream: AsyncGenerator[Json, None]) -> list[int]:
    """The generations of the other frames of a stream whose first frame was read."""
    async with aclosing(stream):
        return [update_in(frame)["generation"] async for frame in stream]


async def turn(wire: Wire, other: Wire, asked: Json, configuration: Json | None) -> tuple[Json, list[int], list[int]]:
    """Send a message over one binding while another one polls. Return the task, and the generations that both saw."""
    stream = wire.stream(asked, configuration)
    task = (await anext(stream))["task"]
    polling = asyncio.ensure_future(polled(other, task["id"]))
    numbers = [task["generation"], *await numbers_in(stream)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), wire.name
    return task, numbers, [one["generation"] for one in await polling]


async def followed(setting: Setting, turns: list[str]) -> None:
    wires = list(setting.wires.values())
    path = f"/{message('')['messageId']}"
    hook = {"taskPushNotificationConfig": {"url": setting.receiver.url(path)}}
    task, live, subscribed = "", list[int](), dict[str, tuple[int, asyncio.Future[list[int]]]]()
    for number, words in enumerate(turns):
        wire, other = wires[number % len(wires)], wires[(number + 1) % len(wires)]
        asked = message(words, task=task) if task else message(words)
        shown, numbers, polls = await turn(wire, other, asked, None if number else hook)
        assert polls == sorted(polls), other.name
        assert polls[-1] == numbers[-1], other.name
        live += numbers
        task = shown["id"]
        if number == 0 and len(turns) > 1:
            for one in wires:
                stream = one.subscribe(task)
                first = update_in(await anext(stream))["generation"]
                subscribed[one.name] = first, asyncio.ensure_future(numbers_in(stream))
    last = live[-1]
    assert live == sorted(set(live))
    for name, (first, rest) in subscribed.items():
        assert await rest == list(range(first + 1, last + 1)), name
    for wire in setting.wires.values():
        assert (await wire.get(task))["generation"] == last
        listed = [one for one in (await wire.list())["tasks"] if one["id"] == task]
        assert [one["generation"] for one in listed] == [last]
        replayed = wire.subscribe(task, last_event_id="0")
        assert [update_in(frame)["generation"] async for frame in replayed] == list(range(2, last + 1)), wire.name
    await until(lambda: len(setting.receiver.on(path)) == last - 1)
    assert [update_in(post.json)["generation"] for post in setting.receiver.on(path)] == list(range(2, last + 1))


@pytest.mark.slow
async def test_every_reader_of_a_run_sees_the_same_generations(setting: Setting) -> None:
    scripts: list[list[str]] = []

    @settings(max_examples=12, suppress_health_check=list(HealthCheck), database=None)
    @given(SCRIPTS, st.sampled_from(["done", "fail", "text done", "file chunk done"]))
    def collect(turns: list[tuple[list[str], str]], end: str) -> None:
        scripts.append([*(" ".join([*words, ask]) for words, ask in turns), end])

    collect()
    for turns in scripts:
        await followed(setting, turns)
