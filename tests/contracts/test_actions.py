"""The actions contract: its single endpoint, all 33 actions with the minimal and the full request, its examples and
its error codes, over HTTP."""

import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.function import FunctionDriver
from parley.errors import StoreUnavailable
from parley.testing.processes import until
from parley.testing.servers import Server, serving
from parley.tools.rules.mcp import McpServer
from tests.contracts import action_texts as texts
from tests.contracts.action_caller import SHARED, Talk, check_request, request_of, result_of
from tests.contracts.literals import assert_contains, assert_like, from_typescript
from tests.contracts.shapes import Shape
from tests.faces.actions.agents import blog_post_writer, broken, writer
from tests.faces.actions.test_orchestrate import DOORS, FAILING, FINANCE, TWO, door, idle, worker
from tests.tools.mcp.conftest import agent_with, example, notes, search_url
from tests.tools.mcp.conftest import server as tool_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

__all__ = ["notes", "search_url"]
ACTIONS_FILE = Path(__file__).parents[2] / "sdk" / "typescript" / "src" / "actions.ts"
Talks = Callable[..., Talk]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory, search_url: str) -> AsyncIterator[Server]:
    token = {"Authorization": "Bearer open-sesame-1"}
    obsidian = McpServer("obsidian-mcp", url=search_url, headers=token)
    supabase = agent_with(
        example("supabase-mcp", "sqlite_query.py"), obsidian, tool_server("wild"), slug="supabase-agent"
    )
    with pytest.MonkeyPatch.context() as patch:
        # The examples say `python`, and need the one that has their packages.
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        finance = LoadedDefinitions(Sources((str(FINANCE),), None)).drivers
        drivers = [*finance, FunctionDriver(supabase, idle), writer, blog_post_writer, broken, worker, TWO]
        folder = tmp_path_factory.mktemp("actions")
        async with serving(folder, drivers, allow_hosts=["127.0.0.1"]) as running:
            yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client:
        yield client


@pytest.fixture
def talk(http: httpx2.AsyncClient, request: pytest.FixtureRequest) -> Talks:
    """A conversation of the test's own, in a mode."""
    conversation = f"conv-{request.node.name.replace('[', '-').rstrip(']')}"

    def of(mode: str, agent: str = "writer") -> Talk:
        return Talk(http, conversation, mode, agent)

    return of


async def test_single_endpoint(http: httpx2.AsyncClient) -> None:
    method, path = texts.ENDPOINT.split()
    at = path.replace(":conversationId", "conv-123")
    assert (await http.request(method, at, json={})).status_code == 400
    other = await http.get(at)
    assert (other.status_code, other.json()["error"]["code"]) == (405, "METHOD_NOT_ALLOWED")


async def test_every_request_has(talk: Talks) -> None:
    asked = talk("plan")
    whole = {"mode": "plan", "action": "create", "agentSlug": "writer", "message": "Write about tides"}
    check_request(whole)
    assert (await asked.send(whole)).status_code == 200
    for name, code in (("mode", "INVALID_MODE"), ("action", "INVALID_ACTION"), ("agentSlug", "MISSING_REQUIRED_PARAM")):
        reply = await asked.send({other: value for other, value in whole.items() if other != name})
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, code)


async def test_every_response_has(talk: Talks) -> None:
    body = {"mode": "plan", "action": "create", "agentSlug": "writer", "message": "Write about tides"}
    envelope = (await talk("plan").send(body)).json()
    Shape.parse(texts.EVERY_RESPONSE).check(envelope)
    assert set(envelope) >= {"taskId", "conversationId", "status", "result", "startedAt", "completedAt"}
    began, ended = (datetime.fromisoformat(envelope[name]) for name in ("startedAt", "completedAt"))
    assert began <= ended


async def creates(talk: Talk) -> None:
    made = await talk.minimal("create", message="Write about tides")
    noun = made["plan" if talk.mode == "plan" else "deliverable"]
    assert (noun["conversationId"], noun["currentVersionId"]) == (talk.conversation, made["version"]["id"])
    assert (made["version"]["versionNumber"], made["version"]["isCurrent"]) == (1, True)
    again = await talk.full("create", message="Write about lamps", forceNew=True)
    assert again["version"]["versionNumber"] == 2


