"""One call of a provider: its time limit, its cancellation with its run, and its result."""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.cache import BoundedCache
from parley.clock import Clock, now_ms
from parley.errors import (
    ContextMismatch,
    Invalid,
    LateResult,
    NestedTooDeep,
    ParleyError,
    PayloadTooLarge,
    RunEnded,
    UnknownToolPack,
)
from parley.ids import RunId, is_id, new_id
from parley.json_values import Fields, Json, fields_of, stable_hash
from parley.limits import Circuit, Minute, admitted, returned
from parley.records import Place
from parley.runs.rules.access import Principal
from parley.runs.rules.commands import CallTool, ReturnTool
from parley.runs.rules.events import ToolCalled, ToolReturned, ToolStatus
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.runs.store import Key
from parley.runs.streams import Follower
from parley.telemetry import span, tell
from parley.tools.executions import Settlement, ToolExecution
from parley.tools.providers import ToolPack, ToolResult
from parley.tools.rules.packs import Manifest, Mode, OutcomeState, Pack, PackOperation, manifest_of, refused, request_of
from parley.tools.rules.policy import (
    DENY,
    EXHAUSTED,
    Evaluation,
    Figures,
    Policy,
    ReasonCode,
    evaluate,
    policy_problems,
)
from parley.tools.rules.redaction import sanitised, sanitised_text

# A tool call as a caller requests it, and as it is after all checks have passed.


class ToolAsk(Struct, frozen=True):
    """A caller's request: carry out `request` (or with `replay` only decide about it), under a manifest and a policy.

    `user_id` is the user that the caller claims to act for, beside what `request` says; `principal` is authenticated.
    """

    principal: Principal
    tool_pack: str
    manifest: Fields
    request: Fields
    policy: Fields = {}
    run_id: str | None = None
    thread_id: str | None = None
    mode: Mode = "execute"
    user_id: Json = None


class ToolRequest(Struct, frozen=True):
    """A tool call that passed all checks."""

    principal: Principal
    pack: ToolPack
    manifest: Manifest
    request: Fields
    policy: Policy
    run: str
    thread: str
    request_hash: str
    ask_hash: str
    agent: str = ""
    limit_s: float | None = None
    """Time limit set by the caller, if any."""

    @property
    def rules(self) -> Pack:
        return self.pack.rules

    @property
    def tool(self) -> str:
        return str(self.request["operation"])

    @property
    def operation(self) -> PackOperation:
        return self.rules.operations[self.tool]

    @property
    def call(self) -> str:
        return str(self.request.get("tool_call_id", ""))

    @property
    def place(self) -> Place:
        """Key under which the call is stored. It includes the principal, so no principal finds a call of another. A run
        id never contains a space."""
        return str(self.principal), f"{self.run} {self.call}"

    @property
    def given(self) -> Json:
        """The input of the tool."""
        return self.request.get(self.rules.given) if self.rules.given else self.request

    @property
    def authorization(self) -> str:
        """The authorization to which the cost of the call is charged; empty if it is not charged."""
        return self.policy.authorization if self.rules.budgeted else ""

    @property
    def account(self) -> Place:
        return str(self.principal), self.policy.authorization

    @property
    def unapproved(self) -> bool:
        """True for a write that was not approved."""
        approved = self.request.get("write_approved") is True or self.policy.write_approved
        return self.operation.writes and not approved

    def evaluated(self, figures: Figures, now: int) -> Evaluation:
        denied = not self.manifest.active or (self.unapproved and self.manifest.enforces_writes)
        return evaluate(self.policy, figures, now, denied=denied)

    def execution(self, now: int, slack_s: float) -> ToolExecution:
        named = bool(self.rules.given)
        return ToolExecution(
            self.call,
            self.rules.name,
            self.tool,
            self.manifest.integration,
            self.request_hash,
            self.ask_hash,
            self.authorization,
            now,
            "",
            self.run,
            lease_ms=0 if self.limit_s is None else int((self.limit_s + slack_s) * 1000),
            agent=self.agent,
            conversation=self.thread if named else "",
            input=Raw(msgspec.json.encode(sanitised(self.given, personal=False))) if named else UNSET,
        )


