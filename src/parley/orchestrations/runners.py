"""Step runners: a step is sent to its agent as a message, so any agent with any driver can carry out a step."""

from typing import Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.clock import Clock, now_ms
from parley.documents.rules import Assignment, Conversation, Kind
from parley.documents.service import DocumentRequest, Documents
from parley.errors import AgentNotFound, ApprovalRequired, Invalid, NotFound
from parley.ids import ConversationId, RunId
from parley.json_values import Fields, Json, fields_of
from parley.orchestrations.rules.commands import StepResult
from parley.orchestrations.rules.plan import Step
from parley.runs.rules.access import Principal, may_use
from parley.runs.rules.agents import check_content, has_capability
from parley.runs.rules.commands import Start
from parley.runs.rules.content import Message, Part, Parts, hops_metadata, merged, text_of, text_part
from parley.runs.rules.state import State
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.telemetry.trace import Trace
from parley.tools.mcp_calls import ToolCall, ToolCallRecord, ToolCalls, ToolTask

# The protocol of step runners, and the order for one attempt of a step.


class Order(Struct, frozen=True):
    """One attempt of one step."""

    run: RunId
    """Id of the run that carries it out. It is derived from the orchestration, the step and the attempt, so a process
    that carries out the same order again finds the run already started."""
    parent: RunId
    step: Step
    input: Json
    """Input of the step, with all references replaced."""
    parts: Parts
    """The same input as the parts of a message."""
    principal: Principal
    """The principal on whose behalf the step runs, with the limits of the orchestration's caller."""
    hops: int = 0
    trace: Trace | None = None


class StepRunner(Protocol):
    """Carries out steps as runs of their own."""

    def refusal(self, step: Step, principal: Principal) -> str | None:
        """Return the reason why the step cannot be carried out on behalf of the principal; None if it can."""
        ...

    async def carry_out(self, order: Order) -> StepResult:
        """Start the run `order.run`, or find it, and wait for its end. Cancelling this call only ends the waiting."""
        ...


CONVERSE = ("", "converse")
_BUSY = "queue_full"


