"""Tasks of MCP, with the official TypeScript client of 2025-11-25, the Python client of 2026-07-28, and as bytes."""

import asyncio
import json
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, Request, Result
from pydantic import ConfigDict

from parley.runs.rules.state import State
from parley.testing.servers import Server
from sdk.node import Node
from sdk.package import packages
from tests.faces.mcp.wire import OLD, Events, call, modern, request, run_in, streaming

NODE = Path(__file__).with_name("node")
Json = dict[str, Any]


@pytest.fixture(scope="module")
def node() -> Node:
    return packages(NODE)


async def ran(node: Node, server: Server, *what: str) -> Json:
    process = await asyncio.create_subprocess_exec(
        node.program, NODE / "client.mjs", f"{server.url}/mcp", *what,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


@pytest.mark.slow
async def test_a_call_of_the_typescript_client_is_a_task(node: Node, server: Server) -> None:
    said = await ran(node, server, "call", "echo", "hello you")
    assert said["capabilities"]["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    created, *_, result = said["reply"]
    assert (created["type"], created["task"]["status"]) == ("taskCreated", "working")
    assert result["result"]["structuredContent"]["text"] == "hello you "
    task = created["task"]["taskId"]
    assert result["result"]["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task}}
    again = await ran(node, server, "result", task)
    assert again["reply"] == result["result"]
    assert (await ran(node, server, "get", task))["reply"]["status"] == "completed"
    assert [one["taskId"] for one in (await ran(node, server, "list"))["reply"]["tasks"]] == [task]
    refused = (await ran(node, server, "cancel", task))["reply"]
    assert (refused["code"], "cannot be cancelled" in refused["error"]) == (-32602, True)


@pytest.mark.slow
async def test_the_question_of_a_task_is_an_elicitation(node: Node, server: Server) -> None:
    said = await ran(node, server, "call", "writer", "hi", '{"answer": "Ada"}')
    assert [one["message"] for one in said["asked"]] == ["Which name?"]
    assert said["asked"][0]["requestedSchema"]["required"] == ["answer"]
    assert said["told"] == ["working", "completed"]
    assert said["reply"][-1]["result"]["structuredContent"]["text"].endswith("Bye, Ada.")


@pytest.mark.slow
async def test_a_question_that_is_declined_cancels_the_task(node: Node, server: Server) -> None:
    said = await ran(node, server, "call", "writer", "hi", "no")
    assert said["reply"][-1]["result"]["structuredContent"]["state"] == "canceled"


@pytest.mark.slow
async def test_a_client_without_elicitation_gets_the_question_as_the_result(node: Node, server: Server) -> None:
    said = await ran(node, server, "call", "writer", "hi")
    assert said["asked"] == []
    assert said["reply"][-1]["result"]["structuredContent"]["question"] == "Which name?"
    task = said["reply"][0]["task"]["taskId"]
    # Another session asks, and answers.
    later = await ran(node, server, "result", task, '{"answer": "Bob"}')
    assert later["reply"]["structuredContent"]["text"].endswith("Bye, Bob.")


@pytest.mark.slow
async def test_a_task_is_cancelled(node: Node, server: Server) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as http:
        body = call("sleeper", "sleep")
        body["params"]["task"] = {}
        created = (await http.post("/mcp", json=body, headers=OLD)).json()["result"]["task"]
    await run_in(server, State.WORKING)
    await ran(node, server, "cancel", created["taskId"])
    said = await ran(node, server, "result", created["taskId"])
    assert said["reply"]["structuredContent"]["state"] == "canceled"
    assert (await ran(node, server, "get", created["taskId"]))["reply"]["status"] == "cancelled"


async def created_task(http: httpx2.AsyncClient, name: str, message: str) -> str:
    body = call(name, message)
    body["params"]["task"] = {"ttl": 1000}
    return (await http.post("/mcp", json=body, headers=OLD)).json()["result"]["task"]["taskId"]


async def question(events: Events) -> tuple[str, Json]:
    while True:
        id_, said = await events.next()
        if said.get("method") == "elicitation/create":
            return id_, said


async def test_a_lost_stream_of_a_result_asks_a_question_once(server: Server) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=20) as http:
        elicits = {**OLD, "Mcp-Session-Id": "any.e"}
        task = await created_task(http, "writer", "hi")
        async with streaming(http, request("tasks/result", 7, taskId=task), elicits) as events:
            first, _ = await events.next()
            asked_at, asked = await question(events)
        assert asked["params"]["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task}}
        async with streaming(http, None, {**elicits, "Last-Event-ID": first}) as events:
            assert await question(events) == (asked_at, asked)
        async with streaming(http, None, {**elicits, "Last-Event-ID": asked_at}) as events:
            await events.next()
            response = {
                "jsonrpc": "2.0",
                "id": asked["id"],
                "result": {"action": "accept", "content": {"answer": "Eve"}},
            }
            assert (await http.post("/mcp", json=response, headers=elicits)).status_code == 202
            said = await events.last()
        assert said["id"] == 7
        assert said["result"]["structuredContent"]["text"].endswith("Bye, Eve.")
        again = await http.post("/mcp", json=response, headers=elicits)
        assert again.json()["error"]["message"] == "This question was answered already."


async def test_since_2026_a_call_is_a_task_for_clients_that_declare_the_extension(server: Server) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=20) as http:

        async def ask(body: Json) -> Json:
            body, headers = modern(body)
            about = {
                "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
            }
            body["params"]["_meta"] |= about
            return (await http.post("/mcp", json=body, headers=headers)).json()

        created = (await ask(call("writer", "hi")))["result"]
        assert (created["resultType"], created["status"], created["ttlMs"]) == ("task", "working", None)
        task = created["taskId"]
        await run_in(server, State.INPUT_REQUIRED)
        waiting = (await ask(request("tasks/get", taskId=task)))["result"]
        [(id_, asked)] = waiting["inputRequests"].items()
        assert (waiting["status"], asked["method"]) == ("input_required", "elicitation/create")
        answer = {id_: {"action": "accept", "content": {"answer": "Ada"}}}
        updated = await ask(request("tasks/update", taskId=task, inputResponses=answer))
        assert updated["result"]["resultType"] == "complete"
        await run_in(server, State.COMPLETED)
        ended = (await ask(request("tasks/get", taskId=task)))["result"]
        assert (ended["status"], ended["result"]["structuredContent"]["state"]) == ("completed", "completed")
        assert (await ask(request("tasks/list")))["error"]["code"] == -32601
        assert (await ask(request("tasks/result", taskId=task)))["error"]["code"] == -32601
        assert (await ask(request("tasks/get", taskId="none")))["error"]["code"] == -32602


class CreatedTask(Result):
    """The answer to a call that became a task."""

    result_type: Literal["task"]
    task_id: str
    status: str


class AnyResult(Result):
    model_config = ConfigDict(extra="allow")


class Tasks(ClientExtension):
    """Tasks for the Python client: polls a task, and answers its questions."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self.asked: list[str] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self._resolved)]

    async def _resolved(self, created: CreatedTask, context: ClaimContext) -> CallToolResult:
        while True:
            task = await self._sent(context, "tasks/get", taskId=created.task_id)
            if task["status"] == "completed":
                return CallToolResult.model_validate(task["result"])
            for id_, asked in task.get("inputRequests", {}).items():
                self.asked.append(asked["params"]["message"])
                answer = {id_: {"action": "accept", "content": {"answer": self._answer}}}
                await self._sent(context, "tasks/update", taskId=created.task_id, inputResponses=answer)
            await asyncio.sleep(0.05)

    async def _sent(self, context: ClaimContext, method: str, **params: Any) -> Json:
        request = Request[dict[str, Any], str](method=method, params=params)
        return (await context.session.send_request(request, AnyResult)).model_dump(by_alias=True)


async def test_the_python_client_resolves_a_task_by_the_extension(server: Server) -> None:
    tasks = Tasks("Ada")
    async with (
        httpx2.AsyncClient(timeout=30) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http), extensions=[tasks]) as client,
    ):
        result = await client.call_tool("writer", {"message": "hi"})
    assert tasks.asked == ["Which name?"]
    assert result.structured_content is not None
    assert result.structured_content["text"].endswith("Bye, Ada.")


async def test_since_2026_changes_of_tasks_are_subscribed_to(server: Server) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=20) as http:
        task = await created_task(http, "writer", "hi")
        await run_in(server, State.INPUT_REQUIRED)
        body, headers = modern(request("subscriptions/listen", notifications={"taskIds": [task]}))
        async with streaming(http, body, headers) as events:
            assert (await events.next())[1]["params"]["notifications"] == {"taskIds": [task]}
            _, asked = await events.next()
            assert (asked["method"], asked["params"]["status"]) == ("notifications/tasks", "input_required")
            await http.post("/mcp", json=call("writer", "Ada", task=task), headers=OLD)
            statuses: list[str] = []
            while statuses[-1:] != ["completed"]:
                statuses.append((await events.next())[1]["params"]["status"])
            assert statuses in (["completed"], ["working", "completed"])


@pytest.mark.parametrize(
    "body",
    [
        request("tasks/get"), request("tasks/get", taskId=5), request("tasks/result", taskId="x y"),
        request("tasks/list", cursor="?"), request("tasks/cancel", taskId=""), request("tasks/update", taskId="x"),
        {"jsonrpc": "2.0", "id": "x#1", "result": {"action": "accept"}},
        {"jsonrpc": "2.0", "id": "#", "result": {"action": "accept", "content": {}}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ],
)  # fmt: skip
async def test_what_is_no_task_is_refused(server: Server, body: Json) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as http:
        reply = await http.post("/mcp", json=body, headers=OLD)
    assert reply.status_code in (200, 400)
    assert reply.json()["error"]["code"] in (-32600, -32601, -32602)
