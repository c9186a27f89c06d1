"""Present state of tasks: the envelope of a run, or of an action without a run; and the stream of a task's events."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.types import Receive, Send

from parley.clock import iso
from parley.documents.action_log import ActionLog
from parley.documents.rules import DocumentChange
from parley.errors import InvalidCursor, RunNotFound, StaleCursor, StaleVersion
from parley.faces.actions.messages import (
    About,
    Envelope,
    Fault,
    QuestionEvent,
    StatusEvent,
    TaskEvent,
    TaskStreamEvent,
    TextEvent,
    encode,
    envelope_of,
    started_at,
)
from parley.faces.actions.results import Answered, Waiting
from parley.faces.actions.table import ActionHandlers, Code, Row
from parley.http import sse
from parley.ids import is_id
from parley.runs.rules.access import Principal
from parley.runs.rules.content import Artifact, Parts, text_of
from parley.runs.rules.events import (
    ENDINGS,
    RESPONSE,
    ArtifactAdded,
    AuthRequired,
    Event,
    InputRequired,
    Planned,
    Progress,
    Rescued,
    Started,
    Steered,
    Stepped,
    Submitted,
    Suspended,
    TurnEnded,
)
from parley.runs.rules.state import WAITING, Run, State
from parley.runs.rules.view import View
from parley.runs.rules.view import told as text_of_step
from parley.runs.service import Exchange
from parley.runs.streams import Follower


class _Usage(Struct, frozen=True, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0


class _Maker(Struct, frozen=True):
    """Model and tokens of an answer, from its metadata, if a model made it."""

    model: str = ""
    usage: _Usage = _Usage()


_maker = msgspec.json.Decoder(_Maker).decode


class Tasks:
    def __init__(self, exchange: Exchange, log: ActionLog, handlers: Mapping[Row, ActionHandlers]) -> None:
        self._exchange = exchange
        self._log = log
        self._handlers = handlers

    async def find(self, principal: Principal, id_: str) -> Run | DocumentChange:
        """Return the task with this id; raise if it does not exist or the principal has no access."""
        if not is_id(id_):
            raise RunNotFound("There is no task with this id.")
        return await self._log.visible(id_, principal) or await self._exchange.visible(id_, principal)

    async def read(self, principal: Principal, id_: str) -> Envelope:
        found = await self.find(principal, id_)
        if isinstance(found, DocumentChange):
            return operation_envelope(found)
        return await self.envelope(await self._exchange.view(found.id))

    async def envelope(self, view: View) -> Envelope:
        run = view.run
        if run.beside:
            view = await self._exchange.view(run.id, told=True)
        result = await self._result(view) if run.state is State.COMPLETED or run.state in WAITING else UNSET
        error = await self._fault(view) if run.ended and run.state is not State.COMPLETED else UNSET
        return envelope_of(run, result=result, error=error, metadata=_about(view))

    async def _fault(self, view: View) -> Fault:
        fault, handlers = fault_of(view), self._handlers_of(view.run)
        if handlers is None or handlers.fault is None:
            return fault
        return msgspec.structs.replace(fault, details={**fault.details, **await handlers.fault(view.run)})

    async def _result(self, view: View) -> Any | UnsetType:
        run = view.run
        if run.state in WAITING:
            return _waiting(view) if view.status.said is not None else UNSET
        if run.assignment is None:
            return Answered(_answer(view))
        return await self.result_of(run, view.status.said.parts if view.status.said else ())

    async def result_of(self, run: Run, parts: Parts) -> Any | UnsetType:
        """Return the result of a run that was made for an action and completed with these parts. A read has no result:
        the content that it returned may have changed since."""
        handlers = self._handlers_of(run)
        if handlers is None or handlers.result is None:
            return UNSET
        data = next((bytes(part.data) for part in parts if part.data is not UNSET), b"")
        return await handlers.result(run, data)

    def _handlers_of(self, run: Run) -> ActionHandlers | None:
        made_for = run.assignment
        return self._handlers.get((made_for.mode, made_for.action)) if made_for is not None else None


def operation_envelope(one: DocumentChange) -> Envelope:
    """Return the envelope of an action without a run, from the log of actions."""
    return Envelope(
        one.id,
        one.conversation,
        "failed" if one.code else "completed",
        iso(one.started_at),
        error=Fault(cast("Code", one.code), one.message) if one.code else UNSET,
        completed_at=iso(one.completed_at),
        metadata=About(one.completed_at - one.started_at),
    )


def fault_of(view: View) -> Fault:
    """Return the reason why a run did not complete, with the message of its agent or of this server."""
    said = view.status.said
    words = text_of(said.parts) if said else ""
    details: dict[str, Any] = {"state": view.run.state.value}
    if said is not None and said.metadata is not UNSET:
        details |= {"reason": msgspec.json.decode(said.metadata).get("code")}
    match view.run.state:
        case State.CANCELED:
            return Fault("TASK_CANCELED", words or "The task was canceled.", details)
        case State.REJECTED:
            return Fault("TASK_REJECTED", words, details)
        case _ if view.code == StaleVersion.code:
            return Fault("STALE_VERSION", words, details)
        case _ if is_tool(view.run):
            return Fault("TOOL_EXECUTION_FAILED", words, {**details, "executionId": view.run.id})
        case _:
            return Fault("LLM_EXECUTION_FAILED", words, details)


def is_tool(run: Run) -> bool:
    """Return True if a run is a tool call without work of an agent."""
    return run.assignment is not None and run.assignment.mode == "tool"


def _waiting(view: View) -> Waiting:
    said = view.status.said
    needs = "auth" if view.run.state is State.AUTH_REQUIRED else "input"
    return Waiting(text_of(said.parts) if said else "", needs)


def _answer(view: View) -> str:
    said = view.status.said
    made = "".join(text_of(artifact.parts) for artifact in view.artifacts)
    return made or (text_of(said.parts) if said else "")


def _about(view: View) -> About | UnsetType:
    run = view.run
    if not run.ended:
        return UNSET
    took = run.status_at - started_at(run)
    maker = _made_by(view)
    if maker is None:
        return About(took)
    return About(took, maker.model or None, maker.usage.input_tokens + maker.usage.output_tokens or None)


def _made_by(view: View) -> _Maker | None:
    """Return the model of the last answer, from its metadata."""
    found = [one.metadata for one in view.artifacts if _is_answer(one)]
    if view.reply is not None:
        found.append(view.reply.metadata)
    for metadata in reversed(found):
        if metadata is not UNSET:
            try:
                return _maker(metadata)
            except msgspec.MsgspecError:
                continue
    return None


def _is_answer(artifact: Artifact) -> bool:
    return artifact.name == RESPONSE


# The log of a task as server-sent events, resumable after any event.

_OF_OPERATION = 1
"""Number of the only event of an action without a run."""


class _Step(Struct, frozen=True):
    data: bytes = b""
    last: bool = False


_SILENCE, _END = _Step(), _Step(last=True)


class TaskStream:
    """An open stream that has sent nothing yet. All checks that can refuse the request have passed."""

    def __init__(self, steps: AsyncGenerator[_Step, None], follower: Follower | None = None) -> None:
        self._steps = steps
        self._follower = follower

    async def write(self, receive: Receive, send: Send) -> None:
        try:
            await sse.write(receive, send, self._steps, _written)
        finally:
            await self._steps.aclose()
            if self._follower is not None:
                self._follower.close()


class TaskStreaming:
    def __init__(self, exchange: Exchange, tasks: Tasks) -> None:
        self._exchange = exchange
        self._tasks = tasks
        self._latest: tuple[Sequence[Event], _Step] = ((), _SILENCE)
        """The last step, cached: all followers of a run get the same list of events at the same moment."""

    async def open(self, found: Run | DocumentChange, last_event: str | None) -> TaskStream:
        cursor = _cursor(last_event)
        if isinstance(found, DocumentChange):
            return TaskStream(_noted(found, cursor or 0))
        try:
            follower = await self._exchange.follow(found.id, cursor or 0)
        except StaleCursor:
            if cursor is not None or not found.ended:
                raise
            return TaskStream(self._ended(found))
        return TaskStream(self._followed(found, follower), follower)

    async def _followed(self, run: Run, follower: Follower) -> AsyncGenerator[_Step, None]:
        """Yield the steps of stored events, then of new ones."""
        if run.ended and follower.cursor >= run.version:
            yield _END
            return
        step = _SILENCE
        while not step.last:
            events = await follower.next(sse.KEEP_ALIVE_S)
            step = await self._made(run, events) if events else _SILENCE
            yield step

    async def _ended(self, run: Run) -> AsyncGenerator[_Step, None]:
        """Yield the envelope of a run whose events are no longer stored."""
        yield _Step(await self._last(run, run.version), last=True)

    async def _made(self, run: Run, events: Sequence[Event]) -> _Step:
        if self._latest[0] is events:
            return self._latest[1]
        data = b""
        for event in await self._exchange.attachments.told(events):
            if event.type in ENDINGS:
                step = _Step(data + await self._last(run, event.seq), last=True)
                break
            if (shown := shown_event(event)) is not None:
                data += sse.frame(event.seq, encode(shown))
        else:
            step = _Step(data)
        self._latest = events, step
        return step

    async def _last(self, run: Run, seq: int) -> bytes:
        envelope = await self._tasks.envelope(await self._exchange.view(run.id))
        return sse.frame(seq, encode(TaskEvent(envelope)))


def shown_event(event: Event) -> TaskStreamEvent | None:
    """Return the stream's message for an event; None if the event is the last or has none."""
    match event.payload:
        case Submitted() | TurnEnded() | Rescued() | Suspended():
            return StatusEvent(event.run, "pending")
        case Started():
            return StatusEvent(event.run, "running")
        case Progress(parts) if parts:
            return StatusEvent(event.run, "running", text_of(parts) or UNSET)
        case Planned() | Stepped() | Steered():
            return StatusEvent(event.run, "running", text_of_step(event.payload))
        case ArtifactAdded(_, parts, name, append=append) if name == RESPONSE and (text_of(parts) or not append):
            return TextEvent(event.run, text_of(parts), reset=not append)
        case InputRequired(parts):
            return QuestionEvent(event.run, text_of(parts), "input")
        case AuthRequired(parts):
            return QuestionEvent(event.run, text_of(parts), "auth")
        case _:
            return None


async def _noted(one: DocumentChange, cursor: int) -> AsyncGenerator[_Step, None]:
    frame = sse.frame(_OF_OPERATION, encode(TaskEvent(operation_envelope(one))))
    yield _Step(frame if cursor < _OF_OPERATION else b"", last=True)


def _cursor(given: str | None) -> int | None:
    if given is None or given == "":
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise InvalidCursor("Last-Event-ID must be the number of an event.")
    return int(given)


def _written(step: _Step) -> sse.Chunk:
    return step.data, step.last