async def reads(talk: Talk) -> None:
    await talk.of("plan" if talk.mode == "build" else "build").minimal("create", message="Something else")
    assert await talk.minimal("read") is None
    first, second = await talk.versions()
    assert (await talk.minimal("read"))["currentVersion"]["id"] == second
    assert (await talk.full("read", versionId=first))["currentVersion"]["id"] == first


async def lists(talk: Talk) -> None:
    first, second = await talk.versions()
    page = await talk.minimal("list")
    assert ([one["id"] for one in page["versions"]], page["total"], page["hasMore"]) == ([second, first], 2, False)
    page = await talk.full("list", limit=1, offset=0)
    assert ([one["id"] for one in page["versions"]], page["total"], page["hasMore"]) == ([second], 2, True)


async def edits(talk: Talk) -> None:
    await talk.minimal("create", message="Write about tides")
    made = (await talk.minimal("edit", editedContent="# By hand"))["version"]
    assert (made["content"], made["isCurrent"]) == ("# By hand", True)
    await talk.full("edit", editedContent="# By hand, again", editNotes="shorter")


async def sets_current(talk: Talk) -> None:
    first, second = await talk.versions()
    moved = await talk.full("set_current", versionId=first)
    assert (moved["previousVersionId"], moved["newVersionId"]) == (second, first)
    assert moved["plan" if talk.mode == "plan" else "deliverable"]["currentVersionId"] == first


async def deletes_version(talk: Talk) -> None:
    first, second = await talk.versions()
    gone = await talk.minimal("delete_version", versionId=first)
    assert gone == {"success": True, "deletedVersionId": first, "remainingVersionCount": 1}
    await talk.minimal("edit", editedContent="# Third")
    gone = await talk.full("delete_version", versionId=second, confirm=True)
    assert gone == {"success": True, "deletedVersionId": second, "remainingVersionCount": 1}


async def merges(talk: Talk) -> None:
    both = [*await talk.versions()]
    made = (await talk.minimal("merge_versions", versionIds=both, mergePrompt="Keep both"))["version"]
    assert (made["metadata"]["mergedFrom"], made["metadata"]["mergePrompt"]) == (both, "Keep both")
    config = {"model": "offline-2", "temperature": 0.2}
    made = (await talk.full("merge_versions", versionIds=both, mergePrompt="Keep both", llmConfig=config))["version"]
    assert made["metadata"]["llmModel"] == "offline-2"


async def copies(talk: Talk) -> None:
    first, second = await talk.versions()
    made = (await talk.minimal("copy_version", versionId=first))["version"]
    assert (made["metadata"]["copiedFrom"], made["metadata"]["originalVersionNumber"]) == (first, 1)
    assert (await talk.minimal("read"))["currentVersion"]["id"] == second
    made = (await talk.full("copy_version", versionId=first, setCurrent=True))["version"]
    assert (await talk.minimal("read"))["currentVersion"]["id"] == made["id"]


async def deletes(talk: Talk) -> None:
    await talk.versions()
    gone = await talk.full("delete", confirm=True)
    assert (gone["success"], gone["versionsDeleted"]) == (True, 2)
    assert await talk.minimal("read") is None


async def test_mode_plan_create(talk: Talks) -> None:
    await creates(talk("plan"))


async def test_mode_plan_read(talk: Talks) -> None:
    await reads(talk("plan"))


async def test_mode_plan_list(talk: Talks) -> None:
    await lists(talk("plan"))


async def test_mode_plan_edit(talk: Talks) -> None:
    await edits(talk("plan"))


async def test_mode_plan_set_current(talk: Talks) -> None:
    await sets_current(talk("plan"))


async def test_mode_plan_delete_version(talk: Talks) -> None:
    await deletes_version(talk("plan"))


async def test_mode_plan_merge_versions(talk: Talks) -> None:
    await merges(talk("plan"))


async def test_mode_plan_copy_version(talk: Talks) -> None:
    await copies(talk("plan"))


