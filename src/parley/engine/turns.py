"""One turn of a run, as its agent sees it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property

from msgspec.structs import replace

from parley.core.access import Principal
from parley.core.agents import Agent
from parley.core.approvals import Approval
from parley.core.artifacts import Artifact, Parts, text_of
from parley.core.canonical import Fields
from parley.core.conversations import Message
from parley.core.dialogue import Round, rounds
from parley.core.documents import Assignment
from parley.core.events import QUESTIONS, ArtifactAdded, Event, InputReceived, Noted, Progress, caller_of
from parley.core.mcp import Offer, Progressed
from parley.core.orchestrations import Orchestration
from parley.core.runs import Run
from parley.core.views import Said, View, view_of
from parley.engine.offload import off_loop
from parley.engine.toolwords import Execution, ToolCall, Tooling, execution_id
from parley.errors import ToolNotFound
from parley.ids import ConversationId, RunId
from parley.telemetry.trace import NONE, Trace

Ask = Callable[[str, str], Awaitable[View]]
Load = Callable[[Parts], Awaitable[Parts]]
Recall = Callable[[int], Awaitable[list[Round]]]
RecallNotes = Callable[[], Awaitable[dict[str, str]]]


class Answer:
    """What another agent made of a question."""

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def state(self) -> str:
        return self._view.status.state.value

    @property
    def text(self) -> str:
        """Its artifacts' text, or what it said last."""
        made = "".join(text_of(artifact.parts) for artifact in self.artifacts)
        said = self._view.status.said
        return made or (text_of(said.parts) if said else "")

    @property
    def artifacts(self) -> list[Artifact]:
        return self._view.artifacts


