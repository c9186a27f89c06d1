"""The mode orchestrate over HTTP: steps that call tools, write documents and answer, and whoever asks can steer."""

import asyncio
import os
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from msgspec import Raw

from parley import Failed, Text, Turn, agent
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.function import FunctionDriver
from parley.drivers.workflow import WorkflowDriver
from parley.orchestrations.rules.plan import Rules, Step
from parley.runs.log import Outcome
from parley.runs.rules.agents import Agent
from parley.runs.service import Exchange
from parley.runs.store import Listing
from parley.testing.databases import fresh_database
from parley.testing.processes import until
from parley.testing.servers import serving
from tests.faces.actions.agents import asker, writer
from tests.faces.actions.desk import Answer, Desk
from tests.tools.mcp.conftest import agent_with, server

pytestmark = pytest.mark.asyncio(loop_scope="module")

FINANCE = Path(__file__).parents[3] / "examples" / "finance"
DOORS: dict[str, asyncio.Event] = {}
"""By conversation and step: opened, the step goes on."""
FAILING: set[str] = set()


def door(name: str) -> asyncio.Event:
    return DOORS.setdefault(name, asyncio.Event())


@agent("worker")
async def worker(turn: Turn):
    """Waits until it may go on; fails where it is told to."""
    await door(turn.text).wait()
    yield Failed("broken", "It broke.") if turn.text in FAILING else Text(f"done {turn.text}")


async def idle(turn: Turn) -> Any:
    yield Text("none")


async def using(turn: Turn) -> Any:
    """Calls a tool of its own accord."""
    made = await turn.use("echo", {"said": turn.text})
    yield Text(f"used {made.id}")


@agent("scribe")
async def scribe(turn: Turn):
    """Writes down all it is shown."""
    yield Text(f"# {turn.text.strip().splitlines()[-1]}\n\n{len(await turn.recall(9))} rounds before")


def flow(slug: str, *steps: Step) -> WorkflowDriver:
    return WorkflowDriver(Agent(slug, slug, "A workflow."), steps, Rules(retry_delay_ms=1))


def at(id_: str, *before: str) -> Step:
    return Step(id_, "worker", depends_on=before, input=Raw(b'"{{message}} %b"' % id_.encode()))


LOST = flow("lost", Step("a", "worker", mode="tool", action="execute", input=Raw(b'"no tool"')))
ONCE = WorkflowDriver(Agent("once", "once", "A workflow."), (at("a"),), Rules(max_retries=0, retry_delay_ms=1))
"""A workflow as a definition without `retries` makes it."""
TWO = flow("two", at("a"), at("b", "a"))


HANGING = flow(
    "hanging",
    Step(
        "a", "caller", mode="tool", action="execute", input=Raw(b'{"toolName": "hang", "input": {"n": "{{message}}"}}')
    ),
)

SHELF = flow(
    "shelf",
    Step("outline", "scribe", mode="plan", action="create", input=Raw(b'"Outline"')),
    Step("one", "scribe", depends_on=("outline",), mode="build", action="create", input=Raw(b'"Chapter one"')),
    Step("two", "scribe", depends_on=("one",), mode="build", action="create", input=Raw(b'"Chapter two"')),
    Step("use", "user-of-tools", input=Raw(b'"ring"')),
)
CHECKED = flow(
    "checked",
    Step("a", "scribe", checkpoint="Shall it be published?", input=Raw(b'"Draft"')),
    Step("b", "scribe", depends_on=("a",), input=Raw(b'"said {{steps.a.answer}}"')),
)
ASKING = flow(
    "asking",
    Step("plan", "asker", mode="plan", action="create", input=Raw(b'"Write"')),
    Step("talk", "asker", input=Raw(b'"Talk"')),
)
NESTED = flow("nested", Step("inner", "shelf"))