async def test_mode_plan_delete(talk: Talks) -> None:
    await deletes(talk("plan"))


async def test_mode_build_create(talk: Talks) -> None:
    await creates(talk("build"))


async def test_mode_build_read(talk: Talks) -> None:
    await reads(talk("build"))


async def test_mode_build_list(talk: Talks) -> None:
    await lists(talk("build"))


async def test_mode_build_edit(talk: Talks) -> None:
    await edits(talk("build"))


async def test_mode_build_rerun(talk: Talks) -> None:
    asked = talk("build")
    first, second = await asked.versions()
    made = (await asked.minimal("rerun"))["version"]
    assert made["metadata"]["rerunFrom"] == second
    config = {"model": "offline-2", "temperature": 0.2, "maxTokens": 500}
    made = (await asked.full("rerun", sourceVersionId=first, rerunConfig=config, message="Shorter"))["version"]
    assert (made["metadata"]["rerunFrom"], made["metadata"]["rerunConfig"]) == (first, config)
    assert made["metadata"]["llmModel"] == "offline-2"


async def test_mode_build_set_current(talk: Talks) -> None:
    await sets_current(talk("build"))


async def test_mode_build_delete_version(talk: Talks) -> None:
    await deletes_version(talk("build"))


async def test_mode_build_merge_versions(talk: Talks) -> None:
    await merges(talk("build"))


async def test_mode_build_copy_version(talk: Talks) -> None:
    await copies(talk("build"))


async def test_mode_build_delete(talk: Talks) -> None:
    await deletes(talk("build"))


async def test_mode_converse_read_conversation(talk: Talks) -> None:
    await talk("plan").minimal("create", message="Write about tides")
    asked = talk("converse")
    read = await asked.minimal("read_conversation")
    assert read["conversation"]["id"] == asked.conversation
    assert [one["role"] for one in read["messages"]] == ["user", "assistant"]
    page = await asked.full("read_conversation", limit=1, offset=1, includeSystem=True)
    assert (len(page["messages"]), page["total"] >= 2) == (1, True)


async def test_mode_converse_delete_conversation(talk: Talks) -> None:
    asked = talk("converse")
    await talk("plan").minimal("create", message="Write about tides")
    await talk("build").minimal("create", message="Write about tides")
    gone = await asked.full("delete_conversation", confirm=True, deleteArtifacts=True)
    assert (gone["success"], gone["deletedConversationId"]) == (True, asked.conversation)
    assert gone["artifactsDeleted"] == {"plans": 1, "deliverables": 1}
    assert await asked.refused("read_conversation") == (404, "CONVERSATION_NOT_FOUND")


async def test_mode_converse_export_conversation(talk: Talks, http: httpx2.AsyncClient) -> None:
    await talk("plan").minimal("create", message="Write about tides")
    asked = talk("converse")
    for format_ in ("json", "markdown", "pdf", "html"):
        made = await asked.minimal("export_conversation", format=format_)
        assert made["format"] == format_
        got = await http.get(made["exportUrl"])
        assert (got.status_code, len(got.content)) == (200, made["fileSize"])
    made = await asked.full("export_conversation", format="json", includeArtifacts=True)
    assert made["metadata"]["artifactsIncluded"] == 1


async def test_mode_tool_execute(talk: Talks) -> None:
    asked = talk("tool", "supabase-agent")
    table = {"query": {"table": "financial_transactions"}}
    assert (await asked.minimal("execute", toolName="supabase-query", input=table))["toolName"] == "supabase-query"
    whole = {"table": "financial_transactions", "select": ["date"], "where": {"amount_gt": 0}, "orderBy": "date"}
    made = await asked.full(
        "execute", toolName="supabase-query", input={"query": {**whole, "limit": 2}}, timeoutMs=9000
    )
    assert made["metadata"]["rowsReturned"] == 2
    search = {"search": {"query": "lamp", "path": "work", "limit": 5}}
    made = await asked.minimal("execute", toolName="obsidian-search", input=search)
    assert (made["metadata"]["mcpServer"], made["metadata"]["filesFound"]) == ("obsidian-mcp", 1)
    made = await asked.minimal("execute", toolName="wild/echo", input={"any": "thing"})
    assert "rowsReturned" not in made["metadata"]


