"""Agents of frameworks that ask a model ten times, which counts, and call a tool after each answer."""

import os

import httpx2
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

URL = os.environ["MODEL_URL"]


async def echoed(agent: str, n: int) -> str:
    async with httpx2.AsyncClient(timeout=60) as http:
        return (await http.post(f"{URL}/tool", json={"call": f"{agent} {n}"})).text


helper = Agent(
    OpenAIChatModel("pydantic-ai", provider=OpenAIProvider(base_url=URL, api_key="k")), name="pydantic-ai", retries=0
)


@helper.tool_plain
async def echo(n: int) -> str:
    """Return a number."""
    return await echoed("pydantic-ai", n)
