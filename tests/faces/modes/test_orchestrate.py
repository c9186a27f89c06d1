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
from parley.core.agents import Agent
from parley.core.plans import Rules, Step
from parley.definitions.reading import Reading, Sources
from parley.drivers.function import FunctionDriver
from parley.drivers.workflow import WorkflowDriver
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.ports import Listing
from parley.testing.databases import fresh_database
from parley.testing.servers import serving
from parley.testing.waiting import until
from tests.faces.modes.agents import writer
from tests.faces.modes.desk import Answer, Desk
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
        reading = Reading(Sources((str(FINANCE),), None))
        assert reading.faults == []
        folder = tmp_path_factory.mktemp("flows")
        calls = folder / "calls"
        caller = FunctionDriver(agent_with(server("wild", env={"CALLS": str(calls)}), slug="caller"), idle)
        mute = FunctionDriver(Agent("mute", "Mute", "Can only read plans.", capabilities=("read_plan",)), idle)
        drivers = [*reading.drivers, worker, ONCE, TWO, LOST, HANGING, caller, mute, writer]
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


async def test_a_stream_tells_of_steps_and_each_has_a_conversation_of_its_own(flows: Flows) -> None:
    conversation, begun = await flows.created("finance-manager")
    await flows.ended(conversation, begun["id"])
    events = [event async for _, event in flows.desk.events(begun["id"])]
    assert any("Write the report" in event.get("message", "") for event in events)
    run = await flows.exchange.commands.state(begun["id"])
    query, _, report = run.children
    built = await flows.desk.ask(report, "build", "read", agent="report-compiler")
    assert built.result["deliverable"]["conversationId"] == report
    assert "<svg" in built.result["currentVersion"]["content"]
    called = await flows.desk.ask(query, "tool", "list", agent="supabase-query")
    assert [one["id"] for one in called.result["executions"]] == [query]
    await flows.ask(conversation, "delete", confirm=True)
    called = await flows.desk.ask(query, "tool", "list", agent="supabase-query")
    assert called.result["total"] == 0


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
    assert ended["error"]["message"] == "Step 1/1 a failed: It took longer than 0.3 s."
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
