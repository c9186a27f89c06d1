"""Count the modules of Parley that a request enters: `python -m dev.walks [--json] [name …]`.

A walk is one request to a real server on SQLite. The server is a process of its own (`dev.recorded`); the client, the
runtime and the node that it calls are outside, so nothing that they do is counted. A module counts when every recording
of the walk enters it. Calls that an idle server makes too, from the same callers, are background work and do not count.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from dev.recorded import Chain
from parley.testing.processes import ServerProcess

ROOT = Path(__file__).parents[1]
WARMUPS = 2
RECORDINGS = 3
"""A background task with a long period may run during one of them, hardly during all."""
IDLE_S = 5.0
SETTLE_S = 0.3
"""Time for work that goes on after an answer."""
ENV = {"PARLEY_RELOAD": "false", "PARLEY_STORE": "sqlite"}
DEFINITIONS = {
    "echo.py": '''
from parley import Status, Text, Turn, agent

@agent("echo")
async def echo(turn: Turn):
    """Repeats what it is sent."""
    yield Status("Reading.")
    yield Text(turn.text)
''',
    "writer.yaml": "model: offline\nllm: {}\n",
    "far.yaml": "driver: edge\n",
}

Json = dict[str, Any]
Request = Callable[[], Coroutine[Any, Any, None]]
Entries = dict[str, str]
"""The modules of a walk in the order of first entry, each with the function that was entered first."""


@dataclass(frozen=True)
class Site:
    """The recorded server and the server that is its node."""

    http: httpx2.AsyncClient
    url: str
    node: str
    order: Callable[[str], list[Chain]]
    """Starts or stops the recording."""

    async def post(self, path: str, body: Json, **headers: str) -> Json:
        reply = await self.http.post(self.url + path, json=body, headers=headers)
        if reply.status_code not in (200, 201):
            raise RuntimeError(f"POST {path} was answered with {reply.status_code}: {reply.text}")
        return reply.json()

    async def recorded(self, work: Awaitable[None]) -> list[Chain]:
        """Call chains of some work and of what goes on after it."""
        await asyncio.sleep(SETTLE_S)
        self.order("start")
        await work
        await asyncio.sleep(SETTLE_S)
        return self.order("stop")


async def send(site: Site) -> Request:
    """SendMessage to a function agent."""

    async def request() -> None:
        _check_completed(await site.post("/agents/echo", _call("SendMessage"), **{"A2A-Version": "1.0"}))

    return request


async def stream(site: Site) -> Request:
    """SendStreamingMessage to a function agent, until its last frame."""

    async def request() -> None:
        body = _call("SendStreamingMessage")
        reply = await site.http.post(f"{site.url}/agents/echo", json=body, headers={"A2A-Version": "1.0"})
        if "TASK_STATE_COMPLETED" not in reply.text.splitlines()[-2]:
            raise RuntimeError(f"The stream did not end with a completed task: {reply.text}")

    return request


async def plan(site: Site) -> Request:
    """The action plan.create with the offline model, in a new conversation."""
    prefix = "/api/agent2agent/conversations"
    created = [await site.post(prefix, {"agentSlug": "writer"}) for _ in range(WARMUPS + 1 + RECORDINGS)]
    conversations = [one["conversationId"] for one in created]

    async def request() -> None:
        body = {"mode": "plan", "action": "create", "agentSlug": "writer", "message": "Tides"}
        answer = await site.post(f"{prefix}/{conversations.pop()}/tasks", body)
        if answer["status"] != "completed":
            raise RuntimeError(f"The plan was not created: {answer}")

    return request


async def proxy(site: Site) -> Request:
    """SendMessage to a registered node through the server's proxy."""
    id_ = (await site.post("/workspaces", {"name": "Node"}))["id"]
    card: Json = {"name": "Node", "skills": [], "version": "1.0"}
    body: Json = {"id": id_, "url": f"{site.node}/agents/echo", "agent_card": card}
    await site.post("/registry/register", body, **{"X-Workspace-ID": id_})

    async def request() -> None:
        _check_completed(await site.post(f"/workspaces/{id_}/a2a", _call("SendMessage")))

    return request


