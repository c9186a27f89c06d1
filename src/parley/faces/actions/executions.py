"""Actions of the modes tool and orchestrate: tool calls and orchestrations in the format of the contract."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from parley.clock import Clock, iso, now_ms
from parley.documents.conversations import Conversations
from parley.documents.service import Documents
from parley.errors import ExecutionNotFound, OrchestrationNotFound
from parley.faces.actions.messages import decoded
from parley.faces.actions.params import (
    CreateOrchestration,
    ExecuteTool,
    ListExecutions,
    ListOrchestrations,
    OneOrchestration,
    ReadExecution,
    ResumeOrchestration,
    RetryStep,
)
from parley.faces.actions.results import (
    Execution,
    ExecutionRead,
    Executions,
    ExecutionSummary,
    OrchestrationCancelled,
    OrchestrationDeleted,
    OrchestrationPaused,
    OrchestrationRead,
    OrchestrationResumed,
    Orchestrations,
    OrchestrationShown,
    OrchestrationSummary,
    PlanMaker,
    RetryStarted,
    StepRetried,
    StepShown,
    StepsShown,
    ToolExecuted,
)
from parley.faces.actions.table import ActionCall, ActionHandlers, ActionResult, Row
from parley.ids import is_id
from parley.json_values import Fields, Json, fields_of
from parley.orchestrations.rules.commands import estimated_end
from parley.orchestrations.rules.plan import Rules, rules_with
from parley.orchestrations.rules.state import Orchestration, StepState, words_of
from parley.orchestrations.service import Creation, OrchestrationService, creation_key
from parley.runs.log import Outcome
from parley.runs.rules.access import Principal, Reach
from parley.runs.rules.content import Message, Part, Parts, text_of, text_part
from parley.runs.rules.state import WAITING, Run
from parley.runs.service import Exchange
from parley.tools.mcp_calls import ToolCall, ToolCallRecord, ToolCalls, ToolTask

DEFAULT_LIST = 50
SUMMARY = 200
"""Most characters of an input that a list shows."""

_decode = msgspec.json.Decoder().decode


class ToolActions:
    """Actions of the mode tool. Tool calls belong to a conversation, whichever of its agents made them."""

    def __init__(self, tools: ToolCalls, conversations: Conversations) -> None:
        self._tools = tools
        self._conversations = conversations

    def handlers(self) -> dict[Row, ActionHandlers]:
        return {
            ("tool", "execute"): ActionHandlers(self.execute, self.executed, self.failed),
            ("tool", "read"): ActionHandlers(self.read),
            ("tool", "list"): ActionHandlers(self.list),
        }

    async def execute(self, call: ActionCall) -> Outcome:
        await self._conversations.require(call.principal, call.conversation)
        params, request = call.read(ExecuteTool), call.request
        given = fields_of(decoded(_decode, msgspec.json.encode(params.input)))
        tool = ToolCall(
            call.principal, call.conversation, params.agent_slug, params.tool_name, given, params.timeout_ms, call.key
        )
        return await self._tools.perform(tool, ToolTask(request.assignment, request.once))

    async def executed(self, run: Run, _: bytes) -> ToolExecuted | None:
        """Return the result of a tool call; None if it is no longer stored."""
        found = await self._record(run)
        if found is None:
            return None
        about = _raw({"executionId": found.id, **found.metadata})
        return ToolExecuted(found.tool, _raw(found.output), found.execution_time_ms, about)

    async def failed(self, run: Run) -> dict[str, Any]:
        """Return the names of the tool that failed and of its server."""
        found = await self._record(run)
        return {"toolName": found.tool, "mcpServer": found.server} if found is not None else {}

    async def _record(self, run: Run) -> ToolCallRecord | None:
        return await self._tools.read(Principal.parse(run.principal), run.conversation, run.id)

    async def read(self, call: ActionCall) -> ActionResult:
        await self._conversations.require(call.principal, call.conversation)
        id_ = call.read(ReadExecution).execution_id
        found = await self._tools.read(call.principal, call.conversation, id_) if is_id(id_) else None
        if found is None:
            raise ExecutionNotFound(
                "This conversation has no finished tool call with this id.", execution=id_[:SUMMARY]
            )
        return ActionResult(ExecutionRead(_shown_execution(found)))

    async def list(self, call: ActionCall) -> ActionResult:
        await self._conversations.require(call.principal, call.conversation)
        params = call.read(ListExecutions)
        limit, offset = params.limit or DEFAULT_LIST, params.offset or 0
        found, total = await self._tools.list(call.principal, call.conversation, params.tool_name, limit, offset)
        return ActionResult(Executions([_execution_summary(one) for one in found], total, offset + limit < total))


def _shown_execution(one: ToolCallRecord) -> Execution:
    about: Fields = {"executionTimeMs": one.execution_time_ms, **one.metadata}
    if one.status == "failed":
        about["error"] = {"code": one.code, "message": one.message}
    return Execution(one.id, one.tool, _raw(one.input), _raw(one.output), one.status, iso(one.executed_at), _raw(about))


def _execution_summary(one: ToolCallRecord) -> ExecutionSummary:
    text = msgspec.json.encode(one.input).decode()
    text = text if len(text) <= SUMMARY else f"{text[: SUMMARY - 1]}…"
    return ExecutionSummary(one.id, one.tool, text, one.status, iso(one.executed_at), one.execution_time_ms)


def _raw(value: Json) -> Raw:
    return Raw(msgspec.json.encode(value))


class _Created(Struct, frozen=True):
    orchestration: str


class OrchestrationActions:
    """Actions of the mode orchestrate. Each action is stored as a task of its own; the orchestration has another id."""

    def __init__(
        self, exchange: Exchange, documents: Documents, conversations: Conversations, clock: Clock = now_ms
    ) -> None:
        self._exchange = exchange
        self._orchestrations = OrchestrationService(exchange)
        self._documents = documents
        self._conversations = conversations
        self._clock = clock

    def handlers(self) -> dict[Row, ActionHandlers]:
        return {
            ("orchestrate", "create"): ActionHandlers(self.create, self.created),
            ("orchestrate", "read"): ActionHandlers(self.read),
            ("orchestrate", "list"): ActionHandlers(self.list),
            ("orchestrate", "pause"): ActionHandlers(self.pause, _recorded(OrchestrationPaused)),
            ("orchestrate", "resume"): ActionHandlers(self.resume, _recorded(OrchestrationResumed)),
            ("orchestrate", "cancel"): ActionHandlers(self.cancel, _recorded(OrchestrationCancelled)),
            ("orchestrate", "retry_step"): ActionHandlers(self.retry_step, _recorded(RetryStarted)),
            ("orchestrate", "delete"): ActionHandlers(self.delete, _recorded(OrchestrationDeleted)),
        }

    async def create(self, call: ActionCall) -> Outcome:
        await self._conversations.require(call.principal, call.conversation)
        params = call.read(CreateOrchestration)
        rules = self._exchange.agents.rules(params.agent_slug) or Rules()
        if (config := params.config) is not None:
            rules = rules_with(
                rules, config.max_parallel_steps, config.step_timeout_ms, config.auto_retry, config.max_retries
            )
        key, id_ = creation_key(call.principal, params.agent_slug, call.conversation, call.key)
        message = Message(id_, (text_part(params.message),))
        creation = Creation(params.agent_slug, call.principal, message, call.conversation, rules, key)

        async def do() -> dict[str, object]:
            return {"orchestration": (await self._orchestrations.create_planned(creation)).id}

        return await self._documents.once(call.request, do)

    async def created(self, run: Run, data: bytes) -> OrchestrationRead | None:
        """Return the orchestration in its present state; None if it was deleted since. The run's record names it, so
        callers with access to the run may read the orchestration too."""
        id_ = msgspec.json.decode(data, type=_Created).orchestration
        try:
            state = await self._orchestrations.read(id_, Principal.parse(run.principal, Reach(admin=True)))
        except OrchestrationNotFound:
            return None
        return OrchestrationRead(await shown_begun(self._exchange, state, self._clock()))

    async def read(self, call: ActionCall) -> ActionResult:
        state = await self._chosen(call)
        return ActionResult(OrchestrationRead(await shown_orchestration(self._exchange, state, self._clock())))

    async def list(self, call: ActionCall) -> ActionResult:
        await self._conversations.require(call.principal, call.conversation)
        params = call.read(ListOrchestrations)
        limit, offset = params.limit or DEFAULT_LIST, params.offset or 0
        page = await self._orchestrations.list(
            call.conversation, call.principal, status=params.status, limit=limit, offset=offset
        )
        shown = [*map(orchestration_summary, page.orchestrations)]
        return ActionResult(Orchestrations(shown, page.total, offset + limit < page.total))

    async def pause(self, call: ActionCall) -> Outcome:
        async def do() -> OrchestrationPaused:
            state = await self._orchestrations.pause((await self._chosen(call)).id, call.principal)
            return OrchestrationPaused(state.id, "paused", iso(state.steered_at), state.current)

        return await self._once(call, do)

    async def resume(self, call: ActionCall) -> Outcome:
        async def do() -> OrchestrationResumed:
            chosen, params = (await self._chosen(call)).id, call.read(ResumeOrchestration)
            if params.message:
                key, _ = creation_key(call.principal, params.agent_slug, call.conversation, call.key)
                step = params.step_id or None
                state = await self._orchestrations.answer(chosen, call.principal, params.message, step, key)
                return OrchestrationResumed(state.id, "running", iso(self._clock()), state.current)
            state = await self._orchestrations.resume(chosen, call.principal)
            return OrchestrationResumed(state.id, "running", iso(state.steered_at), state.current)

        return await self._once(call, do)

    async def cancel(self, call: ActionCall) -> Outcome:
        async def do() -> OrchestrationCancelled:
            state = await self._orchestrations.cancel((await self._chosen(call)).id, call.principal)
            completed, cancelled = state.count("completed"), state.count("cancelled")
            return OrchestrationCancelled(state.id, "cancelled", iso(state.ended_at), completed, cancelled)

        return await self._once(call, do)

    async def retry_step(self, call: ActionCall) -> Outcome:
        async def do() -> RetryStarted:
            chosen, id_ = await self._chosen(call), call.read(RetryStep).step_id
            step = (await self._orchestrations.retry_step(chosen.id, call.principal, id_)).step(id_)
            status = step.status if step.status in ("completed", "failed") else "running"
            return RetryStarted(chosen.id, StepRetried(id_, status, chosen.step(id_).attempt))

        return await self._once(call, do)

    async def delete(self, call: ActionCall) -> Outcome:
        async def do() -> OrchestrationDeleted:
            id_ = await self._orchestrations.delete((await self._chosen(call)).id, call.principal)
            return OrchestrationDeleted(True, id_)

        return await self._once(call, do)

    async def _chosen(self, call: ActionCall) -> Orchestration:
        """Return the orchestration that the request names, or else the current one of the conversation."""
        await self._conversations.require(call.principal, call.conversation)
        id_ = call.read(OneOrchestration).orchestration_id
        return await self._orchestrations.chosen(call.conversation, call.principal, id_)

    async def _once(self, call: ActionCall, do: Callable[[], Awaitable[Struct]]) -> Outcome:
        """Call `do` and record its result, unless the same request did so before."""

        async def recorded() -> dict[str, object]:
            return msgspec.to_builtins(await do())

        return await self._documents.once(call.request, recorded)


def _recorded(type_: type[Struct]) -> Callable[[Run, bytes], Awaitable[object]]:
    async def result(run: Run, data: bytes) -> object:
        return msgspec.json.decode(data, type=type_)

    return result


async def shown_begun(exchange: Exchange, one: Orchestration, now: int) -> OrchestrationShown:
    """Render an orchestration as the response to its creation."""
    steps = [await _step(exchange, each) for each in one.steps]
    end = estimated_end(one, now)
    maker = PlanMaker(one.model, one.tokens) if one.model else None
    return OrchestrationShown(
        one.id,
        one.conversation,
        one.status,
        StepsShown(steps, maker),
        one.current,
        one.total,
        iso(one.started_at or one.created_at),
        estimated_completion_at=None if end is None else iso(end),
        question=one.step(one.asked[0]).step.checkpoint if one.asked else None,
    )


async def shown_orchestration(exchange: Exchange, one: Orchestration, now: int) -> OrchestrationShown:
    """Render an orchestration with the results of its steps."""
    results = {each.step.id: await _output(exchange, each.output) for each in one.steps if each.status == "completed"}
    error = Raw(msgspec.json.encode({"code": one.code, "message": one.reason})) if one.status == "failed" else None
    return replace(
        await shown_begun(exchange, one, now),
        completed_steps=one.count("completed"),
        failed_steps=one.count("failed"),
        results=results,
        completed_at=iso(one.ended_at) if one.ended else None,
        error=error,
    )


def orchestration_summary(one: Orchestration) -> OrchestrationSummary:
    return OrchestrationSummary(
        one.id,
        one.status,
        one.total,
        one.count("completed"),
        iso(one.started_at or one.created_at),
        iso(one.ended_at) if one.ended else None,
    )


async def _step(exchange: Exchange, one: StepState) -> StepShown:
    run = await exchange.commands.stored(one.run) if one.run is not None else None
    return StepShown(
        one.step.id,
        one.step.agent,
        one.step.mode or "converse",
        one.step.action or "message",
        list(one.step.depends_on),
        one.status,
        one.run,
        run.conversation or None if run is not None else None,
        await _question(exchange, run) if run is not None and run.state in WAITING else None,
    )


async def _question(exchange: Exchange, run: Run) -> str | None:
    said = (await exchange.view(run.id, told=True)).status.said
    return text_of(said.parts) if said is not None else None


async def _output(exchange: Exchange, parts: Parts) -> Raw:
    """Return the output of a tool unchanged, any other output as text."""
    if len(parts) == 1 and parts[0].data is not UNSET:
        return parts[0].data
    loaded: list[Part] = []
    for part in parts:
        is_text = part.blob is not None and part.blob.text
        loaded += await exchange.attachments.loaded((part,)) if is_text else (part,)
    return Raw(msgspec.json.encode(words_of(tuple(loaded))))
