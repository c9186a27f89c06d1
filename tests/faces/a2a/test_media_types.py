"""Media types of texts and data in A2A 0.3, which has no member for them: `metadata.mimeType`, over every binding."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc as old_grpc
from google.protobuf import json_format

from parley import ArtifactChunk, Turn, agent
from parley.testing.servers import Server, serving

Json = dict[str, Any]
HTML, TABLE = "text/html", "application/vnd.table+json"


@agent("typed")
async def typed(turn: Turn):
    """Makes a page, a table and a plain text."""
    yield ArtifactChunk("<p>hi</p>", id="page", media_type=HTML)
    yield ArtifactChunk({"rows": 2}, id="table", media_type=TABLE)
    yield ArtifactChunk("plain", id="text")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path, [typed], store="memory", grpc_port=0) as server:
        yield server


async def over_jsonrpc(server: Server, http: httpx2.AsyncClient) -> Json:
    message = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "go"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    return (await http.post(server.agent("typed"), json=body)).json()["result"]


async def over_http(server: Server, http: httpx2.AsyncClient) -> Json:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "go"}]}}
    return (await http.post(f"{server.agent('typed')}/v1/message:send", json=body)).json()["task"]


async def over_http_stream(server: Server, http: httpx2.AsyncClient) -> Json:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "go"}]}}
    reply = await http.post(f"{server.agent('typed')}/v1/message:stream", json=body)
    frames = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]
    return {"artifacts": [one["artifactUpdate"]["artifact"] for one in frames if "artifactUpdate" in one]}


async def over_grpc(server: Server, http: httpx2.AsyncClient) -> Json:
    card = (await http.get(f"{server.agent('typed')}/.well-known/agent-card.json")).json()
    place = next(one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
    message = old.Message(message_id="m", role=old.ROLE_USER, content=[old.Part(text="go")])
    async with grpc.aio.insecure_channel(place) as channel:
        stub: Any = old_grpc.A2AServiceStub(channel)
        sent = await stub.SendMessage(old.SendMessageRequest(request=message), metadata=(("tenant", "typed"),))
    return json_format.MessageToDict(sent.task)


@pytest.mark.parametrize("over", [over_jsonrpc, over_http, over_http_stream, over_grpc])
async def test_a_text_and_data_carry_their_media_types(server: Server, over: Any) -> None:
    async with httpx2.AsyncClient() as http:
        task = await over(server, http)
    parts = {one["artifactId"]: one["parts"][0] for one in task["artifacts"] if one.get("parts")}
    assert parts["page"]["metadata"] == {"mimeType": HTML}
    assert parts["table"]["metadata"] == {"mimeType": TABLE}
    assert not parts["text"].get("metadata")