async def paired(site: Site) -> Request:
    """SendMessage to an agent behind NAT, whose runtime pulls the task and completes it."""
    code = (await site.post("/admin/agents/far/pairing", {}))["pairing_token"]
    runtime = await site.post("/agent-runtimes/runtime/attach-via-pairing", {"pairing_token": code})
    token = {"X-Runtime-Token": runtime["runtime_token"]}

    async def request() -> None:
        answer = asyncio.create_task(site.post("/agents/far", _call("SendMessage"), **{"A2A-Version": "1.0"}))
        # The task is queued before the runtime asks for it, so that every recording has the same order.
        await asyncio.sleep(SETTLE_S)
        pulled = await site.post(f"/agent-accounts/{runtime['agent_id']}/task-runs/pull", {"wait_ms": 5000}, **token)
        (work,) = pulled["task_runs"]
        result = {"lease_id": work["lease_id"], "output": {"text": "done"}}
        await site.post(f"/task-runs/{work['id']}/complete", result, **token)
        _check_completed(await answer)

    return request


WALKS: dict[str, Callable[[Site], Awaitable[Request]]] = {
    one.__name__: one for one in (send, stream, plan, proxy, paired)
}


def _call(method: str) -> Json:
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}


def _check_completed(answer: Json) -> None:
    if "TASK_STATE_COMPLETED" not in json.dumps(answer):
        raise RuntimeError(f"The task did not complete: {answer}")


@asynccontextmanager
async def opened() -> AsyncGenerator[Site, None]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, text in DEFINITIONS.items():
            (folder / name).write_text(text)
        node = await ServerProcess.start([folder / "echo.py"], folder / "node", env=ENV)
        stack.push_async_callback(node.stop)
        address, agents = str(folder / "control"), [str(folder / name) for name in DEFINITIONS]
        serve = ["serve", *agents, "--data-dir", str(folder / "data"), "--port", "0"]
        server = await ServerProcess.launch(["dev.recorded", address, *serve], env=ENV, cwd=ROOT)
        stack.push_async_callback(server.stop)
        control = stack.enter_context(Client(address))
        # A connection for each request: one that is kept open would be closed by the server at some time of its own.
        limits = httpx2.Limits(max_keepalive_connections=0)
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=30, limits=limits))

        def order(command: str) -> list[Chain]:
            control.send(command)
            return control.recv()

        yield Site(http, server.url, node.url, order)


async def walked(names: Sequence[str]) -> dict[str, Entries]:
    async with opened() as site:
        requests = {name: await WALKS[name](site) for name in names}
        for request in requests.values():
            for _ in range(WARMUPS):
                await request()
        background = set(await site.recorded(asyncio.sleep(IDLE_S)))
        return {name: await _walked(site, request, background) for name, request in requests.items()}


async def _walked(site: Site, request: Request, background: set[Chain]) -> Entries:
    await request()  # once more, because connections to nodes may have been closed meanwhile
    return entries([await site.recorded(request()) for _ in range(RECORDINGS)], background)


def entries(recordings: Sequence[Sequence[Chain]], background: Set[Chain]) -> Entries:
    """Modules that all recordings enter, in the order of the first one."""
    found = [_entries(chain for chain in chains if chain not in background) for chains in recordings]
    return {module: function for module, function in found[0].items() if all(module in other for other in found)}


def _entries(chains: Iterable[Chain]) -> Entries:
    entered: Entries = {}
    for *_, (module, function) in chains:
        entered.setdefault(module, function)
    return entered


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the modules of Parley that a request enters.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(WALKS)}; all unless given")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    if unknown := set(given.names) - set(WALKS):
        parser.error(f"unknown walk {', '.join(sorted(unknown))}; choose from {', '.join(WALKS)}")
    walks = asyncio.run(walked(given.names or list(WALKS)))
    print(as_json(walks) if given.json else as_text(walks))


def as_json(walks: dict[str, Entries]) -> str:
    shown = {name: {"count": len(path), "modules": list(path), "entries": path} for name, path in walks.items()}
    return json.dumps(shown, indent=2)


def as_text(walks: dict[str, Entries]) -> str:
    lines: list[str] = []
    for name, path in walks.items():
        lines += ["", f"{name}: {len(path)} modules"]
        lines += [f"  {module:<36} {function}" for module, function in path.items()]
    return "\n".join(lines[1:])


if __name__ == "__main__":
    main()
