"""Tool calls of a run are in its log, and A2A does not show them."""

from pathlib import Path

import pytest
from msgspec import Raw

from parley import Reply, Text, Turn, agent
from parley.client import Client
from parley.runs.rules.commands import CallTool, ReturnTool
from parley.runs.rules.events import ToolCalled, ToolReturned
from parley.testing.servers import Server, serving

CALL = CallTool(ToolCalled("call-1", "get_issue", Raw(b'{"issue_number":1}')))
RETURN = ReturnTool(ToolReturned("call-1", "get_issue", "succeeded", Raw(b'{"title":"x"}')))
used: list[Server] = []


async def use_a_tool(turn: Turn) -> None:
    commands = used[-1].exchange.commands
    await commands.execute(turn.run_id, CALL)
    await commands.execute(turn.run_id, RETURN)


@agent("worker")
async def worker(turn: Turn):
    """Uses a tool in the middle of its answer."""
    yield Text("one")
    await use_a_tool(turn)
    yield Text("two")


@agent("either", replies="either")
async def either(turn: Turn):
    """Uses a tool before it is known that it answers with a message."""
    await use_a_tool(turn)
    yield Reply("three")


@pytest.fixture
async def server(tmp_path: Path):
    async with serving(tmp_path / "data", [worker, either]) as running:
        used.append(running)
        yield running
        used.clear()


async def test_a_stream_and_a_task_know_nothing_of_tools(server: Server) -> None:
    async with Client(server.agent("worker")) as client:
        frames = [frame async for frame in client.stream("go")]
        task = await client.get(frames[0]["task"]["id"])
    assert "get_issue" not in str(frames) + str(task)
    types = [event.type for event in await server.exchange.store.read(task["id"], 0, 100)]
    assert types.count("tool_call") == types.count("tool_result") == 1


async def test_an_agent_that_used_a_tool_can_still_answer_with_a_message(server: Server) -> None:
    async with Client(server.agent("either")) as client:
        frames = [frame async for frame in client.stream("go")]
    assert [list(frame) for frame in frames] == [["message"]]
