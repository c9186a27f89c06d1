"""The trace of a request over the wire: told back in every answer, and with the work wherever that goes."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc

from parley import ArtifactChunk, Turn, agent
from parley.client import Client, message
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.remote import RemoteDriver, RemoteOptions, blank_remote
from parley.telemetry import attach
from parley.telemetry.trace import current, headers_for
from parley.testing.processes import ServerProcess, until
from parley.testing.receivers import receiving
from parley.testing.servers import Server, serving
from tests.faces.conftest import echo, writer

Json = dict[str, Any]

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SENT = {"traceparent": PARENT, "tracestate": "congo=t61rcWkgMzE,rojo=1", "x-request-id": "req-42"}


@agent("tracer")
async def tracer(turn: Turn):
    """Says which trace it is part of."""
    yield ArtifactChunk({"turn": headers_for(turn.trace), "here": headers_for(current())}, id="trace")


@agent("blocking")
def blocking(turn: Turn) -> dict[str, str]:
    """The same, from a thread."""
    return headers_for(current())


@agent("asker")
async def asker(turn: Turn):
    """Lets another say it."""
    answer = await turn.ask("tracer", turn.text)
    yield ArtifactChunk(answer.artifacts[0].parts[0], id="trace")


@agent("narrow", max_concurrent=1)
async def narrow(turn: Turn):
    """One at a time: the rest wait until the server was started anew."""
    if turn.text == "block" and turn.epoch == 1:
        await asyncio.Event().wait()
    yield ArtifactChunk({"turn": headers_for(turn.trace)}, id="trace")


AGENTS = (tracer, blocking, asker, narrow, echo, writer)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", AGENTS, grpc_port=0) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as made:
        yield made


def rpc(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def post(
    http: httpx2.AsyncClient, url: str, method: str = "SendMessage", params: Json | None = None, **headers: str
) -> httpx2.Response:
    body = rpc(method, params or {"message": message("hi")})
    return await http.post(url, json=body, headers={"A2A-Version": "1.0", **_dashed(headers)})


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def made(reply: httpx2.Response) -> Json:
    return reply.json()["result"]["task"]["artifacts"][0]["parts"][0]["data"]


def echoed(reply: httpx2.Response) -> dict[str, str]:
    return {name: reply.headers[name] for name in SENT if name in reply.headers}


async def sent(client: httpx2.AsyncClient, server: Server, slug: str, **more: Any) -> Json:
    return made(await post(client, server.agent(slug), **SENT, **more))


async def test_an_answer_tells_back_what_was_sent(server: Server, http: httpx2.AsyncClient) -> None:
    assert echoed(await post(http, server.agent("echo"), **SENT)) == SENT


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/agents/nobody"), ("GET", "/nowhere"), ("GET", "/agents/echo/tasks/x"), ("PUT", "/healthz"),
     ("GET", "/agents/echo/.well-known/agent-card.json"), ("GET", "/readyz")],
)  # fmt: skip
async def test_so_does_every_other_answer(server: Server, http: httpx2.AsyncClient, method: str, path: str) -> None:
    assert echoed(await http.request(method, server.url + path, headers=SENT)) == SENT


async def test_so_does_a_refusal(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async with serving(tmp_path / "data", AGENTS, auth="required") as server:
        reply = await post(http, server.agent("echo"), **SENT)
    assert (reply.status_code, echoed(reply)) == (401, SENT)


async def test_so_does_a_stream(server: Server, http: httpx2.AsyncClient) -> None:
    body = rpc("SendStreamingMessage", {"message": message("hi")})
    headers = {"A2A-Version": "1.0", **SENT}
    async with http.stream("POST", server.agent("echo"), json=body, headers=headers) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert echoed(reply) == SENT
        assert "TASK_STATE_COMPLETED" in (await reply.aread()).decode()


async def test_so_does_a_defect(server: Server, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server.exchange.store, "head", broken)
    reply = await post(http, server.agent("echo"), "GetTask", {"id": "x"}, **SENT)
    assert (reply.status_code, echoed(reply)) == (500, SENT)


async def test_a_page_of_another_origin_may_send_and_read_it(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    page = {"origin": "https://app.example"}
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "traceparent,x-request-id"}
    async with serving(tmp_path / "data", AGENTS, cors_origins=["https://app.example"]) as server:
        allowed = await http.options(server.agent("echo"), headers={**page, **asks})
        reply = await post(http, server.agent("echo"), **page, **SENT)
    assert "traceparent" in allowed.headers["access-control-allow-headers"]
    assert "X-Request-ID" in reply.headers["access-control-expose-headers"]


async def test_a_request_without_an_id_gets_one(server: Server, http: httpx2.AsyncClient) -> None:
    first, second = [await post(http, server.agent("tracer")) for _ in range(2)]
    ids = {first.headers["x-request-id"], second.headers["x-request-id"]}
    assert len(ids) == 2
    assert all(len(id_) == 32 for id_ in ids)
    assert "traceparent" not in first.headers
    assert made(first) == {"turn": {}, "here": {}}


async def test_a_trace_without_an_id_gets_one_that_goes_with_it(server: Server, http: httpx2.AsyncClient) -> None:
    reply = await post(http, server.agent("tracer"), traceparent=PARENT)
    assert made(reply)["turn"] == {"traceparent": PARENT, "x-request-id": reply.headers["x-request-id"]}


async def test_what_is_invalid_is_not_told_back(server: Server, http: httpx2.AsyncClient) -> None:
    reply = await post(http, server.agent("tracer"), traceparent="00-x-y-z", tracestate="a=1", x_request_id="a b")
    assert "traceparent" not in reply.headers
    assert "tracestate" not in reply.headers
    assert reply.headers["x-request-id"] != "a b"
    assert made(reply)["turn"] == {}


async def test_two_traceparents_are_none_and_tracestates_are_one_list(server: Server, http: httpx2.AsyncClient) -> None:
    body = rpc("SendMessage", {"message": message("hi")})
    plain = [("A2A-Version", "1.0"), ("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]
    one = await http.post(server.agent("echo"), json=body, headers=plain)
    two = await http.post(server.agent("echo"), json=body, headers=[*plain, ("traceparent", PARENT)])
    assert one.headers["tracestate"] == "a=1,b=2"
    assert "traceparent" not in two.headers


async def test_the_turn_is_part_of_the_trace(server: Server, http: httpx2.AsyncClient) -> None:
    assert await sent(http, server, "tracer") == {"turn": SENT, "here": SENT}
    assert await sent(http, server, "blocking") == SENT


async def test_a_child_is_part_of_it_too(server: Server, http: httpx2.AsyncClient) -> None:
    assert await sent(http, server, "asker") == {"turn": SENT, "here": SENT}


async def test_one_request_does_not_inherit_from_another(server: Server, http: httpx2.AsyncClient) -> None:
    await sent(http, server, "tracer")
    assert made(await post(http, server.agent("tracer")))["turn"] == {}


async def test_a_fork_is_part_of_the_trace_it_was_asked_for_in(server: Server, http: httpx2.AsyncClient) -> None:
    task = (await post(http, server.agent("tracer"), **SENT)).json()["result"]["task"]["id"]
    other = {"x-request-id": "the-fork", "A2A-Version": "1.0"}
    fork = await http.post(f"{server.agent('tracer')}/tasks/{task}:fork", json={"at": 2}, headers=other)
    assert fork.headers["x-request-id"] == "the-fork"
    async with Client(server.agent("tracer")) as client:
        done = [frame async for _, frame in client.tail(fork.json()["id"], 0)]
    (chunk,) = [frame["artifactUpdate"]["artifact"] for frame in done if "artifactUpdate" in frame]
    assert chunk["parts"][0]["data"]["turn"] == {"x-request-id": "the-fork"}


async def queued(http: httpx2.AsyncClient, server: Server) -> str:
    """A task that waits behind another."""
    at_once = {"configuration": {"returnImmediately": True}}
    await post(http, server.agent("narrow"), params={"message": message("block"), **at_once})
    waiting = await post(http, server.agent("narrow"), params={"message": message("hi"), **at_once}, **SENT)
    task = waiting.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    await until(lambda: server.exchange.execution.busy["narrow"] == 1)
    return task["id"]


async def trace_in(server: Server, task: str) -> Json:
    async with Client(server.agent("narrow")) as client:
        await until(lambda: _is_completed(client, task))
        return (await client.get(task))["artifacts"][0]["parts"][0]["data"]["turn"]


async def test_what_waits_in_a_queue_keeps_its_trace_through_a_restart(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    async with serving(tmp_path / "data", AGENTS, cancel_grace_s=0.1) as server:
        task = await queued(http, server)
    async with serving(tmp_path / "data", AGENTS) as server:
        assert await trace_in(server, task) == SENT


async def test_what_waits_in_a_queue_keeps_its_trace_on_another_replica(
    tmp_path: Path, http: httpx2.AsyncClient, database: str
) -> None:
    shared = {"store": "postgres", "postgres_url": database, "blobs": str(tmp_path / "blobs"), "cancel_grace_s": 0.1}
    async with serving(tmp_path / "two", AGENTS, **shared) as survivor:
        async with serving(tmp_path / "one", AGENTS, **shared) as server:
            task = await queued(http, server)
        assert await trace_in(survivor, task) == SENT


async def _is_completed(client: Client, task: str) -> bool:
    return (await client.get(task))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_updates_carry_the_trace_to_their_receiver(server: Server, http: httpx2.AsyncClient) -> None:
    async with receiving() as receiver:
        configuration = {"taskPushNotificationConfig": {"url": receiver.url()}}
        await post(
            http, server.agent("echo"), params={"message": message("hi"), "configuration": configuration}, **SENT
        )
        await until(lambda: any(b"COMPLETED" in one.body for one in receiver.posts))
    assert all({name: one.headers.get(name) for name in SENT} == SENT for one in receiver.posts)


PROGRAM = """
import json, os
print(json.dumps({name: os.environ.get(name) for name in ("TRACEPARENT", "TRACESTATE", "REQUEST_ID")}))
"""


async def test_a_program_finds_the_trace_in_its_environment(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    (tmp_path / "prog.py").write_text(PROGRAM)
    (tmp_path / "prog.yaml").write_text(json.dumps({"command": {"run": [sys.executable, "prog.py"]}}))
    reading = LoadedDefinitions(Sources((str(tmp_path / "prog.yaml"),)))
    reading.check()
    async with serving(tmp_path / "data", reading.drivers) as server:
        traced, plain = [await post(http, server.agent("prog"), **headers) for headers in (SENT, dict[str, str]())]
    assert _printed(traced) == dict(zip(("TRACEPARENT", "TRACESTATE", "REQUEST_ID"), SENT.values(), strict=True))
    assert set(_printed(plain).values()) == {None}


def _printed(reply: httpx2.Response) -> Json:
    return json.loads(reply.json()["result"]["task"]["artifacts"][0]["parts"][0]["text"])


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_remote_agent_is_part_of_the_trace(
    tmp_path: Path, server: Server, http: httpx2.AsyncClient, binding: str, version: str
) -> None:
    options = RemoteOptions(server.agent("tracer"), bindings=(binding,), version=version)
    front = RemoteDriver(blank_remote("front"), options)
    async with serving(tmp_path / "front", [front]) as before:
        assert await sent(http, before, "front") == {"turn": SENT, "here": SENT}


async def test_a_call_by_grpc_is_part_of_a_trace_too(server: Server, http: httpx2.AsyncClient) -> None:
    card = (await http.get(server.agent("tracer") + "/.well-known/agent-card.json")).json()
    address = next(one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
    words = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])
    request = pb.SendMessageRequest(tenant="tracer", message=words)
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        version = (("a2a-version", "1.0"),)
        call = stub.SendMessage(request, metadata=(*version, *SENT.items()))
        reply = await call
        assert dict(await call.initial_metadata()) == SENT
        stream = stub.SendStreamingMessage(request, metadata=(*version, *SENT.items()))
        assert dict(await stream.initial_metadata()) == SENT
        assert [frame async for frame in stream]
        refused = stub.GetTask(pb.GetTaskRequest(tenant="tracer", id="x"), metadata=(*version, *SENT.items()))
        assert dict(await refused.initial_metadata()) == SENT
        plain = stub.SendMessage(request, metadata=version)
        assert "x-request-id" not in dict(await plain.initial_metadata())
    assert dict(reply.task.artifacts[0].parts[0].data.struct_value["turn"]) == SENT


async def test_whatever_is_told_of_a_request_can_be_found_by_its_id(server: Server, http: httpx2.AsyncClient) -> None:
    told: list[str] = []
    detach = attach(lambda name, _: told.append(f"{name} {current().request_id}"))
    try:
        await http.get(server.url, headers={"x-api-key": "wrong", "x-request-id": "find-me"})
    finally:
        detach()
    assert told == ["auth.refused find-me"]


@pytest.mark.slow
async def test_a_turn_that_is_taken_up_after_a_crash_keeps_its_trace(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    agents = Path(__file__).parent / "tracing_agents.py"
    server = await ServerProcess.start([agents], tmp_path / "data")
    params = {"message": message("hi"), "configuration": {"returnImmediately": True}}
    reply = await post(http, f"{server.url}/agents/patient", params=params, **SENT)
    task = reply.json()["result"]["task"]["id"]
    async with Client(f"{server.url}/agents/patient") as client:
        await until(lambda: _has_begun(client, task))
    await server.kill()
    server = await ServerProcess.start([agents], tmp_path / "data")
    async with Client(f"{server.url}/agents/patient") as client:
        await until(lambda: _is_completed(client, task))
        done = await client.get(task)
    assert await server.stop() == 0
    assert done["artifacts"][0]["parts"][0]["data"] == SENT


async def _has_begun(client: Client, task: str) -> bool:
    return "message" in (await client.get(task))["status"]
