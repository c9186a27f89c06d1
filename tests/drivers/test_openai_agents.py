"""Features of the OpenAI Agents SDK alone: handoffs, agents as tools, guardrails, and the wire of responses."""

from pathlib import Path

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelProvider,
    OpenAIResponsesModel,
    RunConfig,
    function_tool,
    handoff,
    input_guardrail,
)
from agents.models.interface import Model
from agents.testing import ScriptedModel, assistant_message, function_call
from openai import AsyncOpenAI
from pydantic import BaseModel

from parley.client import Client
from parley.drivers.openai_agents import openai_agent
from parley.errors import ConfigurationError
from parley.runs.rules.events import Progress
from parley.testing import run_async
from parley.testing.servers import serving
from tests.models.vendors import ObligingModel, serving_vendor


class Report(BaseModel):
    title: str


def script(*steps: object) -> ScriptedModel:
    return ScriptedModel([[step] for step in steps])  # type: ignore[list-item]


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_handoff_goes_on_with_the_other_agent(wrapped: bool) -> None:
    called: list[str] = []

    @function_tool
    def look_up(word: str) -> str:
        """Look up a word."""
        called.append(word)
        return "hola"

    spanish = Agent(
        name="spanish",
        model=script(function_call("look_up", {"word": "hello"}, call_id="c2"), assistant_message("hola")),
        tools=[look_up],
    )
    first = script(function_call("transfer_to_spanish", {}, call_id="c1"))
    agent = Agent(name="triage", model=first, handoffs=[handoff(spanish) if wrapped else spanish])
    answer = await run_async(agent, "say hello in Spanish")
    assert (answer.text, called) == ("hola", ["hello"])
    steps = [one.payload.step.name for one in answer.events if isinstance(one.payload, Progress) and one.payload.step]
    assert steps == ["model:1.1", "model:1.2", "look_up:1.2.c2", "model:1.3"]


class OneModel(ModelProvider):
    def __init__(self, model: Model) -> None:
        self._model = model

    def get_model(self, model_name: str | None) -> Model:
        return self._model


async def test_the_model_calls_of_an_agent_that_is_a_tool_are_recorded_too() -> None:
    model = script(
        function_call("ask", {"input": "2 + 2"}, call_id="c1"), assistant_message("4"), assistant_message("Four.")
    )
    inner = Agent(name="inner", model="any")
    outer = Agent(name="outer", model="any", tools=[inner.as_tool("ask", "Ask the other agent.")])
    config = RunConfig(model_provider=OneModel(model), tracing_disabled=True)
    answer = await run_async(openai_agent("outer", outer, run_config=config), "2 + 2?")
    steps = [one.payload.step.name for one in answer.events if isinstance(one.payload, Progress) and one.payload.step]
    assert steps == ["model:1.1", "ask:1.1.c1/model:1.1", "ask:1.1.c1", "model:1.2"]
    assert answer.text.endswith("Four.")


async def test_a_typed_result_is_an_artifact() -> None:
    agent = Agent(name="writer", model=script(assistant_message('{"title": "Snow"}')), output_type=Report)
    answer = await run_async(agent, "write")
    assert (answer.state, answer.data) == ("completed", {"title": "Snow"})


async def test_a_guardrail_fails_the_task_with_its_name() -> None:
    @input_guardrail
    async def polite(ctx: object, agent: object, given: object) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    agent = Agent(name="helper", model=script(assistant_message("hi")), input_guardrails=[polite])
    answer = await run_async(agent, "!")
    assert (answer.state, answer.reason) == ("failed", "A guardrail stopped the agent: polite.")


async def test_too_many_model_calls_fail_the_task() -> None:
    @function_tool
    def again() -> str:
        """Go on."""
        return "again"

    calls = script(*(function_call("again", {}, call_id=f"c{number}") for number in range(4)))
    answer = await run_async(openai_agent("helper", Agent(name="h", model=calls, tools=[again]), max_turns=3), "go")
    assert (answer.state, answer.code) == ("failed", "too_many_rounds")


async def test_the_wire_of_responses_is_streamed_and_counted(tmp_path: Path) -> None:
    @function_tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"Sunny in {city}"

    async with serving_vendor(ObligingModel()) as vendor:
        client = AsyncOpenAI(base_url=vendor.url, api_key="k", max_retries=0)
        agent = Agent(name="helper", model=OpenAIResponsesModel("gpt-test", client), tools=[weather])
        async with serving(tmp_path, [openai_agent("helper", agent)]) as server, Client(server.agent("helper")) as ours:
            task = (await ours.send("weather in Oslo"))["task"]
    assert task["artifacts"][0]["parts"][0]["text"] == "Sunny in Oslo"
    used = {"inputTokens": 22, "outputTokens": 14, "cachedTokens": 6}
    assert task["metadata"]["usage"]["models"] == {"gpt-test-0613": used}


def test_something_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not an Agent of the OpenAI Agents SDK"):
        openai_agent("helper", object())  # type: ignore[arg-type]
