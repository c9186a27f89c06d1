"""JSON that is nested too deeply is refused on every wire, and values from before that was so can be read."""

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc as pb_grpc
from google.protobuf import json_format

from parley import ArtifactChunk, Part, Text, Turn, agent
from parley.http.requests import SMALL_BODY
from parley.json_values import MARK, MAX_DEPTH
from parley.testing.servers import Server, serving
from tests.faces.a2a.test_grpc import address_of, reason
from tests.faces.control.wire import SECRET, Wire

NEW = {"A2A-Version": "1.0"}
ALMOST = 970
"""About what the parser reads: it depends on how many functions have called each other."""


def nested(levels: int) -> bytes:
    return b'{"a":[' * (levels // 2) + b"1" + b"]}" * (levels // 2)


def message(data: bytes, parts: str = "parts", role: str = "ROLE_USER") -> bytes:
    return b'{"message":{"messageId":"m","role":"%b","%b":[{"data":%b}]}}' % (role.encode(), parts.encode(), data)


def rpc(method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"%b","params":%b}' % (method.encode(), params)


def deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@agent("echo", input_modes=("*/*",))
async def echo(turn: Turn):
    yield Text("said")


@agent("digger")
async def digger(turn: Turn):
    """Makes a value as deep as it is told."""
    yield ArtifactChunk(deep(int(turn.text)), id="hole")


@agent("raw")
async def raw(turn: Turn):
    """Makes one that it does not build itself."""
    import msgspec

    yield ArtifactChunk(Part(data=msgspec.Raw(nested(int(turn.text)))), id="hole")


AGENTS = (echo, digger, raw)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", AGENTS, grpc_port=0, runtime_keys={"k": SECRET}) as running:
        yield running


NODE = "00000000-0000-4000-8000-000000000001"
VALUE = nested(2 * MAX_DEPTH)
CALLS: dict[str, tuple[str, bytes]] = {
    "JSON-RPC 1.0": ("/agents/echo", rpc("SendMessage", message(VALUE))),
    "JSON-RPC 0.3": ("/agents/echo", rpc("message/send", message(VALUE, role="user"))),
    "HTTP+JSON 1.0": ("/agents/echo/message:send", message(VALUE)),
    "HTTP+JSON 0.3": ("/agents/echo/v1/message:send", message(VALUE, "content")),
    "an extension's method": ("/agents/echo", rpc("whatever", VALUE)),
    "actions": ("/api/agent2agent/conversations/c/tasks", b'{"mode":"converse","action":"send","params":%b}' % VALUE),
    "conversations": ("/api/agent2agent/conversations", VALUE),
    "MCP": ("/mcp", rpc("tools/call", VALUE)),
    "the registry": ("/registry/register", b'{"id":"n","url":"http://a.example","agent_card":%b}' % VALUE),
    "a heartbeat": ("/registry/heartbeat", b'{"workspace_id":"n","runtime_metadata":%b}' % VALUE),
    "a new node": ("/workspaces", b'{"name":"n","x":%b}' % VALUE),
    "the proxy": (f"/workspaces/{NODE}/a2a", rpc("SendMessage", message(VALUE))),
    "a runtime that attaches": ("/agent-runtimes/runtime/attach-via-pairing", b'{"pairing_token":%b}' % VALUE),
    "keys": ("/admin/keys", b'{"name":%b}' % VALUE),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("size", ["small", "large"])
async def test_it_is_refused_with_a_code_of_its_own(call: str, size: str, server: Server) -> None:
    path, body = CALLS[call]
    body += b" " * (SMALL_BODY - len(body) + (1 if size == "large" and call != "keys" else 0))
    async with httpx2.AsyncClient(base_url=server.url) as http:
        headers = {"Content-Type": "application/json", **({} if "0.3" in call else NEW)}
        reply = await http.post(path, content=body, headers=headers)
    assert f"at most {MAX_DEPTH} levels" in reply.text
    assert reply.status_code == (200 if call.startswith(("JSON-RPC", "an extension")) else 400)
    assert call in ("MCP", "actions", "conversations", "the registry", "a heartbeat", "a new node", "the proxy") or (
        "nested_too_deep" in reply.text.lower()
    )


async def test_a_frame_of_the_control_plane_is_refused(server: Server) -> None:
    async with Wire(server.url) as wire:
        reply = await wire.send("POST", "/runs/r/frames", b'{"payload":%b}' % VALUE)
    assert (reply.status_code, f"at most {MAX_DEPTH} levels" in reply.text) == (400, True)


async def test_grpc_refuses_what_protobuf_cannot_read_and_shows_what_it_can_write(server: Server) -> None:
    async with grpc.aio.insecure_channel(await address_of(server)) as channel:
        stub: Any = pb_grpc.A2AServiceStub(channel)
        version = (("a2a-version", "1.0"),)
        asked = pb.SendMessageRequest(tenant="echo", message=pb.Message(message_id="g", role="ROLE_USER"))
        json_format.ParseDict(deep(45), asked.message.parts.add().data)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.SendMessage(asked, metadata=version)
        assert reason(refused.value)[1] == "NESTED_TOO_DEEP"
        async with httpx2.AsyncClient(base_url=server.url) as http:
            sent = await http.post("/agents/echo/message:send", content=message(nested(90)), headers=NEW)
            task = sent.json()["task"]["id"]
        shown = await stub.GetTask(pb.GetTaskRequest(tenant="echo", id=task), metadata=version)
        assert MARK[1:-1].decode() in str(shown)
        listed = await stub.ListTasks(pb.ListTasksRequest(tenant="echo"), metadata=version)
        assert len(listed.tasks) == 1


@pytest.mark.parametrize("slug", ["digger", "raw"])
@pytest.mark.parametrize("levels", [2 * MAX_DEPTH, ALMOST, 3000])
async def test_an_agent_that_yields_it_fails_with_that_code(slug: str, levels: int, server: Server) -> None:
    async with httpx2.AsyncClient(base_url=server.url, headers=NEW) as http:
        said = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": str(levels)}]}}
        task = (await http.post(f"/agents/{slug}/message:send", json=said)).json()["task"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["metadata"]["code"] == "nested_too_deep"


async def test_values_up_to_the_limit_pass_every_wire(server: Server) -> None:
    async with httpx2.AsyncClient(base_url=server.url, headers=NEW) as http:
        sent = await http.post("/agents/echo/message:send", content=message(nested(MAX_DEPTH - 4)))
        run = sent.json()["task"]
        assert await _statuses(http, run["id"], run["contextId"]) == {}
        said = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": str(MAX_DEPTH)}]}}
        made = (await http.post("/agents/digger/message:send", json=said)).json()["task"]
        assert made["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("levels", [ALMOST - 10, ALMOST, ALMOST + 4])
async def test_values_from_before_the_limit_are_shown_shortened(
    levels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(2 * limit)
    with monkeypatch.context() as before:
        before.setattr("parley.http.requests.check_depth", lambda body: None)
        before.setattr("parley.runs.log.is_deeper", lambda body, most: False)
        before.setattr("parley.runs.rules.events.readable", lambda body: body)
        async with serving(data, AGENTS) as server, httpx2.AsyncClient(base_url=server.url, headers=NEW) as http:
            sent = await http.post("/agents/echo", content=rpc("SendMessage", message(nested(levels))))
            run = sent.json()["result"]["task"]
    sys.setrecursionlimit(limit)
    async with serving(data, AGENTS) as server, httpx2.AsyncClient(base_url=server.url, headers=NEW) as http:
        assert await _statuses(http, run["id"], run["contextId"]) == {}
        task = (await http.get(f"/agents/echo/tasks/{run['id']}")).text
        assert MARK.decode() in task
        events = await server.exchange.store.read(run["id"], 0, 10)
        assert all(event.body and hashlib.sha256(event.body).digest() == event.digest for event in events)
        assert nested(levels) in b"".join(event.body or b"" for event in events), "what was hashed stays as it was"


async def _statuses(http: httpx2.AsyncClient, run: str, conversation: str) -> dict[str, int]:
    """Everything that shows a run, and did not."""
    paths = [
        "/admin/runs", f"/agents/echo/tasks/{run}", "/agents/echo/tasks?includeArtifacts=true&historyLength=9",
        "/console/conversations", f"/console/conversations/{conversation}", "/console/runs", "/console/inbox",
        f"/console/runs/{run}", f"/console/runs/{run}/raw", f"/console/runs/{run}/timeline", "/console/agents/echo",
        f"/api/agent2agent/tasks/{run}",
    ]  # fmt: skip
    replies = await asyncio.gather(*(http.get(path) for path in paths))
    listed = await http.post("/agents/echo", content=rpc("ListTasks", b'{"historyLength":9}'))
    assert "result" in listed.json()
    return {path: one.status_code for path, one in zip(paths, replies, strict=True) if one.status_code >= 500}