class Flows:
    def __init__(self, desk: Desk, exchange: Exchange, calls: Path) -> None:
        self.desk = desk
        self.exchange = exchange
        self.calls = calls

    async def begin(self, agent: str = "two") -> str:
        return await self.desk.begin(agent)

    async def ask(self, conversation: str, action: str, agent: str = "two", **more: Any) -> Answer:
        return await self.desk.ask(conversation, "orchestrate", action, agent=agent, **more)

    async def created(self, agent: str = "two", **more: Any) -> tuple[str, Any]:
        conversation = await self.begin(agent)
        answer = await self.ask(conversation, "create", agent, message=conversation, **more)
        assert answer.status == 200, answer.body
        return conversation, answer.result["orchestration"]

    async def settled(self, conversation: str) -> Any:
        """The orchestration that went on as another run, when that has ended."""
        store = self.exchange.store
        runs, _ = await store.list_runs(Listing(conversation=conversation, agent="two"))
        for run in runs:
            if run.orchestration is not None:
                await self.exchange.settled(Outcome(run, [], replayed=True), ended=True)
        return (await self.ask(conversation, "read")).result["orchestration"]

    async def ended(self, conversation: str, id_: str) -> Any:
        async for _ in self.desk.events(id_):
            pass
        return (await self.ask(conversation, "read", orchestrationId=id_)).result["orchestration"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def flows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Flows]:
    settings: dict[str, object] = {"store": request.param}
    if request.param == "postgres":
        settings["postgres_url"] = await fresh_database(request.getfixturevalue("postgres"))
    with pytest.MonkeyPatch.context() as patch:
        # The examples say `python`, and need the one that has their packages.
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        reading = LoadedDefinitions(Sources((str(FINANCE),), None))
        assert reading.faults == []
        folder = tmp_path_factory.mktemp("flows")
        calls = folder / "calls"
        caller = FunctionDriver(agent_with(server("wild", env={"CALLS": str(calls)}), slug="caller"), idle)
        mute = FunctionDriver(Agent("mute", "Mute", "Can only read plans.", capabilities=("read_plan",)), idle)
        user = FunctionDriver(agent_with(server("wild"), slug="user-of-tools"), using)
        flowing = (ONCE, TWO, LOST, HANGING, SHELF, NESTED, CHECKED, ASKING)
        drivers = [*reading.drivers, worker, *flowing, caller, mute, writer, user, scribe, asker]
        async with (
            serving(folder / "data", drivers, **settings) as running,
            httpx2.AsyncClient(base_url=running.url, timeout=30) as http,
        ):
            yield Flows(await Desk.open(http), running.exchange, calls)


@pytest.mark.slow
async def test_the_contracts_example_makes_a_chart_and_a_report(flows: Flows) -> None:
    conversation = await flows.begin("finance-manager")
    request = "Generate Q1 2025 financial report with charts"
    answer = await flows.ask(conversation, "create", "finance-manager", message=request)
    begun = answer.result["orchestration"]
    assert (begun["conversationId"], begun["totalSteps"], answer.body["status"]) == (conversation, 3, "completed")
    shown = [(one["stepId"], one["agentSlug"], one["mode"], one["action"]) for one in begun["plan"]["steps"]]
    assert shown == [
        ("step-001", "supabase-query", "tool", "execute"), ("step-002", "chart-generator", "tool", "execute"),
        ("step-003", "report-compiler", "build", "create"),
    ]  # fmt: skip
    assert begun["plan"]["steps"][2]["dependsOn"] == ["step-001", "step-002"]
    ended = await flows.ended(conversation, begun["id"])
    assert (ended["status"], ended["completedSteps"], ended["failedSteps"]) == ("completed", 3, 0), ended.get("error")
    assert ended["results"]["step-001"]["count"] == 6
    svg = ended["results"]["step-002"]["svg"]
    assert svg.startswith("<svg")
    assert "Revenue: 4800" in svg
    report = ended["results"]["step-003"]
    assert report.startswith(f"# {request}")
    assert svg in report
    listed = (await flows.ask(conversation, "list")).result
    assert [one["id"] for one in listed["orchestrations"]] == [begun["id"]]
    task = await flows.desk.task(begun["id"])
    assert svg in task.result["content"]
    shown = await flows.desk.http.get(f"/agents/finance-manager/tasks/{begun['id']}", headers={"A2A-Version": "1.0"})
    chart, made = shown.json()["artifacts"]
    assert (chart["name"], made["name"]) == ("chart.svg", "report.md")
    (file,) = chart["parts"]
    assert (file["mediaType"], file["filename"]) == ("image/svg+xml", "chart.svg")
    assert b64decode(file["raw"]).decode() == svg
    assert made["parts"][0]["text"] == report


