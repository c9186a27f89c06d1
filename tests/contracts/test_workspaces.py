"""The contract between workspaces: its message, its flows, its code and its proxy, between a platform, workspaces that
are registered there, and a canvas."""

import asyncio
import json
import textwrap
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from redis.asyncio import Redis as Client

from parley import NeedInput, Status, Text, Turn, agent
from parley.compat import durable
from parley.node import A2A
from parley.testing.servers import Server, hosting, serving
from tests.compat.program import card_at
from tests.compat.test_turns import started
from tests.contracts.literals import Json, assert_like, from_json, substituted
from tests.faces.pairing.runtime import web
from tests.faces.registry.conftest import Redis, redis
from tests.faces.registry.fleet import Fleet, Node
from tests.node.test_caller import page, plain

pytestmark = pytest.mark.asyncio(loop_scope="module")

__all__ = ["redis"]
DISCOVER = "GET /registry/discover/developer-pm-id"
PROXY = "POST /workspaces/:id/a2a"
MESSAGE = """
{
"jsonrpc": "2.0",
"id": "task-123",
"method": "message/send",
"params": {
"message": {
"role": "user",
"parts": [{ "kind": "text", "text": "Build the login feature" }],
"messageId": "msg-456"
}
}
}
"""
LIFECYCLE = """
submitted → working → completed
→ failed
→ canceled
→ input-required → working (caller provides input)
"""
SYNCHRONOUS = """
# pattern 1 — synchronous (short tasks)
# caller blocks until terminal state
result = await a2a.send({
"method": "message/send",
"params": { "message": { ... } }
})
# returns when completed/failed — no streaming
"""
STREAMING = """
# pattern 2 — streaming (long tasks)
# caller subscribes to SSE stream
async for event in a2a.subscribe({
"method": "message/sendSubscribe",
"params": { "message": { ... } }
}):
    if event["status"] == "working":
        # intermediate progress update
        print(event["message"])
    if event["status"] in ("completed", "failed", "canceled"):
        # terminal event — stream ends here
        result = event["artifacts"]
        break
"""
"""Its blocks are indented as Python needs them; the page has lost that."""
TASK_ID = """
task_id = response["id"]
# caller can check status explicitly if needed
status = await a2a.get(f"/tasks/{task_id}")
"""
CANCELLATION = """
# cancel an in-flight task
await a2a.send({
"method": "tasks/cancel",
"params": { "id": task_id }
})
# workspace receives cancel signal
# status → canceled
# SSE terminal event fires to all subscribers
"""
EXECUTOR = """
# workspace/a2a_executor.py
async def cancel(self, context: RequestContext, queue: EventQueue):
    await self.agent.ainterrupt(context.context_id)
    # status → canceled, SSE terminal event fires automatically
"""
ARTIFACTS = """
{
"status": "completed",
"artifacts": [
{
"type": "text/plain",
"content": "Page generated successfully"
},
{
"type": "application/json",
"content": { "page_path": "/kitchen-renovation-vancouver" }
}
]
}
"""
JSON = {"Content-Type": "application/json"}
CARD_PATH = "/.well-known/agent-card.json"


@agent("developer-pm")
async def developer_pm(turn: Turn):
    """Fails, asks or hangs where it is told to; else it builds."""
    if turn.answers:
        yield Text(f"took {turn.text}")
    elif turn.text == "ask":
        yield NeedInput("Which one?")
    elif turn.text == "hang":
        yield Status("hanging")
        await asyncio.Event().wait()
    elif turn.text == "fail":
        raise RuntimeError("the ink is dry")
    else:
        yield Status("Working on it")
        yield Text(f"Done: {turn.text}")


class Graph:
    """Agent of the contract's executor: it works until it is interrupted."""

    def __init__(self) -> None:
        self.interrupted: dict[str, asyncio.Event] = {}

    async def work(self, context: str) -> None:
        await self.interrupted.setdefault(context, asyncio.Event()).wait()

    async def ainterrupt(self, context: str) -> None:
        self.interrupted[context].set()


class LangGraphA2AExecutor(AgentExecutor):
    """Its `cancel` is the contract's own, below."""

    def __init__(self) -> None:
        self.agent = Graph()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        await TaskUpdater(event_queue, task.id, task.context_id).start_work()
        await self.agent.work(task.context_id)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


