"""Tools of MCP servers as they are asked for: by whom, in which conversation, and what came of it (002's mode `tool`).

A call is one stored execution, the same that contract 003 tells of: `tool_call_id` there is its id here. It stands in
the log of the run that made it; one that nobody's run made gets a run of its own, whose id is its id.
"""

import asyncio
import time
from collections.abc import AsyncGenerator

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.clock import Clock, now_ms
from parley.core.access import Principal
from parley.core.agents import Agent
from parley.core.approvals import check_approval, needs_approval
from parley.core.canonical import Fields, Json, fields_of, stable_hash, text_of
from parley.core.commands import Close, Fail
from parley.core.documents import Assignment
from parley.core.mcp import PACK, TIMEOUT_S, Offer, Progressed, described, manifest_for, rules_for
from parley.core.policy import Policy
from parley.core.runs import Run
from parley.core.tools import Manifest, Pack
from parley.engine.asks import Asked
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.executions import Execution as Stored
from parley.engine.executions import Executions
from parley.engine.ports import Approving, Key, Place, Record, Records, ToolResult
from parley.engine.requests import Opening
from parley.engine.toolbox import Toolbox
from parley.engine.tools import Tools
from parley.engine.toolwords import Execution, ToolCall, execution_id
from parley.errors import ConversationMismatch, Invalid, KeyReused, RunEnded, ToolRequestInvalid
from parley.ids import RunId, is_id
from parley.telemetry import tell

__all__ = ["Execution", "Task", "ToolCall", "ToolCalls"]

KIND = "tool_execution"
"""Where the executions of a conversation are found."""
MAX_TIMEOUT_MS = 3_600_000
_CODES = {"timed_out": "tool_timeout", "canceled": "tool_canceled", "blocked": "tool_blocked", "failed": "tool_failed"}


class _Listed(Struct, frozen=True, array_like=True):
    """An execution in the list of its conversation."""

    run: str
    tool: str


class Task(Struct, frozen=True):
    """What a call has that is a task: why its run is made, and under which key or id, and for which other run."""

    assignment: Assignment | None = None
    once: Key | None = None
    run: RunId | None = None
    parent: RunId | None = None


_UNNAMED = Task()


