"""Calls of MCP tools: the caller, the conversation and the result (mode `tool` of the actions contract, 002).

A call is one stored execution, the same as in the runtime control plane (003): `tool_call_id` there is its id here.
It is in the log of the run that made it; a call without a run gets a run of its own, with the same id.
"""

import asyncio
import time
from collections.abc import AsyncGenerator

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.clock import Clock, now_ms
from parley.documents.rules import Assignment
from parley.errors import ConversationMismatch, Invalid, KeyReused, RunEnded, ToolRequestInvalid
from parley.execution.driver import Approving
from parley.execution.turn import ToolCall, ToolCallRecord, execution_id
from parley.ids import RunId, is_id
from parley.json_values import Fields, Json, fields_of, stable_hash, text_of
from parley.records import Place, Record, Records
from parley.runs.log import Outcome
from parley.runs.requests import Opening
from parley.runs.rules.access import Principal
from parley.runs.rules.agents import Agent
from parley.runs.rules.commands import Close, Fail
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.runs.store import Key
from parley.telemetry import tell
from parley.tools.calls import ToolRequest
from parley.tools.executions import ToolExecution as Stored
from parley.tools.executions import ToolExecutions
from parley.tools.providers import Toolbox, ToolResult
from parley.tools.rules.mcp import PACK, TIMEOUT_S, Progressed, ToolOffer, described, manifest_for, rules_for
from parley.tools.rules.packs import Manifest, Pack
from parley.tools.rules.policy import Policy, check_approval, needs_approval
from parley.tools.service import ToolService

__all__ = ["ToolCall", "ToolCallRecord", "ToolCalls", "ToolTask"]

KIND = "tool_execution"
"""Kind of the records that list the executions of a conversation."""
MAX_TIMEOUT_MS = 3_600_000
_CODES = {"timed_out": "tool_timeout", "canceled": "tool_canceled", "blocked": "tool_blocked", "failed": "tool_failed"}


class _Listed(Struct, frozen=True, array_like=True):
    """An execution in the list of its conversation."""

    run: str
    tool: str
    conversations: tuple[str, ...] = ()
    """All conversations that list it, if there are others than its own: those of the runs it was made for."""


class ToolTask(Struct, frozen=True):
    """Data of a call that is a task of its own: the assignment of its run, its key or id, and the parent run."""

    assignment: Assignment | None = None
    once: Key | None = None
    run: RunId | None = None
    parent: RunId | None = None


_UNNAMED = ToolTask()


class _Called(Struct, frozen=True):
    """The one tool of one call, as a pack."""

    toolbox: Toolbox
    agent: Agent
    offer: ToolOffer
    progressed: Progressed | None = None

    @property
    def rules(self) -> Pack:
        return rules_for(self.offer)

    def host(self, manifest: Manifest) -> str:
        return self.agent.slug

    async def call(self, operation: str, request: Fields, manifest: Manifest) -> ToolResult:
        given = fields_of(request["input"])
        return await self.toolbox.call(self.agent, self.offer, given, self.progressed)


