"""Executions: one for each call, kept, found again, and in the log of a run."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from parley import NeedInput, Turn
from parley.app import open_exchange, open_records
from parley.documents.conversations import Conversations
from parley.documents.export import RENDERERS
from parley.documents.export.renderer import ExportWriter
from parley.documents.service import DocumentRequest, Documents
from parley.drivers.function import FunctionDriver
from parley.errors import AgentNotFound, ConversationMismatch, Invalid, KeyReused, ToolNotFound
from parley.ids import RunId
from parley.json_values import stable_hash
from parley.runs.log import verify_run
from parley.runs.requests import Opening
from parley.runs.rules.access import Principal
from parley.runs.rules.state import State
from parley.runs.streams import read_all
from parley.settings import Settings
from parley.stores.blobs import open_blobs
from parley.testing.processes import until
from parley.tools.executions import ToolExecutions
from parley.tools.mcp_calls import ToolCall, ToolCallRecord, ToolCalls
from tests.tools.conftest import Clock, settings_for
from tests.tools.mcp.conftest import agent_with, new_host, server

ANN, BOB = Principal("user", "ann"), Principal("user", "bob")


async def idle(turn: Turn) -> Any:
    yield NeedInput("More?")


class World:
    def __init__(self, settings: Settings, path: Path, stack: AsyncExitStack) -> None:
        self.settings, self.calls, self._stack = settings, path / "calls", stack
        self.agent = agent_with(server(env={"CALLS": str(self.calls)}), server("never", "never", start_timeout_s=0.3))

    async def open(self) -> "World":
        driver = FunctionDriver(self.agent, idle)
        self.exchange = await self._stack.enter_async_context(open_exchange(self.settings, [driver]))
        assert isinstance(self.exchange.execution.toolcalls, ToolCalls)
        self.tools = self.exchange.execution.toolcalls
        return self

    async def execute(self, tool: str = "s/echo", given: dict[str, Any] | None = None, **more: Any) -> ToolCallRecord:
        fields = {"principal": ANN, "conversation": "c1", "agent": "a", "tool": tool, "input": given or {}, **more}
        return await self.tools.execute(ToolCall(**fields))

    async def log(self, run: str) -> list[Any]:
        return [event.payload for event in await read_all(self.exchange.store, RunId(run))]

    @property
    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield await World(await settings_for(request.param, request, tmp_path), tmp_path, stack).open()


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield await World(Settings(store="memory", data_dir=tmp_path), tmp_path, stack).open()


async def test_an_execution_is_told_read_and_listed(world: World) -> None:
    made = await world.execute(given={"rows": [1, 2], "api_key": "hush"})
    assert (made.tool, made.server, made.status, made.code) == ("echo", "s", "completed", "")
    assert made.output == {"rows": [1, 2], "api_key": "[REDACTED]"}
    assert made.input == {"rows": [1, 2], "api_key": "[REDACTED]"}
    assert made.metadata == {"mcpServer": "s", "rowsReturned": 2}
    assert made.execution_time_ms >= 0
    assert await world.tools.read(ANN, "c1", made.id) == made
    failed = await world.execute("s/refuse", {"why": "Bearer abcdefghijk"})
    assert (failed.status, failed.code, failed.message) == ("failed", "tool_error", "I will not: [REDACTED]")
    assert await world.tools.list(ANN, "c1") == ([failed, made], 2)
    assert await world.tools.list(ANN, "c1", limit=1, offset=1) == ([made], 2)
    assert await world.tools.list(ANN, "c1", "echo") == await world.tools.list(ANN, "c1", "s/echo") == ([made], 1)
    for principal, conversation in ((BOB, "c1"), (ANN, "c2")):
        assert await world.tools.read(principal, conversation, made.id) is None
        assert await world.tools.list(principal, conversation) == ([], 0)
    assert await world.tools.forget(ANN, "c1") == 2
    assert await world.tools.list(ANN, "c1") == ([], 0)


async def test_what_tools_did_in_a_conversation_is_forgotten_with_it(world: World) -> None:
    made = await world.execute(given={"n": 1})
    elsewhere = await world.execute(given={"n": 2}, conversation="c2")
    conversations = Conversations(
        world.exchange, Documents(world.exchange), ExportWriter(RENDERERS, open_blobs("memory:")), patience_s=1.0
    )
    await conversations.begin(ANN, "a", "c1")
    await conversations.delete(DocumentRequest(ANN, "c1", "a", "converse", "delete_conversation"), documents=True)
    assert await world.tools.read(ANN, "c1", made.id) is None
    assert await world.tools.list(ANN, "c1") == ([], 0)
    assert await world.tools.list(ANN, "c2") == ([elsewhere], 1)
    assert await read_all(world.exchange.store, RunId(made.run)) == []


async def test_an_execution_is_a_run_whose_log_holds_the_call_and_its_result(world: World) -> None:
    made = await world.execute(given={"n": 1, "token": "hush"})
    assert made.run == made.id
    run = await world.exchange.visible(made.run, ANN)
    assert (run.state, run.conversation, run.agent) == (State.COMPLETED, "c1", "a")
    _, called, returned, *_ = await world.log(made.run)
    assert (called.call, called.tool, json.loads(bytes(called.input))) == (
        made.id,
        "s/echo",
        {"n": 1, "token": "[REDACTED]"},
    )
    assert (returned.call, returned.status) == (made.id, "succeeded")
    await verify_run(world.exchange.store, made.run)
    failed = await world.execute("s/refuse")
    assert (await world.exchange.visible(failed.run, ANN)).state is State.FAILED


async def test_the_receipt_is_that_of_the_runtime_contract(small: World) -> None:
    receipt: Any = (await small.execute(given={"n": 1})).receipt
    assert receipt["receipt_id"] == f"mcp_{receipt['replay_hash'][:24]}"
    payload = {name: value for name, value in receipt.items() if name not in ("receipt_id", "replay_hash")}
    assert stable_hash(payload) == receipt["replay_hash"]
    assert (receipt["operation"], receipt["state"], receipt["decision"]) == ("s/echo", "succeeded", "allowed")
    shown = {"output": {"n": 1}, "provider": "mcp", "operation": "s/echo", "state": "succeeded"}
    assert receipt["result_hash"] == stable_hash(shown)  # type: ignore[arg-type]


async def test_the_same_key_is_the_same_call(world: World) -> None:
    together = await asyncio.gather(*(world.execute(given={"n": 1}, key="k") for _ in range(5)))
    assert len({one.id for one in together}) == 1
    assert (await world.execute(given={"n": 1}, key="k")) == together[0]
    assert world.called == ['echo {"n": 1}']
    with pytest.raises(KeyReused):
        await world.execute(given={"n": 2}, key="k")
    others = [await world.execute(given={"n": 1}, key="k", **more) for more in ({"conversation": "c2"},)]
    assert together[0].id not in [one.id for one in others]


async def test_a_call_of_a_run_is_an_entry_of_its_log(world: World) -> None:
    run = (await world.exchange.open(Opening("a", ANN, "c1"))).run
    made = await world.execute(run=run.id)
    assert made.run == run.id
    assert [type(entry).__name__ for entry in await world.log(run.id)][-2:] == ["ToolCalled", "ToolReturned"]
    assert (await world.exchange.visible(run.id, ANN)).state is State.INPUT_REQUIRED


async def test_a_cancel_of_its_run_breaks_a_call_off(world: World) -> None:
    run = (await world.exchange.open(Opening("a", ANN, "c1"))).run
    under_way = asyncio.create_task(world.execute("s/hang", run=run.id))
    await until(lambda: world.called == ["hang {}"])
    await world.exchange.cancel(run.id, ANN)
    assert (await under_way).code == "tool_canceled"
    assert (await world.execute(run=run.id)).code == "tool_blocked"


async def test_a_timeout_ends_the_call_and_says_so(small: World) -> None:
    await small.execute()
    made = await small.execute("s/hang", timeout_ms=200)
    assert (made.status, made.code) == ("failed", "tool_timeout")
    assert 100 <= made.execution_time_ms < 1500
    never = await small.execute("never/echo", timeout_ms=100)
    assert (never.status, never.code) in (("failed", "tool_timeout"), ("failed", "server_unavailable"))


async def test_what_cannot_be_asked_for_leaves_nothing_behind(small: World) -> None:
    for more, error in (
        ({"tool": "s/nothing"}, ToolNotFound), ({"tool": "x/echo"}, ToolNotFound), ({"agent": "b"}, AgentNotFound),
        ({"conversation": "a b"}, ConversationMismatch), ({"timeout_ms": 0}, Invalid), ({"key": ""}, Invalid),
    ):  # fmt: skip
        with pytest.raises(error):
            await small.execute(**more)
    assert await small.tools.list(ANN, "c1") == ([], 0)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_what_broke_off_with_its_process_is_ended_and_not_repeated(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    async with AsyncExitStack() as stack:
        world = await World(await settings_for(kind, request, tmp_path), tmp_path, stack).open()
        records = await stack.enter_async_context(open_records(world.settings))
        clock, host = Clock(), new_host()
        stack.push_async_callback(host.close)
        dead = ToolCalls(world.exchange, records, host, clock=clock)
        under_way = asyncio.create_task(dead.execute(ToolCall(ANN, "c1", "a", "s/hang", {}, 60_000)))
        await until(lambda: world.called == ["hang {}"])
        ((place, _),) = await _running(records, clock)
        clock.pass_s(100)
        other = ToolCalls(world.exchange, records, host, clock=clock, look_s=0.01)
        await other.tick()
        (ended,), _ = await other.list(ANN, "c1")
        assert ended.status == "failed"
        assert "not repeated" in ended.message
        assert (await world.exchange.visible(ended.run, ANN)).state is State.FAILED
        assert world.called == ["hang {}"]
        assert place[1] == f"{ended.run} {ended.id}"
        under_way.cancel()


async def _running(records: Any, clock: Clock) -> list[Any]:
    later = lambda: clock() + 10**9  # noqa: E731 - a clock that is far ahead
    return await ToolExecutions(records, 0, None, later).lapsed("mcp.v1")
