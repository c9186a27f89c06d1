"""One call of a provider: within its time, broken off when its run is, and what it amounts to."""

import asyncio
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from parley.core.canonical import Fields, fields_of, stable_hash
from parley.core.events import ToolStatus
from parley.core.policy import DENY, EXHAUSTED, ReasonCode
from parley.core.receipts import OutcomeState
from parley.core.sanitising import sanitised, sanitised_text
from parley.engine.asks import Asked
from parley.engine.budgets import Settlement
from parley.engine.gates import Gates
from parley.engine.ports import ToolResult
from parley.engine.streams import Follower
from parley.engine.toollog import stopped
from parley.errors import Invalid
from parley.telemetry import span, tell

STOP_S = 1.0
"""How long a call may take to stop when it is told to."""


class Ending(Struct, frozen=True):
    """What came of one attempt."""

    status: ToolStatus
    code: ReasonCode
    result: Fields
    message: str = ""
    settlement: Settlement = "released"
    well: bool | None = None
    """Whether the provider works, if this tells anything about it."""

    @property
    def state(self) -> OutcomeState:
        return self.status if self.status == "succeeded" or self.status == "blocked" else "failed"


def blocked(code: ReasonCode = DENY, message: str = "The policy does not allow it.") -> Ending:
    """The provider was not asked, so there is nothing to tell of it."""
    return Ending("blocked", code, {}, message)


def unknown(call: Asked) -> Ending:
    """A write whose process died: to do it again might do it twice."""
    message = "The process that carried this out died; whether it was done is unknown, and it was not repeated."
    return _failed(call, ToolResult("failed", message=message, effect="unknown"), "failed")


def held_up(call: Asked, gates: Gates) -> Ending | None:
    """How it ends where the provider is not to be asked now, though the policy allows it."""
    if not gates.within_limit(call):
        return blocked(EXHAUSTED, "The integration's limit of requests per minute is reached.")
    if not gates.opens(call):
        message = "The provider failed several times in a row and is left alone for a while."
        return _failed(call, ToolResult("failed", {}, call.rules.circuit_open, message, effect="none"), "failed")
    return None


async def calling(call: Asked, limit_s: float, follower: Follower | None) -> Ending:
    with span("tool.call", agent=call.agent, tool=call.tool) as called:
        ending = await _watched(call, limit_s, follower)
        called.outcome = ending.status
        return ending


async def _watched(call: Asked, limit_s: float, follower: Follower | None) -> Ending:
    task = asyncio.get_running_loop().create_task(_called(call))
    watch = asyncio.get_running_loop().create_task(_canceled(follower))
    try:
        await asyncio.wait((task, watch), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return await _broken_off(call, task, limit_s, canceled=watch.done())
        return _ending(call, task.result())
    finally:
        watch.cancel()
        task.cancel()


async def _called(call: Asked) -> ToolResult:
    try:
        return await call.pack.call(call.tool, call.request, call.manifest)
    except Exception as error:  # noqa: BLE001 - whatever a pack raises, its caller is told an outcome
        tell("tool.broken", tool=call.tool, error=error)
        return ToolResult("failed", message="The call broke off.", effect="unknown", well=False)


async def _canceled(follower: Follower | None) -> None:
    await (stopped(follower) if follower is not None else asyncio.Event().wait())


async def _broken_off(call: Asked, task: "asyncio.Task[ToolResult]", limit_s: float, *, canceled: bool) -> Ending:
    """Told to stop, it may still have been done in the same moment."""
    task.cancel()
    await asyncio.wait((task,), timeout=STOP_S)
    if task.done() and not task.cancelled() and task.result().state == "succeeded":
        return _ending(call, task.result())
    status: Literal["canceled", "timed_out"] = "canceled" if canceled else "timed_out"
    message = "The run was canceled." if canceled else f"The provider did not answer within {limit_s:g} s."
    ending = _failed(call, ToolResult("failed", message=message, effect="unknown", well=False), status)
    # A caller who allows little time learns nothing about the provider.
    return replace(ending, well=None) if canceled or call.limit_s is not None else ending


def _ending(call: Asked, result: ToolResult) -> Ending:
    if result.state == "failed":
        return _failed(call, result, "failed")
    try:
        shown = _shown(call, result.data, "succeeded")
        return Ending("succeeded", "policy_allowed.default", shown, "", _settlement(call, result), result.well)
    except Invalid:
        message = "The provider's answer cannot be shown: it is nested too deeply, or a number in it is too large."
        return _failed(call, ToolResult("failed", message=message, effect=result.effect), "failed")


def _failed(call: Asked, result: ToolResult, status: ToolStatus) -> Ending:
    code, message = result.code or call.rules.failed, sanitised_text(result.message)
    about: Fields = {"reason_code": code, "message": message}
    try:
        shown = _shown(call, {**result.data, **about}, status)
    except Invalid:
        shown = _shown(call, about, status)
    return Ending(status, code, shown, message, _settlement(call, result), result.well)


def _shown(call: Asked, said: Fields, status: ToolStatus) -> Fields:
    """What the provider said, without secrets; Invalid when it could not be hashed."""
    about: Fields = {"provider": call.manifest.provider, "operation": call.tool}
    shown = fields_of(sanitised({**said, **about, "state": status}, personal=call.rules.personal))
    stable_hash(shown)
    return shown


def _settlement(call: Asked, result: ToolResult) -> Settlement:
    """A read leaves nothing behind, so it is not owed for unless it was answered."""
    if result.effect == "done":
        return "spent"
    return "kept" if result.effect == "unknown" and call.operation.writes else "released"
