"""The view of a run: its status, messages and artifacts. A fold of its events, and the answer that programs get."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.errors import RunNotFound
from parley.json_values import Json, readable
from parley.orchestrations.rules.state import Orchestration
from parley.orchestrations.rules.state import evolve as evolve_steps
from parley.runs.rules import transcript
from parley.runs.rules.answers import Expected, expected_part
from parley.runs.rules.content import Artifact, Message, Part, Parts, combined, merged, text_of, text_part
from parley.runs.rules.events import (
    ArtifactAdded,
    AuthRequired,
    Canceled,
    Completed,
    Event,
    Failed,
    Forked,
    InputReceived,
    InputRequired,
    Payload,
    Planned,
    Progress,
    Rejected,
    Replied,
    Rescued,
    Started,
    Steered,
    Stepped,
    Submitted,
    Suspended,
    TurnEnded,
    Woken,
    task_metadata_of,
)
from parley.runs.rules.state import WAITING, Run, State, evolve
from parley.runs.rules.usage import shown
from parley.typed import instance_of

T = TypeVar("T")


class StatusMessage(Struct, frozen=True):
    """One message of a run, from the user or the agent."""

    role: Literal["user", "agent"]
    id: str
    parts: Parts
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] = ()
    references: tuple[str, ...] = ()


class RunStatus(Struct, frozen=True):
    state: State
    at: int
    said: StatusMessage | None = None


class _Building(Struct):
    """An artifact while its chunks arrive."""

    first: ArtifactAdded
    chunks: list[Part]
    complete: bool
    metadata: Raw | UnsetType


class View:
    """Takes events in order; can be read at any time."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._history: list[StatusMessage] = []
        self._artifacts: dict[str, _Building] = {}
        self._status = RunStatus(State.SUBMITTED, 0)
        self.reply: StatusMessage | None = None
        self.metadata: Raw | UnsetType = UNSET
        """Metadata of the task, from its agent."""
        self.orchestration: Orchestration | None = None
        """The orchestration that the run carries out, if any."""
        self.has_blobs = False
        """True if some part refers to bytes that are stored outside the log."""

    @property
    def run(self) -> Run:
        if self._run is None:
            raise RunNotFound("No event has been seen yet.")
        return self._run

    @property
    def status(self) -> RunStatus:
        return self._status

    @property
    def code(self) -> str:
        """The code of a failure or rejection; empty for any other status."""
        status = self._status
        if status.said is None or status.said.metadata is UNSET or status.state not in (State.FAILED, State.REJECTED):
            return ""
        return _code(status.said.metadata).code

    @property
    def history(self) -> list[StatusMessage]:
        """All messages before the current status message, oldest first."""
        return self._history

    @property
    def artifacts(self) -> list[Artifact]:
        return [_finished(building) for building in self._artifacts.values()]

    @property
    def size(self) -> int:
        """Number of messages and artifact chunks: rendering time is proportional to it."""
        return len(self._history) + sum(len(building.chunks) for building in self._artifacts.values())

    def snapshot(self, talk: Sequence[transcript.TranscriptMessage] = ()) -> bytes:
        """Return everything visible now, to be kept when the events are deleted. It includes the transcript, because
        the history does not distinguish an answer from a progress message."""
        return _encode_snapshot(
            _Snapshot(
                self.run,
                self._status,
                self._history,
                self.artifacts,
                self.reply,
                tuple(talk),
                self.orchestration,
                self.metadata,
            )
        )

    @staticmethod
    def restored(snapshot: bytes) -> "View":
        kept, view = _decode_kept(readable(snapshot)), View()
        view._run, view._status, view.reply = generation_known(kept.run), kept.status, kept.reply
        view._history = [_decode_said(said) for said in kept.history]
        view.orchestration, view.metadata = kept.orchestration, kept.metadata
        for artifact in kept.artifacts:
            first = ArtifactAdded(
                artifact.id,
                artifact.parts,
                artifact.name,
                artifact.description,
                last=artifact.complete,
                metadata=artifact.metadata,
            )
            view._add(first)
        for said in (*view._history, kept.status.said):
            view._note_blobs(said.parts if said else ())
        return view

    @staticmethod
    def recent(run: Run, latest: Sequence[Event]) -> "View | None":
        """Return the view of a run from its last events of STATUS_TYPES. Its history is the end of the whole history,
        and its artifacts must be added separately. None if the status cannot be derived from these events."""
        view, tail = View(), _Tail()
        for event in latest:
            if event.payload is None or not tail.apply(event, event.payload):
                return None
        if not tail.certain:
            return None
        view._run, view._history, view.reply, view.metadata = run, tail.history, tail.reply, tail.metadata
        view._status = RunStatus(run.state, run.status_at, tail.said)
        for said in (*tail.history, tail.said):
            view._note_blobs(said.parts if said else ())
        return view

    def add_artifacts(self, events: Iterable[Event]) -> None:
        """Add only the artifacts of these events."""
        for event in events:
            if isinstance(event.payload, ArtifactAdded):
                self._add(event.payload)

    def feed(self, events: Iterable[Event], after: Run | None = None) -> None:
        """Apply events. `after` is the run after them, if it is known: then artifacts before the last event are added
        without a fold, and the last event needs none."""
        known = after.version if after is not None and after.orchestration is None else 0
        for event in events:
            if event.seq < known and isinstance(event.payload, ArtifactAdded):
                self._add(event.payload)
            else:
                self.apply(event, after if event.seq == known else None)

    def apply(self, event: Event, after: Run | None = None) -> None:
        payload = event.payload
        if payload is None:
            # Erased: only its place in the chain remains.
            return
        before = self._run
        self._run = after or evolve(before, event.run, event.seq, event.at, payload)
        if self._run.orchestration is not None:
            self.orchestration = evolve_steps(self.orchestration, event)
        self.metadata = combined(self.metadata, task_metadata_of(payload))
        match payload:
            case InputReceived(message):
                self._add_message(message)
            case ArtifactAdded():
                self._add(payload)
            case _:
                said = spoken(event, payload)
                if said is not None or before is None or before.state is not self._run.state:
                    self._set_status(said)
                if isinstance(payload, Replied):
                    self.reply = said

    def _set_status(self, said: StatusMessage | None) -> None:
        if self._status.said is not None:
            self._history.append(self._status.said)
        if said is not None:
            self._note_blobs(said.parts)
        self._status = RunStatus(self.run.state, self.run.status_at, said)

    def _add_message(self, message: Message) -> None:
        """Add an input to the history. Messages of the agent before the input come first."""
        if self._status.state is not self.run.state or self._status.said is not None:
            self._set_status(None)
        self._note_blobs(message.parts)
        self._history.append(_heard(message))

    def _note_blobs(self, parts: Parts) -> None:
        self.has_blobs = self.has_blobs or any(part.blob is not None for part in parts)

    def _add(self, event: ArtifactAdded) -> None:
        self._note_blobs(event.parts)
        building = self._artifacts.get(event.artifact)
        if building is None or not event.append:
            self._artifacts[event.artifact] = _Building(event, list(event.parts), event.last, event.metadata)
        else:
            building.chunks.extend(event.parts)
            building.complete = event.last
            building.metadata = combined(building.metadata, event.metadata)