async def test_a_stream_tells_of_steps_and_each_tells_its_task(flows: Flows) -> None:
    conversation, begun = await flows.created("finance-manager")
    ended = await flows.ended(conversation, begun["id"])
    events = [event async for _, event in flows.desk.events(begun["id"])]
    assert any("Write the report" in event.get("message", "") for event in events)
    run = await flows.exchange.commands.state(begun["id"])
    query, chart, report = run.children
    steps = [(one["taskId"], one["conversationId"]) for one in ended["plan"]["steps"]]
    assert steps == [(query, query), (chart, chart), (report, conversation)]
    for task, where in steps:
        assert (await flows.desk.task(task)).body["conversationId"] == where
    called = await flows.desk.ask(query, "tool", "list", agent="supabase-query")
    assert [one["id"] for one in called.result["executions"]] == [query]
    await flows.ask(conversation, "delete", confirm=True)
    for where in (query, conversation):
        called = await flows.desk.ask(where, "tool", "list", agent="supabase-query")
        assert called.result["total"] == 0
    built = await flows.desk.ask(conversation, "build", "read", agent="report-compiler")
    assert built.result["currentVersion"]["id"] == report


async def test_a_step_that_has_not_begun_tells_no_task(flows: Flows) -> None:
    conversation, begun = await flows.created()

    async def steps() -> Any:
        return (await flows.ask(conversation, "read")).result["orchestration"]["plan"]["steps"]

    async def is_there() -> bool:
        return "conversationId" in (await steps())[0]

    await until(is_there)
    first, second = await steps()
    assert first["taskId"] == first["conversationId"]
    assert {"taskId", "conversationId"}.isdisjoint(second)
    await flows.ask(conversation, "cancel", orchestrationId=begun["id"])


@pytest.mark.parametrize("outer", ["shelf", "nested"])
async def test_what_steps_make_is_in_the_conversation_of_the_orchestration(flows: Flows, outer: str) -> None:
    conversation, begun = await flows.created(outer)
    assert (await flows.ended(conversation, begun["id"]))["status"] == "completed"
    desk = flows.desk
    plan = (await desk.ask(conversation, "plan", "read", agent="scribe")).result
    assert (plan["plan"]["title"], plan["plan"]["conversationId"]) == ("Outline", conversation)
    deliverable = (await desk.ask(conversation, "build", "read", agent="scribe")).result
    assert deliverable["deliverable"]["title"] == "Chapter two"
    # What a step is shown is its input, and nothing of what else the conversation has.
    assert deliverable["currentVersion"]["content"] == "# Chapter two\n\n0 rounds before"
    versions = (await desk.ask(conversation, "build", "list", agent="scribe")).result["versions"]
    assert [one["metadata"]["stepId"] for one in versions] == ["two", "one"]
    assert len({one["metadata"]["orchestrationId"] for one in versions}) == 1
    (call,) = (await desk.ask(conversation, "tool", "list", agent="scribe")).result["executions"]
    called = (await desk.ask(conversation, "tool", "read", agent="scribe", executionId=call["id"])).result
    assert called["execution"]["output"] == {"said": "ring"}
    said = (await desk.ask(conversation, "converse", "read_conversation", agent="scribe")).result
    made = [one for one in said["messages"] if "stepId" in one["metadata"]]
    assert [(one["role"], one["metadata"]["stepId"]) for one in made] == [
        ("assistant", "outline"), ("assistant", "one"), ("assistant", "two"),
    ]  # fmt: skip
    assert made[1]["content"] == "# Chapter one\n\n0 rounds before"
    assert said["total"] == len(said["messages"])
    asked = {"format": "markdown", "includeArtifacts": True}
    exported = (await desk.ask(conversation, "converse", "export_conversation", agent="scribe", **asked)).result
    assert exported["metadata"] == {"messageCount": said["total"], "artifactsIncluded": 2}
    assert "# Chapter one" in (await desk.http.get(exported["exportUrl"])).text


