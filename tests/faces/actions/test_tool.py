"""The mode tool over HTTP, with real servers of tools: over stdio, over HTTP, and one that does what none should."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from parley import NeedInput, Turn
from parley.drivers.function import FunctionDriver
from parley.runs.rules.access import Principal
from parley.runs.store import Listing
from parley.testing.databases import fresh_database
from parley.testing.processes import until
from parley.testing.servers import Server, serving
from parley.tools.rules.mcp import McpServer
from tests.faces.actions.desk import Answer, Desk, Headers
from tests.tools.mcp.conftest import agent_with, example, notes, search_url, server

pytestmark = pytest.mark.asyncio(loop_scope="module")

__all__ = ["notes", "search_url"]
ROWS = {"query": {"table": "financial_transactions", "select": ["date", "amount"], "where": {"date_gte": "2025-01-01"}}}


async def idle(turn: Turn) -> Any:
    yield NeedInput("More?")


class Tools:
    """A caller of a server whose agent has tools; each test has a conversation of its own."""

    def __init__(self, desk: Desk, running: Server, calls: Path) -> None:
        self.desk, self.server, self._calls = desk, running, calls

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    async def begin(self) -> str:
        return await self.desk.begin("finance")

    async def execute(
        self, conversation: str, tool: object, given: object, headers: Headers | None = None, **more: Any
    ) -> Answer:
        asked = {"agent": "finance", "toolName": tool, "input": given, **more}
        return await self.desk.ask(conversation, "tool", "execute", headers=headers, **asked)

    async def read(self, conversation: str, execution: str) -> Answer:
        return await self.desk.ask(conversation, "tool", "read", agent="finance", executionId=execution)

    async def list(self, conversation: str, **more: Any) -> Any:
        return (await self.desk.ask(conversation, "tool", "list", agent="finance", **more)).result


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def tools(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, search_url: str
) -> AsyncIterator[Tools]:
    settings: dict[str, object] = {"store": request.param, "allow_hosts": ["127.0.0.1"]}
    if request.param == "postgres":
        settings["postgres_url"] = await fresh_database(request.getfixturevalue("postgres"))
    folder = tmp_path_factory.mktemp("tools")
    token = {"Authorization": "Bearer open-sesame-1"}
    (folder / "secret").write_text("my-own-secret-5")
    wild = server("wild", env={"CALLS": str(folder / "calls"), "SECRET": f"${{file:{folder / 'secret'}}}"})
    agent = agent_with(
        example("supabase-mcp", "sqlite_query.py"), McpServer("notes", url=search_url, headers=token), wild,
        server("other"), slug="finance",
    )  # fmt: skip
    lame = agent_with(
        server("good"), McpServer("away", url="http://127.0.0.1:1/mcp?token=hush-hush-2"),
        McpServer("forbidden", url="http://10.1.2.3/mcp"), McpServer("missing", ("no-such-program", "hush-hush-3")),
        server("mute", "never", start_timeout_s=0.5), slug="lame",
    )  # fmt: skip
    agents = (agent, agent_with(slug="bare"), agent_with(server("few"), tools=("few/echo",), slug="few"), lame)
    drivers = [FunctionDriver(one, idle) for one in agents]
    async with (
        serving(folder / "data", drivers, **settings) as running,
        httpx2.AsyncClient(base_url=running.url, timeout=30) as http,
    ):
        yield Tools(await Desk.open(http), running, folder / "calls")


async def test_a_query_is_answered_as_the_contract_shows_it(tools: Tools) -> None:
    conversation = await tools.begin()
    answer = await tools.execute(conversation, "supabase-query", ROWS)
    assert answer.status == 200
    result = answer.result
    assert set(result) == {"toolName", "output", "executionTimeMs", "metadata"}
    assert result["toolName"] == "supabase-query"
    assert (result["output"]["count"], len(result["output"]["rows"])) == (6, 6)
    assert result["metadata"] == {"executionId": answer.task, "mcpServer": "supabase-mcp", "rowsReturned": 6}
    assert (await tools.desk.task(answer.task)).result == result
    execution = (await tools.read(conversation, answer.task)).result["execution"]
    assert (execution["id"], execution["toolName"], execution["status"]) == (answer.task, "supabase-query", "completed")
    assert (execution["input"], execution["output"]) == (ROWS, result["output"])


async def test_a_search_over_http_says_how_many_files_it_found(tools: Tools) -> None:
    answer = await tools.execute(
        await tools.begin(), "notes/obsidian-search", {"search": {"query": "lamp", "limit": 5}}
    )
    assert answer.result["metadata"]["filesFound"] == len(answer.result["output"]["files"]) == 2
    assert answer.result["metadata"]["mcpServer"] == "notes"


async def test_secrets_are_in_no_answer(tools: Tools) -> None:
    conversation = await tools.begin()
    answer = await tools.execute(conversation, "wild/tell", {"variable": "SECRET", "api_key": "hush-hush-1"})
    execution = await tools.read(conversation, answer.task)
    for shown in (answer, execution):
        assert "my-own-secret-5" not in shown.reply.text
        assert "hush-hush-1" not in shown.reply.text
    assert execution.result["execution"]["input"] == {"variable": "SECRET", "api_key": "[REDACTED]"}


async def test_what_a_tool_says_against_it_is_told_and_kept(tools: Tools) -> None:
    conversation = await tools.begin()
    failed = await tools.execute(conversation, "wild/refuse", {"why": "Bearer abcdefghijk"})
    assert failed.refusal == (500, "TOOL_EXECUTION_FAILED")
    error = failed.body["error"]
    assert error["message"] == "I will not: [REDACTED]"
    about = {"state": "failed", "reason": "tool_error", "executionId": failed.task}
    assert error["details"] == {**about, "toolName": "refuse", "mcpServer": "wild"}
    assert (await tools.desk.task(failed.task)).body["error"] == error
    execution = (await tools.read(conversation, failed.task)).result["execution"]
    assert execution["status"] == "failed"
    assert execution["metadata"]["error"] == {"code": "tool_error", "message": "I will not: [REDACTED]"}
    wrong = await tools.execute(conversation, "supabase-query", {"query": {"table": "nothing"}})
    assert wrong.refusal == (500, "TOOL_EXECUTION_FAILED")
    assert "There is no table 'nothing'" in wrong.body["error"]["message"]


@pytest.mark.parametrize("name", ["away", "forbidden", "missing", "mute"])
async def test_a_server_that_is_down_is_named(tools: Tools, name: str) -> None:
    conversation = await tools.begin()
    down = await tools.execute(conversation, f"{name}/echo", {}, agent="lame")
    assert down.refusal == (500, "TOOL_EXECUTION_FAILED")
    error = down.body["error"]
    assert f"MCP server {name} is not available" in error["message"]
    assert (error["details"]["mcpServer"], error["details"]["toolName"]) == (name, "echo")
    assert error["details"]["reason"] == "server_unavailable"
    for secret in ("hush", "127.0.0.1", "10.1.2.3"):
        assert secret not in down.reply.text
    assert (await tools.desk.task(down.task)).body["error"] == error


async def test_a_server_that_breaks_or_says_nothing_is_named(tools: Tools) -> None:
    conversation = await tools.begin()
    broken = await tools.execute(conversation, "good/die", {}, agent="lame")
    assert broken.body["error"]["message"].startswith("The MCP server good failed: ")
    assert broken.body["error"]["details"]["mcpServer"] == "good"
    late = await tools.execute(conversation, "good/hang", {}, agent="lame", timeoutMs=200)
    assert "good/hang did not answer within " in late.body["error"]["message"]


async def test_a_timeout_stops_the_call(tools: Tools) -> None:
    conversation = await tools.begin()
    answer = await tools.execute(conversation, "wild/hang", {"for": conversation}, timeoutMs=300)
    assert answer.refusal == (500, "TOOL_EXECUTION_FAILED")
    assert answer.body["error"]["details"]["reason"] == "tool_timeout"
    assert answer.body["metadata"]["executionTimeMs"] < 3000
    assert (await tools.list(conversation))["executions"][0]["status"] == "failed"


async def test_a_call_under_way_is_running_and_can_be_canceled(tools: Tools) -> None:
    conversation = await tools.begin()
    headers = {"Idempotency-Key": conversation}
    under_way = asyncio.create_task(tools.execute(conversation, "wild/hang", {"n": conversation}, headers))
    await until(lambda: f'hang {{"n": "{conversation}"}}' in tools.calls)
    (run,), _ = await tools.server.exchange.store.list_runs(Listing(conversation=conversation))
    task = await tools.desk.task(run.id)
    assert task.body["status"] == "running"
    assert "result" not in task.body
    assert (await tools.read(conversation, run.id)).refusal == (404, "EXECUTION_NOT_FOUND")
    await tools.server.exchange.cancel(run.id, Principal.parse(run.principal))
    answer = await under_way
    assert (answer.task, answer.refusal) == (run.id, (409, "TASK_CANCELED"))


async def test_the_same_key_is_the_same_call_and_another_request_is_refused(tools: Tools) -> None:
    conversation = await tools.begin()
    headers, given = {"Idempotency-Key": f"k-{conversation}"}, {"n": conversation}
    together = await asyncio.gather(*(tools.execute(conversation, "wild/echo", given, headers) for _ in range(4)))
    assert {answer.status for answer in together} == {200}
    assert len({answer.task for answer in together}) == 1
    assert sum(conversation in call for call in tools.calls) == 1
    other = await tools.execute(conversation, "wild/echo", {"n": "another"}, headers)
    assert other.refusal == (409, "INVALID_STATE")
    plan = await tools.desk.ask(conversation, "plan", "create", "finance", headers, message="Another action")
    assert plan.refusal == (409, "INVALID_STATE")
    failed = [await tools.execute(conversation, "wild/refuse", {}, {"Idempotency-Key": conversation}) for _ in "12"]
    assert failed[0].task == failed[1].task
    assert failed[0].body["error"] == failed[1].body["error"]


async def test_executions_are_listed_newest_first(tools: Tools) -> None:
    conversation = await tools.begin()
    assert await tools.list(conversation) == {"executions": [], "total": 0, "hasMore": False}
    first = await tools.execute(conversation, "wild/echo", {"text": "x" * 500})
    second = await tools.execute(conversation, "wild/refuse", {})
    page = await tools.list(conversation)
    assert [one["id"] for one in page["executions"]] == [second.task, first.task]
    assert [one["status"] for one in page["executions"]] == ["failed", "completed"]
    assert len(page["executions"][1]["inputSummary"]) == 200
    assert (page["total"], page["hasMore"]) == (2, False)
    page = await tools.list(conversation, limit=1)
    assert (len(page["executions"]), page["total"], page["hasMore"]) == (1, 2, True)
    page = await tools.list(conversation, toolName="echo", offset=0)
    assert [one["id"] for one in page["executions"]] == [first.task]


async def test_what_cannot_be_called(tools: Tools) -> None:
    conversation = await tools.begin()
    unknown = await tools.execute(conversation, "dance", {})
    assert unknown.refusal == (404, "TOOL_NOT_FOUND")
    details = unknown.body["error"]["details"]
    assert details["toolName"] == "dance"
    assert {"supabase-mcp/supabase-query", "wild/echo", "other/echo"} < set(details["availableTools"])
    few = await tools.execute(conversation, "few/hang", {}, agent="few")
    assert few.refusal == (404, "TOOL_NOT_FOUND")
    assert few.body["error"]["message"] == "Agent few has no tool few/hang; it has few/echo."
    assert few.body["error"]["details"] == {"toolName": "few/hang", "availableTools": ["few/echo"]}
    bare = await tools.execute(conversation, "dance", {}, agent="bare")
    assert bare.body["error"]["message"] == "Agent bare has no tool dance; it has none."
    ambiguous = await tools.execute(conversation, "echo", {})
    assert ambiguous.refusal == (400, "INVALID_REQUEST")
    assert ambiguous.body["error"]["details"]["tools"] == ["wild/echo", "other/echo"]
    assert (await tools.execute(conversation, "wild/echo", {}, agent="bare")).refusal == (404, "TOOL_NOT_FOUND")
    for tool, given, more, field in (
        (..., {}, {}, "toolName"), ("wild/echo", ..., {}, "input"), ("wild/echo", [], {}, "input"),
        ("wild/echo", {}, {"timeoutMs": 0}, "timeoutMs"), ("wild/echo", {}, {"timeoutMs": 3_600_001}, "timeoutMs"),
    ):  # fmt: skip
        answer = await tools.execute(conversation, tool, given, **more)
        assert answer.refusal == (400, "MISSING_REQUIRED_PARAM")
        assert answer.body["error"]["details"]["field"] == field
    deep: Any = {}
    for _ in range(100):
        deep = {"a": deep}
    assert (await tools.execute(conversation, "wild/echo", deep)).refusal == (400, "INVALID_REQUEST")
    assert (await tools.list(conversation))["total"] == 0


async def test_what_is_not_there(tools: Tools) -> None:
    conversation = await tools.begin()
    made = await tools.execute(conversation, "wild/echo", {})
    for id_ in ("none", "no id\0", conversation):
        answer = await tools.read(conversation, id_)
        assert answer.refusal == (404, "EXECUTION_NOT_FOUND")
        assert answer.body["error"]["details"] == {"executionId": id_}
    assert (await tools.read(await tools.begin(), made.task)).refusal == (404, "EXECUTION_NOT_FOUND")
    for action, more in (("list", {}), ("read", {"executionId": "x"})):
        answer = await tools.desk.ask("nowhere", "tool", action, agent="finance", **more)
        assert answer.refusal == (404, "CONVERSATION_NOT_FOUND")


async def test_a_call_begins_a_conversation_that_nobody_has_begun(tools: Tools) -> None:
    made = await tools.execute("first-called", "wild/echo", {"n": 1})
    assert made.status == 200
    assert (await tools.list("first-called"))["total"] == 1


async def test_with_its_conversation_an_execution_is_forgotten(tools: Tools) -> None:
    conversation = await tools.begin()
    await tools.execute(conversation, "wild/echo", {"n": 1})
    gone = await tools.desk.ask(
        conversation, "converse", "delete_conversation", agent="finance", confirm=True, deleteArtifacts=True
    )
    assert gone.status == 200
    await tools.desk.begin("finance", conversation)
    assert (await tools.list(conversation))["total"] == 0


async def test_a_stream_of_a_call_ends_with_its_envelope(tools: Tools) -> None:
    conversation = await tools.begin()
    answer = await tools.execute(conversation, "wild/echo", {"n": 1})
    events = [event async for _, event in tools.desk.events(answer.task)]
    assert events[-1]["type"] == "task"
    assert events[-1]["task"]["result"] == answer.result
    assert "question" not in [event["type"] for event in events]
