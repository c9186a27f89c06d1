"""Requests and answers that pass through the proxy keep what stands beside the message."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley import ArtifactChunk, Turn, agent
from parley.node.messages import contents
from parley.testing.servers import hosting, serving
from tests.drivers.remote.sdk_agent import sdk_server
from tests.faces.registry.fleet import Fleet, Json
from tests.faces.registry.targets import asked, at, call, message

HISTORY = {"history": [{"role": "user", "parts": [{"kind": "text", "text": "earlier"}]}], "depth": 2}
TRACE = {"tool_trace": [{"tool": "search", "ms": 12}], "usage": {"input_tokens": 12, "output_tokens": 3}}
CARD: Json = {"name": "Old", "url": "http://inside:8000/", "protocolVersion": "0.3.0", "capabilities": {}}


@asynccontextmanager
async def old_node(result: Json) -> AsyncIterator[tuple[str, list[Json]]]:
    """A node that speaks A2A 0.3 over JSON-RPC, answers with the result, and keeps the params of each request."""
    params: list[Json] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        status, content = 404, b""
        if scope["method"] == "POST":
            request = json.loads((await receive())["body"])
            params.append(request["params"])
            status, content = 200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async with hosting(app) as url:
        yield url, params


def request() -> Json:
    modes = {"acceptedOutputModes": ["text/plain", "image/png"]}
    return asked("message/send", message=message("go", contextId="chat-1"), metadata=HISTORY, configuration=modes)


async def test_the_request_reaches_the_agent_whole_and_its_message_comes_back_with_metadata(small: Fleet) -> None:
    said = {
        "kind": "message", "role": "agent", "messageId": "a", "contextId": "chat-1", "metadata": TRACE,
        "parts": [{"kind": "text", "text": "done"}],
    }  # fmt: skip
    node = await small.create("Old")
    async with old_node(said) as (url, params):
        await node.register(url, agent_card=CARD)
        reply = (await call(small, node, request())).json()["result"]
    assert params[0]["metadata"] == HISTORY
    assert params[0]["message"]["contextId"] == "chat-1"
    assert params[0]["configuration"]["acceptedOutputModes"] == ["text/plain", "image/png"]
    assert (reply["parts"], reply["metadata"]) == ([{"kind": "text", "text": "done"}], TRACE)
    assert reply["contextId"] == "chat-1"


@pytest.mark.parametrize("state", ["completed", "input-required", "failed"])
async def test_the_metadata_of_a_task_comes_back_and_stays(small: Fleet, state: str) -> None:
    words = {"kind": "message", "role": "agent", "messageId": "a", "parts": [{"kind": "text", "text": "so it is"}]}
    status = {"state": state, "message": {**words, "metadata": {"mood": "fine"}}}
    task = {"kind": "task", "id": "t-1", "contextId": "c-9", "status": status, "metadata": TRACE}
    node = await small.create("Old")
    async with old_node(task) as (url, _):
        await node.register(url, agent_card=CARD)
        shown = (await call(small, node, request())).json()["result"]
        again = (await call(small, node, asked("GetTask", id=shown["id"]))).json()["result"]
    assert (shown["status"]["state"], shown["metadata"], again["metadata"]) == (state, TRACE, TRACE)
    if state != "failed":
        assert shown["status"]["message"]["metadata"] == {"mood": "fine"}


async def test_a_stream_of_the_new_generation_carries_metadata_both_ways(small: Fleet) -> None:
    node = await small.create("Sdk")
    new = {"role": "ROLE_USER", "parts": [{"text": "trace"}], "messageId": "m-1", "contextId": "chat-1"}
    body = asked("SendStreamingMessage", message=new, metadata=HISTORY, configuration={"acceptedOutputModes": ["a/b"]})
    async with sdk_server() as (url, executor):
        await node.register(url)
        reply = await call(small, node, body)
    frames = [json.loads(line[6:])["result"] for line in reply.text.splitlines() if line.startswith("data: ")]
    [got] = executor.requests
    assert (got.metadata, got.context_id) == (HISTORY, "chat-1")
    assert got.configuration is not None
    assert list(got.configuration.accepted_output_modes) == ["a/b"]
    last = frames[-1]["statusUpdate"]
    assert last["metadata"] == {"usage": {"input_tokens": 12}}
    assert last["status"]["message"]["metadata"] == {"tool_trace": [{"tool": "search"}]}


async def test_a_request_without_a_context_names_none_to_the_agent(small: Fleet) -> None:
    said = {"kind": "message", "role": "agent", "messageId": "a", "parts": [{"kind": "text", "text": "done"}]}
    node = await small.create("Old")
    async with old_node(said) as (url, params):
        await node.register(url, agent_card=CARD)
        await call(small, node, asked("message/send", message=message("go")))
    assert not params[0]["message"].get("contextId")
    assert not params[0].get("metadata")


async def test_media_types_of_text_and_data_survive_the_flat_form(small: Fleet, tmp_path: Path) -> None:
    @agent("typed")
    async def typed(turn: Turn):
        """Makes a page and a table."""
        yield ArtifactChunk("<p>hi</p>", id="page", media_type="text/html")
        yield ArtifactChunk({"rows": 2}, id="table", media_type="application/vnd.table+json")

    async with serving(tmp_path / "typed", [typed], store="memory") as target:
        node = await at(small, target, "typed")
        task = (await call(small, node, asked("message/send", message=message("go")))).json()["result"]
    kinds = [(one["type"], one["content"]) for artifact in task["artifacts"] for one in contents(artifact)]
    assert kinds == [("text/html", "<p>hi</p>"), ("application/vnd.table+json", {"rows": 2})]


async def test_media_types_of_a_node_of_the_old_generation_are_shown_in_the_new_one(small: Fleet) -> None:
    page = {"kind": "text", "text": "<p>hi</p>", "metadata": {"mimeType": "text/html", "lang": "en"}}
    table = {"kind": "data", "data": {"rows": 2}, "metadata": {"mimeType": "application/vnd.table+json"}}
    task = {
        "kind": "task", "id": "t-1", "contextId": "c-9", "status": {"state": "completed"},
        "artifacts": [{"artifactId": "a", "parts": [page, table]}],
    }  # fmt: skip
    node = await small.create("Old")
    async with old_node(task) as (url, _):
        await node.register(url, agent_card=CARD)
        shown = (await call(small, node, request())).json()["result"]
        new = (await call(small, node, {**asked("GetTask", id=shown["id"])})).json()["result"]
    assert shown["artifacts"][0]["parts"] == [page, table]
    assert [one["mediaType"] for one in new["artifacts"][0]["parts"]] == ["text/html", "application/vnd.table+json"]
