"""Agents of frameworks that ask a model ten times, which counts, and call a tool after each answer."""

import os
from collections.abc import Awaitable, Callable

import agents
import httpx2
from agents import OpenAIChatCompletionsModel, function_tool
from langchain.agents import create_agent
from langchain_core.tools import tool
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.models.langchain_model import WireModel

URL = os.environ["MODEL_URL"]
CLIENT = AsyncOpenAI(base_url=URL, api_key="k", max_retries=0)


def echo_of(agent: str) -> Callable[[int], Awaitable[str]]:
    async def echo(n: int) -> str:
        """Return a number."""
        async with httpx2.AsyncClient(timeout=60) as http:
            return (await http.post(f"{URL}/tool", json={"call": f"{agent} {n}"})).text

    return echo


helper = Agent(OpenAIChatModel("pydantic-ai", provider=OpenAIProvider(openai_client=CLIENT)), name="pydantic-ai")
helper.tool_plain(echo_of("pydantic-ai"))

tutor = agents.Agent(
    name="openai-agents",
    model=OpenAIChatCompletionsModel("openai-agents", CLIENT),
    tools=[function_tool(echo_of("openai-agents"))],
)

graph = create_agent(WireModel(model="langgraph", base_url=URL), [tool(echo_of("langgraph"))], name="langgraph")