async def test_deleting_the_conversation_deletes_what_steps_made(flows: Flows) -> None:
    conversation, begun = await flows.created("nested")
    await flows.ended(conversation, begun["id"])
    desk = flows.desk
    total = (await desk.ask(conversation, "converse", "read_conversation", agent="scribe")).result["total"]
    version = (await desk.ask(conversation, "build", "read", agent="scribe")).result["currentVersion"]["id"]
    assert (await desk.ask(conversation, "tool", "list", agent="scribe")).result["total"] == 1
    # Steps of an orchestration that an older version carried out wrote in a conversation of their own.
    (old,) = (await flows.exchange.commands.state(begun["id"])).children
    await desk.planned("build", await desk.begin("writer", old))
    asked = {"confirm": True, "deleteArtifacts": True}
    deleted = (await desk.ask(conversation, "converse", "delete_conversation", agent="scribe", **asked)).result
    assert deleted["artifactsDeleted"] == {"plans": 1, "deliverables": 2}
    assert (await desk.ask(old, "build", "read", agent="scribe")).result is None
    assert deleted["messagesDeleted"] == total
    assert (await desk.task(version)).refusal == (404, "TASK_NOT_FOUND")
    again = await desk.begin("scribe", conversation)
    assert (await desk.ask(again, "build", "read", agent="scribe")).result is None
    assert (await desk.ask(again, "tool", "list", agent="scribe")).result["total"] == 0
    left = await desk.ask(again, "build", "read", agent="scribe", versionId=version)
    assert left.refusal == (404, "VERSION_NOT_FOUND")


async def test_a_checkpoint_is_answered_by_resuming(flows: Flows) -> None:
    conversation, begun = await flows.created("checked")

    async def question() -> str | None:
        return (await flows.ask(conversation, "read")).result["orchestration"].get("question")

    async def is_asked() -> bool:
        return await question() == "Shall it be published?"

    await until(is_asked)
    to = {"message": "Yes, at once", "headers": {"Idempotency-Key": f"r-{conversation}"}}
    first, again = [await flows.ask(conversation, "resume", "checked", **to) for _ in "12"]
    assert (first.result["orchestrationId"], first.result["status"]) == (begun["id"], "running")
    assert (again.task, again.result) == (first.task, first.result)
    ended = await flows.ended(conversation, begun["id"])
    assert ended["results"]["b"].startswith("# said Yes, at once")
    assert "question" not in ended
    late = await flows.ask(conversation, "resume", "checked", message="More")
    assert late.refusal == (409, "INVALID_STATE")


async def test_the_question_of_a_step_is_answered_by_resuming(flows: Flows) -> None:
    conversation, begun = await flows.created("asking")

    async def steps() -> Any:
        return (await flows.ask(conversation, "read")).result["orchestration"]["plan"]["steps"]

    async def all_ask() -> bool:
        return [one.get("question") for one in await steps()] == ["For whom?"] * 2

    await until(all_ask)
    resume = {"action": "resume", "agent": "asking"}
    assert (await flows.ask(conversation, **resume, stepId="talk")).refusal == (400, "MISSING_REQUIRED_PARAM")
    assert (await flows.ask(conversation, **resume, stepId="z", message="Ann")).refusal == (404, "STEP_NOT_FOUND")
    # The orchestration itself asks nothing.
    assert (await flows.ask(conversation, **resume, message="Ann")).refusal == (409, "INVALID_STATE")
    resumed = (await flows.ask(conversation, **resume, stepId="talk", message="Ann")).result
    assert (resumed["orchestrationId"], resumed["status"]) == (begun["id"], "running")
    task = (await steps())[0]["taskId"]
    to = {"taskId": task, "message": "Bob"}
    assert (await flows.desk.ask(conversation, "plan", "create", agent="asker", **to)).task == task
    ended = await flows.ended(conversation, begun["id"])
    assert ended["results"] == {"plan": "# For Bob", "talk": "# For Ann"}


async def test_pause_resume_and_what_each_answers(flows: Flows) -> None:
    conversation, begun = await flows.created()
    assert (begun["status"], begun["totalSteps"]) == ("running", 2)
    paused = (await flows.ask(conversation, "pause")).result
    assert (paused["orchestrationId"], paused["status"]) == (begun["id"], "paused")
    assert (await flows.ask(conversation, "read")).result["orchestration"]["status"] == "paused"
    door(f"{conversation} a").set()
    door(f"{conversation} b").set()
    resumed = (await flows.ask(conversation, "resume", orchestrationId=begun["id"])).result
    assert (resumed["orchestrationId"], resumed["status"]) == (begun["id"], "running")
    ended = await flows.ended(conversation, begun["id"])
    assert ended["status"] == "completed"
    assert ended["results"]["b"] == f"done {conversation} b"
    for action in ("pause", "resume", "cancel"):
        assert (await flows.ask(conversation, action)).refusal == (409, "INVALID_STATE")