def asked(ask: ToolAsk, packs: Mapping[str, ToolPack]) -> ToolRequest:
    """Check a request in the order of the contract: principal, pack, manifest, request."""
    _check_speaker(ask.principal, ask.user_id, ask.request.get("user_id"))
    pack = packs.get(ask.tool_pack)
    if pack is None:
        raise UnknownToolPack(f"tool_pack is not supported: {ask.tool_pack}")
    manifest = manifest_of(pack.rules, ask.manifest)
    request = request_of(pack.rules, manifest, _in_context(ask))
    if problems := [*_place_problems(request), *policy_problems(ask.policy)]:
        raise refused(*problems)
    if ask.mode == "execute" and request.get("tool_call_id") is None:
        request = {**request, "tool_call_id": f"call_{new_id()}"}
    hashes = _hash([ask.tool_pack, request]), _hash([ask.tool_pack, request, ask.manifest, ask.policy])
    policy = Policy(ask.policy, pack.rules.policy_id)
    return ToolRequest(ask.principal, pack, manifest, request, policy, *_where(request), *hashes)


def _check_speaker(principal: Principal, *claims: Json) -> None:
    for claim in claims:
        if claim is not None and (principal.kind != "user" or str(claim) != principal.name):
            raise ContextMismatch("request context does not match authenticated principal")


def _in_context(ask: ToolAsk) -> Fields:
    """Return the request, with the run, thread and user added where it does not name them."""
    name = ask.principal.name if ask.principal.kind == "user" else ""
    user: Json = int(name) if name.isdecimal() and name.isascii() else name or None
    context: Fields = {"run_id": ask.run_id, "thread_id": ask.thread_id, "user_id": user}
    _check_same(ask.request, "run_id", ask.run_id)
    _check_same(ask.request, "thread_id", ask.thread_id)
    missing = {key: one for key, one in context.items() if one is not None and ask.request.get(key) is None}
    return {**ask.request, **missing}


def _check_same(request: Fields, name: str, outer: str | None) -> None:
    inner = request.get(name)
    if inner is not None and outer is not None and inner != outer:
        raise ContextMismatch(f"request.{name} does not match {name}")


def _place_problems(request: Fields) -> list[str]:
    """Return the problems with ids that could not be stored or shown again."""
    given = {name: request.get(name) for name in ("run_id", "thread_id")}
    wrong = [name for name, one in given.items() if one is not None and not (isinstance(one, str) and is_id(one))]
    return [f"{name} must have 1 to 128 letters, digits or ._:@/+=~-" for name in wrong]


def _where(request: Fields) -> tuple[str, str]:
    return str(request.get("run_id") or ""), str(request.get("thread_id") or "")


def _hash(value: Json) -> str:
    try:
        return stable_hash(value)
    except Invalid as error:
        raise refused(error.message) from None


# Limits between a permitted call and its provider, in this process: calls per minute, and circuit breakers.


class ToolLimits:
    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self._minutes: BoundedCache[Place, Minute] = BoundedCache(Minute)
        self._circuits: BoundedCache[Place, Circuit] = BoundedCache(Circuit)

    def within_limit(self, call: ToolRequest) -> bool:
        """Return whether the call is within the manifest's limit per minute. It is counted per principal and
        integration."""
        most, key = call.manifest.per_minute, (str(call.principal), call.manifest.integration)
        return most is None or self._minutes.get(key).admits(most, self._clock())

    def opens(self, call: ToolRequest) -> bool:
        """Return whether the circuit lets the call through. After a call that was let through, its result must be
        reported."""
        circuit = admitted(self._circuits.get(_circuit(call)), self._clock())
        if circuit is not None:
            self._circuits.put(_circuit(call), circuit)
        return circuit is not None

    def ended(self, call: ToolRequest, *, well: bool) -> None:
        before = self._circuits.get(_circuit(call))
        self._circuits.put(_circuit(call), returned(before, self._clock(), well=well))


