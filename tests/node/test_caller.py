"""The caller's object: the contract's own code against a server, its shapes, and streams that break."""

import asyncio
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import ArtifactChunk, NeedInput, Status, Text, Turn, agent
from parley.client import RemoteError
from parley.node import A2A
from parley.node.messages import Flattener, PeerUnavailable
from parley.testing.servers import Server, serving

Json = dict[str, Any]

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
TASK = """
    task_id = response["id"]
    # caller can check status explicitly if needed
    status = await a2a.get(f"/tasks/{task_id}")
"""
CANCEL = """
    # cancel an in-flight task
    await a2a.send({
        "method": "tasks/cancel",
        "params": { "id": task_id }
    })
"""
MESSAGE = '{"role": "user", "parts": [{"kind": "text", "text": words}], "messageId": "msg-456"}'


@agent("page")
async def page(turn: Turn):
    if turn.text == "hang":
        yield Status("hanging")
        await asyncio.Event().wait()
    if turn.text == "ask":
        yield NeedInput("Which page?")
    yield Status("Building")
    yield Text("Page generated ")
    await asyncio.sleep(0.05)
    yield Text("successfully")
    yield ArtifactChunk({"page_path": "/kitchen-renovation-vancouver"})
    yield ArtifactChunk(b"\x89PNG", filename="page.png", media_type="image/png")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path, [page], store="memory") as server:
        yield server


async def run(snippet: str, **names: Any) -> Json:
    """The contract's code as it stands; where it leaves out the message, there is one."""
    code = textwrap.dedent(snippet).replace("{ ... }", MESSAGE)
    body = "async def main():\n" + textwrap.indent(code, "    ") + "\n    return locals()"
    space: Json = dict(names)
    exec(body, space)
    return await space["main"]()


async def test_the_code_of_the_contract_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    async with A2A(server.agent("page")) as a2a:
        response = (await run(SYNCHRONOUS, a2a=a2a, words="build"))["result"]
        assert response["status"] == "completed"
        made = [
            {"type": "text/plain", "content": "Page generated successfully"},
            {"type": "application/json", "content": {"page_path": "/kitchen-renovation-vancouver"}},
            {"type": "image/png", "content": b"\x89PNG"},
        ]
        assert plain(response["artifacts"]) == made
        assert plain((await run(STREAMING, a2a=a2a, words="build"))["result"]) == made
        assert "Building" in capsys.readouterr().out
        assert (await run(TASK, a2a=a2a, response=response))["status"] == response

        hanging = await a2a.send({
            "method": "message/send",
            "params": {"message": {"parts": [{"text": "hang"}]}, "configuration": {"blocking": False}},
        })  # fmt: skip
        events = a2a.subscribe({"method": "tasks/resubscribe", "params": {"id": hanging["id"]}})
        first = await anext(events)
        await run(CANCEL, a2a=a2a, task_id=hanging["id"])
        assert (first["status"], [event async for event in events][-1]["status"]) == ("working", "canceled")


def plain(artifacts: list[Json]) -> list[Json]:
    return [{"type": one["type"], "content": one["content"]} for one in artifacts]


async def test_a_question_ends_the_stream_and_its_answer_goes_to_the_same_task(server: Server) -> None:
    async with A2A(server.agent("page")) as a2a:
        asked = await a2a.send({"method": "message/stream", "params": {"message": {"parts": [{"text": "ask"}]}}})
        assert (asked["status"], asked["message"]) == ("input-required", "Which page?")
        message = {"parts": [{"text": "that one"}], "taskId": asked["id"]}
        events = [event async for event in a2a.subscribe({"method": "message/stream", "params": {"message": message}})]
    assert {event["id"] for event in events} == {asked["id"]}
    assert events[-1]["status"] == "completed"


