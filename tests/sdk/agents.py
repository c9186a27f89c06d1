"""Agents for the SDK, beside the model in `chat.yaml`: one that asks, one that fails, one that never ends."""

import asyncio
import sys
from pathlib import Path

from parley import Failed, NeedInput, Text, Turn, agent
from parley.tools.rules.mcp import McpServer

EXAMPLES = Path(__file__).parents[2] / "examples" / "mcp"
DATABASE = McpServer("supabase-mcp", (sys.executable, str(EXAMPLES / "sqlite_query.py")), cwd=str(EXAMPLES))


@agent("asker")
async def asker(turn: Turn):
    yield NeedInput("Which colour?")


@agent("broken")
async def broken(turn: Turn):
    yield Failed("no_paper", "Out of paper.")


@agent("sleeper")
async def sleeper(turn: Turn):
    await asyncio.Event().wait()
    yield Text("awake")


@agent("reader", capabilities=("read_plan",))
async def reader(turn: Turn):
    yield Text("read")


@agent("supabase-agent", mcp=(DATABASE,))
async def supabase_agent(turn: Turn):
    yield Text("Ask my tools.")