def _circuit(call: ToolRequest) -> Place:
    return call.manifest.integration, call.pack.host(call.manifest)


# Tool events in a run's log: a tool is called, it has returned, and the run accepts no more calls.

MAX_LOGGED = 64 * 1024
_STOPS = frozenset(("cancel_requested", "canceled", "failed"))


class ToolLog:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def called(self, run: Run, call: ToolRequest) -> Follower:
        """Write `tool_call` to the run once, however often the call is tried. Return a follower of the run from there
        on; raise RunEnded if the run accepts no more tool calls."""
        key = _key(run.id, call.call, "call", call.ask_hash)
        said = sanitised(call.given, personal=call.rules.personal)
        try:
            command = CallTool(ToolCalled(call.call, call.tool, _fitting(said, MAX_LOGGED)))
            outcome = await self._exchange.commands.execute(run.id, command, key=key)
        except (PayloadTooLarge, NestedTooDeep):
            command = CallTool(ToolCalled(call.call, call.tool, _fitting(said, 0)))
            outcome = await self._exchange.commands.execute(run.id, command, key=key)
        if outcome.run.ended or outcome.run.cancel_requested:
            # The event was written by an earlier attempt, which stopped before the cancel.
            raise RunEnded("The task is being canceled; it starts no further work.", state=outcome.run.state.value)
        return await self._exchange.follow(run.id, outcome.run.version)

    async def returned(self, run: RunId, execution: ToolExecution, status: ToolStatus) -> None:
        """Write `tool_result` to the run. A run that has ended meanwhile is not changed."""
        key = _key(run, execution.call, "result", execution.ask)
        try:
            try:
                await self._exchange.commands.execute(run, _result(execution, status, MAX_LOGGED), key=key)
            except (PayloadTooLarge, NestedTooDeep):
                await self._exchange.commands.execute(run, _result(execution, status, 0), key=key)
        except LateResult:
            tell("tool.late", tool=execution.tool)


async def stopped(follower: Follower) -> None:
    """Return when the run is canceled or has failed, on any replica."""
    try:
        while not any(event.type in _STOPS for event in await follower.next()):
            pass
    except ParleyError as error:
        tell("tool.unwatched", code=error.code)
        await asyncio.Event().wait()


def _result(execution: ToolExecution, status: ToolStatus, most: int) -> ReturnTool:
    output: Raw | UnsetType = UNSET
    if execution.data is not UNSET and status != "blocked":
        output = _fitting(fields_of(msgspec.json.decode(execution.data)).get("provider_result"), most)
    code = "" if status == "succeeded" else execution.code
    return ReturnTool(ToolReturned(execution.call, execution.tool, status, output, code, execution.reason))


def _key(run: str, call: str, what: str, ask: str) -> Key:
    """Return the key of a tool event. It includes the hash of the whole request, so that a blocked call can be made
    again under the same id."""
    return Key(f"tool:{run}", f"{ask}/{what}/{call}", hashlib.sha256(ask.encode()).digest())


def _fitting(value: Json, most: int) -> Raw:
    """Return the value, or only its size if it is too large for the log."""
    body = msgspec.json.encode(value)
    return Raw(body if len(body) <= most else msgspec.json.encode({"omitted_bytes": len(body)}))


STOP_S = 1.0
"""Seconds that a call may take to stop after it was canceled."""


class Ending(Struct, frozen=True):
    """Result of one attempt."""

    status: ToolStatus
    code: ReasonCode
    result: Fields
    message: str = ""
    settlement: Settlement = "released"
    well: bool | None = None
    """True if the provider works, False if not, None if the result says nothing about it."""

    @property
    def state(self) -> OutcomeState:
        return self.status if self.status == "succeeded" or self.status == "blocked" else "failed"


def blocked(code: ReasonCode = DENY, message: str = "The policy does not allow this call.") -> Ending:
    """Return the result of a call that was not sent; it says nothing about the provider's health."""
    return Ending("blocked", code, {}, message)