class _Called(Struct, frozen=True):
    """The one tool of one call, as a pack."""

    toolbox: Toolbox
    agent: Agent
    offer: Offer
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
        self, exchange: Exchange, records: Records, toolbox: Toolbox, *, clock: Clock = now_ms,
        keep_ms: int | None = None, look_s: float = 0.25,
    ) -> None:  # fmt: skip
        self.toolbox = toolbox
        self._exchange = exchange
        self._records = records
        self._clock = clock
        self._tools = Tools(exchange, records, (), clock=clock, keep_ms=keep_ms, look_s=look_s)
        self._executions = Executions(records, 0, keep_ms, clock)

    async def offers(self, agent: Agent) -> "list[Offer]":
        return await self.toolbox.offers(agent)

    async def execute(self, call: ToolCall, progressed: Progressed | None = None) -> Execution:
        """What came of it, also when it failed: then `status` is `failed`, and `code` and `message` say why.

        Refused before anything is called: AgentNotFound, ToolNotFound, ToolAmbiguous, ApprovalRequired, KeyReused,
        Invalid.
        """
        return await self._execute(call, progressed, _UNNAMED)

    async def _execute(self, call: ToolCall, progressed: Progressed | None, task: Task) -> Execution:
        _check(call)
        agent = self._agent(call)
        begun = time.monotonic()
        offer = await self.toolbox.find(agent, call.tool, (call.timeout_ms or TIMEOUT_S * 1000) / 1000)
        self._check_approved(call, offer)
        id_ = task.run or execution_id(call)
        run = call.run or RunId(id_)
        limit_s = self._limit_s(call, agent, offer)
        # What it took to reach a server is part of the time; that it could not be reached is worth saying.
        limit_s = max(limit_s - (time.monotonic() - begun), limit_s / 10)
        asked = _asked(call, id_, run, _Called(self.toolbox, agent, offer, progressed), limit_s)
        if call.run is None:
            opening = Opening(
                agent.slug, call.principal, call.conversation, run, task.assignment, task.parent, task.once
            )  # fmt: skip
            await self._exchange.open(opening)
        await self._list(call.principal, call.conversation, id_, _Listed(run, offer.full))
        return await self._carried_out(asked)

    def _check_approved(self, call: ToolCall, offer: Offer) -> None:
        """A call that needs a person's approval needs it whoever makes it: a model, a caller or an orchestration."""
        driver = self._exchange.driver(call.agent)
        if isinstance(driver, Approving) and needs_approval(driver.approve, offer.full):
            check_approval(call.approved, offer.full, call.input)

    async def perform(self, call: ToolCall, task: Task) -> Outcome:
        """The same as a task: the run that it is, which has ended. What was asked before under its key is told again,
        also when its tool is there no more."""
        self._agent(call)
        before = await self._exchange.commands.replayed(task.once) if task.once else None
        if before is not None and before.run.ended:
            return before
        execution = await self._execute(call, None, task)
        return Outcome(await self._exchange.commands.state(execution.run), [])

    def _agent(self, call: ToolCall) -> Agent:
        """The agent whose tool is called. A run that was started for its caller goes on using its agent's tools."""
        if call.run is not None:
            return self._exchange.agent(call.agent)
        return self._exchange.usable(call.agent, call.principal)

    async def read(self, principal: Principal, conversation: str, execution_id: str) -> Execution | None:
        record = await self._records.get(KIND, _scope(principal, conversation), execution_id)
        if record is None:
            return None
        return await self._found(principal, execution_id, _decode(record.body))

    async def list(
        self, principal: Principal, conversation: str, tool: str | None = None, limit: int = 50, offset: int = 0
    ) -> "tuple[list[Execution], int]":
        """A page of those that have ended, the latest first, and how many there are on all pages."""
        records = [one async for one in self._listed(principal, conversation)]
        wanted = [one for one in records if tool is None or tool in _called(_decode(one.body))]
        page = sorted(wanted, key=lambda one: (one.at, one.id), reverse=True)[offset : offset + limit]
        found = await asyncio.gather(*(self._found(principal, one.id, _decode(one.body)) for one in page))
        return [one for one in found if one is not None], len(wanted)

    async def forget(self, principal: Principal, conversation: str) -> int:
        """Let go of the executions of a conversation; how many. What runs say of them stays in their logs."""
        records = [one async for one in self._listed(principal, conversation)]
        for one in records:
            await self._records.delete("execution", str(principal), f"{_decode(one.body).run} {one.id}")
            await self._records.delete(KIND, one.scope, one.id)
        return len(records)

    async def forget_steps(self, run: Run) -> None:
        """Those of an orchestration's steps, each of which has a conversation of its own."""
        for step in run.children if run.orchestration is not None else ():
            await self.forget(Principal.parse(run.principal), step)

    async def tick(self) -> None:
        """One round: end what broke off with its process, so that nobody waits for it; forget what is old."""
        for place, stored in await self._executions.lapsed(PACK):
            await self._give_up(place, stored)
        await self._tools.tick()

    async def close(self) -> None:
        await self._tools.close()

    async def _carried_out(self, asked: Asked) -> Execution:
        try:
            await self._tools.carry_out(asked)
        except ToolRequestInvalid:
            raise KeyReused("The key was used for another call.") from None
        stored = await self._executions.get(asked.place)
        assert stored is not None
        await self._conclude(stored.execution)
        return _shown(asked.call, stored.execution)

    async def _conclude(self, stored: Stored) -> None:
        """A run of its own ends with its call, once however often it is tried."""
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
        """Whatever it was, it is not done again: what it was given may have been a secret, and was not kept."""
        agent = self._exchange.agents.get(stored.agent)
        offer = Offer(stored.integration, stored.tool.partition("/")[2])
        if agent is None:
            return
        tell("tool.given_up", tool=stored.tool)
        call = ToolCall(
            Principal.parse(place[0]), stored.conversation, stored.agent, stored.tool, {}, run=RunId(stored.run)
        )
        asked = _asked(call, stored.call, stored.run, _Called(self.toolbox, agent, offer), 1.0)
        asked = msgspec.structs.replace(asked, request_hash=stored.request, ask_hash=stored.ask)
        await self._carried_out(asked)

    def _limit_s(self, call: ToolCall, agent: Agent, offer: Offer) -> float:
        own = self.toolbox.server(agent, offer).timeout_s
        return own if call.timeout_ms is None else call.timeout_ms / 1000

    async def _list(self, principal: Principal, conversation: str, id_: str, listed: _Listed) -> None:
        record = Record(KIND, _scope(principal, conversation), id_, _encode(listed), self._clock())
        await self._records.add(record)

    async def _listed(self, principal: Principal, conversation: str) -> AsyncGenerator[Record, None]:
        scope, after = _scope(principal, conversation), ""
        while page := await self._records.list(KIND, scope, (scope, after)):
            for record in page:
                yield record
            after = page[-1].id

    async def _found(self, principal: Principal, id_: str, listed: _Listed) -> Execution | None:
        """None while it is under way, and when it was forgotten."""
        entry = await self._executions.get((str(principal), f"{listed.run} {id_}"))
        return _shown(id_, entry.execution) if entry is not None and entry.execution.ended else None


