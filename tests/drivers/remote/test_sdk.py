"""A remote agent on the official SDK: it numbers no events, honours no keys, and forgets."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parley import Text, Turn, agent
from parley.client import Client, Json, RemoteError
from parley.drivers.remote import RemoteDriver, RemoteOptions, blank_remote
from parley.testing.processes import ServerProcess, until
from parley.testing.servers import serving
from tests.drivers.conftest import remote, send, state, texts, words

from .sdk_agent import STEPS, sdk_server

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

COUNTED = "".join(f"{number} " for number in range(STEPS))
TICKS = [f"tick {number}" for number in range(STEPS)]

WIRES = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")]


def ticks(task: Json) -> list[str]:
    """Everything the agent said, in order."""
    said = [said for said in task["history"] if said["role"] == "ROLE_AGENT"]
    return [part["text"] for one in said for part in one["parts"]]


@pytest.mark.slow
@pytest.mark.parametrize(("binding", "version"), WIRES, ids=[f"{binding}-{version}" for binding, version in WIRES])
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "polling"])
async def test_an_agent_on_the_sdk(tmp_path: Path, binding: Any, version: Any, streaming: bool) -> None:
    async with sdk_server(streaming=streaming) as (url, executor):
        driver = remote("counter", url, bindings=(binding,), version=version)
        async with serving(tmp_path, [driver]) as front, Client(front.agent("counter")) as client:
            task = await send(client, "count")
            assert (state(task), words(task)) == ("completed", "counted")
            assert texts(task) == {"ticks": COUNTED}
            assert ticks(task) == TICKS
            task = await send(client, "ask")
            assert (state(task), words(task)) == ("input_required", "Which?")
            task = await send(client, "answer", task=task["id"])
            assert state(task) == "completed"
            assert texts(task) == {"answer": "answered"}
            task = await send(client, "auth")
            assert (state(task), words(task)) == ("auth_required", "Who?")
            task = await send(client, "fail")
            assert (state(task), words(task)) == ("failed", "Out of paper.")
            assert task["status"]["message"]["metadata"]["code"] == "remote_failed"
            assert (await client.send("reply"))["message"]["parts"] == [{"text": "a direct answer"}]
            assert executor.begun == 4


async def test_what_the_card_says_is_taken_over(tmp_path: Path) -> None:
    async with sdk_server() as (url, _), serving(tmp_path, [remote("counter", url)]) as front:
        counter = front.exchange.agent("counter")
        assert counter.description == "Counts and asks."
        assert [skill.id for skill in counter.skills] == ["count"]
        assert counter.input_modes == ("text/plain", "image/*", "*/*")


async def test_a_cancel_reaches_the_sdk(tmp_path: Path) -> None:
    async with (
        sdk_server() as (url, executor),
        serving(tmp_path, [remote("counter", url)]) as front,
        Client(front.agent("counter")) as client,
    ):
        task = (await client.send("sleep", configuration={"returnImmediately": True}))["task"]
        await until(lambda: _says(client, task["id"], "asleep"))
        await client.cancel(task["id"])
        await until(lambda: len(executor.canceled) == 1)


@pytest.mark.slow
async def test_our_crash_loses_and_doubles_nothing_of_a_task_on_the_sdk(tmp_path: Path) -> None:
    async with sdk_server() as (url, executor):
        (tmp_path / "counter.yaml").write_text(f"driver: remote\nremote:\n  url: {url}\n")
        process = await ServerProcess.start([tmp_path / "counter.yaml"], tmp_path / "data")
        async with Client(f"{process.url}/agents/counter") as client:
            task = (await client.send("count", configuration={"returnImmediately": True}))["task"]
            await until(lambda: _says(client, task["id"], "tick 5"))
        await process.kill()
        await asyncio.sleep(0.3)
        process = await ServerProcess.start([tmp_path / "counter.yaml"], tmp_path / "data")
        async with Client(f"{process.url}/agents/counter") as client:
            await until(lambda: _ended(client, task["id"]))
            task = await client.get(task["id"])
        assert await process.stop() == 0
        assert (state(task), words(task)) == ("completed", "counted")
        assert texts(task) == {"ticks": COUNTED}
        assert ticks(task) == TICKS
        assert executor.begun == 1


async def _says(client: Client, task: str, wanted: str) -> bool:
    found = await client.get(task)
    return "message" in found["status"] and words(found) == wanted


async def _ended(client: Client, task: str) -> bool:
    return state(await client.get(task)) in ("completed", "failed")


@agent("reader", input_modes=("text/plain",))
async def reader(turn: Turn):
    """Reads text alone."""
    yield Text(turn.text)


async def test_what_a_remote_reads_is_for_the_remote_to_say(tmp_path: Path) -> None:
    """A card names defaults only; the skills of an agent may read more."""
    part = {"data": {"n": 1}, "mediaType": "application/json"}
    async with serving(tmp_path / "back", [reader]) as back:
        strict = replace(blank_remote("named"), input_modes=("text/plain",))
        named = RemoteDriver(strict, RemoteOptions(back.agent("reader")))
        async with serving(tmp_path / "front", [remote("reader", back.agent("reader")), named]) as front:
            async with Client(front.agent("reader")) as client:
                assert (await client.card())["defaultInputModes"] == ["text/plain", "*/*"]
                task = await send(client, [part])
                assert state(task) == "failed"
                assert "The remote agent refused: This agent does not read application/json" in words(task)
            async with Client(front.agent("named")) as client:
                with pytest.raises(RemoteError, match="does not read"):
                    await client.send([part])