async def test_mode_tool_execute_example_supabase_query(talk: Talks) -> None:
    request = from_typescript(texts.SUPABASE_QUERY_REQUEST)
    check_request(request)
    reply = await talk("tool").send(request)
    assert reply.status_code == 200
    result = reply.json()["result"]
    result_of("tool.execute").check(result)
    assert_like(from_typescript(texts.SUPABASE_QUERY_RESULT), result)
    assert result["toolName"] == "supabase-query"
    assert result["metadata"]["mcpServer"] == "supabase-mcp"
    dates = [row["date"] for row in result["output"]["rows"]]
    assert dates == sorted(dates, reverse=True)
    assert result["output"]["count"] == result["metadata"]["rowsReturned"] == len(dates)


async def test_mode_tool_read(talk: Talks) -> None:
    asked = talk("tool", "supabase-agent")
    given = {"query": {"table": "financial_transactions"}}
    made = await asked.minimal("execute", toolName="supabase-query", input=given)
    execution = (await asked.full("read", executionId=made["metadata"]["executionId"]))["execution"]
    assert (execution["toolName"], execution["input"], execution["status"]) == ("supabase-query", given, "completed")
    assert execution["output"] == made["output"]


async def test_mode_tool_list(talk: Talks) -> None:
    asked = talk("tool", "supabase-agent")
    await asked.minimal("execute", toolName="wild/echo", input={"n": 1})
    await asked.minimal("execute", toolName="supabase-query", input={"query": {"table": "financial_transactions"}})
    assert (await asked.minimal("list"))["total"] == 2
    page = await asked.full("list", toolName="supabase-query", limit=1, offset=0)
    assert ([one["toolName"] for one in page["executions"]], page["total"]) == (["supabase-query"], 1)


async def running(talk: Talks) -> tuple[Talk, str]:
    """An orchestration whose first step waits."""
    asked = talk("orchestrate", "two")
    made = (await asked.minimal("create", message=asked.conversation))["orchestration"]
    await until(lambda: f"{asked.conversation} a" in DOORS)
    return asked, made["id"]


async def ended(asked: Talk, id_: str) -> Any:
    async def over() -> bool:
        return (await asked.full("read", orchestrationId=id_))["orchestration"]["status"] in ("completed", "failed")

    await until(over)
    return (await asked.full("read", orchestrationId=id_))["orchestration"]


async def test_mode_orchestrate_create(talk: Talks) -> None:
    asked = talk("orchestrate", "two")
    config = {"maxParallelSteps": 1, "stepTimeoutMs": 60000, "autoRetry": False, "maxRetries": 0}
    assert set(config) == set(request_of("orchestrate.create").node["config"][0])
    made = (await asked.full("create", message=asked.conversation, config=config))["orchestration"]
    assert (made["conversationId"], made["totalSteps"]) == (asked.conversation, 2)
    door(f"{asked.conversation} a").set()
    door(f"{asked.conversation} b").set()
    assert (await ended(asked, made["id"]))["status"] == "completed"


@pytest.mark.slow
async def test_mode_orchestrate_create_example(talk: Talks) -> None:
    """The status of each step is one of the four, whatever moment the example shows."""
    request = from_typescript(texts.ORCHESTRATION_REQUEST)
    check_request(request)
    reply = await talk("orchestrate").send(request)
    assert reply.status_code == 200
    result, shown = reply.json()["result"], from_typescript(texts.ORCHESTRATION_RESULT)
    result_of("orchestrate.create").check(result)
    assert_like(shown, result)
    steps, expected = result["orchestration"]["plan"]["steps"], shown["orchestration"]["plan"]["steps"]
    assert len(steps) == len(expected) == result["orchestration"]["totalSteps"]
    for step, one in zip(steps, expected, strict=True):
        assert {name: step[name] for name in one if name != "status"} == {
            name: value for name, value in one.items() if name != "status"
        }
    done = await ended(talk("orchestrate", "finance-manager"), result["orchestration"]["id"])
    assert (done["status"], done["completedSteps"], set(done["results"])) == (
        "completed", 3, {"step-001", "step-002", "step-003"},
    )  # fmt: skip