class Company:
    """Business Core and Developer PM on one platform, and a server that both of them run on."""

    def __init__(self, fleet: Fleet, target: Server, core: Node, pm: Node, redis: Any) -> None:
        self.fleet = fleet
        self.target = target
        self.core = core
        self.pm = pm
        self.redis = redis

    async def discover(self, headers: dict[str, str], id_: str | None = None) -> httpx2.Response:
        method, path = substituted(DISCOVER, {"developer-pm-id": id_ or self.pm.id}).split()
        return await self.fleet.http.request(method, self.fleet.at + path, headers=headers)

    async def directly(self, text: str) -> Json:
        """A message from one workspace to another: the text unchanged."""
        url = (await self.discover(self.core.headers)).json()["url"]
        reply = await self.fleet.http.post(url, content=text, headers=JSON)
        assert reply.status_code == 200
        return reply.json()

    async def by_proxy(self, text: str) -> httpx2.Response:
        method, path = substituted(PROXY, {":id": self.pm.id}).split()
        return await self.fleet.http.request(method, self.fleet.at + path, content=text, headers=JSON)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(tmp_path_factory: pytest.TempPathFactory, redis: Redis) -> AsyncIterator[Company]:
    folder = tmp_path_factory.mktemp("workspaces")
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(web())
        target = await stack.enter_async_context(serving(folder / "t", [developer_pm, page], store="memory"))
        opening = serving(folder / "p", [], store="memory", redis_url=redis.url)
        fleet = Fleet(http, (await stack.enter_async_context(opening)).url)
        core, pm = await fleet.online("Business Core"), await fleet.create("Developer PM")
        await pm.register(target.agent("developer-pm"))
        client: Any = Client.from_url(redis.url)
        yield Company(fleet, target, core, pm, client)
        await client.aclose()


def saying(text: str) -> str:
    """The contract's message in other words; each has an id of its own."""
    return substituted(MESSAGE, {"Build the login feature": text, "msg-456": f"msg-{text}"})


async def test_how_it_works(company: Company) -> None:
    answer = await company.directly(saying("Build the login page"))
    assert answer["result"]["status"]["state"] == "completed"
    activity = (await company.fleet.ask("GET", f"/workspaces/{company.pm.id}/activity")).json()
    assert all("Build the login page" not in json.dumps(one) for one in activity), "the platform is not in the path"


async def test_discovery_flow(company: Company) -> None:
    pm = await company.fleet.create("Developer PM, as a container")
    await pm.register("http://127.0.0.1:8000")
    await company.fleet.ask("PATCH", f"/workspaces/{pm.id}", {"url": "http://127.0.0.1:32768"})
    inside, outside = f"ws:{pm.id}:internal_url", f"ws:{pm.id}:url"
    for _ in ("cached", "after a cache miss"):
        found = await company.discover(company.core.headers, pm.id)
        assert (found.status_code, found.json()["url"]) == (200, "http://127.0.0.1:8000")
        found = await company.discover({}, pm.id)
        assert (found.status_code, found.json()["url"]) == (200, "http://127.0.0.1:32768")
        cached = [await company.redis.get(key) for key in (inside, outside)]
        assert cached == [b"http://127.0.0.1:8000", b"http://127.0.0.1:32768"]
        await company.redis.delete(inside, outside)
    silent = await company.fleet.create("Never registered")
    assert (await company.discover({"X-Workspace-ID": silent.id}, pm.id)).status_code == 200
    stranger = await company.fleet.online("Stranger", company.core)
    refused = await company.discover(stranger.headers, pm.id)
    assert (refused.status_code, "error" in refused.json()) == (403, True)


async def test_message_format(company: Company) -> None:
    answer = await company.directly(MESSAGE)
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", from_json(MESSAGE)["id"])
    task = answer["result"]
    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "Done: Build the login feature"}]
    sent = {name: task["history"][0][name] for name in ("role", "messageId", "parts")}
    assert sent == from_json(MESSAGE)["params"]["message"]


async def test_on_demand_discovery(company: Company) -> None:
    """Discovery is asked at the moment of delegation: a workspace that moved is found where it is by then."""
    mover = await company.fleet.create("Mover")
    for slug in ("developer-pm", "page"):
        await mover.register(company.target.agent(slug))
        found = await company.discover(company.core.headers, mover.id)
        assert found.json()["url"] == company.target.agent(slug)


async def test_authentication_between_workspaces(company: Company) -> None:
    """Access is decided when a workspace is discovered; the token for the pair comes with its address."""
    child = await company.fleet.online("Child", company.core)
    assert (await company.discover(company.core.headers, child.id)).json()["token"].count(".") == 2
    assert (await company.discover(company.pm.headers, child.id)).status_code == 403
    anybody = {"X-Workspace-ID": company.core.id}
    assert (await company.discover(anybody, child.id)).status_code == 401


async def test_task_lifecycle(company: Company) -> None:
    """Each state of the diagram is one that a task of a workspace shows."""
    states = {"completed": "Build it", "failed": "fail", "input-required": "ask"}
    for state, text in states.items():
        task = (await company.directly(saying(text)))["result"]
        assert task["status"]["state"] == state
    message = {
        "role": "user",
        "parts": [{"kind": "text", "text": "the red one"}],
        "taskId": task["id"],
        "messageId": "x",
    }
    answered = await company.directly(json.dumps({**from_json(MESSAGE), "params": {"message": message}}))
    assert answered["result"]["status"]["state"] == "completed"
    assert all(state in LIFECYCLE for state in (*states, "submitted", "working", "canceled"))