class AgentSteps:
    """Carries out a step as a run of its agent, in a conversation of its own."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def refusal(self, step: Step, principal: Principal) -> str | None:
        agent = self._exchange.agents.get(step.agent)
        if agent is None or not may_use(principal, agent):
            return f"there is no agent {step.agent} here."
        if step.mode not in CONVERSE or step.action:
            return f"{step.mode} {step.action}".strip() + " is not supported in a step."
        return None

    async def carry_out(self, order: Order) -> StepResult:
        try:
            start = await self._start(order)
        except (AgentNotFound, Invalid) as error:
            return StepResult("failed", (), error.code, error.message, retryable=False)
        outcome = await self._exchange.begin(order.run, start)
        return await self.result(await self._exchange.settled(outcome, ended=True))

    async def _start(self, order: Order) -> Start:
        agent = self._exchange.usable(order.step.agent, order.principal)
        check_content(agent, order.parts)
        given = Message(f"{order.run}.0", order.parts, hops_metadata(order.hops))
        message = await self._exchange.attachments.stored_message(given)
        conversation = ConversationId(order.run)
        return Start(
            agent.slug,
            conversation,
            str(order.principal),
            message,
            order.parent,
            trace=order.trace,
            reach=order.principal.reach,
        )

    async def result(self, view: View) -> StepResult:
        """Return the result of a run that has ended."""
        said = view.status.said
        words = said.parts if said else ()
        match view.run.state:
            case State.COMPLETED:
                made = tuple(part for artifact in view.artifacts for part in artifact.parts)
                return StepResult("completed", await self._exchange.attachments.kept(merged(made or words)))
            case State.CANCELED:
                return StepResult(
                    "failed", (), "canceled", text_of(words) or "The step's task was canceled.", retryable=False
                )
            case state:
                code = view.code or state.value
                return StepResult("failed", (), code, text_of(words), state is State.FAILED or code == _BUSY)


# Steps that use the actions contract (002): tools are called, documents are written, and everything else is sent as a
# message. Documents are written in the conversation of the outermost orchestration; other steps have a conversation of
# their own, so that agents do not mix up their messages.

CAPABILITIES = {
    ("tool", "execute"): "execute_tool",
    ("plan", "create"): "create_plan",
    ("build", "create"): "create_deliverable",
}
"""Supported modes and actions, with the capability that each requires of its agent."""
LONG = 32 * 1024
"""A longer output is stored as a text, which can be kept outside the log."""
_FINAL = frozenset(("tool_canceled", "tool_blocked"))


class _Given(Struct, frozen=True, rename="camel"):
    """Input of a step that calls a tool."""

    tool_name: str
    input: dict[str, object] = {}
    timeout_ms: int | None = None


class TableSteps:
    def __init__(self, exchange: Exchange, tools: ToolCalls, documents: Documents, clock: Clock = now_ms) -> None:
        self._exchange = exchange
        self._tools = tools
        self._documents = documents
        self._clock = clock
        self._agents = AgentSteps(exchange)

    def refusal(self, step: Step, principal: Principal) -> str | None:
        if (capability := CAPABILITIES.get((step.mode, step.action))) is None:
            return self._agents.refusal(step, principal)
        agent = self._exchange.agents.get(step.agent)
        if agent is None or not may_use(principal, agent):
            return f"there is no agent {step.agent} here."
        if not has_capability(agent, step.mode, step.action, capability):
            return f"agent {step.agent} does not have capability: {capability}"
        return _no_tool(step) if step.mode == "tool" else None

    async def carry_out(self, order: Order) -> StepResult:
        if (order.step.mode, order.step.action) not in CAPABILITIES:
            return await self._agents.carry_out(order)
        principal = order.principal
        try:
            self._exchange.usable(order.step.agent, principal)
            if order.step.mode == "tool":
                await self._begin(principal, ConversationId(order.run), order.step.agent)
                return await self._called(order, principal)
            return await self._written(order, principal, "plan" if order.step.mode == "plan" else "deliverable")
        except (AgentNotFound, ApprovalRequired, Invalid, NotFound) as error:
            return StepResult("failed", (), error.code, error.message, retryable=False)

    # Why: docs/decisions/orchestrations.md#run-document-steps-in-the-orchestrations-conversation
    async def _written(self, order: Order, principal: Principal, kind: Kind) -> StepResult:
        step = order.step
        orchestration, *above = await self._exchange.commands.lineage(order.parent)
        outermost = above[-1] if above else orchestration
        await self._begin(principal, outermost.conversation, outermost.agent)
        asking = DocumentRequest(
            principal,
            outermost.conversation,
            step.agent,
            step.mode,
            step.action,
            run=order.run,
            parent=order.parent,
            about={"orchestrationId": orchestration.orchestration, "stepId": step.id},
        )
        outcome = await self._documents.create(asking, kind, _message(order.input), force_new=True)
        return await self._agents.result(await self._exchange.settled(outcome, ended=True))

    async def _begin(self, principal: Principal, conversation: ConversationId, agent: str) -> None:
        begun = Conversation(str(principal), conversation, agent, self._clock())
        await self._exchange.store.library.begin(begun)

    async def _called(self, order: Order, principal: Principal) -> StepResult:
        try:
            given = msgspec.convert(order.input, _Given)
        except msgspec.ValidationError as error:
            raise Invalid(f"The tool's input is invalid: {error}") from None
        asked = fields_of(order.input).get("input")
        call = ToolCall(principal, order.run, order.step.agent, given.tool_name, fields_of(asked), given.timeout_ms)
        assignment = Assignment(order.step.mode, order.step.action)
        await self._tools.perform(call, ToolTask(assignment, run=order.run, parent=order.parent))
        made = await self._tools.read(principal, order.run, order.run)
        if made is None:
            return StepResult("failed", (), "tool_failed", "The outcome of the tool call is unknown.", retryable=False)
        return await self._told(made)

    async def _told(self, made: ToolCallRecord) -> StepResult:
        if made.status == "failed":
            return StepResult("failed", (), made.code, made.message, retryable=made.code not in _FINAL)
        body = msgspec.json.encode(made.output)
        part = Part(data=Raw(body)) if len(body) <= LONG else text_part(body.decode())
        return StepResult("completed", await self._exchange.attachments.kept((part,)))


def _no_tool(step: Step) -> str | None:
    given: Fields = {} if step.input is UNSET else fields_of(msgspec.json.decode(step.input))
    named = isinstance(given.get("toolName"), str) and isinstance(given.get("input", {}), dict)
    return None if named else "its input must have `toolName` and, as `input`, the arguments of the tool."


def _message(given: Json) -> str:
    said = fields_of(given).get("message", given)
    return said if isinstance(said, str) else msgspec.json.encode(said).decode()