async def test_mode_orchestrate_read(talk: Talks) -> None:
    asked, id_ = await running(talk)
    latest = (await asked.minimal("read"))["orchestration"]
    assert (latest["id"], latest["status"], latest["currentStep"], latest["totalSteps"]) == (id_, "running", 1, 2)
    assert (latest["completedSteps"], latest["failedSteps"], latest["results"]) == (0, 0, {})
    door(f"{asked.conversation} a").set()
    door(f"{asked.conversation} b").set()
    done = await ended(asked, id_)
    assert set(done["results"]) == {"a", "b"}
    assert datetime.fromisoformat(done["startedAt"]) <= datetime.fromisoformat(done["completedAt"])


async def test_mode_orchestrate_list(talk: Talks) -> None:
    asked, id_ = await running(talk)
    assert [one["id"] for one in (await asked.minimal("list"))["orchestrations"]] == [id_]
    assert (await asked.full("list", status="running", limit=5, offset=0))["total"] == 1
    assert (await asked.full("list", status="failed", limit=5, offset=0))["total"] == 0


async def test_mode_orchestrate_pause(talk: Talks) -> None:
    asked, id_ = await running(talk)
    paused = await asked.minimal("pause")
    assert (paused["orchestrationId"], paused["currentStep"]) == (id_, 1)


async def test_mode_orchestrate_resume(talk: Talks) -> None:
    asked, id_ = await running(talk)
    await asked.minimal("pause")
    assert (await asked.minimal("resume"))["orchestrationId"] == id_
    door(f"{asked.conversation} a").set()
    door(f"{asked.conversation} b").set()
    assert (await ended(asked, id_))["status"] == "completed"


async def test_mode_orchestrate_cancel(talk: Talks) -> None:
    asked, id_ = await running(talk)
    gone = await asked.minimal("cancel")
    assert (gone["orchestrationId"], gone["completedSteps"], gone["cancelledSteps"]) == (id_, 0, 2)
    again, id_ = await running(lambda mode, agent: Talk(asked.http, f"{asked.conversation}-2", mode, agent))
    assert (await again.full("cancel", confirm=True))["orchestrationId"] == id_


async def test_mode_orchestrate_retry_step(talk: Talks) -> None:
    asked = talk("orchestrate", "two")
    FAILING.add(f"{asked.conversation} a")
    door(f"{asked.conversation} a").set()
    made = (await asked.minimal("create", message=asked.conversation))["orchestration"]
    assert (await ended(asked, made["id"]))["status"] == "failed"
    FAILING.discard(f"{asked.conversation} a")
    retried = await asked.full("retry_step", stepId="a")
    assert (retried["step"]["stepId"], retried["step"]["retryCount"]) == ("a", 1)


async def test_mode_orchestrate_delete(talk: Talks) -> None:
    asked = talk("orchestrate", "two")
    for step in "ab":
        door(f"{asked.conversation} {step}").set()
    made = (await asked.minimal("create", message=asked.conversation))["orchestration"]
    await ended(asked, made["id"])
    assert await asked.full("delete", confirm=True) == {"success": True, "deletedOrchestrationId": made["id"]}


async def capability_not_found(talk: Talks) -> tuple[int, str]:
    await talk("plan").minimal("create", message="Write about tides")
    return await talk("plan", "blog_post_writer").refused("delete", confirm=True)


async def plan_not_found(talk: Talks) -> tuple[int, str]:
    await talk("build").minimal("create", message="Write about tides")
    return await talk("plan").refused("list")


async def deliverable_not_found(talk: Talks) -> tuple[int, str]:
    await talk("plan").minimal("create", message="Write about tides")
    return await talk("build").refused("edit", editedContent="# None")


async def version_not_found(talk: Talks) -> tuple[int, str]:
    await talk("plan").versions()
    return await talk("plan").refused("set_current", versionId="none")