async def run(snippet: str, **names: Any) -> Json:
    """The contract's code as it stands; where it leaves out the message, there is its own."""
    message = json.dumps(from_json(MESSAGE)["params"]["message"])
    code = substituted(snippet, {"{ ... }": message}) if "{ ... }" in snippet else snippet
    body = "async def main():\n" + textwrap.indent(code, "    ") + "\n    return locals()"
    space: Json = dict(names)
    exec(body, space)
    return await space["main"]()


async def test_calling_patterns_synchronous(company: Company) -> None:
    async with A2A(company.target.agent("page")) as a2a:
        result = (await run(SYNCHRONOUS, a2a=a2a))["result"]
    assert result["status"] == "completed"


async def test_calling_patterns_streaming(company: Company, capsys: pytest.CaptureFixture[str]) -> None:
    async with A2A(company.target.agent("page")) as a2a:
        artifacts = (await run(STREAMING, a2a=a2a))["result"]
    assert [one["type"] for one in artifacts[:2]] == ["text/plain", "application/json"]
    assert "Building" in capsys.readouterr().out


async def test_calling_patterns_streaming_on_the_wire(company: Company) -> None:
    """The method's name as the contract has it, to a workspace and through the platform; the last event is the end."""
    body = substituted(MESSAGE, {"message/send": "message/sendSubscribe", "msg-456": "msg-subscribed"})
    direct = await company.fleet.http.post(company.target.agent("developer-pm"), content=body, headers=JSON)
    for reply in (direct, await company.by_proxy(body)):
        assert (reply.status_code, reply.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]
        assert {event["id"] for event in events} == {"task-123"}
        assert "working" in [event["result"].get("status", {}).get("state") for event in events]
        last = events[-1]["result"]
        assert (last["status"]["state"], last["final"]) == ("completed", True)


async def test_task_id(company: Company) -> None:
    async with A2A(company.target.agent("page")) as a2a:
        response = (await run(SYNCHRONOUS, a2a=a2a))["result"]
        found = await run(TASK_ID, a2a=a2a, response=response)
    assert (found["task_id"], found["status"]) == (response["id"], response)
    rest = await company.fleet.http.get(f"{company.target.agent('page')}/tasks/{response['id']}")
    assert (rest.status_code, rest.json()["id"]) == (200, response["id"])


async def hanging(a2a: A2A) -> str:
    """A task under way."""
    params = {"message": from_json(saying("hang"))["params"]["message"], "configuration": {"blocking": False}}
    return (await a2a.send({"method": "message/send", "params": params}))["id"]


async def test_cancellation(company: Company) -> None:
    async with A2A(company.target.agent("developer-pm")) as a2a:
        task_id = await hanging(a2a)
        followers = [a2a.subscribe({"method": "tasks/resubscribe", "params": {"id": task_id}}) for _ in range(2)]
        for events in followers:
            await anext(events)
        await run(CANCELLATION, a2a=a2a, task_id=task_id)
        assert [[event async for event in events][-1]["status"] for events in followers] == ["canceled"] * 2


async def test_cancellation_executor(tmp_path: Path) -> None:
    space: Json = {"RequestContext": RequestContext, "EventQueue": EventQueue}
    exec(EXECUTOR, space)
    executor = type("Written", (LangGraphA2AExecutor,), {"cancel": space["cancel"]})()
    app = durable(executor, card_at("http://127.0.0.1:9"), data_dir=tmp_path)
    async with started(app), hosting(app) as url, A2A(url) as a2a:
        task_id = await hanging(a2a)
        events = a2a.subscribe({"method": "tasks/resubscribe", "params": {"id": task_id}})
        await anext(events)
        await run(CANCELLATION, a2a=a2a, task_id=task_id)
        assert [event async for event in events][-1]["status"] == "canceled"


async def test_artifacts(company: Company) -> None:
    shown = from_json(ARTIFACTS)
    async with A2A(company.target.agent("page")) as a2a:
        result = (await run(SYNCHRONOUS, a2a=a2a))["result"]
    assert_like(shown, {**result, "artifacts": result["artifacts"][:2]})
    assert (result["status"], plain(result["artifacts"])[:2]) == (shown["status"], shown["artifacts"])


async def test_platform_a2a_proxy(company: Company) -> None:
    whole = await company.by_proxy(MESSAGE)
    assert (whole.status_code, whole.json()["id"]) == (200, "task-123")
    assert whole.json()["result"]["status"]["state"] == "completed"
    bare = {
        "method": "message/send",
        "params": {"message": {"role": "user", "parts": [{"kind": "text", "text": "Go"}]}},
    }
    wrapped = await company.by_proxy(json.dumps(bare))
    assert (wrapped.status_code, wrapped.json()["jsonrpc"], len(wrapped.json()["id"])) == (200, "2.0", 36)
    assert wrapped.json()["result"]["history"][0]["messageId"]


async def test_key_properties(company: Company) -> None:
    card = await company.fleet.http.get(company.target.agent("developer-pm") + CARD_PATH)
    assert (card.status_code, card.json()["name"]) == (200, "Developer pm")
    through = await company.fleet.http.get(f"{company.fleet.at}/workspaces/{company.pm.id}/a2a{CARD_PATH}")
    assert through.status_code == 200
