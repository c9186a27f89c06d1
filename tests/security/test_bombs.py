"""Compressed answers are refused by every caller before they are unpacked, and long ones while they are read."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.client import Client, RuntimeClient
from parley.client.cards import NoCard, fetch, inspect
from parley.drivers.agentzero import AgentZeroOptions
from parley.drivers.agentzero.client import Wire
from parley.drivers.remote import OutboundConnections
from parley.drivers.remote.translation import ConnectionLost
from parley.errors import IssuerUnavailable, ModelError, ReplyCompressed, ReplyTooLarge
from parley.models.endpoint import ModelAccess, open_model
from parley.node import A2A
from parley.node.messages import PlatformUnreachable
from parley.node.platform import IdentityFile, PlatformClient
from parley.node.verifying import PairVerifier
from parley.security.netguard import LOOPBACK, Guard, Outbound
from parley.security.outbound import LimitedTransport
from parley.security.tokens import Tokens
from parley.testing.servers import serving
from parley.tools.github import GitHub, GitHubRequest
from parley_edge.net.http import Http
from tests.drivers.conftest import remote, send, state, words
from tests.faces.registry.fleet import Fleet
from tests.models.test_vendors import HELLO, NOTHING
from tests.security.bombs import bomber, padded

MESSAGE = {"role": "agent", "kind": "message", "messageId": "m", "parts": [{"kind": "text", "text": "ok"}]}
ANSWER = {"jsonrpc": "2.0", "id": "1", "result": MESSAGE}
EVENT = b"data: " + padded(ANSWER) + b"\n\n"


def card_at(url: str, *, streaming: bool) -> dict[str, Any]:
    return {
        "name": "A", "description": "B", "version": "1", "url": f"{url}/rpc", "protocolVersion": "0.3.0",
        "preferredTransport": "JSONRPC", "capabilities": {"streaming": streaming}, "skills": [],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
    }  # fmt: skip


async def _client_calls(url: str, folder: Path) -> None:
    async with Client(url) as client:
        await client.call("GetTask", {"id": "1"})


async def _client_reads_a_card(url: str, folder: Path) -> None:
    async with Client(url) as client:
        await client.card()


async def _client_of_the_runtime_calls(url: str, folder: Path) -> None:
    async with RuntimeClient(url, "secret") as client:
        await client.health()


async def _node_calls_a_peer(url: str, folder: Path) -> None:
    async with A2A(url) as a2a:
        await a2a.send({"method": "message/send", "params": {"message": {"parts": []}}})


async def _node_asks_its_platform(url: str, folder: Path) -> None:
    await PlatformClient(url, IdentityFile(folder)).discover("peer")


async def _node_verifies_a_pair(url: str, folder: Path) -> None:
    await PairVerifier(url, "node").check("token")


async def _card_is_fetched(url: str, folder: Path) -> None:
    await fetch(url)


async def _card_is_inspected(url: str, folder: Path) -> None:
    await inspect(url)


async def _card_is_inspected_with_a_client_of_ones_own(url: str, folder: Path) -> None:
    async with httpx2.AsyncClient() as http:
        await inspect(url, http=http)


async def _tokens_are_checked(url: str, folder: Path) -> None:
    await Tokens(url, "us", f"{url}/jwks").principal_for("token")


async def _agentzero_is_asked(url: str, folder: Path) -> None:
    await Wire(AgentZeroOptions(url), OutboundConnections()).get("health", dict)


async def _model(name: str, url: str) -> None:
    model = open_model(name, ModelAccess(base_url=url, key_from="HOME", retries=0))
    async with aclosing(model.stream(HELLO, NOTHING)) as outputs:
        async for _ in outputs:
            pass


async def _openai_is_asked(url: str, folder: Path) -> None:
    await _model("openai:gpt-test", url)


async def _anthropic_is_asked(url: str, folder: Path) -> None:
    await _model("anthropic:claude-test", url)


REFUSALS: dict[Callable[[str, Path], Awaitable[None]], type[Exception]] = {
    _client_calls: ReplyCompressed,
    _client_reads_a_card: ReplyCompressed,
    _client_of_the_runtime_calls: ReplyCompressed,
    _node_calls_a_peer: ReplyCompressed,
    _node_asks_its_platform: PlatformUnreachable,
    _node_verifies_a_pair: IssuerUnavailable,
    _card_is_fetched: NoCard,
    _card_is_inspected: NoCard,
    _card_is_inspected_with_a_client_of_ones_own: NoCard,
    _tokens_are_checked: IssuerUnavailable,
    _agentzero_is_asked: ConnectionLost,
    _openai_is_asked: ModelError,
    _anthropic_is_asked: ModelError,
}


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """Means something to every caller: an answer, a card, a peer, keys."""
    members: dict[str, object] = {"id": "i", "url": "http://a", "keys": [], "gitinfo": {}, "name": "A", "active": True}
    return padded({**ANSWER, **members})


@pytest.mark.parametrize("call", REFUSALS, ids=lambda call: call.__name__.strip("_"))
async def test_a_compressed_answer_is_refused_before_it_is_unpacked(
    call: Callable[[str, Path], Awaitable[None]], bomb: bytes, tmp_path: Path
) -> None:
    async with bomber(bomb) as far:
        if call in (_openai_is_asked, _anthropic_is_asked):
            far.kind = "text/event-stream"
        with pytest.raises(REFUSALS[call]):
            await call(far.url, tmp_path)
        assert set(far.encodings) == {"identity"}


async def test_a_compressed_stream_is_refused_before_it_is_unpacked() -> None:
    async with bomber(EVENT) as far, Client(far.url) as client:
        far.kind = "text/event-stream"
        with pytest.raises(ReplyCompressed):
            _ = [one async for one in client.stream("hello")]


async def test_what_answers_a_push_notification_is_not_unpacked() -> None:
    """A receiver has taken an update, however its answer is packed."""
    async with bomber() as far:
        reply = await Outbound(Guard(LOOPBACK)).send("POST", far.url, content=b"{}")
        assert (reply.status, len(reply.body)) == (200, far.size)


async def test_what_github_answers_is_not_unpacked() -> None:
    async with bomber() as far:
        github = GitHub(Outbound(Guard(LOOPBACK)), lambda: "", far.url)
        assert len((await github.send(GitHubRequest("GET", ("user",)))).body) == far.size


async def test_what_answers_a_paired_runtime_is_not_unpacked() -> None:
    async with bomber() as far:
        answer = await Http().ask("GET", far.url, headers={}, timeout_s=5)
        assert len(answer.body) == far.size
        assert far.encodings == ["identity"]


@pytest.mark.parametrize("what", ["card", "answer", "stream"])
async def test_a_remote_agent_that_compresses_fails_the_task(what: str, tmp_path: Path) -> None:
    async with bomber(EVENT if what == "stream" else padded(ANSWER)) as far:
        if what != "card":
            far.plain["/.well-known/agent-card.json"] = card_at(far.url, streaming=what == "stream")
            far.kind = "text/event-stream" if what == "stream" else far.kind
        async with serving(tmp_path, [remote("far", far.url)]) as front, Client(front.agent("far")) as client:
            task = await send(client, "hello")
    assert state(task) == "failed"
    assert "compressed" in words(task)


async def test_a_node_that_compresses_fails_the_call(tmp_path: Path) -> None:
    async with (
        bomber(padded(ANSWER)) as far,
        serving(tmp_path, []) as server,
        httpx2.AsyncClient() as http,
    ):
        node = await Fleet(http, server.url).online("Far")
        assert (await node.register(far.url)).status_code == 200
        message = {"role": "user", "parts": [{"kind": "text", "text": "hello"}]}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
        reply = await http.post(f"{server.url}/workspaces/{node.id}/a2a", json=asked)
        assert (reply.status_code, reply.json()["error"]) == (502, "workspace response is compressed")


async def _body(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


class _Answers(httpx2.AsyncBaseTransport):
    def __init__(self, chunks: list[bytes], kind: str) -> None:
        self._chunks = chunks
        self._kind = kind

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": self._kind}, content=_body(self._chunks))


async def read(chunks: list[bytes], kind: str, most: int) -> bytes:
    transport = LimitedTransport(_Answers(chunks, kind), most)
    async with httpx2.AsyncClient(transport=transport) as http:
        return (await http.get("http://far.example/")).content


async def test_an_answer_is_read_up_to_its_limit_and_no_further() -> None:
    assert await read([b"12345", b"67890"], "application/json", 10) == b"1234567890"
    with pytest.raises(ReplyTooLarge):
        await read([b"12345", b"67890", b"1"], "application/json", 10)


@given(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 60), max_size=8))
async def test_a_stream_is_limited_by_event_wherever_its_bytes_are_cut(line: bytes, cuts: list[int]) -> None:
    stream = (b"data: 1234" + line * 2) * 5
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[begin:end] for begin, end in pairwise(places)]
    assert await read(chunks, "text/event-stream", 14) == stream
    with pytest.raises(ReplyTooLarge):
        await read([*chunks, b"data: 12345678", b"9"], "text/event-stream", 14)
