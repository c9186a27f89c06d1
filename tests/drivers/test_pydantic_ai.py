"""Features of pydantic-ai alone: typed results, dependencies, deferred calls, and tools that ask for a retry."""

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, CallDeferred, ModelRetry, RunContext, ToolReturn
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from parley.drivers.pydantic_ai import pydantic_agent
from parley.errors import ConfigurationError
from parley.testing import run_async


class Report(BaseModel):
    title: str
    pages: int


async def test_a_typed_result_is_an_artifact() -> None:
    model = TestModel(custom_output_args={"title": "Snow", "pages": 2})
    answer = await run_async(Agent(model, output_type=Report, name="writer"), "write")
    assert answer.state == "completed"
    assert answer.data == {"title": "Snow", "pages": 2}


async def test_tools_get_dependencies_of_the_turn() -> None:
    agent = Agent(TestModel(), deps_type=str)

    @agent.tool
    def whoami(ctx: RunContext[str]) -> str:
        return ctx.deps

    driver = pydantic_agent("helper", agent, deps=lambda turn: f"{turn.principal}: {turn.text}")
    assert "local: hi" in (await run_async(driver, "hi")).text


async def test_a_deferred_call_is_a_question_and_its_answer_the_result() -> None:
    agent = Agent(TestModel(), name="helper")

    @agent.tool_plain
    def seat(flight: str) -> int:
        raise CallDeferred({"question": "Which row?", "schema": {"type": "integer", "minimum": 1}})

    answer = await run_async(agent, "hi", answers=["7"])
    assert answer.questions == ("Which row?",)
    assert answer.text == '{"seat":7}'


async def test_a_tool_may_ask_the_model_to_try_again() -> None:
    tried: list[int] = []
    agent = Agent(TestModel(), name="helper", retries=2)

    @agent.tool_plain
    def guess(number: int) -> str:
        tried.append(number)
        if len(tried) == 1:
            raise ModelRetry("Higher.")
        return "Right."

    assert "Right." in (await run_async(agent, "hi")).text
    assert len(tried) == 2


async def test_a_model_that_cannot_stream_answers_all_the_same() -> None:
    seen: list[ModelMessage] = []

    def answered(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen[:] = messages
        return ModelResponse([ToolCallPart("draw", {}, "c1") if len(messages) == 1 else TextPart("Drawn.")])

    agent = Agent(FunctionModel(answered), name="helper")

    @agent.tool_plain
    def draw() -> ToolReturn:
        return ToolReturn("a chart", content=[BinaryContent(b"png", media_type="image/png")], metadata={"n": 1})

    assert (await run_async(agent, "draw")).text == "Drawn."
    returned = next(part for part in seen[-1].parts if isinstance(part, ToolReturnPart))
    assert (returned.content, returned.metadata) == ("a chart", {"n": 1})


def test_something_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not an Agent of pydantic-ai"):
        pydantic_agent("helper", object())  # type: ignore[arg-type]
