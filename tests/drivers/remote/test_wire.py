"""Our client reads what the official client reads from the same replies, and uses its connections again."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

import httpx
import httpx2
import msgspec
import pytest
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.proto_utils import parse_lenient
from msgspec import Raw, Struct
from msgspec.structs import replace

from parley import ArtifactChunk, Done, Status, Turn, agent
from parley.drivers.remote import OutboundConnections, RemoteDriver, RemoteOptions, blank_remote
from parley.drivers.remote.cards import fetch_card
from parley.drivers.remote.connections import plain_transport
from parley.drivers.remote.http import RemoteHttp
from parley.drivers.remote.options import BINDINGS
from parley.drivers.remote.protos import heard, message_out, place_of, snapshot
from parley.drivers.remote.replies import Replies, decode_event, decode_flat_event
from parley.drivers.remote.translation import (
    ConnectionLost,
    RemoteArtifact,
    RemoteRefused,
    RemoteReply,
    RemoteStatus,
    RemoteStep,
    RemoteTask,
    tidy,
)
from parley.drivers.remote.wire import RemotePeer, open_peer
from parley.errors import ReplyTooLarge
from parley.ids import new_id
from parley.runs.rules.content import Message, Part, text_part
from parley.runs.rules.state import State
from parley.testing.servers import serving
from tests.drivers.conftest import BACK, SEPARATORS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@agent("about")
async def about(turn: Turn):
    """Says something about everything."""
    yield Status("thinking")
    made = {"b": [1, {"two": 2.5}], "a": None, "words": "\u2028\x85é"}
    yield ArtifactChunk(made, id="made", name="Made", description="All of it", metadata=Raw(msgspec.json.encode(made)))
    yield Done("Done.", {"code": "fine", "mimeType": 3}, {"usage": {"inputTokens": 3}, "a": 1.0})


PARTS = (
    Part(text="hello", media_type="text/markdown"),
    Part(raw=b"\x00\xff\xfe>?", media_type="image/png", filename="dot.png"),
    Part(url="https://example.com/cat.png", media_type="image/png"),
    Part(data=Raw(b'{"count": 42, "half": 0.5}'), metadata=Raw(b'{"z": 1, "a": [true]}')),
    Part(data=Raw(b'[1, "two"]')),
)


class Recorded(Struct):
    status: int
    kind: str
    body: bytearray


class Recorder(httpx2.AsyncBaseTransport):
    """Notes all replies, on which connections they came, and when their streams are closed."""

    def __init__(self) -> None:
        self._transport = plain_transport()
        self.replies: list[Recorded] = []
        self.connections: list[Any] = []
        self.closed = asyncio.Queue[None]()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reply = await self._transport.handle_async_request(request)
        kept = Recorded(reply.status_code, reply.headers.get("content-type", ""), bytearray())
        if not request.url.path.endswith(".json"):
            self.replies.append(kept)
            self.connections.append(reply.extensions["network_stream"].get_extra_info("client_addr"))
            reply.stream = _Noted(reply.stream, kept.body, self.closed)
        return reply

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self


class _Noted(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, body: bytearray, closed: "asyncio.Queue[None]") -> None:
        self._stream = stream
        self._body = body
        self._closed = closed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._body += chunk
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
        self._closed.put_nowait(None)


async def peer_of(transport: httpx2.AsyncBaseTransport, url: str, **options: Any) -> RemotePeer:
    outside = OutboundConnections(lambda: transport)
    return await RemoteDriver(blank_remote("back"), RemoteOptions(url, **options), outside).peer()


async def steps_of(steps: AsyncGenerator[RemoteStep, None]) -> list[RemoteStep]:
    async with aclosing(steps):
        return [step async for step in steps]


def message(*parts: Part) -> Message:
    return Message(new_id(), parts or (text_part("hi"),))


def official_client(replies: list[Recorded], binding: str, version: str, *, streaming: bool) -> Client:
    """The SDK's client, which gets these replies."""

    def replayed(request: httpx.Request) -> httpx.Response:
        reply = replies.pop(0)
        body = bytes(reply.body)
        for one in SEPARATORS:
            # This client takes some characters for the end of a line.
            body = body.replace(one.encode(), one.encode() if one.isascii() else b"\\u%04x" % ord(one))
        return httpx.Response(reply.status, headers={"content-type": reply.kind}, content=body)

    card = pb.AgentCard(capabilities=pb.AgentCapabilities(streaming=streaming))
    card.supported_interfaces.add(url="http://back.example", protocol_binding=binding, protocol_version=version)
    http = httpx.AsyncClient(transport=httpx.MockTransport(replayed))
    return ClientFactory(ClientConfig(streaming=True, httpx_client=http, supported_protocol_bindings=[binding])).create(
        card
    )


