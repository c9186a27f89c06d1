"""The number of parts of a message is bounded on every wire."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc as old_grpc
from a2a.types import a2a_pb2 as new
from a2a.types import a2a_pb2_grpc as new_grpc

from parley import Text, Turn, agent
from parley.runs.rules.content import MAX_PARTS
from parley.testing.servers import Server, serving
from tests.faces.registry.fleet import Fleet
from tests.faces.registry.targets import at

from .wires import WIRES, Wire

Json = dict[str, Any]
ALLOWED = "A message may have at most 1000 parts"


@agent("echo")
async def echo(turn: Turn):
    yield Text("done")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path, [echo], store="memory", grpc_port=0) as server:
        yield server


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        yield client


async def say(http: httpx2.AsyncClient, wire: Wire, count: int, base: str = "/agents/echo") -> httpx2.Response:
    method, path, body = Wire(wire.name, base).request("send", "")
    assert body is not None
    message = body.get("params", body)["message"]
    name = "content" if "content" in message else "parts"
    message[name] = message[name] * count
    version = {"A2A-Version": "1.0"} if wire.name.endswith("1.0") else {}
    return await http.request(method, path, json=body, headers=version)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_more_parts_than_a_message_may_have_are_refused(http: httpx2.AsyncClient, wire: Wire) -> None:
    assert "artifacts" in (await say(http, wire, MAX_PARTS)).text
    refused = await say(http, wire, MAX_PARTS + 1)
    assert "TOO_MANY_PARTS" in refused.text
    assert ALLOWED in refused.text
    if wire.name.startswith("JSON-RPC"):
        assert refused.json()["error"]["code"] == -32602
    else:
        assert refused.status_code == 400


async def test_calls_of_nodes_are_bounded_too(server: Server, http: httpx2.AsyncClient) -> None:
    fleet = Fleet(http, server.url)
    node = await at(fleet, server, "echo")
    assert "TOO_MANY_PARTS" in (await say(http, WIRES[0], MAX_PARTS + 1, f"/workspaces/{node.id}/a2a")).text


async def test_a_fork_is_bounded_too(http: httpx2.AsyncClient) -> None:
    task = (await say(http, WIRES[0], 1)).json()["result"]["task"]["id"]
    message = {"messageId": "m-2", "role": "ROLE_USER", "parts": [{"text": "hello"}] * (MAX_PARTS + 1)}
    body = {"at": 1, "message": message}
    reply = await http.post(f"/agents/echo/tasks/{task}:fork", json=body, headers={"A2A-Version": "1.0"})
    assert "TOO_MANY_PARTS" in reply.text


async def test_grpc_is_bounded_too(server: Server, http: httpx2.AsyncClient) -> None:
    card = (await http.get("/agents/echo/.well-known/agent-card.json")).json()
    place = next(one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
    first = new.Message(message_id="m", role=new.ROLE_USER, parts=[new.Part(text="a")] * (MAX_PARTS + 1))
    second = old.Message(message_id="m", role=old.ROLE_USER, content=[old.Part(text="a")] * (MAX_PARTS + 1))
    async with grpc.aio.insecure_channel(place) as channel:
        stubs: tuple[Any, Any] = new_grpc.A2AServiceStub(channel), old_grpc.A2AServiceStub(channel)
        asking = (
            stubs[0].SendMessage(
                new.SendMessageRequest(tenant="echo", message=first), metadata=(("a2a-version", "1.0"),)
            ),
            stubs[1].SendMessage(old.SendMessageRequest(request=second), metadata=(("tenant", "echo"),)),
        )
        for one in asking:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await one
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert ALLOWED in str(refused.value.details())
