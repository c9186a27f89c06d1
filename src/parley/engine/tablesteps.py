"""Steps that are asked of their agents by the table of contract 002: tools are called, documents are written, and
whatever else is sent as a message. Each is a run in a conversation of its own."""

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.clock import Clock, now_ms
from parley.core.access import Principal, may_use
from parley.core.actions import BY_NAME, capable
from parley.core.artifacts import Part, text_part
from parley.core.canonical import Fields, Json, fields_of
from parley.core.documents import Assignment, Conversation, Kind
from parley.core.plans import Step
from parley.core.steps import Result
from parley.engine.documents import Asking, Documents
from parley.engine.exchange import Exchange
from parley.engine.planning import Order
from parley.engine.steps import AgentSteps
from parley.engine.toolcalls import Execution, Task, ToolCall, ToolCalls
from parley.errors import AgentNotFound, ApprovalRequired, Invalid, NotFound
from parley.ids import ConversationId

MODES: tuple[tuple[str, str], ...] = (("tool", "execute"), ("plan", "create"), ("build", "create"))
LONG = 32 * 1024
"""An output that is longer is kept as a text, which can lie beside the log."""
_FINAL = frozenset(("tool_canceled", "tool_blocked"))


class _Given(Struct, frozen=True, rename="camel"):
    """What a step with a tool is given."""

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
        if (step.mode, step.action) not in MODES:
            return self._agents.refusal(step, principal)
        agent, action = self._exchange.agents.get(step.agent), BY_NAME[step.mode, step.action]
        if agent is None or not may_use(principal, agent):
            return f"there is no agent {step.agent} here."
        if not capable(agent, action):
            return f"agent {step.agent} does not have capability: {action.capability}"
        return _no_tool(step) if step.mode == "tool" else None

    async def carry_out(self, order: Order) -> Result:
        if (order.step.mode, order.step.action) not in MODES:
            return await self._agents.carry_out(order)
        principal = order.principal
        begun = Conversation(str(principal), ConversationId(order.run), order.step.agent, self._clock())
        try:
            self._exchange.usable(order.step.agent, principal)
            await self._exchange.store.library.begin(begun)
            if order.step.mode == "tool":
                return await self._called(order, principal)
            return await self._written(order, principal, "plan" if order.step.mode == "plan" else "deliverable")
        except (AgentNotFound, ApprovalRequired, Invalid, NotFound) as error:
            return Result("failed", (), error.code, error.message, retryable=False)

    async def _written(self, order: Order, principal: Principal, kind: Kind) -> Result:
        step = order.step
        asking = Asking(
            principal, order.run, step.agent, step.mode, step.action, run=order.run, parent=order.parent
        )  # fmt: skip
        outcome = await self._documents.create(asking, kind, _message(order.input))
        return await self._agents.result(await self._exchange.settled(outcome, ended=True))

    async def _called(self, order: Order, principal: Principal) -> Result:
        try:
            given = msgspec.convert(order.input, _Given)
        except msgspec.ValidationError as error:
            raise Invalid(f"What the tool is given is not right: {error}") from None
        asked = fields_of(order.input).get("input")
        call = ToolCall(principal, order.run, order.step.agent, given.tool_name, fields_of(asked), given.timeout_ms)
        assignment = Assignment(order.step.mode, order.step.action)
        await self._tools.perform(call, Task(assignment, run=order.run, parent=order.parent))
        made = await self._tools.read(principal, order.run, order.run)
        if made is None:
            return Result("failed", (), "tool_failed", "What came of the call is not known.", retryable=False)
        return await self._told(made)

    async def _told(self, made: Execution) -> Result:
        if made.status == "failed":
            return Result("failed", (), made.code, made.message, retryable=made.code not in _FINAL)
        body = msgspec.json.encode(made.output)
        part = Part(data=Raw(body)) if len(body) <= LONG else text_part(body.decode())
        return Result("completed", await self._exchange.attachments.kept((part,)))


def _no_tool(step: Step) -> str | None:
    given: Fields = {} if step.input is UNSET else fields_of(msgspec.json.decode(step.input))
    named = isinstance(given.get("toolName"), str) and isinstance(given.get("input", {}), dict)
    return None if named else "its input has to name a `toolName`, and what that is given as `input`."


def _message(given: Json) -> str:
    said = fields_of(given).get("message", given)
    return said if isinstance(said, str) else msgspec.json.encode(said).decode()
