"""Requests that the proxy refuses, and its errors."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from parley.security.keys import ApiKeys
from parley.stores.records import SqliteRecords
from parley.stores.sqlite import FILE
from parley.testing.processes import until
from parley.testing.servers import Server, serving
from tests.faces.registry.fleet import Fleet, Node
from tests.faces.registry.targets import Gate, asked, at, call, message

HELLO = asked("message/send", message=message("hello"))


async def refused(at_: Fleet | Node, target: Node, **headers: str) -> tuple[int, str]:
    reply = await call(at_, target, HELLO, **headers)
    return reply.status_code, reply.json()["error"]


async def test_only_those_who_may_talk_to_a_node_reach_it(small: Fleet, target: Server) -> None:
    boss = await small.online("Boss")
    echo = await at(small, target, "echo", parent=boss)
    other = await small.online("Other")
    below = await small.online("Below", other)
    assert (await call(boss, echo, HELLO)).status_code == 200
    denied = "access denied: workspaces cannot communicate per hierarchy rules"
    for node in (other, below):
        assert await refused(node, echo) == (403, denied)
    below.token = "wrong"
    assert await refused(below, echo) == (401, "invalid workspace auth token")
    below.token = ""
    assert await refused(below, echo) == (401, "missing workspace auth token")
    for name in ("webhook:x", "system:cron", "test:1", "channel:slack"):
        assert await refused(small, echo, **{"X-Workspace-ID": name}) == (403, "invalid caller ID")
    assert await refused(small, echo, **{"X-Workspace-ID": "nobody"}) == (400, "invalid workspace id")


async def test_a_task_belongs_to_the_node_that_began_it(small: Fleet, target: Server) -> None:
    echo, one, two = await at(small, target, "count"), await small.online("One"), await small.online("Two")
    body = asked("message/send", message=message("go"), configuration={"blocking": False})
    task = (await call(one, echo, body)).json()["result"]["id"]
    assert (await call(two, echo, asked("tasks/get", id=task))).json()["error"]["code"] == -32001
    assert (await call(one, echo, asked("tasks/get", id=task))).json()["result"]["id"] == task


async def test_a_node_that_cannot_be_called_says_why(small: Fleet, target: Server) -> None:
    gone = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"
    reply = await small.ask("POST", f"/workspaces/{gone}/a2a", HELLO)
    assert (reply.status_code, reply.json()["error"]) == (404, "workspace not found")
    assert (await small.ask("POST", "/workspaces/nobody/a2a", HELLO)).json() == {"error": "invalid workspace id"}
    assert await refused(small, await small.create("New")) == (503, "workspace has no URL")

    node = await at(small, target, "echo")
    await small.ask("PATCH", f"/workspaces/{node.id}", {"status": "hibernated"})
    reply = await call(small, node, HELLO)
    assert (reply.status_code, reply.headers["retry-after"], reply.json()["waking"]) == (503, "15", True)
    await small.ask("PATCH", f"/workspaces/{node.id}", {"status": "provisioning"})
    reply = await call(small, node, HELLO)
    assert (reply.status_code, reply.json()["restarting"]) == (503, True)
    assert int(reply.headers["retry-after"]) > 0
    await small.ask("PATCH", f"/workspaces/{node.id}", {"status": "paused"})
    reply = await call(small, node, HELLO)
    assert (reply.status_code, reply.json()) == (503, {"error": "workspace not available", "status": "paused"})

    poor = await at(small, target, "echo", budget_limit=100)
    await poor.beat(monthly_spend=100)
    assert await refused(small, poor) == (402, "workspace budget limit exceeded")
    await small.ask("DELETE", f"/workspaces/{poor.id}")
    assert (await call(small, poor, HELLO)).status_code == 404


async def test_what_is_not_json_is_refused(small: Fleet, target: Server) -> None:
    node = await at(small, target, "echo")
    url = f"{small.at}/workspaces/{node.id}/a2a"
    for body in (b"{", b"[]", b"\xff"):
        reply = await small.http.post(url, content=body)
        assert reply.status_code == 400, body
        assert reply.json()["error"]
    large = await small.http.post(url, content=b'"%b"' % (b"x" * 1_100_000))
    assert large.status_code == 413
    reply = await call(small, node, asked("message/unknown"))
    assert reply.json()["error"]["code"] == -32601


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("method", ["message/send", "message/stream"])
async def test_a_node_that_is_not_there_is_told_from_one_that_fails(small: Fleet, method: str) -> None:
    node = await small.create("Gone")
    await node.register(f"http://127.0.0.1:{closed_port()}")
    reply = await call(small, node, asked(method, message=message("hello")))
    assert (reply.status_code, reply.json()["error"]) == (502, "failed to reach workspace agent")
    task = (await call(small, node, asked("tasks/get", id=reply.json()["task_id"]))).json()["result"]
    assert (task["status"]["state"], task["status"]["message"]["metadata"]["code"]) == ("failed", "remote_unreachable")


async def test_an_address_that_is_not_public_is_not_called(
    tmp_path: Path, http: httpx2.AsyncClient, target: Server
) -> None:
    data = tmp_path / "data"
    async with serving(data, []) as server:
        node = await at(Fleet(http, server.url), target, "echo")
        records = SqliteRecords(data / FILE)
        _, key = await ApiKeys(records).create("user", ["send"])
        await records.close()
    async with serving(data, [], auth="required") as server:
        fleet = Fleet(http, server.url, key)
        assert await refused(fleet, node) == (502, "workspace URL is not publicly routable")
        assert (await call(Fleet(http, server.url), node, HELLO)).status_code == 401


async def test_a_reply_that_is_too_large_is_cut_off(tmp_path: Path, http: httpx2.AsyncClient, target: Server) -> None:
    async with serving(tmp_path / "data", [], store="memory", proxy_max_response_bytes=100_000) as server:
        fleet = Fleet(http, server.url)
        node = await at(fleet, target, "large")
        reply = await call(fleet, node, HELLO)
        task = reply.json()["result"]
        assert task["status"]["message"]["metadata"]["code"] == "remote_too_large"
        async with mute(fleet, b"x" * 200_000) as other:
            reply = await call(fleet, other, HELLO)
        assert (reply.status_code, reply.json()["error"]) == (502, "workspace response is too large")


@asynccontextmanager
async def mute(fleet: Fleet, answer: bytes | None = None) -> AsyncIterator[Node]:
    """A node that takes every request, and says nothing, or these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"GET" in head:
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        elif answer is not None:
            about = b"content-type: application/json\r\nconnection: close\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (about, len(answer), answer))
        else:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    node = await fleet.create("Mute")
    await node.register(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server:
        yield node


async def test_a_node_that_says_nothing_in_time_is_given_up(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async with serving(tmp_path / "data", [], store="memory", proxy_timeout_s=0.5) as server:
        fleet = Fleet(http, server.url)
        async with mute(fleet) as node:
            reply = await call(fleet, node, HELLO)
        assert (reply.status_code, reply.json()["error"]) == (504, "workspace agent did not answer")


async def test_who_takes_longer_than_anybody_waits_is_answered_with_the_task_as_it_is(
    tmp_path: Path, http: httpx2.AsyncClient, target: Server, gate: Gate
) -> None:
    async with serving(tmp_path / "data", [], store="memory", proxy_timeout_s=0.5) as server:
        fleet = Fleet(http, server.url)
        node = await at(fleet, target, "holder")
        task = (await call(fleet, node, HELLO)).json()["result"]
        assert task["status"]["state"] == "working"
        assert gate.begun == ["hello"]
        gate.open.set()


async def test_a_caller_that_goes_away_stops_nothing(small: Fleet, target: Server, gate: Gate) -> None:
    node = await at(small, target, "holder")
    calling = asyncio.ensure_future(small.http.post(f"{small.at}/workspaces/{node.id}/a2a", json=HELLO))
    await until(lambda: gate.begun == ["hello"])
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    gate.open.set()
    await until(lambda: target.exchange.execution.busy["holder"] == 0)
    assert gate.stopped == []


async def test_a_silent_node_gets_504_also_when_the_caller_has_waited_for_long(
    tmp_path: Path, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.http.sse.KEEP_ALIVE_S", 0.01)
    async with serving(tmp_path / "data", [], store="memory", proxy_timeout_s=0.5) as server:
        fleet = Fleet(http, server.url)
        async with mute(fleet) as node:
            reply = await call(fleet, node, HELLO)
    assert (reply.status_code, reply.json()["error"]) == (504, "workspace agent did not answer")


async def test_a_long_call_is_kept_alive_once_the_node_has_taken_it(
    small: Fleet, target: Server, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.http.sse.KEEP_ALIVE_S", 0.01)
    monkeypatch.setattr("parley.faces.registry.proxy.KEEP_ALIVE_S", 0.01)
    node = await at(small, target, "holder")
    async with small.http.stream("POST", f"{small.at}/workspaces/{node.id}/a2a", json=HELLO) as reply:
        pieces = reply.aiter_bytes()
        assert (await anext(pieces)).strip() == b""
        gate.open.set()
        rest = b"".join([piece async for piece in pieces])
    assert json.loads(rest)["result"]["status"]["state"] == "completed"


@pytest.mark.parametrize("method", ["message/send", "message/stream"])
async def test_a_node_that_drops_the_connection_gets_502(small: Fleet, method: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"GET" in await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    node = await small.create("Dropping")
    await node.register(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server:
        reply = await call(small, node, asked(method, message=message("hello")))
    assert (reply.status_code, reply.json()["error"]) == (502, "workspace agent closed the connection")