_STATES: dict[type[Payload], State] = {
    Started: State.WORKING, TurnEnded: State.SUBMITTED, Rescued: State.SUBMITTED, Forked: State.SUBMITTED,
    Suspended: State.SUBMITTED, Woken: State.SUBMITTED,
    InputRequired: State.INPUT_REQUIRED, AuthRequired: State.AUTH_REQUIRED, Completed: State.COMPLETED,
    Replied: State.COMPLETED, Failed: State.FAILED, Canceled: State.CANCELED, Rejected: State.REJECTED,
}  # fmt: skip
"""The state after an event, regardless of the state before it."""
STATUS_TYPES = frozenset(
    str(cls.__struct_config__.tag) for cls in (*_STATES, Submitted, InputReceived, Progress, Planned, Stepped, Steered)
)
"""Types of the events that contain messages or may change the state. Other events leave status and history
unchanged."""


class _Tail:
    """Status and history from the end of a log, without knowing the state before it."""

    def __init__(self) -> None:
        self.history: list[StatusMessage] = []
        self.said: StatusMessage | None = None
        self.reply: StatusMessage | None = None
        self.metadata: Raw | UnsetType = UNSET
        self.certain = False
        """True if `said` is the status message. Otherwise it may be the last message of the history."""
        self._state: State | None = None

    def apply(self, event: Event, payload: Payload) -> bool:
        """Apply an event. Return False for a type that is not in STATUS_TYPES."""
        self.metadata = combined(self.metadata, task_metadata_of(payload))
        match payload:
            case Submitted():
                self._state, self.certain = State.INPUT_REQUIRED if payload.open else State.SUBMITTED, True
            case InputReceived(message):
                self._set(None)
                self.history.append(_heard(message))
                self._state = State.SUBMITTED if self._state in WAITING else self._state
            case _:
                if event.type not in STATUS_TYPES:
                    return False
                self._speak(event, payload)
        return True

    def _speak(self, event: Event, payload: Payload) -> None:
        said, after = spoken(event, payload), _STATES.get(type(payload), self._state)
        if isinstance(payload, Steered) and payload.how == "resume" and self._state in WAITING:
            after = State.SUBMITTED
        if said is not None or (self._state is not None and after is not self._state):
            self._set(said)
        elif after is not self._state:
            self.certain = False
        self._state = after
        if isinstance(payload, Replied):
            self.reply = said

    def _set(self, said: StatusMessage | None) -> None:
        if self.said is not None:
            self.history.append(self.said)
        self.said, self.certain = said, True


