"""A run read in every way that A2A 1.1 has shows the same generations, whatever its agent does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
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


async def followed(setting: Setting, turns: list[str]) -> None:
    rpc = setting.wires["JSON-RPC"]
    path = f"/{message('')['messageId']}"
    hook = {"taskPushNotificationConfig": {"url": setting.receiver.url(path)}}
    live: list[int] = []
    task, polls = "", []
    for number, words in enumerate(turns):
        asked = message(words, task=task) if task else message(words)
        frames = [frame async for frame in rpc.stream(asked, None if number else hook)]
        task = task or frames[0]["task"]["id"]
        polls += await polled(rpc, task)
        live += [update_in(frame)["generation"] for frame in frames]
    last = live[-1]
    assert live == sorted(set(live))
    for wire in setting.wires.values():
        assert (await wire.get(task))["generation"] == last
        listed = [one for one in (await wire.list())["tasks"] if one["id"] == task]
        assert [one["generation"] for one in listed] == [last]
        replayed = wire.subscribe(task, last_event_id="0")
        assert [update_in(frame)["generation"] async for frame in replayed] == list(range(2, last + 1)), wire.name
    generations = [one["generation"] for one in polls]
    assert generations == sorted(generations)
    assert generations[-1] == last
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
