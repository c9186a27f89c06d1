"""The client with A2A 1.1: missed updates, agents without streaming, guarded sends."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from parley import NeedInput, Status, Text, Turn, agent
from parley.client import Client, Json, RemoteError
from parley.client.generations import Updates
from parley.testing.servers import Server, serving


@agent("walker")
async def walker(turn: Turn):
    """Takes a few steps and asks whether to go on."""
    for word in ("one ", "two ", "three "):
        yield Text(word)
        await asyncio.sleep(0.02)
    if turn.number == 1:
        yield NeedInput("On?")


@agent("silent", streaming=False)
async def silent(turn: Turn):
    """Works without streaming."""
    yield Status("busy")
    await asyncio.sleep(0.2)
    yield Text("done")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", [walker, silent], long_poll_s=0.5) as server:
        yield server


class Lossy(Client):
    """A client whose connections lose some of the updates."""

    lost: frozenset[int] = frozenset()

    async def events(
        self, method: str, params: Json, headers: dict[str, str] | None = None
    ) -> AsyncGenerator[tuple[int | None, Json], None]:
        async for number, reply in super().events(method, params, headers):
            update = reply["result"].get("statusUpdate") or reply["result"].get("artifactUpdate") or {}
            if update.get("generation") not in self.lost:
                yield number, reply


def text_in(results: list[Json]) -> str:
    """The text of the task, as a reader that applies the results sees it."""
    text = ""
    for result in results:
        made = [result["artifactUpdate"]] if "artifactUpdate" in result else []
        if "task" in result:
            text, made = "", [{"artifact": one} for one in result["task"].get("artifacts", ())]
        for one in made:
            words = "".join(part["text"] for part in one["artifact"]["parts"])
            text = text + words if one.get("append") or "task" in result else words
    return text


@pytest.mark.parametrize("repeats", [True, False])
async def test_a_missed_update_is_made_up_for_by_reading_the_task(server: Server, repeats: bool) -> None:
    async with Lossy(server.agent("walker"), version="1.1", repeats=repeats) as client:
        client.lost = frozenset((4,))
        results = [result async for result in client.stream("go")]
    assert text_in(results) == "one two three "
    assert [set(result) for result in results].count({"task"}) == 2


async def test_a_whole_stream_is_passed_on_as_it_is(server: Server) -> None:
    async with Client(server.agent("walker"), version="1.1") as client:
        results = [result async for result in client.stream("go")]
        assert [set(result) for result in results].count({"task"}) == 1
        assert text_in(results) == "one two three "


@pytest.mark.parametrize("numbers", [[0, 0, 0], [5, 5, 9], [7, 6]])
def test_a_server_whose_numbers_repeat_does_not_number_updates(numbers: list[int]) -> None:
    updates = Updates()
    assert [updates.missed(number) for number in numbers] == [False] * len(numbers)
    assert not any(map(updates.is_known, numbers))


async def test_a_task_without_streaming_is_followed_by_long_polls(server: Server) -> None:
    async with Client(server.agent("silent"), version="1.1") as client:
        results = [result async for result in client.stream("go")]
        assert all("task" in result for result in results)
        assert results[-1]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        generations = [result["task"]["generation"] for result in results]
        assert generations == sorted(set(generations))
        begun = await client.send("go", configuration={"returnImmediately": True})
        tailed = [result async for _, result in client.tail(begun["task"]["id"])]
        assert tailed[-1]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    async with Client(server.agent("silent")) as older:
        with pytest.raises(RemoteError):
            _ = [result async for result in older.stream("go")]


async def test_a_guarded_send_and_a_poll(server: Server) -> None:
    async with Client(server.agent("walker"), version="1.1") as client:
        task = (await client.send("go"))["task"]
        polling = asyncio.ensure_future(client.poll(task["id"], task["generation"]))
        with pytest.raises(RemoteError) as refused:
            await client.send("on", task=task["id"], generation=task["generation"] + 1)
        assert (refused.value.rpc, refused.value.reason) == (-32010, "TASK_GENERATION_MISMATCH")
        await client.send("on", task=task["id"], generation=task["generation"])
        assert (await polling)["generation"] > task["generation"]
