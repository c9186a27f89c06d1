"""What a run's log says of its tools: that one is called, what came of it, and when the run wants none any more."""

import asyncio
import hashlib

import msgspec
from msgspec import UNSET, Raw, UnsetType

from parley.core.canonical import Json, fields_of
from parley.core.commands import CallTool, ReturnTool
from parley.core.events import ToolCalled, ToolReturned, ToolStatus
from parley.core.runs import Run
from parley.core.sanitising import sanitised
from parley.engine.asks import Asked
from parley.engine.exchange import Exchange
from parley.engine.executions import Execution
from parley.engine.ports import Key
from parley.engine.streams import Follower
from parley.errors import LateResult, NestedTooDeep, ParleyError, PayloadTooLarge, RunEnded
from parley.ids import RunId
from parley.telemetry import tell

MAX_LOGGED = 64 * 1024
_STOPS = frozenset(("cancel_requested", "canceled", "failed"))


class ToolLog:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def called(self, run: Run, call: Asked) -> Follower:
        """Written once however often it is tried; what happens to the run after it. RunEnded when it wants no tool."""
        key = _key(run.id, call.call, "call", call.ask_hash)
        said = sanitised(call.given, personal=call.rules.personal)
        try:
            command = CallTool(ToolCalled(call.call, call.tool, _fitting(said, MAX_LOGGED)))
            outcome = await self._exchange.commands.execute(run.id, command, key=key)
        except (PayloadTooLarge, NestedTooDeep):
            command = CallTool(ToolCalled(call.call, call.tool, _fitting(said, 0)))
            outcome = await self._exchange.commands.execute(run.id, command, key=key)
        if outcome.run.ended or outcome.run.cancel_requested:
            # It was written by an attempt that broke off before the cancel.
            raise RunEnded("The task is being canceled; it starts no further work.", state=outcome.run.state.value)
        return await self._exchange.follow(run.id, outcome.run.version)

    async def returned(self, run: RunId, execution: Execution, status: ToolStatus) -> None:
        """A run that has ended meanwhile stays as it is."""
        key = _key(run, execution.call, "result", execution.ask)
        try:
            try:
                await self._exchange.commands.execute(run, _result(execution, status, MAX_LOGGED), key=key)
            except (PayloadTooLarge, NestedTooDeep):
                await self._exchange.commands.execute(run, _result(execution, status, 0), key=key)
        except LateResult:
            tell("tool.late", tool=execution.tool)


async def stopped(follower: Follower) -> None:
    """Returns when the run is canceled or has failed, whoever did it and on whichever replica."""
    try:
        while not any(event.type in _STOPS for event in await follower.next()):
            pass
    except ParleyError as error:
        tell("tool.unwatched", code=error.code)
        await asyncio.Event().wait()


def _result(execution: Execution, status: ToolStatus, most: int) -> ReturnTool:
    output: Raw | UnsetType = UNSET
    if execution.data is not UNSET and status != "blocked":
        output = _fitting(fields_of(msgspec.json.decode(execution.data)).get("provider_result"), most)
    code = "" if status == "succeeded" else execution.code
    return ReturnTool(ToolReturned(execution.call, execution.tool, status, output, code, execution.reason))


def _key(run: str, call: str, what: str, ask: str) -> Key:
    """A call that was blocked may be made again under its name, as another ask."""
    return Key(f"tool:{run}", f"{ask}/{what}/{call}", hashlib.sha256(ask.encode()).digest())


def _fitting(value: Json, most: int) -> Raw:
    """The value, or how large it was where a log has no room for it."""
    body = msgspec.json.encode(value)
    return Raw(body if len(body) <= most else msgspec.json.encode({"omitted_bytes": len(body)}))