@pytest.mark.parametrize("version", ["1.0", "0.3", "1.1"])
@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_official_client_reads_the_same(tmp_path: Path, binding: Any, version: Any) -> None:
    async with serving(tmp_path, [*BACK, about]) as back, Recorder() as recorder:
        for slug in ("about", "writer", "vault", "file", "greeter", "picky", "broken", "lines", "plain"):
            peer = await peer_of(recorder, back.agent(slug), bindings=(binding,), version=version)
            sent = message(*(PARTS if slug == "file" else ()))
            steps = await steps_of(peer.send(sent, None, None, new_id(), hops=1))
            task = next((step.heard.task for step in steps if isinstance(step.heard, RemoteTask)), None)
            now = await peer.get(task) if task else None
            assert [step.cursor is not None for step in steps] == [peer.streams] * len(steps)
            if version == "1.1" and peer.streams and now is not None:
                assert now.generation == max(step.generation for step in steps) > 0
            client = official_client(recorder.replies, binding, version, streaming=peer.streams)
            request = pb.SendMessageRequest(message=message_out(sent, None, None, 1))
            theirs = [RemoteStep(heard(event), None, *place_of(event)) async for event in client.send_message(request)]
            assert [_without_numbers(step) for step in steps] == theirs
            if now is not None:
                assert replace(now, generation=0) == snapshot(await client.get_task(pb.GetTaskRequest(id=task or "")))
            assert not recorder.replies


def _without_numbers(step: RemoteStep) -> RemoteStep:
    """The step without the numbers of events and updates, which the official client does not show."""
    now = step.heard
    return replace(
        step, heard=replace(now, generation=0) if isinstance(now, RemoteTask) else now, cursor=None, generation=0
    )


PARTS_IN_OTHER_SPELLINGS: list[dict[str, Any]] = [
    {"text": "", "media_type": "text/markdown", "filename": None},
    {"raw": "_-8", "media_type": "image/png"},
    {"raw": "//8=", "metadata": None},
    {"url": "https://example.com/", "unknown": {"deep": [1]}},
    {"data": None},
    {"data": {"b": 1.0, "a": [2.50, 1e3]}, "metadata": {"mimeType": "text/plain"}},
    {"metadata": {}},
]
EVENTS_IN_OTHER_SPELLINGS: list[dict[str, Any]] = [
    {"status_update": {"task_id": "t", "context_id": "c", "status": {"state": 2, "message": None}, "metadata": {}}},
    {"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_NAPPING"}, "unknown": 1}},
    {"statusUpdate": {"taskId": "t", "status": {"state": 77}}},
    {"artifact_update": {
        "task_id": "t", "artifact": {"artifact_id": "a", "parts": PARTS_IN_OTHER_SPELLINGS, "name": None},
        "last_chunk": True, "append": None,
    }},
    {"task": {
        "id": "t", "context_id": "c", "status": {"state": 5}, "artifacts": None, "metadata": None,
        "history": [
            {"message_id": "m", "role": 1, "parts": [{"text": "x"}]},
            {"messageId": "n", "role": "ROLE_OTHER", "metadata": {"code": 3}},
            {"messageId": "o", "role": "ROLE_AGENT", "metadata": {"code": "lost"}},
        ],
    }},
    {"message": {"message_id": "m", "context_id": "c", "role": "ROLE_AGENT", "parts": PARTS_IN_OTHER_SPELLINGS}},
]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS_IN_OTHER_SPELLINGS, ids=lambda event: next(iter(event)))
def test_every_spelling_of_protobuf_is_read_as_the_official_client_reads_it(event: dict[str, Any]) -> None:
    parsed = parse_lenient(event, pb.StreamResponse())
    step = Replies("1").step(decode_event(msgspec.json.encode(event)))
    assert step == RemoteStep(heard(parsed), None, *place_of(parsed))


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"id": "t", "contextId": "c", "status": {"state": "input-required"}}, RemoteTask),
        ({"messageId": "m", "role": "agent", "parts": []}, RemoteReply),
        ({"taskId": "t", "contextId": "c", "status": {"state": "unknown"}, "final": False}, RemoteStatus),
        ({"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": []}}, RemoteArtifact),
    ],
)
def test_the_kind_that_an_old_server_omits_is_found_by_the_members(event: dict[str, Any], kind: type[Any]) -> None:
    step = Replies("0.3").step(decode_flat_event(msgspec.json.encode(event)))
    assert step is not None
    assert isinstance(step.heard, kind)


