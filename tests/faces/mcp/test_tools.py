"""Agents as tools, as the official client of MCP sees them: by handshake, and without one."""

import asyncio
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ImageContent, ResourceLink, TextContent

from parley.runs.rules.state import State
from parley.runs.store import Listing
from parley.testing.servers import Server
from tests.faces.mcp.conftest import AGENTS, connected, echo, writer
from tests.faces.mcp.wire import run_in


def told(result: CallToolResult) -> dict[str, Any]:
    shown: dict[str, Any] = result.structured_content
    return shown


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


async def test_every_agent_is_a_tool_with_what_its_card_says(client: Client, mode: str) -> None:
    assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
    assert client.server_info is not None
    assert client.server_info.name == "parley"
    assert client.instructions is not None
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {one.agent.slug for one in AGENTS} - {"special"}
    assert tools["echo"].title == "Echo"
    assert tools["echo"].description == (
        "Says what you said.\n\nSkills:\n- Repeat: Repeats every word. (for example: say hello)"
    )
    assert tools["writer"].description == "Asks for a name, and makes something of it."
    assert tools["echo"].input_schema["required"] == ["message"]


async def test_a_call_tells_what_happens_and_ends_with_what_was_said(client: Client) -> None:
    heard: list[tuple[float, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, message))

    result = await client.call_tool("echo", {"message": "one two three"}, progress_callback=progress)
    assert not result.is_error
    assert texts(result) == ["one two three "]
    assert told(result)["state"] == "completed"
    assert told(result)["text"] == "one two three "
    assert [one["artifactId"] for one in told(result)["artifacts"]] == ["response-1"]
    assert heard[0][1] == "listening"
    assert heard[-1][1] is not None
    assert "one two three ".startswith(heard[-1][1])
    assert [done for done, _ in heard] == sorted({done for done, _ in heard})


async def test_a_question_is_answered_by_a_second_call(client: Client) -> None:
    asked = await client.call_tool("writer", {"message": "hi"})
    assert not asked.is_error
    assert told(asked)["state"] == "input-required"
    assert told(asked)["question"] == "Which name?"
    task = told(asked)["taskId"]
    assert texts(asked) == ["Hello.", "Which name?", f'To answer, call writer again with "task": "{task}".']
    answered = await client.call_tool("writer", {"message": "Ann", "task": task})
    assert told(answered)["state"] == "completed"
    assert told(answered)["taskId"] == task
    assert told(answered)["text"] == "Bye, Ann."
    assert texts(answered) == ['{"name":"Ann","count":42}', "Bye, Ann."]
    assert [one["artifactId"] for one in told(answered)["artifacts"]] == ["response-1", "result"]


async def test_a_conversation_goes_on_where_it_is_named(client: Client) -> None:
    first = told(await client.call_tool("echo", {"message": "a"}))
    second = told(await client.call_tool("greeter", {"message": "b", "conversation": first["conversationId"]}))
    assert second["conversationId"] == first["conversationId"]
    assert second["text"] == "Hello, b."


async def test_failures_are_results_that_say_why_and_no_more(client: Client) -> None:
    clumsy = await client.call_tool("clumsy", {"message": "go"})
    assert clumsy.is_error
    assert told(clumsy)["state"] == "failed"
    assert "swordfish" not in clumsy.model_dump_json()
    picky = await client.call_tool("picky", {"message": "go"})
    assert picky.is_error
    assert (told(picky)["state"], texts(picky)) == ("rejected", ["Not today."])


async def test_wrong_arguments_are_told_to_the_model(server: Server, client: Client) -> None:
    wrong: list[dict[str, Any]] = [
        {}, {"message": 1}, {"message": ""}, {"message": "a", "mesage": "b"}, {"message": "a", "task": "no"},
    ]  # fmt: skip
    for arguments in wrong:
        result = await client.call_tool("echo", arguments)
        assert result.is_error, arguments
        assert texts(result)[0]
    assert (await server.exchange.store.list_runs(Listing()))[1] == 0


async def test_an_unknown_tool_is_an_error_of_the_protocol(client: Client) -> None:
    for name in ("nobody", "special", "x" * 5000):
        with pytest.raises(MCPError) as refused:
            await client.call_tool(name, {"message": "a"})
        assert refused.value.code == -32602


async def test_files_come_whole_when_they_are_small_and_as_resources_when_not(client: Client) -> None:
    result = await client.call_tool("maker", {"message": "go"})
    small, table, large, text, rest = result.content
    assert isinstance(small, ImageContent)
    assert small.mime_type == "image/gif"
    assert table.type == "resource"
    assert isinstance(large, ResourceLink)
    assert (large.name, large.mime_type, large.size) == ("large.png", "image/png", 300_004)
    assert isinstance(text, TextContent)
    assert len(text.text) == 64 * 1024 + 1
    assert isinstance(rest, ResourceLink)
    whole = (await client.read_resource(large.uri)).contents[0]
    assert len(whole.model_dump()["blob"]) == 4 * ((300_004 + 2) // 3)
    words = (await client.read_resource(rest.uri)).contents[0]
    assert words.model_dump()["text"] == "x" * 100_000


async def test_a_cancel_of_the_client_cancels_the_run(server: Server, client: Client) -> None:
    calling = asyncio.ensure_future(client.call_tool("sleeper", {"message": "good night"}))
    run = await run_in(server, State.WORKING)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    assert (await run_in(server, State.CANCELED)).id == run.id


async def test_agents_that_come_while_serving_are_told_of(server: Server) -> None:
    async with connected(server.url) as client, client.listen(tools_list_changed=True) as changes:
        server.exchange.replace([echo, writer])
        async with asyncio.timeout(5):
            await anext(aiter(changes))
        assert {tool.name for tool in (await client.list_tools()).tools} == {"echo", "writer"}
