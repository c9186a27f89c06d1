"""Too much was asked for, or the server is about to stop: what each face says, and that reads go on."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
import pytest_asyncio

from parley import Text, Turn, agent
from parley.testing.servers import Server, serving
from tests.faces.a2a.test_grpc import Stubs, address_of, ask, reason
from tests.faces.actions.desk import Desk
from tests.faces.control.wire import THREAD
from tests.faces.control.wire import Wire as RuntimeWire
from tests.faces.mcp.wire import OLD, call, modern
from tests.faces.wires import WIRES, Wire

pytestmark = pytest.mark.asyncio(loop_scope="module")


@agent("echo", max_per_second=0.01, max_burst=1)
async def echo(turn: Turn):
    """Is asked once, and then for a long time not again."""
    yield Text(turn.text)


@agent("free")
async def free(turn: Turn):
    """May always be asked."""
    yield Text(turn.text)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with serving(tmp_path_factory.mktemp("overload"), [echo, free], grpc_port=0) as running:
        async with httpx2.AsyncClient(base_url=running.url) as http:
            assert (await WIRES[0].ask(http, "send")).status_code == 200
        yield running


@pytest_asyncio.fixture(loop_scope="module", params=["asked too much", "stopping"])
async def refusing(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Server, bool]]:
    """A server that takes nothing, and whether it is for good."""
    server.exchange.admission.stopping = request.param == "stopping"
    yield server, request.param == "stopping"
    server.exchange.admission.stopping = False


def waits(reply: httpx2.Response, *, stopping: bool) -> bool:
    return 0 < int(reply.headers["Retry-After"]) <= (1 if stopping else 100)


def info_of(error: dict[str, Any]) -> str:
    return (error.get("data") or error.get("details"))[0]["reason"]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("operation", ["send", "stream"])
async def test_a2a(refusing: tuple[Server, bool], wire: Wire, operation: str) -> None:
    server, stopping = refusing
    async with httpx2.AsyncClient(base_url=server.url) as http:
        refused = await wire.ask(http, operation)
        listed = await WIRES[0].ask(http, "list")
    streamed = refused.headers["content-type"].startswith("text/event-stream")
    if streamed:
        # A client of 0.3 reads nothing but events.
        assert wire.name == "JSON-RPC 0.3"
        error = httpx2.Response(200, content=refused.text.removeprefix("data: ")).json()["error"]
    else:
        assert refused.status_code == (503 if stopping else 429)
        assert waits(refused, stopping=stopping)
        error = refused.json()["error"]
    assert info_of(error) == ("STOPPING" if stopping else "RATE_LIMITED")
    if wire.name.startswith("JSON-RPC"):
        assert error["code"] == (-32603 if stopping else -31429)
    assert listed.json()["result"]["totalSize"] == 1


async def test_grpc(refusing: tuple[Server, bool]) -> None:
    server, stopping = refusing
    stubs = Stubs(server, await address_of(server))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stubs.new.SendMessage(ask("hello"))
    await stubs.channel.close()
    said = ("UNAVAILABLE", "STOPPING") if stopping else ("RESOURCE_EXHAUSTED", "RATE_LIMITED")
    assert reason(refused.value) == said
    assert int(dict(refused.value.trailing_metadata() or ())["retry-after"]) > 0


async def test_modes(refusing: tuple[Server, bool]) -> None:
    server, stopping = refusing
    async with httpx2.AsyncClient(base_url=server.url) as http:
        desk = await Desk.open(http)
        conversation = await desk.begin("echo")
        refused = await desk.ask(conversation, "plan", "create", "echo", message="a plan")
        read = await desk.ask(conversation, "plan", "read", "echo")
    assert refused.refusal == ((503, "UNAVAILABLE") if stopping else (429, "RATE_LIMITED"))
    assert waits(refused.reply, stopping=stopping)
    assert read.status == 200


async def test_the_runtime_contract(refusing: tuple[Server, bool]) -> None:
    server, stopping = refusing
    async with RuntimeWire(server.url) as wire:
        refused = await wire.send("POST", "/runs", {"thread_id": THREAD, "agent": "echo"})
    assert refused.status_code == (503 if stopping else 429)
    assert refused.json()["error"]["code"] == ("internal_error" if stopping else "rate_limited")
    assert waits(refused, stopping=stopping)


@pytest.mark.parametrize("generation", ["old", "modern"])
async def test_mcp(refusing: tuple[Server, bool], generation: str) -> None:
    server, stopping = refusing
    body, headers = (call("echo", "hello"), OLD) if generation == "old" else modern(call("echo", "hello"))
    async with httpx2.AsyncClient(base_url=server.url) as http:
        refused = await http.post("/mcp", json=body, headers=headers)
    assert refused.status_code == (503 if stopping else 429)
    assert refused.json()["error"]["code"] == (-32603 if stopping else -31429)
    assert refused.json()["error"]["data"]["reason"] == ("stopping" if stopping else "rate_limited")
    assert waits(refused, stopping=stopping)


async def test_one_agents_limit_is_none_of_anothers(server: Server) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as http:
        assert (await Wire("JSON-RPC 1.0", "/agents/free").ask(http, "send")).status_code == 200


async def test_unfinished_tasks_are_counted_over_the_wire(tmp_path: Path) -> None:
    from tests.faces.conftest import writer

    async with (
        serving(tmp_path / "data", [writer], max_unfinished=1) as server,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        wire = Wire("JSON-RPC 1.0", "/agents/writer")
        waiting = wire.result(await wire.ask(http, "send"))["task"]["id"]
        refused = await wire.ask(http, "send", id_="m-2")
        assert (refused.status_code, info_of(refused.json()["error"])) == (429, "TOO_MANY_UNFINISHED")
        assert (await wire.ask(http, "send", waiting, id_="m-3")).status_code == 200
        assert (await wire.ask(http, "send", id_="m-4")).status_code == 200


async def test_a_stream_over_grpc_is_told_that_the_server_goes(tmp_path: Path) -> None:
    from tests.faces.conftest import sleeper

    async with serving(tmp_path / "data", [free, sleeper, echo], grpc_port=0) as server:
        stubs = Stubs(server, await address_of(server))
        stream = stubs.new.SendStreamingMessage(ask("zzz", "sleeper"))
        server.exchange.streams.stop()
        with pytest.raises(grpc.aio.AioRpcError) as gone:
            _ = [frame async for frame in stream]
        await stubs.channel.close()
    assert reason(gone.value) == ("UNAVAILABLE", "STOPPING")
