"""The request log for operators, and the queue position for callers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import Status, Turn, agent
from parley.client import Client
from parley.telemetry import attach
from parley.testing.servers import serving
from parley.tools.rules.redaction import preview

Told = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def told() -> Iterator[Told]:
    heard: Told = []
    detach = attach(lambda name, fields: heard.append((name, fields)))
    yield heard
    detach()


def gated() -> tuple[asyncio.Event, Any]:
    opened = asyncio.Event()

    @agent("one", max_concurrent=1, max_queued=2)
    async def one(turn: Turn):
        """One thing at a time."""
        yield Status("at it")
        await opened.wait()

    return opened, one


async def test_requests_and_states_are_told_where_it_is_asked_for(tmp_path: Path, told: Told) -> None:
    opened, one = gated()
    opened.set()
    async with serving(tmp_path, [one], log_requests=True) as server, Client(server.agent("one")) as client:
        text = "call me\nat ann@example.org with Bearer abcdefgh123456 " + "x" * 200
        task = (await client.send(text))["task"]
        await client.get(task["id"])
        async with httpx2.AsyncClient() as http:
            await http.post(server.agent("one"), json={"jsonrpc": "2.0", "id": 1, "method": "nothing"})
    asked = [fields for name, fields in told if name == "request.made"]
    assert [one["method"] for one in asked] == ["message/send", "tasks/get"]
    assert asked[0]["message"].startswith("call me at [REDACTED_EMAIL] with [REDACTED] xxx")
    assert len(asked[0]["message"]) == 80
    assert asked[1]["task"] == task["id"]
    states = [fields["state"] for name, fields in told if name == "task.state"]
    assert states == ["submitted", "working", "completed"]
    assert ("request.refused", {"code": "unknown_method"}) in told


async def test_otherwise_nothing_is_told_of_them(tmp_path: Path, told: Told) -> None:
    opened, one = gated()
    opened.set()
    async with serving(tmp_path, [one]) as server, Client(server.agent("one")) as client:
        await client.send("hello")
    assert not {"request.made", "task.state"} & {name for name, _ in told}


async def test_who_waits_is_told_the_place_in_the_queue(tmp_path: Path) -> None:
    opened, one = gated()
    async with serving(tmp_path, [one]) as server, Client(server.agent("one")) as client:
        tasks: list[dict[str, Any]] = []
        for text in ("first", "second", "third", "fourth"):
            tasks.append((await client.send(text, configuration={"returnImmediately": True}))["task"])
            if text == "first":
                assert await anext(client.tail(tasks[0]["id"]))
        second, third, fourth = (task["status"] for task in tasks[1:])
        assert second["message"]["parts"] == [{"text": "Waiting for its turn: number 1 in the queue."}]
        assert third["message"]["parts"] == [{"text": "Waiting for its turn: number 2 in the queue."}]
        assert fourth["state"] == "TASK_STATE_REJECTED"
        await client.cancel(tasks[1]["id"])
        assert "number 1 " in (await client.get(tasks[2]["id"]))["status"]["message"]["parts"][0]["text"]
        opened.set()
        async for _, result in client.tail(tasks[2]["id"]):
            last = result
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert "message" not in (await client.get(tasks[2]["id"]))["status"]


def test_a_preview_is_one_line_and_short() -> None:
    assert preview("a\x1b[31m b\r\nc", "d") == "a [31m b c d"
    assert len(preview("word " * 1000)) == 80
    assert preview("x" * 80) == "x" * 80
