"""One turn of a run, as its agent sees it."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, TypeVarTuple, overload

from msgspec import Struct
from msgspec.structs import replace

from parley.documents.rules import Assignment
from parley.errors import StepOutsideTurn, ToolNotFound
from parley.execution.rules import checked_usage
from parley.execution.steps import BACKOFF_S, Guard, Steps, unguarded
from parley.ids import ConversationId, RunId, new_id
from parley.json_values import Fields, Json
from parley.offload import off_loop
from parley.orchestrations.rules.state import Orchestration
from parley.runs.rules.access import Principal
from parley.runs.rules.agents import Agent
from parley.runs.rules.answers import answer_in
from parley.runs.rules.content import Artifact, Message, Parts, text_of
from parley.runs.rules.events import (
    QUESTIONS,
    ArtifactAdded,
    Event,
    InputReceived,
    InputRequired,
    Noted,
    Progress,
    caller_of,
)
from parley.runs.rules.state import Run
from parley.runs.rules.transcript import TurnRound, rounds
from parley.runs.rules.usage import ModelTotals, Usage
from parley.runs.rules.view import Answer, StatusMessage, View, answer_of, view_of
from parley.telemetry.trace import NONE, Trace
from parley.tools.rules.mcp import Progressed, ToolOffer
from parley.tools.rules.policy import Approval
from parley.typed import instance_of

# Tool calls: the request, the record, and the interface that carries them out.


class ToolCall(Struct, frozen=True):
    principal: Principal
    conversation: str
    agent: str
    tool: str
    """`server/tool`, or the tool's name alone where that is unique for the agent."""
    input: Fields
    timeout_ms: int | None = None
    key: str | None = None
    """Idempotency key: the same key means the same call, within the run, or else within the conversation and agent."""
    run: RunId | None = None
    approved: Approval | None = None
    """A person's approval, for tools that need one."""


def execution_id(call: ToolCall) -> str:
    """Return the id of a tool call. For a call with a key, it is derived from the key."""
    if call.key is None:
        return new_id()
    whose = call.run or f"{call.conversation}\n{call.agent}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{call.principal}\n{whose}\n{call.key}"))


class ToolCallRecord(Struct, frozen=True):
    id: str
    run: RunId
    tool: str
    server: str
    input: Json
    output: Json
    status: Literal["completed", "failed"]
    code: str
    message: str
    executed_at: int
    execution_time_ms: int
    metadata: Fields
    receipt: Fields


class ToolCaller(Protocol):
    """Carries out tool calls (`parley.tools.mcp_calls.ToolCalls`)."""

    async def offers(self, agent: Agent) -> "list[ToolOffer]": ...

    async def execute(self, call: ToolCall, progressed: Progressed | None = None) -> ToolCallRecord: ...

    async def read(self, principal: Principal, conversation: str, execution_id: str) -> ToolCallRecord | None: ...

    async def list(
        self, principal: Principal, conversation: str, tool: str | None = None, limit: int = 50, offset: int = 0
    ) -> "tuple[list[ToolCallRecord], int]": ...

    async def forget(self, principal: Principal, conversation: str) -> int: ...

    async def forget_steps(self, run: Run) -> None: ...


T = TypeVar("T")
Args = TypeVarTuple("Args")

Ask = Callable[["Turn", int, str, str], Awaitable[View]]
"""Asks another agent. Arguments: the asking turn, the number of the question, the agent, the text."""
Load = Callable[[Parts], Awaitable[Parts]]
Recall = Callable[[int], Awaitable[list[TurnRound]]]
RecallNotes = Callable[[], Awaitable[dict[str, str]]]


