"""A task's log as server-sent events in the words of contract 002, resumable from any event."""

from collections.abc import AsyncGenerator, Sequence

from msgspec import UNSET, Struct
from starlette.types import Receive, Send

from parley.core.artifacts import text_of
from parley.core.documents import Operation
from parley.core.events import (
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
    TurnEnded,
)
from parley.core.runs import Run
from parley.core.views import told
from parley.engine.exchange import Exchange
from parley.engine.streams import Follower
from parley.errors import InvalidCursor, StaleCursor
from parley.faces import sse
from parley.faces.modes.tasks import Tasks, operation_envelope
from parley.faces.modes.words import QuestionEvent, StatusEvent, TaskEvent, TaskStreamEvent, TextEvent, encode

_OF_OPERATION = 1
"""The only event of what was asked without a run."""


class _Step(Struct, frozen=True):
    data: bytes = b""
    last: bool = False


_SILENCE, _END = _Step(), _Step(last=True)


class TaskStream:
    """Opened, and not yet begun: what can be refused has been."""

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


class Streaming:
    def __init__(self, exchange: Exchange, tasks: Tasks) -> None:
        self._exchange = exchange
        self._tasks = tasks
        self._latest: tuple[Sequence[Event], _Step] = ((), _SILENCE)
        """What was made last: all who follow a run are offered the same list of events at the same moment."""

    async def open(self, found: Run | Operation, last_event: str | None) -> TaskStream:
        cursor = _cursor(last_event)
        if isinstance(found, Operation):
            return TaskStream(_noted(found, cursor or 0))
        try:
            follower = await self._exchange.follow(found.id, cursor or 0)
        except StaleCursor:
            if cursor is not None or not found.ended:
                raise
            return TaskStream(self._ended(found))
        return TaskStream(self._followed(found, follower), follower)

    async def _followed(self, run: Run, follower: Follower) -> AsyncGenerator[_Step, None]:
        """First what is stored, then what comes."""
        if run.ended and follower.cursor >= run.version:
            yield _END
            return
        step = _SILENCE
        while not step.last:
            events = await follower.next(sse.KEEP_ALIVE_S)
            step = await self._made(run, events) if events else _SILENCE
            yield step

    async def _ended(self, run: Run) -> AsyncGenerator[_Step, None]:
        """The log is forgotten; how it ended is not."""
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
    """What an event shows, unless it is the last or shows nothing."""
    match event.payload:
        case Submitted() | TurnEnded() | Rescued():
            return StatusEvent(event.run, "pending")
        case Started():
            return StatusEvent(event.run, "running")
        case Progress(parts) if parts:
            return StatusEvent(event.run, "running", text_of(parts) or UNSET)
        case Planned() | Stepped() | Steered():
            return StatusEvent(event.run, "running", told(event.payload))
        case ArtifactAdded(_, parts, name, append=append) if name == RESPONSE and (text_of(parts) or not append):
            return TextEvent(event.run, text_of(parts), reset=not append)
        case InputRequired(parts):
            return QuestionEvent(event.run, text_of(parts), "input")
        case AuthRequired(parts):
            return QuestionEvent(event.run, text_of(parts), "auth")
        case _:
            return None


async def _noted(one: Operation, cursor: int) -> AsyncGenerator[_Step, None]:
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