def test_digits_of_large_numbers_are_kept() -> None:
    data = {"data": {"exact": 2**60 + 1}}
    found = Replies("1").step(decode_event(msgspec.json.encode({"message": {"parts": [data]}})))
    assert found is not None
    assert isinstance(found.heard, RemoteReply)
    assert found.heard.said.parts == (Part(data=Raw(b'{"exact":%d}' % (2**60 + 1))),)


def test_numbers_and_order_are_as_they_were_meant() -> None:
    assert tidy({"b": 42.0, "a": [1.5, {"z": 1e300, "y": True}]}) == b'{"a":[1.5,{"y":true,"z":1e300}],"b":42}'


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_connection_of_a_stream_is_used_again(tmp_path: Path, binding: Any, version: Any) -> None:
    async with serving(tmp_path, BACK) as back, Recorder() as recorder:
        peer = await peer_of(recorder, back.agent("echo"), bindings=(binding,), version=version)
        for _ in range(3):
            async with aclosing(peer.send(message(), None, None, new_id(), hops=1)) as steps:
                async for step in steps:
                    if isinstance(step.heard, RemoteStatus) and step.heard.state is State.COMPLETED:
                        break
            # The rest of the stream is read in the background.
            await asyncio.wait_for(recorder.closed.get(), 10)
        assert len(recorder.connections) == 3
        assert len(set(recorder.connections)) == 1


async def test_a_stream_that_is_left_early_is_closed_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, BACK) as back, Recorder() as recorder:
        peer = await peer_of(recorder, back.agent("sleeper"))
        async with aclosing(peer.send(message(), None, None, new_id(), hops=1)) as steps:
            assert isinstance((await anext(steps)).heard, RemoteTask)
        assert recorder.closed.qsize() == 1


class Canned(httpx2.AsyncBaseTransport):
    """Gives out one reply to every request but that for the card."""

    def __init__(self, status: int, content: Any, kind: str = "application/json") -> None:
        self._reply = status, content, kind

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith(".json"):
            interfaces = [
                {"url": "http://back.example", "protocolBinding": binding, "protocolVersion": version}
                for binding in BINDINGS
                for version in ("1.0", "0.3")
            ]
            return httpx2.Response(200, json={"capabilities": {"streaming": True}, "supportedInterfaces": interfaces})
        status, content, kind = self._reply
        content = content if isinstance(content, bytes) else msgspec.json.encode(content)
        return httpx2.Response(status, content=content, headers={"content-type": kind})


def _status(reason: str, words: str) -> dict[str, Any]:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}
    return {"error": {"code": 400, "message": words, "details": [{"@type": "other"}, info]}}