class ToolCalls:
    def __init__(
        self,
        exchange: Exchange,
        records: Records,
        toolbox: Toolbox,
        *,
        clock: Clock = now_ms,
        keep_ms: int | None = None,
        look_s: float = 0.25,
    ) -> None:
        self.toolbox = toolbox
        self._exchange = exchange
        self._records = records
        self._clock = clock
        self._tools = ToolService(exchange, records, (), clock=clock, keep_ms=keep_ms, look_s=look_s)
        self._executions = ToolExecutions(records, 0, keep_ms, clock)

    async def offers(self, agent: Agent) -> "list[ToolOffer]":
        return await self.toolbox.offers(agent)

    async def execute(self, call: ToolCall, progressed: Progressed | None = None) -> ToolCallRecord:
        """Call a tool and return the result, also if it failed: then `status` is `failed`, and `code` and `message` say
        why.

        Raised before anything is called: AgentNotFound, ToolNotFound, ToolAmbiguous, ApprovalRequired, KeyReused,
        Invalid.
        """
        return await self._execute(call, progressed, _UNNAMED)

    # Why: docs/decisions/tools.md#give-a-call-without-a-run-an-open-run-of-its-own
    async def _execute(self, call: ToolCall, progressed: Progressed | None, task: ToolTask) -> ToolCallRecord:
        _check(call)
        agent = self._agent(call)
        begun = time.monotonic()
        offer = await self.toolbox.find(agent, call.tool, (call.timeout_ms or TIMEOUT_S * 1000) / 1000)
        self._check_approved(call, offer)
        id_ = task.run or execution_id(call)
        run = call.run or RunId(id_)
        limit_s = self._limit_s(call, agent, offer)
        # The time to reach the server is part of the limit. A tenth of it is always left, so that an unreachable
        # server is reported.
        limit_s = max(limit_s - (time.monotonic() - begun), limit_s / 10)
        asked = _asked(call, id_, run, _Called(self.toolbox, agent, offer, progressed), limit_s)
        if call.run is None:
            opening = Opening(
                agent.slug, call.principal, call.conversation, run, task.assignment, task.parent, task.once
            )
            await self._exchange.open(opening)
        await self._list(call, id_, run, offer)
        return await self._carried_out(asked)

    def _check_approved(self, call: ToolCall, offer: ToolOffer) -> None:
        """Check the approval of a call that needs one, whether a model, a caller or an orchestration makes it."""
        driver = self._exchange.driver(call.agent)
        if isinstance(driver, Approving) and needs_approval(driver.approve, offer.full):
            check_approval(call.approved, offer.full, call.input)

    async def perform(self, call: ToolCall, task: ToolTask) -> Outcome:
        """Call a tool as a task. Return its run, which has ended. A repeated key returns the first outcome, even if the
        tool no longer exists."""
        self._agent(call)
        before = await self._exchange.commands.replayed(task.once) if task.once else None
        if before is not None and before.run.ended:
            return before
        execution = await self._execute(call, None, task)
        return Outcome(await self._exchange.commands.state(execution.run), [])

    def _agent(self, call: ToolCall) -> Agent:
        """Return the agent whose tool is called. A run that was started for its caller goes on using its agent's
        tools."""
        if call.run is not None:
            return self._exchange.agent(call.agent)
        return self._exchange.usable(call.agent, call.principal)

    async def read(self, principal: Principal, conversation: str, execution_id: str) -> ToolCallRecord | None:
        record = await self._records.get(KIND, _scope(principal, conversation), execution_id)
        if record is None:
            return None
        return await self._found(principal, execution_id, _decode(record.body))

    async def list(
        self, principal: Principal, conversation: str, tool: str | None = None, limit: int = 50, offset: int = 0
    ) -> "tuple[list[ToolCallRecord], int]":
        """Return a page of executions that have ended, latest first, and the total number."""
        records = [one async for one in self._listed(principal, conversation)]
        wanted = [one for one in records if tool is None or tool in _called(_decode(one.body))]
        page = sorted(wanted, key=lambda one: (one.at, one.id), reverse=True)[offset : offset + limit]
        found = await asyncio.gather(*(self._found(principal, one.id, _decode(one.body)) for one in page))
        return [one for one in found if one is not None], len(wanted)

    async def forget(self, principal: Principal, conversation: str) -> int:
        """Delete the executions of a conversation and return their number. The logs of runs keep their tool events."""
        records = [one async for one in self._listed(principal, conversation)]
        for one in records:
            await self._forget(principal, one)
        return len(records)

    async def forget_steps(self, run: Run) -> None:
        """Delete the executions of an orchestration's steps, in their own conversations or in that of the
        orchestration."""
        if run.orchestration is None:
            return
        principal = Principal.parse(run.principal)
        for step in run.children:
            await self.forget(principal, step)
        async for one in self._listed(principal, run.conversation):
            if _decode(one.body).run in run.children:
                await self._forget(principal, one)

    async def _forget(self, principal: Principal, one: Record) -> None:
        listed = _decode(one.body)
        await self._records.delete("execution", str(principal), f"{listed.run} {one.id}")
        scopes = {one.scope, *(_scope(principal, conversation) for conversation in listed.conversations)}
        await self._records.delete_all(KIND, [(scope, one.id) for scope in sorted(scopes)])

    async def tick(self) -> None:
        """Run one round: end calls that were interrupted with their process, so that no caller waits for them; delete
        old ones."""
        for place, stored in await self._executions.lapsed(PACK):
            await self._give_up(place, stored)
        await self._tools.tick()

    async def close(self) -> None:
        await self._tools.close()

    async def _carried_out(self, asked: ToolRequest) -> ToolCallRecord:
        try:
            await self._tools.carry_out(asked)
        except ToolRequestInvalid:
            raise KeyReused("The idempotency key was already used for another call.") from None
        stored = await self._executions.get(asked.place)
        assert stored is not None
        await self._conclude(stored.execution)
        return _shown(asked.call, stored.execution)

    async def _conclude(self, stored: Stored) -> None:
        """End a call's own run with the call, once however often this is tried."""
        if stored.run != stored.call:
            return
        run = await self._exchange.commands.state(RunId(stored.run))
        try:
            if stored.status == "succeeded":
                await self._exchange.commands.execute(run.id, Close(run.principal))
            else:
                await self._exchange.give_up(run, Fail(_code(stored), stored.reason or "The tool failed."))
        except RunEnded:
            return

    async def _give_up(self, place: Place, stored: Stored) -> None:
        """End an interrupted call. It is never repeated: its input may have been a secret, and was not stored."""
        agent = self._exchange.agents.get(stored.agent)
        offer = ToolOffer(stored.integration, stored.tool.partition("/")[2])
        if agent is None:
            return
        tell("tool.given_up", tool=stored.tool)
        call = ToolCall(
            Principal.parse(place[0]), stored.conversation, stored.agent, stored.tool, {}, run=RunId(stored.run)
        )
        asked = _asked(call, stored.call, stored.run, _Called(self.toolbox, agent, offer), 1.0)
        asked = msgspec.structs.replace(asked, request_hash=stored.request, ask_hash=stored.ask)
        await self._carried_out(asked)

    def _limit_s(self, call: ToolCall, agent: Agent, offer: ToolOffer) -> float:
        own = self.toolbox.server(agent, offer).timeout_s
        return own if call.timeout_ms is None else call.timeout_ms / 1000

    async def _list(self, call: ToolCall, id_: str, run: RunId, offer: ToolOffer) -> None:
        """List a call in its conversation, and in those of the orchestrations that its run is a step of."""
        lineage = await self._exchange.commands.lineage(run)
        places = tuple(dict.fromkeys((call.conversation, *(one.conversation for one in lineage if one.conversation))))
        listed = _encode(_Listed(run, offer.full, places if len(places) > 1 else ()))
        for place in places:
            await self._records.add(Record(KIND, _scope(call.principal, place), id_, listed, self._clock()))

    async def _listed(self, principal: Principal, conversation: str) -> AsyncGenerator[Record, None]:
        scope, after = _scope(principal, conversation), ""
        while page := await self._records.list(KIND, scope, (scope, after)):
            for record in page:
                yield record
            after = page[-1].id

    async def _found(self, principal: Principal, id_: str, listed: _Listed) -> ToolCallRecord | None:
        """Return a call that has ended; None while it is running, and when it was deleted."""
        entry = await self._executions.get((str(principal), f"{listed.run} {id_}"))
        return _shown(id_, entry.execution) if entry is not None and entry.execution.ended else None