async def test_a_refusal_is_the_servers_own(server: Server) -> None:
    async with A2A(server.agent("page")) as a2a:
        with pytest.raises(RemoteError) as refused:
            await a2a.get("/tasks/unknown")
        assert refused.value.rpc == -32001
        with pytest.raises(ValueError, match="/tasks/ID"):
            await a2a.get("/agents")


class Breaking(httpx2.AsyncHTTPTransport):
    """Breaks streams after so many chunks."""

    def __init__(self, *lengths: int) -> None:
        super().__init__()
        self.lengths = list(lengths)
        self.resumed: list[str | None] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reply = await super().handle_async_request(request)
        if "text/event-stream" in reply.headers.get("content-type", ""):
            self.resumed.append(request.headers.get("last-event-id"))
            if self.lengths:
                reply.stream = Broken(reply.stream, self.lengths.pop(0))
        return reply


class Broken(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, chunks: int) -> None:
        self._stream = stream
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._chunks
        async for chunk in self._stream:
            if left == 0:
                break
            left -= 1
            yield chunk
        raise httpx2.ReadError("broken")

    async def aclose(self) -> None:
        await self._stream.aclose()


async def test_a_broken_stream_goes_on_after_the_last_event(server: Server) -> None:
    transport = Breaking(1, 0, 1)
    http = httpx2.AsyncClient(transport=transport)
    async with A2A(server.agent("page"), http=http) as a2a:
        request = {"method": "message/stream", "params": {"message": {"parts": [{"text": "build"}]}}}
        events = [event async for event in a2a.subscribe(request)]
    await http.aclose()
    assert len({event["id"] for event in events}) == 1
    assert "".join(plain(events[-1]["artifacts"])[0]["content"]) == "Page generated successfully"
    assert transport.resumed[0] is None
    assert transport.resumed[-1] is not None


async def test_what_may_have_arrived_is_not_sent_twice_to_who_knows_no_keys(server: Server) -> None:
    http = httpx2.AsyncClient(transport=Breaking(0))
    async with A2A(server.agent("page"), http=http, repeats=False) as a2a:
        with pytest.raises(PeerUnavailable, match="may still have started"):
            await a2a.send({"method": "message/stream", "params": {"message": {"parts": [{"text": "build"}]}}})
    await http.aclose()


def test_a_direct_answer_is_done_and_pieces_of_an_artifact_are_joined() -> None:
    assert Flattener().flat({"kind": "message", "parts": [{"kind": "text", "text": "hi"}], "contextId": "c"}) == {
        "id": "", "contextId": "c", "status": "completed", "message": "hi",
        "artifacts": [{"type": "text/plain", "content": "hi"}],
    }  # fmt: skip
    flattener = Flattener()
    for append, text in ((False, "old"), (False, "a"), (True, "b")):
        artifact = {"artifactId": "1", "parts": [{"kind": "text", "text": text}]}
        piece = flattener.flat({"kind": "artifact-update", "taskId": "t", "artifact": artifact, "append": append})
    assert (piece["status"], piece["message"], piece["artifacts"]) == ("working", "b", [])
    done = flattener.flat({"kind": "status-update", "taskId": "t", "status": {"state": "completed"}})
    assert done["artifacts"] == [{"type": "text/plain", "content": "ab", "artifact": "1"}]
    linked = {"artifactId": "1", "parts": [{"kind": "file", "file": {"uri": "https://a.example/b", "mimeType": "x/y"}}]}
    whole = Flattener().flat({"id": "t", "status": {"state": "failed"}, "artifacts": [linked]})
    link = {"type": "x/y", "content": None, "url": "https://a.example/b", "artifact": "1"}
    assert (whole["artifacts"], whole["snapshot"]) == ([link], True)


async def test_peers_are_not_called_through_proxies_of_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with A2A(server.agent("page")) as a2a:
        asked = {"method": "message/send", "params": {"message": {"parts": [{"text": "ask"}]}}}
        assert (await a2a.send(asked))["status"] == "input-required"