def _rpc(code: object, words: object = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": words}}


EVENTS = "text/event-stream"


@pytest.mark.parametrize(
    ("version", "binding", "reply", "refused"),
    [
        ("1.0", "JSONRPC", Canned(200, _rpc(-32001, "No.")), "not_found: It does not know the task."),
        ("1.0", "JSONRPC", Canned(200, _rpc(-32004, "It is over.")), "over: It is over."),
        ("1.0", "JSONRPC", Canned(200, _rpc(-32601)), "unknown: It does not support the operation."),
        ("0.3", "JSONRPC", Canned(200, _rpc(-32602, "Too long.")), "other: Too long."),
        ("1.0", "JSONRPC", Canned(200, {"result": None}), "other: Its answer is not valid JSON-RPC: .*"),
        ("0.3", "JSONRPC", Canned(200, {"result": None}), "other: Its answer is not valid A2A .*"),
        ("1.0", "JSONRPC", Canned(200, b"data: " + msgspec.json.encode(_rpc(-32001)), EVENTS), "not_found: .*"),
        ("1.0", "HTTP+JSON", Canned(200, b"data: " + msgspec.json.encode(_status("X", "No.")), EVENTS), "other: No."),
        ("1.0", "HTTP+JSON", Canned(400, _status("UNSUPPORTED_OPERATION", "It is over.")), "over: It is over."),
        ("1.0", "HTTP+JSON", Canned(404, _status("TASK_NOT_FOUND", "No.")), "not_found: .*"),
        ("0.3", "HTTP+JSON", Canned(404, {"type": "TaskNotFoundError", "message": "No."}), "not_found: .*"),
        ("0.3", "HTTP+JSON", Canned(400, {"type": "InvalidParamsError", "message": "No."}), "other: No."),
        ("1.0", "HTTP+JSON", Canned(501, b""), "unknown: HTTP 501."),
        ("1.0", "HTTP+JSON", Canned(302, b""), "other: HTTP 302."),
        ("1.0", "JSONRPC", Canned(401, _rpc(-32000)), r"credentials: It refused our credentials \(HTTP 401\)."),
        ("1.0", "HTTP+JSON", Canned(200, {"task": {"id": 3}}), "other: Its answer is not valid A2A .*"),
        ("1.0", "HTTP+JSON", Canned(200, {"task": {}}), "other: Its answer is not valid A2A .*"),
        ("1.0", "HTTP+JSON", Canned(200, {}), "other: An event of its stream is empty."),
        ("1.0", "HTTP+JSON", Canned(200, b"\xff"), "other: Its answer is not valid A2A .*"),
        ("1.0", "HTTP+JSON", Canned(200, b'{"message":{"metadata":[]}}'), "other: Its answer is not valid A2A .*"),
        ("1.0", "HTTP+JSON", Canned(200, b'{"message":' + b"[" * 100_000), "other: Its answer is not valid A2A .*"),
    ],
)  # fmt: skip
async def test_a_reply_that_is_an_error_or_makes_no_sense_is_a_refusal(
    version: Any, binding: Any, reply: Canned, refused: str
) -> None:
    peer = await peer_of(reply, "http://back.example", bindings=(binding,), version=version)
    with pytest.raises(RemoteRefused) as found:
        await steps_of(peer.send(message(), None, None, new_id(), hops=1))
    assert re.fullmatch(refused, f"{found.value.kind}: {found.value.words}")


@pytest.mark.parametrize(("status", "unsent"), [(503, True), (429, True), (502, False), (408, False)])
async def test_a_server_that_is_busy_is_asked_again(status: int, unsent: bool) -> None:
    peer = await peer_of(Canned(status, b""), "http://back.example")
    with pytest.raises(ConnectionLost, match=f"HTTP {status}") as lost:
        await peer.get("t")
    assert lost.value.unsent is unsent


@pytest.mark.parametrize("kind", [EVENTS, "application/json"])
async def test_a_reply_that_is_too_large_is_not_read(kind: str) -> None:
    canned = Canned(200, b"data: " + b"x" * 2000, kind)
    options = RemoteOptions("http://back.example")
    http = RemoteHttp(OutboundConnections(lambda: canned), options, 1000)
    card = await fetch_card(options, RemoteHttp(OutboundConnections(lambda: canned), options))
    with pytest.raises(ReplyTooLarge):
        await steps_of(open_peer(options, card, http).send(message(), None, None, new_id(), hops=1))
