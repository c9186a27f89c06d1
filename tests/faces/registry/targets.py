"""Agents behind nodes: what a target does when it is called through the proxy, and a way to call it in plain JSON."""

import asyncio
from typing import Any

import httpx2

from parley import ArtifactChunk, Done, NeedInput, Status, Text, Turn, agent
from parley.execution.driver import Driver
from parley.testing.processes import until
from parley.testing.servers import Server
from tests.faces.registry.fleet import Fleet, Json, Node

STEPS = 8


class Gate:
    """Lets held turns go, and knows which came and which were stopped."""

    def __init__(self) -> None:
        self.close()

    def close(self) -> None:
        self.begun: list[str] = []
        self.stopped: list[str] = []
        self.open = asyncio.Event()


GATE = Gate()


@agent("echo", replies="message")
async def echo(turn: Turn):
    """Answers with a message."""
    return f"heard {turn.text}"


@agent("count", rescue="resume")
async def count(turn: Turn):
    """Counts slowly enough to be watched."""
    for number in range(STEPS):
        yield ArtifactChunk(f"{number} ", id="ticks", append=number > 0, last=number == STEPS - 1)
        yield Status(f"tick {number}")
        await asyncio.sleep(0.05)
    yield Done("counted")


@agent("asker")
async def asker(turn: Turn):
    """Asks once."""
    if turn.number == 1:
        yield NeedInput("Which one?")
    else:
        yield Text(f"took {turn.text}")


@agent("holder")
async def holder(turn: Turn):
    """Works until it is let go, or stopped."""
    GATE.begun.append(turn.text)
    yield Status("holding")
    try:
        await GATE.open.wait()
    except asyncio.CancelledError:
        GATE.stopped.append(turn.text)
        raise
    yield Done(f"let go of {turn.text}")


@agent("large")
async def large(turn: Turn):
    """Answers with more than anybody wants."""
    yield ArtifactChunk("x" * 300_000, id="large")


AGENTS: list[Driver] = [echo, count, asker, holder, large]


def message(text: str, id_: str | None = None, **more: Any) -> Json:
    named = {} if id_ is None else {"messageId": id_}
    return {"role": "user", "parts": [{"kind": "text", "text": text}], **named, **more}


def asked(method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


async def at(fleet: Fleet, target: Server, slug: str, **more: Any) -> Node:
    """A node whose agent is this one of the target."""
    node = await fleet.create(slug.capitalize(), **more)
    reply = await node.register(target.agent(slug))
    assert reply.status_code == 200, reply.text
    return node


async def call(by: Fleet | Node, target: Node, body: Json, **headers: str) -> httpx2.Response:
    url = f"{by.at}/workspaces/{target.id}/a2a"
    return await by.http.post(url, json=body, headers={**by.headers, **headers}, timeout=20)


async def say(by: Fleet | Node, target: Node, text: str, **more: Any) -> Json:
    """The result of a blocking send, in the words of 0.3."""
    reply = await call(by, target, asked("message/send", message=message(text, **more)))
    assert reply.status_code == 200, reply.text
    return reply.json()["result"]


async def delegate(source: Node, target: Node, task: str, **more: Any) -> httpx2.Response:
    return await source.post(f"/workspaces/{source.id}/delegate", {"target_id": target.id, "task": task, **more})


async def shown(source: Node, id_: str) -> Json:
    reply = await source.get(f"/workspaces/{source.id}/delegations/{id_}")
    assert reply.status_code == 200, reply.text
    return reply.json()


async def ended(source: Node, id_: str, timeout_s: float = 10) -> Json:
    async def is_over() -> bool:
        return (await shown(source, id_))["status"] in ("completed", "failed")

    await until(is_over, timeout_s)
    return await shown(source, id_)
