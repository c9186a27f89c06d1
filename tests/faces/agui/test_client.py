"""Runs with AG-UI's own client in Node.js, which checks every event against the protocol."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from examples.agui.build import HERE as EXAMPLE
from parley.testing.servers import Server
from sdk.node import Node
from sdk.package import packages

FRONT_END = Path(__file__).with_name("front_end.mjs")
pytestmark = pytest.mark.slow

Json = dict[str, Any]


@pytest.fixture(scope="module")
def node() -> Node:
    return packages(EXAMPLE)


async def ran(node: Node, url: str, thread: str, *what: str) -> Json:
    process = await asyncio.create_subprocess_exec(
        node.program, FRONT_END, url, thread, *what, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert err == b""
    return json.loads(out)


def said(shown: Json) -> list[tuple[str, Any]]:
    return [(one["role"], one["content"]) for one in shown["messages"] if isinstance(one.get("content"), str)]


async def test_the_client_accepts_every_event_and_answers_an_interrupt(node: Node, server: Server) -> None:
    shown = await ran(node, f"{server.agent('poet')}/agui", str(uuid.uuid4()), "ask", "a poem", "blue")
    assert said(shown) == [
        ("user", "a poem"), ("assistant", "Roses are"), ("assistant", "Which colour?"), ("user", "blue"),
        ("assistant", "blue."), ("assistant", "Bye."),
    ]  # fmt: skip
    assert shown["pendingInterrupts"] == []
    assert [one["value"]["artifactId"] for one in shown["events"] if one.get("name") == "parley.artifact"] == ["result"]


async def test_another_client_follows_the_same_task(node: Node, server: Server) -> None:
    url, thread = f"{server.agent('poet')}/agui", str(uuid.uuid4())
    first = await ran(node, url, thread, "ask", "a poem", "red")
    second = await ran(node, url, thread, "follow", first["task"])
    assert said(second) == said(first)
    assert second["lastEventId"] == first["lastEventId"]
    assert [one for one in second["events"] if one["type"] != "MESSAGES_SNAPSHOT"] == first["events"]


async def test_the_client_runs_a_front_end_tool_and_shares_the_state(node: Node, server: Server) -> None:
    shown = await ran(node, f"{server.agent('map')}/agui", str(uuid.uuid4()), "tool", "the map", "Lisbon")
    assert said(shown)[-1] == ("assistant", "The map says Lisbon.")
    counted = await ran(node, f"{server.agent('board')}/agui", str(uuid.uuid4()), "say", "count")
    assert counted["state"] == {"count": 2}


async def test_the_client_is_told_of_a_failure(node: Node, server: Server) -> None:
    shown = await ran(node, f"{server.agent('clumsy')}/agui", str(uuid.uuid4()), "say", "work")
    assert shown["events"][-1]["code"] == "tired"
