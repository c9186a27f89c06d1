"""The engine knows no provider: packs of any kind, and packs that misbehave."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from parley.json_values import Fields
from parley.tools.providers import ToolResult
from parley.tools.rules.packs import Manifest, Pack, PackOperation
from parley.tools.service import ToolAsk, ToolService
from tests.tools.conftest import POLICY, USER, World, summary

NOTES = Pack(
    name="notes.v1", prefix="notes", manifest_version="notes.integration.v1", providers=("shelf",),
    operations={"look": PackOperation(lambda request: [])}, required=(), failed="comms_failed.provider_error",
    circuit_open="comms_failed.provider_circuit_open", policy_check=lambda policy: [],
    completed=lambda manifest, request: request,
)  # fmt: skip


class Notes:
    """A pack of another kind, that behaves as badly as it is told to."""

    def __init__(self, behave: Callable[[], Awaitable[ToolResult]]) -> None:
        self.rules = NOTES
        self._behave = behave

    def host(self, manifest: Manifest) -> str:
        return "shelf"

    async def call(self, operation: str, request: Fields, manifest: Manifest) -> ToolResult:
        return await self._behave()


def looking(world: World, behave: Callable[[], Awaitable[ToolResult]], **options: Any) -> tuple[ToolService, ToolAsk]:
    tools = ToolService(world.exchange, world.records, [Notes(behave)], clock=world.clock, **options)
    manifest = {
        "manifest_version": "notes.integration.v1", "integration_id": "shelf.one", "provider": "shelf",
        "status": "active", "tool_pack": "notes.v1", "capabilities": ["look"],
        "policy": {"write_operations_mode": "enforce"},
    }  # fmt: skip
    request = {"integration_id": "shelf.one", "operation": "look", "tool_call_id": "n1"}
    return tools, ToolAsk(USER, "notes.v1", manifest, request, POLICY)


async def test_a_pack_of_another_kind_needs_nothing_of_github(small: World) -> None:
    async def found() -> ToolResult:
        return ToolResult("succeeded", {"data": {"note": "x"}})

    tools, ask = looking(small, found)
    data: Any = (await tools.execute(ask)).data
    assert data["receipt"]["receipt_id"].startswith("notes_")
    assert data["provider_result"] == {
        "state": "succeeded", "provider": "shelf", "operation": "look", "data": {"note": "x"},
    }  # fmt: skip


async def test_whatever_a_pack_raises_its_caller_is_told_an_outcome_and_no_more(small: World) -> None:
    async def breaks() -> ToolResult:
        raise ValueError("hush-hush")

    tools, ask = looking(small, breaks)
    outcome = await tools.execute(ask)
    assert summary(outcome) == ("failed", "denied", "comms_failed.provider_error")
    assert "hush-hush" not in str(outcome.data)


async def test_a_pack_that_does_not_stop_is_not_waited_for(small: World) -> None:
    released = asyncio.Event()

    async def goes_on() -> ToolResult:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return ToolResult("succeeded")

    tools, ask = looking(small, goes_on, limit_s=0.01)
    assert summary(await tools.execute(ask)) == ("failed", "denied", "comms_failed.provider_error")
    released.set()
