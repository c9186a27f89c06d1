"""Servers of tools, good and bad, and a host for them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from parley.runs.rules.agents import Agent
from parley.security.netguard import LOOPBACK, Guard, GuardedTransport
from parley.tools.mcp.host import Host
from parley.tools.providers import ToolResult
from parley.tools.rules.mcp import McpServer

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples" / "mcp"


def server(name: str = "s", mode: str = "", **options: Any) -> McpServer:
    env = options.pop("env", {})
    return McpServer(name, (sys.executable, str(HERE / "hostile.py"), mode), cwd=str(HERE), env=env, **options)


def example(name: str, file: str) -> McpServer:
    return McpServer(name, (sys.executable, str(EXAMPLES / file)), cwd=str(EXAMPLES))


def agent_with(*servers: McpServer, tools: tuple[str, ...] = (), slug: str = "a") -> Agent:
    return Agent(slug, "A", "An agent.", mcp=servers, tools=tools)


class Used:
    """A host, as one agent uses it."""

    def __init__(self, host: Host, agent: Agent) -> None:
        self.host, self.agent = host, agent

    async def call(self, tool: str, given: dict[str, Any] | None = None, within_s: float = 20) -> ToolResult:
        offer = await self.host.find(self.agent, tool, within_s)
        async with asyncio.timeout(within_s):
            return await self.host.call(self.agent, offer, given or {})

    async def output(self, tool: str, given: dict[str, Any] | None = None) -> Any:
        result = await self.call(tool, given)
        assert result.state == "succeeded", result
        return result.data["output"]


def new_host(*common: McpServer, allow: tuple[str, ...] = LOOPBACK) -> Host:
    return Host(common, lambda: GuardedTransport(Guard(allow)))


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    made = new_host()
    yield made
    await made.close()


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    (folder / "work").mkdir()
    (folder / "lamps.md").write_text("# Lamps\n\nA lamp needs a bulb, and a bulb needs a lamp.")
    (folder / "work" / "budget.md").write_text("The budget for lamps is 40.")
    (folder / "other.txt").write_text("lamp lamp lamp")
    return folder


@pytest.fixture(scope="module")
def search_url(notes: Path) -> Iterator[str]:
    """The example over HTTP, with a token, as a process of its own."""
    import os
    import subprocess

    command = [sys.executable, str(EXAMPLES / "markdown_search.py"), str(notes), "--port", "0", "--token-from", "TOKEN"]
    env = {**os.environ, "TOKEN": "open-sesame-1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
