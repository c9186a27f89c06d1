"""One run in every dialect: started over AG-UI, answered in the console, followed over A2A, read again over MCP."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.testing.processes import ServerProcess
from tests.faces.agui import agents
from tests.faces.agui.wire import Front, Sent, events_in, run_input, types
from tests.faces.mcp.wire import OLD, request

SAGA = "Once upon a time.There was a fox, and it ended."


async def first_events(http: httpx2.AsyncClient, given: Any) -> list[Sent]:
    """The events of a tab that is closed after the first words."""
    seen = ""
    async with http.stream("POST", "/agents/saga/agui", json=given) as reply:
        async for piece in reply.aiter_text():
            seen += piece
            if "TEXT_MESSAGE_CONTENT" in seen.rpartition("\n\n")[0]:
                break
    events = events_in(seen)
    return events[: types(events).index("TEXT_MESSAGE_CONTENT") + 1]


async def answered_in_console(http: httpx2.AsyncClient, task: str, choice: str) -> None:
    page = (await http.get(f"/console/runs/{task}")).text
    csrf = re.search(r'name="csrf" content="([0-9a-f]+)"', page)
    form = re.search(rf'action="(/console/runs/{task}/[a-z]+)"[^>]*>(?:(?!</form>).)*{choice}', page, re.DOTALL)
    assert csrf is not None
    assert form is not None
    reply = await http.post(form[1], data={"csrf": csrf[1], "choice": choice})
    assert reply.status_code == 303, reply.text


async def followed_over_a2a(http: httpx2.AsyncClient, task: str, after: int, until: str) -> list[Sent]:
    """The updates after an event, up to one that contains some words."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    headers = {"A2A-Version": "1.0", "Last-Event-ID": str(after)}
    seen = ""
    async with http.stream("POST", "/agents/saga", json=body, headers=headers) as reply:
        async for piece in reply.aiter_text():
            seen += piece
            if until in seen.rpartition("\n\n")[0]:
                break
    return events_in(seen.rpartition("\n\n")[0])


def seqs(events: list[Sent]) -> list[int]:
    return [int(event.id) for event in events]


@pytest.mark.slow
async def test_one_run_is_the_same_in_every_dialect_although_the_server_is_killed(tmp_path: Path) -> None:
    gate, data = tmp_path / "gate", tmp_path / "data"
    env = {"GATE": str(gate)}
    given = run_input("A story")
    task = given["runId"]

    @asynccontextmanager
    async def started() -> AsyncIterator[httpx2.AsyncClient]:
        """Start the server, and kill it at the end."""
        server = await ServerProcess.start([Path(str(agents.__file__))], data, env=env)
        try:
            async with asyncio.timeout(30), httpx2.AsyncClient(base_url=server.url, timeout=20) as http:
                yield http
        finally:
            await server.kill()

    async with started() as http:
        tab = await first_events(http, given)
    assert types(tab)[0] == "RUN_STARTED"
    async with started() as http:
        asked = await Front(http).get("saga", task, tab[-1].id)
        tab += asked
        assert tab[-1].data["outcome"]["type"] == "interrupt"
        await answered_in_console(http, task, "a fox")
        other = await followed_over_a2a(http, task, int(tab[-1].id), "There was")
    gate.touch()
    async with started() as http:
        other += await followed_over_a2a(http, task, seqs(other)[-1], "TASK_STATE_COMPLETED")
        assert await followed_over_a2a(http, task, int(tab[-1].id), "TASK_STATE_COMPLETED") == other
        assert seqs(other) == sorted(set(seqs(other)))
        tab += await Front(http).post("saga", given, tab[-1].id)
        assert len({event.id for event in tab}) == len(tab)
        whole = await Front(http).post("saga", given)
        assert whole == tab
        assert seqs(other)[-1] == int(tab[-1].id)
        messages: dict[str, str] = {}
        for event in tab:
            if event.type == "TEXT_MESSAGE_CONTENT":
                messages[event.data["messageId"]] = messages.get(event.data["messageId"], "") + event.data["delta"]
            if event.data.get("name") == "parley.replaced":
                del messages[event.data["value"]["messageId"]]
        assert "".join(messages.values()).replace("Who?", "") == SAGA
        reply = await http.post(
            "/mcp", json=request("tasks/result", taskId=task), headers={**OLD, "Accept": "application/json"}
        )
        result = reply.json()["result"]
        assert result["structuredContent"]["text"].replace("\n", "") == SAGA
        assert result["structuredContent"]["taskId"] == task
