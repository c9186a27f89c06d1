"""Agents of frameworks in Python files, definitions and applications."""

from pathlib import Path

import pytest
from agents import Agent as OpenAiAgent
from agents.testing import ScriptedModel, assistant_message
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from parley import Parley
from parley.definitions.frameworks import adapted
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.execution.driver import kind_of
from parley.testing import run_async

FILE = """
from agents import Agent as OpenAiAgent
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

helper = Agent(TestModel(custom_output_text="Hello."), description="Helps.")
tutor = OpenAiAgent(name="Math Tutor", handoff_description="Explains.", instructions="A secret.")
_hidden = Agent(TestModel())
same = helper
builder = StateGraph(MessagesState)
builder.add_node("greet", lambda state: {"messages": [("assistant", "Hello.")]})
builder.add_edge(START, "greet")
graph = builder.compile()


def deps(turn):
    return turn.text
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "flows.py"
    file.write_text(FILE)
    return file


def loaded(*names: Path) -> LoadedDefinitions:
    return LoadedDefinitions(Sources(tuple(map(str, names))))


def test_a_file_with_agents_of_frameworks_is_served_as_it_is(file: Path) -> None:
    found = loaded(file)
    found.check()
    agents = {one.agent.slug: (kind_of(one), one.agent.description) for one in found.drivers}
    assert agents == {
        "helper": ("pydanticai", "Helps."),
        "math-tutor": ("openaiagents", "Explains."),
        "flows": ("graph", "The agent flows."),
    }


def test_a_file_with_drivers_serves_only_them(file: Path) -> None:
    with file.open("a") as more:
        more.write("\nfrom parley.drivers.pydantic_ai import pydantic_agent\nguide = pydantic_agent('guide', helper)\n")
    assert [one.agent.slug for one in loaded(file).drivers] == ["guide"]


@pytest.mark.parametrize(
    "text",
    [
        "driver: pydantic-ai\npydantic-ai:\n  call: flows.py:helper\n  deps: flows.py:deps\n",
        "pydantic-ai: flows.py:helper\n",
        "langgraph: flows.py:graph\n",
    ],
)
async def test_a_definition_names_an_agent_of_a_framework(file: Path, text: str) -> None:
    definition = file.with_name("guide.yaml")
    definition.write_text(f"description: Guides.\n{text}")
    found = loaded(definition)
    found.check()
    (driver,) = found.drivers
    assert (driver.agent.slug, driver.agent.description) == ("guide", "Guides.")
    assert (await run_async(driver, "hi")).text == "Hello."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("openai-agents: flows.py:helper\n", "must name an agent of openai-agents; its type is Agent"),
        ("pydantic-ai: flows.py:helpr\n", "flows.py has no agent helpr; did you mean helper?"),
        ("pydantic-ai: {call: 'flows.py:helper', deps: 'flows.py:dep'}\n", "flows.py has no function dep"),
    ],
)
def test_an_agent_that_is_not_there_is_explained(file: Path, text: str, message: str) -> None:
    definition = file.with_name("guide.yaml")
    definition.write_text(text)
    (fault,) = loaded(definition).faults
    assert message in fault.message


async def test_an_application_takes_agents_of_frameworks() -> None:
    scripted = OpenAiAgent(name="tutor", model=ScriptedModel([[assistant_message("Two.")]]))
    async with Parley([Agent(TestModel(custom_output_text="Hi."), name="helper"), scripted], store="memory") as app:
        assert (await app.ask("helper", "hello")).text == "Hi."
        assert (await app.ask("tutor", "one plus one?")).text == "Two."


def test_other_values_are_no_agents() -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("greet", lambda state: state)
    builder.add_edge(START, "greet")
    assert [adapted(one) for one in (builder, "text", Agent, object())] == [None] * 4
    assert adapted(builder.compile(), "graph", "my_flow").agent.slug == "my-flow"  # type: ignore[union-attr]