class Turn:
    """The new input, everything before it, and a way to ask other agents."""

    def __init__(
        self, agent: Agent, run: Run, events: Sequence[Event], ask: Ask, load: Load, recall: Recall,
        recall_notes: RecallNotes | None = None, trace: Trace = NONE, overtaken: asyncio.Event | None = None,
        tooling: Tooling | None = None, view: View | None = None,
    ) -> None:  # fmt: skip
        self.agent = agent
        """The agent that is asked, as it is defined: `turn.agent.model`, `turn.agent.tools`."""
        self.trace = trace
        """What this turn is part of, to be carried on by whatever it calls: `headers_for(turn.trace)`."""
        self.overtaken = overtaken or asyncio.Event()
        """Set when input has come that only the next turn reads: whoever ends its turn then hears it at once."""
        self._run = run
        self._events = events
        self._ask = ask
        self._load = load
        self._recall = recall
        self._recall_notes = recall_notes
        self._tooling = tooling
        self._used = 0
        self._noted: dict[str, str] = {}
        self._folded = view
        """The view of these events, where they are too many to be folded when somebody asks."""

    @cached_property
    def inputs(self) -> list[Message]:
        """What has come since the last turn."""
        given = [event.payload.message for event in self._events if isinstance(event.payload, InputReceived)]
        return given[self._run.read_before : self._run.read]

    @cached_property
    def _view(self) -> View:
        return self._folded or view_of(self._events)

    @cached_property
    def principal(self) -> Principal:
        """On whose behalf the run works, with the limits that its log knows."""
        return caller_of(self._events) or Principal.parse(self._run.principal)

    @property
    def run_id(self) -> RunId:
        return self._run.id

    @property
    def conversation(self) -> ConversationId:
        return self._run.conversation

    @property
    def assignment(self) -> Assignment | None:
        """What the run was made for, if a contract says more than that the agent is asked."""
        return self._run.assignment

    @property
    def number(self) -> int:
        """1 for the first turn of the run."""
        return self._run.turns

    @property
    def attempt(self) -> int:
        """0, or how often this turn was broken off and taken up again."""
        return self._run.rescues

    @property
    def epoch(self) -> int:
        return self._run.epoch

    @property
    def offset(self) -> int:
        """How many inputs of this run earlier turns have read."""
        return self._run.read_before

    @property
    def question(self) -> str | None:
        """How the turn before this one asked, if it did: `input_required` or `auth_required`."""
        ends = [event.type for event in self._events if event.type in QUESTIONS or event.type == "turn_ended"]
        return ends[-1] if ends and ends[-1] in QUESTIONS else None

    @property
    def answers(self) -> bool:
        """Whether the turn before this one ended with a question."""
        return self.question is not None

    @property
    def notes(self) -> dict[str, str]:
        """What this agent noted in earlier turns of this run, and in this one so far."""
        return {**self._run.notes, **self._noted}

    def remember(self, notes: Mapping[str, str]) -> None:
        """Add notes that the agent has just made."""
        self._noted.update(notes)

    @property
    def marks(self) -> list[str]:
        """How far this agent had come since its last note, in its own words, oldest first."""
        found: list[str] = []
        for event in reversed(self._events):
            if isinstance(event.payload, Noted):
                break
            if isinstance(event.payload, Progress | ArtifactAdded) and event.payload.mark:
                found.append(event.payload.mark)
        return found[::-1]

    async def earlier_notes(self) -> dict[str, str]:
        """The notes of the newest other run of this agent in this conversation, of the same principal."""
        return await self._recall_notes() if self._recall_notes else {}

    @property
    def message(self) -> Message:
        """The newest input."""
        return self.inputs[-1]

    @property
    def text(self) -> str:
        return "\n".join(text_of(message.parts) for message in self.inputs)

    @property
    def history(self) -> list[Said]:
        """Everything said in this run so far, the new input included."""
        said = self._view.status.said
        return [*self._view.history, *([said] if said else [])]

    @property
    def artifacts(self) -> list[Artifact]:
        return self._view.artifacts

    @property
    def orchestration(self) -> Orchestration | None:
        """What this run carries out, if it is an orchestration."""
        return self._view.orchestration

    async def loaded(self, parts: Parts) -> Parts:
        """The same parts with their bytes in place: large ones are kept beside the log."""
        return await self._load(parts)

    async def recall(self, most: int) -> list[Round]:
        """The latest rounds before this turn, oldest first: of this run, and of what the same principal has asked this
        agent before in the same conversation.
        """
        here = (await off_loop(len(self._events), lambda: rounds(self._events)))[:-1]
        if len(here) < most:
            here = [*await self._recall(most - len(here)), *here]
        return here[-most:] if most else []

    async def ask(self, agent: str, text: str) -> Answer:
        """Ask another agent and wait. A turn that is taken up again finds the same answer and starts no second run."""
        return Answer(await self._ask(agent, text))

    async def tools(self) -> list[Offer]:
        """The tools that this agent may use."""
        return await self._tooling.offers(self.agent) if self._tooling is not None else []

    async def use(
        self, tool: str, given: Fields, *, key: str | None = None, timeout_ms: int | None = None,
        progressed: Progressed | None = None, approved: Approval | None = None,
    ) -> Execution:  # fmt: skip
        """Use a tool and wait; `status` says whether it went well. A turn that is taken up again finds what came of the
        call before, by its `key`, or by its place among the calls of the turn. `approved` is a person's approval, for
        tools that need one."""
        if self._tooling is None:
            raise ToolNotFound(f"Agent {self.agent.slug} has no tool {tool}.")
        self._used += 1
        call = self._call(tool, given, key or f"{self.number}/{self._used}", timeout_ms)
        return await self._tooling.execute(replace(call, approved=approved), progressed)

    async def used(self, key: str) -> Execution | None:
        """What came of the call with this key, if it has ended."""
        if self._tooling is None:
            return None
        return await self._tooling.read(self.principal, self.conversation, execution_id(self._call("", {}, key)))

    def _call(self, tool: str, given: Fields, key: str, timeout_ms: int | None = None) -> ToolCall:
        slug = self.agent.slug
        return ToolCall(self.principal, self.conversation, slug, tool, given, timeout_ms, key, self.run_id)


CURRENT: ContextVar[Turn | None] = ContextVar("turn", default=None)
"""The turn that is under way in this task, for what an agent calls without handing it on."""