CAUSES: dict[str, Callable[[Talks], Any]] = {
    "INVALID_MODE": lambda talk: talk("dream").refused("create", message="x"),
    "INVALID_ACTION": lambda talk: talk("plan").refused("rerun"),
    "MISSING_REQUIRED_PARAM": lambda talk: talk("plan").refused("create"),
    "CAPABILITY_NOT_FOUND": capability_not_found,
    "PLAN_NOT_FOUND": plan_not_found,
    "DELIVERABLE_NOT_FOUND": deliverable_not_found,
    "VERSION_NOT_FOUND": version_not_found,
    "CONVERSATION_NOT_FOUND": lambda talk: talk("converse").refused("read_conversation"),
    "LLM_EXECUTION_FAILED": lambda talk: talk("plan", "broken").refused("create", message="Write"),
    "TOOL_EXECUTION_FAILED": lambda talk: talk("tool", "supabase-agent").refused(
        "execute", toolName="wild/refuse", input={}
    ),
}
ROWS = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", texts.ERROR_CODES, re.MULTILINE))


@pytest.mark.parametrize("code", [code for code in ROWS if code != "DATABASE_ERROR"])
async def test_error_codes(talk: Talks, code: str) -> None:
    assert await CAUSES[code](talk) == (int(ROWS[code]), code)


async def test_error_codes_database_error(talk: Talks, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await talk("plan").minimal("create", message="Write about tides")

    async def gone(*_: object, **__: object) -> None:
        raise StoreUnavailable("The database does not answer.")

    for name in ("find", "conversation"):
        monkeypatch.setattr(server.exchange.store.library, name, gone)
    assert await talk("plan").refused("read") == (int(ROWS["DATABASE_ERROR"]), "DATABASE_ERROR")


async def test_error_response_example(http: httpx2.AsyncClient) -> None:
    """Everything but the ids and times is as the contract has it, word for word."""
    shown = from_typescript(texts.ERROR_RESPONSE)
    asked = Talk(http, shown["conversationId"], "plan")
    first, second = await asked.versions()
    unable = asked.of("plan", shown["error"]["details"]["agentSlug"])
    merge = {"mode": "plan", "action": "merge_versions", "agentSlug": unable.agent}
    reply = await unable.send({**merge, "versionIds": [first, second], "mergePrompt": "Keep both"})
    answer = reply.json()
    assert_like(shown, answer)
    assert reply.status_code == 403
    assert_contains({name: shown[name] for name in ("conversationId", "status", "error")}, answer)


async def test_complete_mode_action_matrix(http: httpx2.AsyncClient) -> None:
    rows = re.findall(r"^\| \*\*(\w+)\*\* \| ([a-z_, ]+) \| \*\*(\d+)\*\* \|", texts.MATRIX, re.MULTILINE)
    named = {(mode, action) for mode, listed, _ in rows for action in listed.split(", ")}
    assert len(named) == sum(int(count) for *_, count in rows) == 33
    offered = (await http.get("/api/agent2agent/openapi.json")).json()["x-actions"]
    assert {(row["mode"], row["action"]) for row in offered} == named
    sections = {*texts.REQUESTS, *(f"build.{action}" for action in SHARED)}
    assert sections == {f"{mode}.{action}" for mode, action in named}


async def test_frontend_typescript_sdk_pattern() -> None:
    """Each method takes the parameters of the contract, in its order; more may follow."""
    code = ACTIONS_FILE.read_text()
    takes = {
        name: re.findall(r"(\w+\??):", given) for name, given in re.findall(r"^const (\w+) = \((.*)\) =>", code, re.M)
    }
    methods = {name: takes[given] for name, given in re.findall(r'^  (\w+): \w+\("[\w.]+", (\w+)\)', code, re.M)}
    pattern = re.findall(r"async (\w+)\(conversationId, agentSlug(.*)\)", texts.SDK)
    assert len(pattern) == 33
    for name, given in pattern:
        expected = [one for one in given.split(", ") if one]
        assert methods[name][: len(expected)] == expected, name
        assert all(one.endswith("?") for one in methods[name][len(expected) :]), name
