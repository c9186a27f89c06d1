"""The same agent in three frameworks: it tells the weather, erases with approval, books after a question, and draws."""

from collections.abc import Callable
from typing import Any

import agents
from agents import ModelSettings, OpenAIChatCompletionsModel, function_tool
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langgraph.types import interrupt
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from parley import ArtifactChunk
from parley.drivers.framework import ask_caller, emit
from parley.drivers.graph import graph
from parley.drivers.openai_agents import openai_agent
from parley.drivers.pydantic_ai import pydantic_agent
from parley.execution.driver import Driver
from tests.models.langchain_model import WireModel

FLIGHTS = ["AF 12", "BA 7"]
ran: list[str] = []
"""The tools that have run to their end."""


async def weather(city: str) -> str:
    """Tell the weather."""
    ran.append(f"weather {city}")
    return f"Sunny in {city}"


async def erase(path: str) -> str:
    """Erase a file."""
    ran.append(f"erase {path}")
    return f"Erased {path}"


async def book(city: str) -> str:
    """Book a flight."""
    flight = ask_caller(f"Which flight to {city}?", choices=FLIGHTS)
    ran.append(f"book {flight}")
    return f"Booked {flight}"


async def draw(title: str) -> str:
    """Draw a chart."""
    await emit(ArtifactChunk(b"\x89PNG", filename=f"{title}.png", media_type="image/png"))
    return "Drawn"


def pydantic_ai(url: str, **options: Any) -> Driver:
    model = OpenAIChatModel("gpt-test", provider=OpenAIProvider(base_url=url, api_key="k"))
    agent = Agent(model, instructions="Be brief.", **options)
    for one in (weather, book, draw):
        agent.tool_plain(one)
    agent.tool_plain(erase, requires_approval=True)
    return pydantic_agent("helper", agent)


def openai_agents(url: str, **options: Any) -> Driver:
    client = AsyncOpenAI(base_url=url, api_key="k", max_retries=0)
    agent = agents.Agent(
        name="helper",
        instructions="Be brief.",
        model=OpenAIChatCompletionsModel("gpt-test", client),
        model_settings=ModelSettings(include_usage=True),
        tools=[*map(function_tool, (weather, book, draw)), function_tool(erase, needs_approval=True)],
        **options,
    )
    return openai_agent("helper", agent)


async def choose(city: str) -> str:
    """Book a flight."""
    flight = interrupt({"question": f"Which flight to {city}?", "choices": FLIGHTS})
    ran.append(f"book {flight}")
    return f"Booked {flight}"


def langgraph(url: str, **options: Any) -> Driver:
    compiled = create_agent(
        WireModel(model="gpt-test", base_url=url),
        [*map(tool, (weather, erase, draw)), tool("book")(choose)],
        system_prompt="Be brief.",
        middleware=[HumanInTheLoopMiddleware({"erase": True})],
        **options,
    )
    return graph("helper", compiled)


FRAMEWORKS: dict[str, Callable[..., Driver]] = {
    "pydantic-ai": pydantic_ai,
    "openai-agents": openai_agents,
    "langgraph": langgraph,
}