async def test_cancel_without_consent_cancels_nothing(flows: Flows) -> None:
    conversation, begun = await flows.created()
    refused = await flows.ask(conversation, "cancel", confirm=False)
    assert refused.refusal == (400, "MISSING_REQUIRED_PARAM")
    assert refused.body["error"]["details"] == {"field": "confirm"}
    assert (await flows.ask(conversation, "read")).result["orchestration"]["status"] == "running"
    cancelled = (await flows.ask(conversation, "cancel", confirm=True)).result
    assert (cancelled["orchestrationId"], cancelled["status"]) == (begun["id"], "cancelled")


async def test_orchestrations_are_listed_by_each_of_their_states(flows: Flows) -> None:
    conversation = await flows.begin()

    async def listed(status: str) -> list[str]:
        page = (await flows.ask(conversation, "list", status=status)).result
        return [one["id"] for one in page["orchestrations"]]

    ids = [(await flows.ask(conversation, "create", message=conversation)).result["orchestration"]["id"] for _ in "12"]
    await flows.ask(conversation, "pause", orchestrationId=ids[0])
    await flows.ask(conversation, "cancel", orchestrationId=ids[1])
    assert [await listed(one) for one in ("paused", "cancelled", "running", "planning")] == [ids[:1], ids[1:], [], []]
    await flows.ask(conversation, "cancel", orchestrationId=ids[0])


async def test_auto_retry_alone_retries_where_the_definition_does_not(flows: Flows) -> None:
    conversation = await flows.begin("once")
    name = f"{conversation} a"
    FAILING.add(name)
    door(name).set()
    asked = {"message": conversation, "config": {"autoRetry": True}}
    begun = (await flows.ask(conversation, "create", "once", **asked)).result["orchestration"]
    assert (await flows.ended(conversation, begun["id"]))["status"] == "failed"
    runs, _ = await flows.exchange.store.list_runs(Listing(agent="worker"))
    assert sum(run.parent == begun["id"] for run in runs) == 3
    FAILING.discard(name)


async def test_cancel_counts_what_was_done_and_what_was_not(flows: Flows) -> None:
    conversation, begun = await flows.created()
    refused = await flows.ask(conversation, "delete", confirm=True)
    assert refused.refusal == (409, "INVALID_STATE")
    key = {"Idempotency-Key": conversation}
    answer = await flows.ask(conversation, "cancel", headers=key, confirm=True)
    result = answer.result
    assert (result["orchestrationId"], result["status"]) == (begun["id"], "cancelled")
    assert (result["completedSteps"], result["cancelledSteps"]) == (0, 2)
    again = await flows.ask(conversation, "cancel", headers=key, confirm=True)
    assert (again.task, again.result) == (answer.task, result)
    deleted = (await flows.ask(conversation, "delete", confirm=True)).result
    assert deleted == {"success": True, "deletedOrchestrationId": begun["id"]}
    gone = await flows.ask(conversation, "read", orchestrationId=begun["id"])
    assert gone.refusal == (404, "ORCHESTRATION_NOT_FOUND")


async def test_what_ends_a_step_ends_its_call_of_a_tool(flows: Flows) -> None:
    conversation, begun = await flows.created("hanging")
    await until(lambda: flows.calls.exists() and conversation in flows.calls.read_text())
    assert (await flows.ask(conversation, "cancel", "hanging")).result["cancelledSteps"] == 1
    (call,) = (await flows.exchange.commands.state(begun["id"])).children
    assert (await flows.desk.task(call)).refusal == (200, "TASK_CANCELED")
    conversation, begun = await flows.created("hanging", config={"stepTimeoutMs": 300})
    ended = await flows.ended(conversation, begun["id"])
    assert ended["error"]["message"] == "Step 1/1 a failed: The step took longer than 0.3 s."
    (call,) = (await flows.exchange.commands.state(begun["id"])).children
    assert (await flows.desk.task(call)).refusal == (200, "TASK_CANCELED")