def _check(call: ToolCall) -> None:
    if not is_id(call.conversation):
        raise ConversationMismatch("A conversation id must have 1 to 128 letters, digits or ._:@/+=~-")
    if call.timeout_ms is not None and not 1 <= call.timeout_ms <= MAX_TIMEOUT_MS:
        raise Invalid(f"timeoutMs must be between 1 and {MAX_TIMEOUT_MS:,}.", field="timeoutMs")
    if call.key is not None and not 1 <= len(call.key) <= 255:
        raise Invalid("An idempotency key must have 1 to 255 characters.", field="Idempotency-Key")


def _asked(call: ToolCall, id_: str, run: str, pack: _Called, limit_s: float) -> ToolRequest:
    """Return the request of a call. The operator declared the server and the agent that may use it: that is the
    authorization."""
    offer, rules = pack.offer, pack.rules
    request: Fields = {
        "operation": offer.full,
        "integration_id": offer.server,
        "tool_call_id": id_,
        "run_id": run,
        "thread_id": call.conversation,
        "input": call.input,
        "write_approved": True,
    }
    policy: Fields = {"authorization_id": f"agent:{call.agent}", "authorization_mode": "system"}
    digest = stable_hash([rules.name, request])
    return ToolRequest(
        call.principal,
        pack,
        manifest_for(offer),
        request,
        Policy(policy, rules.policy_id),
        run,
        call.conversation,
        digest,
        stable_hash([digest, policy]),
        agent=call.agent,
        limit_s=limit_s,
    )


def _shown(id_: str, stored: Stored) -> ToolCallRecord:
    data: Fields = {} if stored.data is UNSET else msgspec.json.decode(stored.data)
    result = fields_of(data.get("provider_result"))
    output = result.get("output")
    well = stored.status == "succeeded"
    return ToolCallRecord(
        id_,
        RunId(stored.run),
        stored.tool.partition("/")[2],
        stored.integration,
        _json(stored.input),
        output,
        "completed" if well else "failed",
        "" if well else _code(stored),
        stored.reason,
        stored.started_at,
        (stored.ended_at or stored.started_at) - stored.started_at,
        described(stored.integration, output),
        fields_of(data.get("receipt")),
    )


def _code(stored: Stored) -> str:
    data: Fields = {} if stored.data is UNSET else msgspec.json.decode(stored.data)
    return text_of(fields_of(data.get("provider_result")).get("code")) or _CODES.get(stored.status, "tool_failed")


def _json(raw: "Raw | msgspec.UnsetType") -> Json:
    return None if raw is UNSET else msgspec.json.decode(raw)


def _called(listed: _Listed) -> tuple[str, str]:
    return listed.tool, listed.tool.partition("/")[2]


def _scope(principal: Principal, conversation: str) -> str:
    """Return the scope of a conversation's list. A conversation id never contains a space."""
    return f"{conversation} {principal}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Listed).decode