# Why: docs/decisions/tools.md#do-not-repeat-a-write-whose-process-died
def unknown(call: ToolRequest) -> Ending:
    """Return the result of a write whose process died: repeating it might do it twice."""
    message = "The process that made this call died. It is unknown whether the call took effect; it was not repeated."
    return _failed(call, ToolResult("failed", message=message, effect="unknown"), "failed")


def held_up(call: ToolRequest, gates: ToolLimits) -> Ending | None:
    """Return the result of a call that the policy allows but that must not be sent now; None if it can be sent."""
    if not gates.within_limit(call):
        return blocked(EXHAUSTED, "The integration's limit of requests per minute is reached.")
    if not gates.opens(call):
        message = "The provider failed several times in a row; calls to it are paused for a while. Try again later."
        return _failed(call, ToolResult("failed", {}, call.rules.circuit_open, message, effect="none"), "failed")
    return None


async def calling(call: ToolRequest, limit_s: float, follower: Follower | None) -> Ending:
    with span("tool.call", agent=call.agent, tool=call.tool, run=call.run, conversation=call.thread) as called:
        ending = await _watched(call, limit_s, follower)
        called.outcome = ending.status
        return ending


async def _watched(call: ToolRequest, limit_s: float, follower: Follower | None) -> Ending:
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


async def _called(call: ToolRequest) -> ToolResult:
    try:
        return await call.pack.call(call.tool, call.request, call.manifest)
    except Exception as error:  # noqa: BLE001 - a pack may raise anything, and the caller needs a result
        tell("tool.broken", tool=call.tool, error=error)
        return ToolResult("failed", message="The call stopped with an unexpected error.", effect="unknown", well=False)


async def _canceled(follower: Follower | None) -> None:
    await (stopped(follower) if follower is not None else asyncio.Event().wait())


async def _broken_off(call: ToolRequest, task: "asyncio.Task[ToolResult]", limit_s: float, *, canceled: bool) -> Ending:
    """Stop the call and return its result. The call may have finished in the same moment."""
    task.cancel()
    await asyncio.wait((task,), timeout=STOP_S)
    if task.done() and not task.cancelled() and task.result().state == "succeeded":
        return _ending(call, task.result())
    status: Literal["canceled", "timed_out"] = "canceled" if canceled else "timed_out"
    message = "The run was canceled." if canceled else f"{call.tool} did not answer within {limit_s:g} s."
    ending = _failed(call, ToolResult("failed", message=message, effect="unknown", well=False), status)
    # A timeout that the caller set short says nothing about the provider.
    return replace(ending, well=None) if canceled or call.limit_s is not None else ending


def _ending(call: ToolRequest, result: ToolResult) -> Ending:
    if result.state == "failed":
        return _failed(call, result, "failed")
    try:
        shown = _shown(call, result.data, "succeeded")
        return Ending("succeeded", "policy_allowed.default", shown, "", _settlement(call, result), result.well)
    except Invalid:
        message = "The provider's answer cannot be shown: it is nested too deeply, or a number in it is too large."
        return _failed(call, ToolResult("failed", message=message, effect=result.effect), "failed")


def _failed(call: ToolRequest, result: ToolResult, status: ToolStatus) -> Ending:
    code, message = result.code or call.rules.failed, sanitised_text(result.message)
    about: Fields = {"reason_code": code, "message": message}
    try:
        shown = _shown(call, {**result.data, **about}, status)
    except Invalid:
        shown = _shown(call, about, status)
    return Ending(status, code, shown, message, _settlement(call, result), result.well)


def _shown(call: ToolRequest, said: Fields, status: ToolStatus) -> Fields:
    """Return the provider's answer without secrets; raise Invalid if it cannot be hashed."""
    about: Fields = {"provider": call.manifest.provider, "operation": call.tool}
    shown = fields_of(sanitised({**said, **about, "state": status}, personal=call.rules.personal))
    stable_hash(shown)
    return shown


def _settlement(call: ToolRequest, result: ToolResult) -> Settlement:
    """Return what to do with the reservation. A read changes nothing, so it is charged only if it was answered."""
    if result.effect == "done":
        return "spent"
    return "kept" if result.effect == "unknown" and call.operation.writes else "released"
