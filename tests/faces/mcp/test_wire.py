"""The wire itself: broken requests, broken connections, restarts, replicas."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.runs.rules.access import LOCAL
from parley.runs.rules.state import State
from parley.runs.store import Listing
from parley.testing.servers import Server, serving
from tests.faces.mcp.conftest import AGENTS, echo
from tests.faces.mcp.wire import BOTH, ENVELOPE, NEW, OLD, call, modern, request, run_in, streaming

DEEP = b"[" * 100_000
SAID = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"greeter","arguments":{"message":"hi"}}}'


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as http:
        yield http


BROKEN = [
    (b"", 400, -32700),
    (b"{", 400, -32700),
    (b"\xff\xfe", 400, -32700),
    (DEEP, 400, -32600),
    (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, 400, -32600),
    (b"[]", 400, -32600),
    (b"[" + SAID + b"]", 400, -32600),
    (b"7", 400, -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1,"result":{}}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', 200, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"prompts/list"}', 200, -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}', 200, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"parley://[x/%00"}}', 200, -32002),
    (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}', 200, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}', 200, -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 200_000 + b'"}', 413, -32600),
]


async def test_a_broken_request_is_told_so(http: httpx2.AsyncClient) -> None:
    for body, status, code in BROKEN:
        reply = await http.post("/mcp", content=body, headers={**BOTH, "Content-Type": "application/json"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, code), body[:80]
        assert reply.json()["jsonrpc"] == "2.0"
    plain = await http.post("/mcp", content=SAID, headers={**BOTH, "Content-Type": "text/plain"})
    assert (plain.status_code, plain.json()["error"]["code"]) == (415, -32600)


async def test_whatever_is_sent_is_answered_with_json_rpc(server: Server, http: httpx2.AsyncClient) -> None:
    chance = random.Random(20260728)
    for _ in range(50):
        body = bytearray(SAID)
        for _ in range(chance.randint(1, 6)):
            body[chance.randrange(len(body))] = chance.choice(b'{}[]",:\x00\xff0e-\\ ')
        reply = await http.post("/mcp", content=bytes(body), headers={"Content-Type": "application/json"})
        assert reply.status_code in (200, 202, 400)
        assert reply.status_code == 202 or reply.json()["jsonrpc"] == "2.0"


async def test_headers_that_disagree_with_their_request_are_refused(server: Server, http: httpx2.AsyncClient) -> None:
    body, headers = modern(call("echo", "hi"))
    for change in (
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": ""},
        {"Mcp-Name": "writer"},
        {"Mcp-Name": "=?base64?!?="},
        {"MCP-Protocol-Version": "2027-01-01"},
    ):
        reply = await http.post("/mcp", json=body, headers={**headers, **change})
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, -32020), change
    assert (await server.exchange.store.list_runs(Listing()))[1] == 0


async def test_a_request_without_handshake_says_what_it_is(http: httpx2.AsyncClient) -> None:
    naked = await http.post("/mcp", json=request("tools/list"), headers={**NEW, "Mcp-Method": "tools/list"})
    assert (naked.status_code, naked.json()["error"]["code"]) == (400, -32602)
    later = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}
    unknown = await http.post(
        "/mcp",
        json=request("tools/list", _meta=later),
        headers={**NEW, "MCP-Protocol-Version": "2030-01-01", "Mcp-Method": "tools/list"},
    )
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, -32022)
    assert unknown.json()["error"]["data"]["supported"] == ["2026-07-28"]
    body, headers = modern(request("ping"))
    assert (await http.post("/mcp", json=body, headers=headers)).status_code == 404
    body, headers = modern(call("echo", "hi"))
    encoded = await http.post("/mcp", json=body, headers={**headers, "Mcp-Name": "=?base64?ZWNobw==?="})
    assert encoded.status_code == 200


@pytest.mark.parametrize(("offered", "agreed"), [("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")])
async def test_a_handshake_agrees_on_a_revision(http: httpx2.AsyncClient, offered: str, agreed: str) -> None:
    hello = request("initialize", protocolVersion=offered, capabilities={}, clientInfo={"name": "t", "version": "1"})
    reply = await http.post("/mcp", json=hello, headers=BOTH)
    assert reply.json()["result"]["protocolVersion"] == agreed
    session = {**OLD, "Mcp-Session-Id": reply.headers["mcp-session-id"]}
    ready = await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
    assert (ready.status_code, ready.content) == (202, b"")
    assert (await http.post("/mcp/", json=request("ping"), headers=session)).json()["result"] == {}
    assert (await http.delete("/mcp", headers=session)).status_code == 204


async def test_a_client_that_takes_no_events_gets_one_answer(http: httpx2.AsyncClient) -> None:
    reply = await http.post("/mcp", json=call("echo", "hi there"), headers={"Accept": "application/json"})
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["result"]["structuredContent"]["text"] == "hi there "
    assert (await http.get("/mcp", headers={"Accept": "application/json"})).status_code == 405


@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
async def test_no_page_of_another_site_reaches_it(http: httpx2.AsyncClient, header: dict[str, str]) -> None:
    assert (await http.post("/mcp", json=request("tools/list"), headers=header)).status_code == 403


async def test_a_page_of_an_allowed_origin_may_ask(tmp_path: Path) -> None:
    origin = "https://app.example"
    async with (
        serving(tmp_path / "data", AGENTS, cors_origins=[origin]) as server,
        httpx2.AsyncClient(base_url=server.url, headers={"Origin": origin}) as http,
    ):
        wanted = "mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, last-event-id, authorization"
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
        assert (await http.options("/mcp", headers=asked)).status_code == 200
        hello = await http.post("/mcp", json=request("initialize", protocolVersion="2025-11-25"), headers=BOTH)
        assert "Mcp-Session-Id" in hello.headers["access-control-expose-headers"]


async def test_other_tools_are_told_of_on_the_stream_of_a_session(server: Server, http: httpx2.AsyncClient) -> None:
    async with streaming(http, None, {**OLD, "Mcp-Session-Id": "s"}) as events:
        server.exchange.replace([echo])
        assert (await events.next())[1] == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def test_a_stream_that_broke_off_goes_on_after_a_restart(tmp_path: Path) -> None:
    body = call("echo", "one two", id_="a", meta={"progressToken": "p"})
    async with (
        serving(tmp_path / "data", AGENTS) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        async with streaming(http, body, OLD) as events:
            first, nothing = await events.next()
        assert nothing == {}
        run = await run_in(server, State.COMPLETED)
    async with (
        serving(tmp_path / "data", AGENTS) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        async with streaming(http, None, {**OLD, "Last-Event-ID": first}) as events:
            assert await events.next() == (first, {})
            id_, told = await events.next()
            assert told["method"] == "notifications/progress"
            assert told["params"]["progressToken"] == "p"
            assert (await events.last())["result"]["structuredContent"]["taskId"] == run.id
        async with streaming(http, None, {**OLD, "Last-Event-ID": id_}) as events:
            again = await events.last()
            assert (again["id"], again["result"]["structuredContent"]["text"]) == ("a", "one two ")
        uri = again["result"]["structuredContent"]["artifacts"][0]["uri"]
        read = await http.post("/mcp", json=request("resources/read", uri=uri), headers=OLD)
        assert read.json()["result"]["contents"][0]["text"] == "one two "
        wrong = await http.get("/mcp", headers={**OLD, "Last-Event-ID": "nonsense"})
        assert wrong.json()["error"]["code"] == -32602


async def test_an_answered_question_is_shown_again_as_it_was_asked(server: Server, http: httpx2.AsyncClient) -> None:
    async with streaming(http, call("writer", "hi"), OLD) as events:
        first, _ = await events.next()
        task = (await events.last())["result"]["structuredContent"]["taskId"]
    async with streaming(http, call("writer", "Ann", id_=2, task=task), OLD) as events:
        second, _ = await events.next()
        await events.last()
    async with streaming(http, None, {**OLD, "Last-Event-ID": first}) as events:
        assert (await events.last())["result"]["structuredContent"]["question"] == "Which name?"
    async with streaming(http, None, {**OLD, "Last-Event-ID": second}) as events:
        assert len((await events.last())["result"]["content"]) == 2


async def test_to_hang_up_is_no_cancel_where_there_is_a_notification_for_it(
    server: Server, http: httpx2.AsyncClient
) -> None:
    mine = {**OLD, "Mcp-Session-Id": "mine"}
    async with streaming(http, call("sleeper", "zzz", id_=5), mine) as events:
        await events.next()
    run = await run_in(server, State.WORKING)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    for stranger in (OLD, {**OLD, "Mcp-Session-Id": "other"}, NEW):
        assert (await http.post("/mcp", json=cancel, headers=stranger)).status_code == 202
    assert (await server.exchange.commands.state(run.id)).cancel_requested is False
    # Nobody waits for it here any more, as on another replica.
    assert (await http.post("/mcp", json=cancel, headers=mine)).status_code == 202
    assert (await run_in(server, State.CANCELED)).id == run.id
    assert (await http.post("/mcp", json=cancel, headers=mine)).status_code == 202


async def test_a_canceled_call_is_answered_as_canceled(server: Server, http: httpx2.AsyncClient) -> None:
    mine = {**OLD, "Mcp-Session-Id": "mine"}
    async with streaming(http, call("sleeper", "zzz", id_="x", meta={"progressToken": 1}), mine) as events:
        await events.next()
        await events.next()
        cancel = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": "x", "reason": "bored"},
        }
        assert (await http.post("/mcp", json=cancel, headers=mine)).status_code == 202
        result = (await events.last())["result"]
    assert (result["isError"], result["structuredContent"]["state"]) == (True, "canceled")


async def test_to_hang_up_without_handshake_is_to_cancel_unless_there_is_a_key(
    server: Server, http: httpx2.AsyncClient
) -> None:
    body, headers = modern(call("sleeper", "zzz", meta={"progressToken": 1}))
    async with streaming(http, body, headers) as events:
        assert (await events.next())[0] == ""
    gone = await run_in(server, State.CANCELED)
    keyed = {**headers, "Idempotency-Key": "night"}
    async with streaming(http, body, keyed) as events:
        await events.next()
    run = await run_in(server, State.WORKING)
    assert run.id != gone.id
    async with streaming(http, {**body, "id": 2}, keyed) as events:
        await server.exchange.cancel(run.id, LOCAL)
        assert (await events.last())["result"]["structuredContent"]["taskId"] == run.id
    assert (await server.exchange.store.list_runs(Listing()))[1] == 2


async def test_a_server_that_stops_is_no_client_that_hangs_up(tmp_path: Path) -> None:
    body, headers = modern(call("sleeper", "zzz", meta={"progressToken": 1}))
    async with AsyncExitStack() as outliving:
        async with serving(tmp_path / "data", AGENTS) as server:
            http = await outliving.enter_async_context(httpx2.AsyncClient(base_url=server.url, timeout=30))
            events = await outliving.enter_async_context(streaming(http, body, headers))
            await events.next()
        with pytest.raises((EOFError, httpx2.TransportError)):
            await events.last()
    async with serving(tmp_path / "data", AGENTS) as server:
        assert (await run_in(server, State.WORKING)).cancel_requested is False


async def test_a_key_makes_a_call_repeatable(http: httpx2.AsyncClient) -> None:
    async def ask(message: str, id_: int, header: str = "", meta: str = "") -> dict[str, Any]:
        headers = {"Idempotency-Key": header} if header else {}
        body = call("echo", message, id_, {"parley/idempotencyKey": meta} if meta else None)
        return (await http.post("/mcp", json=body, headers=headers)).json()["result"]

    first = await ask("hi", 1, header="k")
    again = await ask("hi", 2, meta="k")
    assert again["structuredContent"] == first["structuredContent"]
    other = await ask("ho", 3, header="k")
    assert other["isError"]
    assert other["_meta"]["parley/code"] == "idempotency_key_reused"


@pytest.mark.slow
async def test_a_cancel_reaches_the_run_through_another_replica(tmp_path: Path, database: str) -> None:
    shared = {"store": "postgres", "postgres_url": database}
    async with (
        serving(tmp_path / "a", AGENTS, **shared) as a,
        serving(tmp_path / "b", AGENTS, **shared) as b,
        httpx2.AsyncClient(base_url=a.url, timeout=30) as at_a,
        httpx2.AsyncClient(base_url=b.url, timeout=30) as at_b,
    ):
        mine = {**OLD, "Mcp-Session-Id": "mine"}
        async with streaming(at_a, call("sleeper", "zzz", id_=5), mine) as events:
            first, _ = await events.next()
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
            async with streaming(at_b, None, {**mine, "Last-Event-ID": first}) as elsewhere:
                assert (await at_b.post("/mcp", json=cancel, headers=mine)).status_code == 202
                for stream in (events, elsewhere):
                    assert (await stream.last())["result"]["structuredContent"]["state"] == "canceled"