class _Snapshot(Struct, frozen=True, omit_defaults=True):
    run: Run
    status: RunStatus
    history: list[StatusMessage]
    artifacts: list[Artifact]
    reply: StatusMessage | None
    talk: tuple[transcript.TranscriptMessage, ...] = ()
    orchestration: Orchestration | None = None
    metadata: Raw | UnsetType = UNSET


class _Kept(Struct, frozen=True):
    """A snapshot whose messages are decoded one at a time: there may be many, and decoding them in one call would block
    all other threads."""

    run: Run
    status: RunStatus
    history: list[Raw]
    artifacts: list[Artifact]
    reply: StatusMessage | None
    orchestration: Orchestration | None = None
    metadata: Raw | UnsetType = UNSET


class _SnapshotRun(Struct, frozen=True):
    run: Run


class _SnapshotTranscript(Struct, frozen=True):
    talk: list[Raw] = []


def snapshot_messages(snapshot: bytes) -> tuple[transcript.TranscriptMessage, ...]:
    """Return the transcript that was kept when the events were deleted."""
    return tuple([_decode_talk(said) for said in _decode_transcript(readable(snapshot)).talk])


def snapshot_run(snapshot: bytes) -> Run:
    """Return the run at the event up to which its events were deleted."""
    return generation_known(_decode_run(readable(snapshot)).run)


# Why: docs/decisions/runs.md#count-every-update-of-a-task-in-its-generation
def generation_known(run: Run) -> Run:
    """Return the run with a generation. If its updates can no longer be counted, this is the number of its last event:
    no reader has seen a higher generation, and the run has ended."""
    return run if run.generation else replace(run, generation=run.version)


_encode_snapshot = msgspec.json.Encoder().encode
_decode_kept = msgspec.json.Decoder(_Kept).decode
_decode_said = msgspec.json.Decoder(StatusMessage).decode
_decode_run = msgspec.json.Decoder(_SnapshotRun).decode
_decode_transcript = msgspec.json.Decoder(_SnapshotTranscript).decode
_decode_talk = msgspec.json.Decoder(transcript.TranscriptMessage).decode


def view_of(events: Iterable[Event]) -> View:
    view = View()
    view.feed(events)
    return view


def _finished(building: _Building) -> Artifact:
    first = building.first
    return Artifact(
        first.artifact,
        merged(building.chunks),
        first.name,
        first.description,
        building.metadata,
        building.complete,
    )


class _Coded(Struct):
    code: str = ""


_code = msgspec.json.Decoder(_Coded).decode


def _heard(message: Message) -> StatusMessage:
    return StatusMessage("user", message.id, message.parts, message.metadata, message.extensions, message.references)


def spoken(event: Event, payload: Payload) -> StatusMessage | None:
    """Return the agent's message in an event. Its id is derived from its place, so that every reader sees the same."""
    parts = _words(payload)
    if not parts:
        return None
    return StatusMessage("agent", f"{event.run}.{event.seq}", parts, _about(payload))