class Turn:
    """The new input, everything before it, and methods to ask other agents and use tools."""

    def __init__(
        self,
        agent: Agent,
        run: Run,
        events: Sequence[Event],
        ask: Ask,
        load: Load,
        recall: Recall,
        recall_notes: RecallNotes | None = None,
        trace: Trace = NONE,
        overtaken: asyncio.Event | None = None,
        tooling: ToolCaller | None = None,
        view: View | None = None,
        steps: Steps | None = None,
        guard: Guard = unguarded,
    ) -> None:
        self.agent = agent
        """The agent that is asked, as it is defined: `turn.agent.model`, `turn.agent.tools`."""
        self.trace = trace
        """The trace of this turn, to pass on to services that it calls: `headers_for(turn.trace)`."""
        self.overtaken = overtaken or asyncio.Event()
        """Set when there is new input that only the next turn reads: a driver that ends its turn then gets it at
        once."""
        self._run = run
        self._events = events
        self._ask = ask
        self._load = load
        self._recall = recall
        self._recall_notes = recall_notes
        self._tooling = tooling
        self._steps = steps
        self._guard = guard
        self._used = self._questions = 0
        self._noted: dict[str, str] = {}
        self._recorded: list[Usage] = []
        self._folded = view
        """The view of these events, computed in advance if there are many."""

    @cached_property
    def inputs(self) -> list[Message]:
        """The messages that have arrived since the last turn."""
        run = self._run
        unread, wanted = run.inputs - run.read, run.read - run.read_before
        given: list[Message] = []
        for event in reversed(self._events):
            if len(given) == wanted:
                break
            if event.seq > run.version or not isinstance(event.payload, InputReceived):
                continue
            if unread:
                unread -= 1
            else:
                given.append(event.payload.message)
        return given[::-1]

    @cached_property
    def _view(self) -> View:
        return self._folded or view_of(self._events)

    @cached_property
    def principal(self) -> Principal:
        """The principal for which the run works, with the limits in its log."""
        return caller_of(self._events) or Principal.parse(self._run.principal)

    @property
    def run_id(self) -> RunId:
        """Id of the run: the task's id in A2A."""
        return self._run.id

    @property
    def conversation(self) -> ConversationId:
        """Id of the conversation: the `contextId` in A2A."""
        return self._run.conversation

    @property
    def assignment(self) -> Assignment | None:
        """The purpose of the run, if it has one beyond asking the agent (a document of the actions contract, 002)."""
        return self._run.assignment

    @property
    def number(self) -> int:
        """1 for the first turn of the run."""
        return self._run.turns

    @property
    def attempt(self) -> int:
        """0, or the number of times this turn was interrupted and resumed."""
        return self._run.rescues

    @property
    def epoch(self) -> int:
        return self._run.epoch

    @property
    def offset(self) -> int:
        """Number of inputs of this run that earlier turns have read."""
        return self._run.read_before

    @property
    def question(self) -> str | None:
        """The kind of question with which the previous turn ended, if it did: `input_required` or `auth_required`."""
        end = self._last_end
        return end.type if end is not None and end.type in QUESTIONS else None

    @property
    def answers(self) -> bool:
        """True if the previous turn ended with a question."""
        return self.question is not None

    @cached_property
    def answer(self) -> Json:
        """The answer to the question with which the previous turn ended: the choice, the value that matches the schema,
        or the text if the question expected nothing special. None if the previous turn asked nothing."""
        asked = self._asked
        if asked is None:
            return None
        given = self.inputs[0].parts
        return text_of(given) if asked.expects is None else answer_in(asked.expects, given)

    def answer_as(self, kind: type[T]) -> T:
        """Return the answer as an instance of a class: a data class, a msgspec Struct or a pydantic model."""
        return instance_of(kind, self.answer)

    @property
    def _asked(self) -> InputRequired | None:
        end = self._last_end
        return end.payload if end is not None and isinstance(end.payload, InputRequired) else None

    @property
    def _last_end(self) -> Event | None:
        """The event with which the previous turn ended."""
        events = reversed(self._events)
        return next((event for event in events if event.type in QUESTIONS or event.type == "turn_ended"), None)

    @property
    def notes(self) -> dict[str, str]:
        """Notes of this agent from earlier turns of this run, and from this turn so far."""
        return {**self._run.notes, **self._noted}

    def remember(self, notes: Mapping[str, str]) -> None:
        """Add notes that the agent has just made."""
        self._noted.update(notes)

    @property
    def marks(self) -> list[str]:
        """The agent's own marks of progress since its last note, oldest first."""
        found: list[str] = []
        for event in reversed(self._events):
            if isinstance(event.payload, Noted):
                break
            if isinstance(event.payload, Progress | ArtifactAdded) and event.payload.mark:
                found.append(event.payload.mark)
        return found[::-1]

    @property
    def usage(self) -> dict[str, ModelTotals]:
        """Tokens and cost of earlier turns of this run, by model."""
        return self._run.usage

    def record(self, usage: Usage) -> None:
        """Record tokens and cost in the log, as `yield Usage(…)` does, from code that cannot yield."""
        self._recorded.append(checked_usage(usage))

    async def check_budget(self) -> None:
        """Raise BudgetExceeded, and end the turn with it, if the run may spend nothing more. Call it before a call of a
        model that the server does not know of: steps, questions to other agents and its own models check by
        themselves."""
        await self._guard()

    def take_recorded(self) -> Sequence[Usage]:
        """Return the usage that was recorded since the last call."""
        if not self._recorded:
            return ()
        taken, self._recorded = self._recorded, []
        return taken

    async def earlier_notes(self) -> dict[str, str]:
        """Return the notes of the newest other run of this agent in this conversation, for the same principal."""
        return await self._recall_notes() if self._recall_notes else {}

    @property
    def message(self) -> Message:
        """The newest input."""
        return self.inputs[-1]

    @property
    def text(self) -> str:
        """Text of the newest input."""
        return "\n".join(text_of(message.parts) for message in self.inputs)

    @property
    def history(self) -> list[StatusMessage]:
        """All messages of this run so far, including the new input."""
        said = self._view.status.said
        return [*self._view.history, *([said] if said else [])]

    @property
    def artifacts(self) -> list[Artifact]:
        """Artifacts of this run so far."""
        return self._view.artifacts

    @property
    def orchestration(self) -> Orchestration | None:
        """The orchestration that this run carries out, if it is one."""
        return self._view.orchestration

    async def loaded(self, parts: Parts) -> Parts:
        """Return the same parts with their contents loaded: large contents are stored outside the log."""
        return await self._load(parts)

    async def recall(self, most: int) -> list[TurnRound]:
        """Return the latest rounds before this turn, oldest first: of this run, and of earlier runs of the same
        principal with this agent in the same conversation."""
        here = (await off_loop(len(self._events), lambda: rounds(self._events)))[:-1]
        if len(here) < most:
            here = [*await self._recall(most - len(here)), *here]
        return here[-most:] if most else []

    async def ask(self, agent: str, text: str) -> Answer:
        """Ask another agent and wait. A turn that is resumed gets the same answer and starts no second run."""
        self._questions += 1
        # The number is taken before anything is awaited: questions at the same time keep theirs in a resumed turn.
        number = self._questions
        await self._guard()
        return answer_of(await self._ask(self, number, agent, text))

    @overload
    async def step(
        self,
        name: str,
        work: Callable[[*Args], Coroutine[Any, Any, T]],
        *args: *Args,
        retries: int = 0,
        timeout_s: float | None = None,
        backoff_s: float = BACKOFF_S,
        key: str | None = None,
        shown: bool = True,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        work: Callable[[*Args], T],
        *args: *Args,
        retries: int = 0,
        timeout_s: float | None = None,
        backoff_s: float = BACKOFF_S,
        key: str | None = None,
        shown: bool = True,
    ) -> T: ...

    async def step(
        self,
        name: str,
        work: Callable[..., Any],
        *args: object,
        retries: int = 0,
        timeout_s: float | None = None,
        backoff_s: float = BACKOFF_S,
        key: str | None = None,
        shown: bool = True,
    ) -> Any:
        """Do a piece of work once. Its result is stored in the log before it is returned. A turn that is resumed
        after a crash gets the stored result and does not do the work again.

        A plain function runs in a thread. A failed attempt is retried `retries` times with growing pauses; then
        StepFailed is raised. The result must be JSON: plain values, dataclasses, msgspec structs or pydantic models.

        Steps are recognised by their order. Steps that run at the same time need a `key`: with one, the work is done
        once in the whole run, in whatever order the steps come. A step that is not `shown` sends no progress message.
        """
        return await self._durable(name).run(name, work, args, retries, timeout_s, backoff_s, key, shown)

    async def sleep(self, seconds: float) -> None:
        """Sleep durably: the time at which the sleep ends is stored. During a sleep of more than a second the run holds
        no slot and no process, and the turn is resumed from its beginning when the sleep is over: earlier work is not
        repeated if it was done in steps."""
        await self._durable("sleep").sleep(seconds)

    async def now(self) -> datetime:
        """Return the current time (UTC). A resumed turn gets the same time again."""
        return datetime.fromtimestamp(await self._durable("now").now() / 1000, UTC)

    def _durable(self, name: str) -> Steps:
        if self._steps is None:
            raise StepOutsideTurn(f"Step {name!r} can only run during a turn.")
        return self._steps

    async def tools(self) -> list[ToolOffer]:
        """Return the tools that this agent may use."""
        return await self._tooling.offers(self.agent) if self._tooling is not None else []

    async def use(
        self,
        tool: str,
        given: Fields,
        *,
        key: str | None = None,
        timeout_ms: int | None = None,
        progressed: Progressed | None = None,
        approved: Approval | None = None,
    ) -> ToolCallRecord:
        """Use a tool and wait; `status` is the result. A turn that is resumed gets the result of the earlier call,
        found by its `key`, or by its position among the calls of the turn. `approved` is a person's approval, for tools
        that need one."""
        if self._tooling is None:
            raise ToolNotFound(f"Agent {self.agent.slug} has no tool {tool}.")
        self._used += 1
        call = self._call(tool, given, key or f"{self.number}/{self._used}", timeout_ms)
        return await self._tooling.execute(replace(call, approved=approved), progressed)

    async def used(self, key: str) -> ToolCallRecord | None:
        """Return the result of the call with this key, if it has ended."""
        if self._tooling is None:
            return None
        return await self._tooling.read(self.principal, self.conversation, execution_id(self._call("", {}, key)))

    def _call(self, tool: str, given: Fields, key: str, timeout_ms: int | None = None) -> ToolCall:
        slug = self.agent.slug
        return ToolCall(self.principal, self.conversation, slug, tool, given, timeout_ms, key, self.run_id)


CURRENT: ContextVar[Turn | None] = ContextVar("turn", default=None)
"""The current turn of this asyncio task, for code that an agent calls without passing the turn."""
