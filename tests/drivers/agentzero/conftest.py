"""An Agent-Zero, and a server of ours in front of it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from parley.client import Client, Json
from parley.drivers.agentzero import AgentZeroDriver, AgentZeroOptions, blank_agentzero
from parley.testing.processes import until
from parley.testing.servers import Server, serving

from .server import FakeAgentZero

QUICK: dict[str, Any] = {"poll_s": 0.05, "patience_s": 3.0, "timeout_s": 5.0}


def driver(zero: FakeAgentZero | str, **options: Any) -> AgentZeroDriver:
    url = zero if isinstance(zero, str) else zero.url
    limits = options.pop("limits", None)
    agent = blank_agentzero("zero")
    if limits is not None:
        agent = replace(agent, limits=limits)
    return AgentZeroDriver(agent, AgentZeroOptions(url, **{**QUICK, **options}))


@asynccontextmanager
async def parley(
    directory: Path, zero: FakeAgentZero | str, **options: Any
) -> AsyncGenerator[tuple[Server, Client], None]:
    async with serving(directory, [driver(zero, **options)]) as server, Client(server.agent("zero")) as client:
        yield server, client


async def send(client: Client, text: Any, **more: Any) -> Json:
    return (await client.send(text, **more))["task"]


async def begin(client: Client, text: Any, **more: Any) -> str:
    """Send without waiting for the end; the task's id."""
    return (await send(client, text, configuration={"returnImmediately": True}, **more))["id"]


async def settled(client: Client, task: str, *states: str) -> Json:
    async def is_there() -> bool:
        return state(await client.get(task)) in (states or ("completed", "failed", "canceled", "rejected"))

    await until(is_there)
    return await client.get(task)


def state(task: Json) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower()


def words(task: Json) -> str:
    return "".join(part.get("text", "") for part in task["status"]["message"]["parts"])


def code(task: Json) -> str:
    return task["status"]["message"]["metadata"]["code"]


def texts(task: Json) -> dict[str, str]:
    made = task.get("artifacts", [])
    return {one["artifactId"]: "".join(part.get("text", "") for part in one["parts"]) for one in made}


def said(task: Json) -> list[str]:
    spoken = [one for one in task.get("history", []) if one["role"] == "ROLE_AGENT"]
    return [part["text"] for one in spoken for part in one["parts"]]