async def test_a_failed_step_is_tried_again(flows: Flows) -> None:
    conversation = await flows.begin()
    FAILING.add(f"{conversation} b")
    for step in "ab":
        door(f"{conversation} {step}").set()
    begun = (await flows.ask(conversation, "create", message=conversation)).result["orchestration"]
    ended = await flows.ended(conversation, begun["id"])
    assert (ended["status"], ended["completedSteps"], ended["failedSteps"]) == ("failed", 1, 1)
    assert ended["error"]["code"] == "step_failed"
    listed = (await flows.ask(conversation, "list", status="failed", limit=1)).result
    assert (listed["total"], listed["orchestrations"][0]["id"]) == (1, begun["id"])
    assert (await flows.ask(conversation, "list", status="running")).result["total"] == 0
    assert (await flows.ask(conversation, "retry_step", stepId="z")).refusal == (404, "STEP_NOT_FOUND")
    assert (await flows.ask(conversation, "retry_step", stepId="a")).refusal == (409, "INVALID_STATE")
    FAILING.clear()
    retried = (await flows.ask(conversation, "retry_step", stepId="b")).result
    assert retried["orchestrationId"] == begun["id"]
    assert (retried["step"]["stepId"], retried["step"]["retryCount"]) == ("b", 1)
    # It goes on as another run, which is the newest of the conversation's that carry it.
    ended = await flows.settled(conversation)
    assert (ended["status"], ended["completedSteps"]) == ("completed", 2)


async def test_the_same_key_creates_one_orchestration(flows: Flows) -> None:
    conversation = await flows.begin()
    key = {"Idempotency-Key": conversation}
    first, second = [await flows.ask(conversation, "create", headers=key, message="Go") for _ in "12"]
    assert first.task == second.task
    assert first.result["orchestration"]["id"] == second.result["orchestration"]["id"]
    assert (await flows.ask(conversation, "list")).result["total"] == 1
    other = await flows.ask(conversation, "create", headers=key, message="Go elsewhere")
    assert other.refusal == (409, "INVALID_STATE")
    await flows.ask(conversation, "cancel")


async def test_what_cannot_be_orchestrated(flows: Flows) -> None:
    conversation = await flows.begin()
    unable = await flows.ask(conversation, "create", "worker", message="Go")
    assert unable.refusal == (403, "CAPABILITY_NOT_FOUND")
    lost = await flows.ask(conversation, "create", "lost", message="Go")
    assert lost.refusal == (500, "LLM_EXECUTION_FAILED")
    assert "toolName" in lost.body["error"]["message"]
    assert lost.body["error"]["details"]["reason"] == "plan_invalid"
    assert (await flows.ask(conversation, "create", message=" ")).refusal == (400, "MISSING_REQUIRED_PARAM")
    assert (await flows.ask(conversation, "delete", confirm=False)).refusal == (400, "MISSING_REQUIRED_PARAM")
    assert (await flows.ask("nowhere", "read")).refusal == (404, "CONVERSATION_NOT_FOUND")
    assert (await flows.ask("first-orchestrated", "create", message="Go")).status == 200
    empty = await flows.begin()
    for action, more in (("read", {}), ("pause", {}), ("cancel", {}), ("retry_step", {"stepId": "a"})):
        assert (await flows.ask(empty, action, **more)).refusal == (404, "ORCHESTRATION_NOT_FOUND")
    answer = await flows.ask(empty, "read", orchestrationId="no id\0")
    assert answer.refusal == (404, "ORCHESTRATION_NOT_FOUND")


async def test_a_model_plans_and_the_request_sets_the_rules(flows: Flows) -> None:
    conversation = await flows.begin("writer")
    config = {"maxParallelSteps": 1, "stepTimeoutMs": 5000, "autoRetry": True, "maxRetries": 1}
    asked = {"message": "Let report-compiler speak", "config": config}
    begun = (await flows.ask(conversation, "create", "writer", **asked)).result["orchestration"]
    (step,) = begun["plan"]["steps"]
    assert (step["agentSlug"], step["mode"], step["action"]) == ("report-compiler", "converse", "message")
    assert (await flows.ended(conversation, begun["id"]))["status"] == "completed"