def _check(call: ToolCall) -> None:
    if not is_id(call.conversation):
        raise ConversationMismatch("A conversation id has 1 to 128 letters, digits or ._:@/+=~-")
    if call.timeout_ms is not None and not 1 <= call.timeout_ms <= MAX_TIMEOUT_MS:
        raise Invalid(f"A timeout is between 1 and {MAX_TIMEOUT_MS:,} ms.", field="timeoutMs")
    if call.key is not None and not 1 <= len(call.key) <= 255:
        raise Invalid("An idempotency key has 1 to 255 characters.", field="Idempotency-Key")


def _asked(call: ToolCall, id_: str, run: str, pack: _Called, limit_s: float) -> Asked:
    """The operator declared the server and the agent that may use it: that is the authorization."""
    offer, rules = pack.offer, pack.rules
    request: Fields = {
        "operation": offer.full, "integration_id": offer.server, "tool_call_id": id_, "run_id": run,
        "thread_id": call.conversation, "input": call.input, "write_approved": True,
    }  # fmt: skip
    policy: Fields = {"authorization_id": f"agent:{call.agent}", "authorization_mode": "system"}
    digest = stable_hash([rules.name, request])
    return Asked(
        call.principal, pack, manifest_for(offer), request, Policy(policy, rules.policy_id), run, call.conversation,
        digest, stable_hash([digest, policy]), agent=call.agent, limit_s=limit_s,
    )  # fmt: skip


def _shown(id_: str, stored: Stored) -> Execution:
    data: Fields = {} if stored.data is UNSET else msgspec.json.decode(stored.data)
    result = fields_of(data.get("provider_result"))
    output = result.get("output")
    well = stored.status == "succeeded"
    return Execution(
        id_, RunId(stored.run), stored.tool.partition("/")[2], stored.integration, _json(stored.input), output,
        "completed" if well else "failed", "" if well else _code(stored), stored.reason, stored.started_at,
        (stored.ended_at or stored.started_at) - stored.started_at, described(stored.integration, output),
        fields_of(data.get("receipt")),
    )  # fmt: skip


def _code(stored: Stored) -> str:
    data: Fields = {} if stored.data is UNSET else msgspec.json.decode(stored.data)
    return text_of(fields_of(data.get("provider_result")).get("code")) or _CODES.get(stored.status, "tool_failed")


def _json(raw: "Raw | msgspec.UnsetType") -> Json:
    return None if raw is UNSET else msgspec.json.decode(raw)


def _called(listed: _Listed) -> tuple[str, str]:
    return listed.tool, listed.tool.partition("/")[2]


def _scope(principal: Principal, conversation: str) -> str:
    """No id of a conversation has a space in it."""
    return f"{conversation} {principal}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Listed).decode