def _about(payload: Payload) -> Raw | UnsetType:
    match payload:
        case Failed(code) | Rejected(code):
            return Raw(msgspec.json.encode({"code": code}))
        case Replied() | Completed() | InputRequired() | AuthRequired():
            return payload.metadata
        case Stepped(step, status):
            about = {"step": step, "status": status, "attempt": payload.attempt, "task": payload.run}
            return Raw(msgspec.json.encode(about))
        case _:
            return UNSET


def _words(payload: Payload) -> Parts:
    match payload:
        case Failed(_, reason) | Rejected(_, reason):
            return (text_part(reason),)
        case Canceled(reason):
            return (text_part(reason),) if reason else ()
        case Planned() | Stepped() | Steered():
            return (text_part(told(payload)),)
        case InputRequired(expects=Expected() as expects):
            return (*payload.parts, expected_part(expects))
        case Progress() | InputRequired() | AuthRequired() | Completed() | Replied() | TurnEnded():
            return payload.parts
        case _:
            return ()


def told(payload: Planned | Stepped | Steered) -> str:
    """Describe an event of an orchestration in a sentence."""
    match payload:
        case Planned(steps):
            return f"Planned {len(steps)} steps: {', '.join(step.title for step in steps)}."
        case Stepped(step, status, number, total):
            happened = "failed, to be tried again" if status == "pending" else status
            why = f" ({payload.reason})" if payload.reason else ""
            return f"Step {number}/{total} {payload.name or step}: {happened}{why}"
        case Steered("pause"):
            return "Paused: no further step begins."
        case Steered("resume"):
            return "Going on."
        case Steered():
            return f"Step {payload.step} is tried again."


# The answer of an agent, in the form that programs get it from every way of asking.

_REASONED = frozenset((State.FAILED, State.REJECTED, State.CANCELED))
_USAGE = "usage"


class Answer(Struct, frozen=True):
    """The answer of an agent: the result of `app.ask`, `turn.ask`, `node.ask` and `Client.send`."""

    state: State
    text: str = ""
    """The text of its artifacts, or else its last message."""
    data: Json = None
    """The value of its first data part; the others are in `artifacts`."""
    artifacts: tuple[Artifact, ...] = ()
    question: str | None = None
    """The agent's question, while it waits for input or for a credential."""
    usage: Mapping[str, object] | None = None
    """Tokens and cost of the run, as A2A clients see them in the task's metadata: `inputTokens`, `cost`, `models`, …"""
    run_id: str = ""
    """The id of the run (A2A: task); empty for a direct message of a server that creates no task."""
    conversation: str = ""
    code: str = ""
    """The code of a failure or a rejection."""
    reason: str = ""
    """The reason why the run failed, was rejected or was canceled."""

    def data_as(self, kind: type[T]) -> T:
        """Return `data` as an instance of a class: a data class, a msgspec Struct or a pydantic model. Raise AgentError
        if it does not fit."""
        return instance_of(kind, self.data)


def answer_of(view: View) -> Answer:
    """Return the answer that a run has given so far."""
    said = view.status.said
    return compose(
        view.status.state,
        tuple(view.artifacts),
        said.parts if said else (),
        usage=usage_in(view.metadata) or (shown(view.run.usage) if view.run.usage else None),
        run_id=view.run.id,
        conversation=view.run.conversation,
        code=view.code,
    )


def compose(
    state: State,
    artifacts: tuple[Artifact, ...],
    said: Parts,
    *,
    usage: Mapping[str, object] | None = None,
    run_id: str = "",
    conversation: str = "",
    code: str = "",
) -> Answer:
    """Return an answer; its text, data, question and reason come from the artifacts and the last message."""
    message = text_of(said)
    return Answer(
        state,
        "".join(text_of(artifact.parts) for artifact in artifacts) or message,
        _first_data([*(part for artifact in artifacts for part in artifact.parts), *said]),
        artifacts,
        message if state in WAITING else None,
        usage,
        run_id,
        conversation,
        code,
        message if state in _REASONED else "",
    )


def usage_in(metadata: Raw | UnsetType) -> Mapping[str, object] | None:
    """Return the `usage` in the metadata of a task; None if there is none."""
    if metadata is UNSET:
        return None
    found = msgspec.json.decode(metadata, type=dict[str, object]).get(_USAGE)
    return msgspec.convert(found, dict[str, object]) if isinstance(found, dict) else None


def _first_data(parts: Iterable[Part]) -> Json:
    return next((msgspec.json.decode(part.data) for part in parts if part.data is not UNSET), None)
