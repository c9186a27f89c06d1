"""Plans that a model makes of a message: what the model is told, what it may answer, and what is refused."""

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio

from parley import Skill, Text, Turn, agent
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.llm.driver import LlmDriver
from parley.models.llm import Answered, Delta, Finish, Sampling, Speech, TokenUsage
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import text_of
from parley.testing.servers import serving
from tests.faces.actions.desk import Answer, Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

FINANCE = Path(__file__).parents[3] / "examples" / "finance"
QUERY = {"query": {"table": "financial_transactions", "select": ["date", "amount", "category"]}}


class ScriptedModel:
    """Gives the answers of a test in order, and keeps what it was sent."""

    reads = ("text/plain",)

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.instructions = ""
        self.sent: list[str] = []

    async def stream(self, messages: Sequence[Speech], sampling: Sampling) -> AsyncGenerator[Answered, None]:
        self.instructions, self.sent = sampling.instructions or "", [text_of(one.parts) for one in messages]
        yield TokenUsage("scripted", 10, 0)
        yield Delta(msgspec.json.encode({"steps": self.answers.pop(0)}).decode())
        yield TokenUsage("scripted", 10, 5)
        yield Finish("stop")


MODEL = ScriptedModel()


@agent("mute", capabilities=("read_plan",), skills=(Skill("hum", "Humming", "Hums any tune."),))
async def mute(turn: Turn):
    """Writes no documents."""
    yield Text(f"heard {turn.text}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    with pytest.MonkeyPatch.context() as patch:
        # The examples say `python`, and need the one that has their packages.
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        planner = LlmDriver(Agent("planner", "Planner", "Plans.", model="scripted"), MODEL, Sampling())
        drivers = [*LoadedDefinitions(Sources((str(FINANCE),), None)).drivers, mute, planner]
        async with (
            serving(tmp_path_factory.mktemp("planning"), drivers) as running,
            httpx2.AsyncClient(base_url=running.url, timeout=30) as http,
        ):
            yield await Desk.open(http)


async def planned(desk: Desk, *answers: object) -> Answer:
    MODEL.answers = [*answers]
    conversation = await desk.begin("planner")
    answer = await desk.ask(conversation, "orchestrate", "create", "planner", message="Report on Q1")
    assert MODEL.answers == []
    return answer


async def ended(desk: Desk, answer: Answer) -> Any:
    begun = answer.result["orchestration"]
    async for _ in desk.events(begun["id"]):
        pass
    place = begun["conversationId"]
    return (await desk.ask(place, "orchestrate", "read", "planner", orchestrationId=begun["id"])).result[
        "orchestration"
    ]


async def test_a_model_is_told_what_each_agent_can_do_and_which_tools_it_has(desk: Desk) -> None:
    await planned(desk, [{"id": "a", "agent": "mute"}])
    told = MODEL.instructions
    about = {one.partition(":")[0]: one for one in told.partition("The agents:\n")[2].split("\n- ")}
    assert "Humming: Hums any tune." in about["mute"]
    assert "capabilities: read_plan" in about["mute"]
    assert "can do: converse\n" in f"{about['mute']}\n"
    query = next(one for name, one in about.items() if name.endswith("supabase-query"))
    assert "tool execute" in query
    assert "tool supabase-query: " in query
    assert '"query"' in query
    assert "build create" in about["report-compiler"]


async def test_a_plan_in_the_words_of_the_contract_is_carried_out(desk: Desk) -> None:
    steps: list[Any] = [
        {"stepId": "step-001", "agentSlug": "supabase-query", "mode": "tool", "action": "execute", "dependsOn": [],
         "toolName": "supabase-query", "input": QUERY},
        {"stepId": "step-002", "agentSlug": "report-compiler", "mode": "build", "action": "create",
         "dependsOn": ["step-001"], "message": "Report {{steps.step-001.output.count}} rows"},
        {"stepId": "step-003", "agentSlug": "report-compiler", "mode": "plan", "action": "create",
         "input": {"message": "Plan Q2"}},
        {"stepId": "step-004", "agentSlug": "mute", "mode": "converse", "action": "message", "message": "hello"},
    ]  # fmt: skip
    answer = await planned(desk, steps)
    shown = [(one["agentSlug"], one["mode"], one["action"]) for one in answer.result["orchestration"]["plan"]["steps"]]
    assert shown == [
        ("supabase-query", "tool", "execute"), ("report-compiler", "build", "create"),
        ("report-compiler", "plan", "create"), ("mute", "converse", "message"),
    ]  # fmt: skip
    state = await ended(desk, answer)
    assert state["status"] == "completed", state.get("error")
    assert state["results"]["step-001"]["count"] > 0
    assert f"Report {state['results']['step-001']['count']} rows" in state["results"]["step-002"]
    assert "Plan Q2" in state["results"]["step-003"]
    assert state["results"]["step-004"] == "heard hello"


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"agent": "nobody"}, "there is no agent nobody"),
        ({"agent": "mute", "mode": "build", "action": "create"}, "agent mute cannot do build create"),
        ({"agent": "mute", "mode": "dance", "action": "now"}, "agent mute cannot do dance now"),
        ({"agent": "supabase-query", "mode": "tool", "toolName": "drop-table"}, "has no tool drop-table; it has supa"),
        ({"agent": "supabase-query", "mode": "tool", "toolName": "supabase-query"}, "must also have: query"),
        ({"agent": "supabase-query", "mode": "tool", "input": "rows"}, "must have `toolName`"),
    ],
)
async def test_a_plan_that_cannot_be_carried_out_is_corrected_once_or_refused(desk: Desk, step: Any, why: str) -> None:
    wrong = [{"id": "a", **step}]
    corrected = await planned(desk, wrong, [{"id": "a", "agent": "mute"}])
    assert why in MODEL.sent[-1]
    assert (await ended(desk, corrected))["status"] == "completed"
    refused = await planned(desk, wrong, wrong)
    assert refused.refusal == (500, "LLM_EXECUTION_FAILED")
    assert refused.body["error"]["details"]["reason"] == "plan_invalid"
    assert why in refused.body["error"]["message"]


async def test_a_plan_tells_which_model_made_it_and_the_tokens_of_all_its_answers(desk: Desk) -> None:
    answer = await planned(desk, [{"id": "a", "agent": "nobody"}], [{"id": "a", "agent": "mute"}])
    maker = {"llmModel": "scripted", "tokensUsed": 30}
    assert answer.result["orchestration"]["plan"]["metadata"] == maker
    assert (await ended(desk, answer))["plan"]["metadata"] == maker
    fixed = await desk.ask(
        await desk.begin("finance-manager"), "orchestrate", "create", "finance-manager", message="Report on Q1"
    )
    assert "metadata" not in fixed.result["orchestration"]["plan"]
