"""What people and protocols see of a run: its status, what was said, what was made. A fold of its events."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core import transcripts
from parley.core.artifacts import Artifact, Part, Parts, combined, merged, text_part
from parley.core.conversations import Message
from parley.core.events import (
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
    TurnEnded,
    task_metadata_of,
)
from parley.core.nesting import readable
from parley.core.orchestrations import Orchestration
from parley.core.orchestrations import evolve as evolve_steps
from parley.core.runs import WAITING, Run, State, evolve
from parley.errors import RunNotFound


class Said(Struct, frozen=True):
    """One message of a run, by whoever said it."""

    role: Literal["user", "agent"]
    id: str
    parts: Parts
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] = ()
    references: tuple[str, ...] = ()


class Status(Struct, frozen=True):
    state: State
    at: int
    said: Said | None = None


class _Building(Struct):
    """An artifact while its chunks come in."""

    first: ArtifactAdded
    chunks: list[Part]
    complete: bool
    metadata: Raw | UnsetType


class View:
    """Feed it events in order; ask it at any time."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._history: list[Said] = []
        self._artifacts: dict[str, _Building] = {}
        self._status = Status(State.SUBMITTED, 0)
        self.reply: Said | None = None
        self.metadata: Raw | UnsetType = UNSET
        """Metadata of the task, as its agent gave it."""
        self.orchestration: Orchestration | None = None
        """What it carries out, if it is an orchestration."""
        self.has_blobs = False
        """Whether some part refers to bytes that are kept beside the log."""

    @property
    def run(self) -> Run:
        if self._run is None:
            raise RunNotFound("No event has been seen yet.")
        return self._run

    @property
    def status(self) -> Status:
        return self._status

    @property
    def code(self) -> str:
        """Why it failed or was rejected, as a program reads it; empty for any other."""
        status = self._status
        if status.said is None or status.said.metadata is UNSET or status.state not in (State.FAILED, State.REJECTED):
            return ""
        return _code(status.said.metadata).code

    @property
    def history(self) -> list[Said]:
        """Everything said before the current status message, oldest first."""
        return self._history

    @property
    def artifacts(self) -> list[Artifact]:
        return [_finished(building) for building in self._artifacts.values()]

    @property
    def size(self) -> int:
        """Messages and chunks of artifacts: rendering takes time in proportion to it."""
        return len(self._history) + sum(len(building.chunks) for building in self._artifacts.values())

    def snapshot(self, talk: Sequence[transcripts.Said] = ()) -> bytes:
        """All that can be seen now, to be kept when the events are forgotten; and what was said, message by message:
        a history does not tell an answer from a sign of life."""
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
        view._run, view._status, view.reply = kept.run, kept.status, kept.reply
        view._history = [_decode_said(said) for said in kept.history]
        view.orchestration, view.metadata = kept.orchestration, kept.metadata
        for artifact in kept.artifacts:
            first = ArtifactAdded(
                artifact.id, artifact.parts, artifact.name, artifact.description, last=artifact.complete,
                metadata=artifact.metadata,
            )  # fmt: skip
            view._add(first)
        for said in (*view._history, kept.status.said):
            view._note_blobs(said.parts if said else ())
        return view

    @staticmethod
    def recent(run: Run, latest: Sequence[Event]) -> "View | None":
        """The view of a run by its last events of STATUS_TYPES: its history is the end of the whole one, and its
        artifacts are yet to be added. None where these events do not say what the status is."""
        view, tail = View(), _Tail()
        for event in latest:
            if event.payload is None or not tail.apply(event, event.payload):
                return None
        if not tail.certain:
            return None
        view._run, view._history, view.reply, view.metadata = run, tail.history, tail.reply, tail.metadata
        view._status = Status(run.state, run.status_at, tail.said)
        for said in (*tail.history, tail.said):
            view._note_blobs(said.parts if said else ())
        return view

    def add_artifacts(self, events: Iterable[Event]) -> None:
        """Feed it only what makes artifacts."""
        for event in events:
            if isinstance(event.payload, ArtifactAdded):
                self._add(event.payload)

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        payload = event.payload
        if payload is None:
            # Erased: only its place in the chain remains.
            return
        before = self._run
        self._run = evolve(before, event.run, event.seq, event.at, payload)
        if self._run.orchestration is not None:
            self.orchestration = evolve_steps(self.orchestration, event)
        self.metadata = combined(self.metadata, task_metadata_of(payload))
        match payload:
            case InputReceived(message):
                self._hear(message)
            case ArtifactAdded():
                self._add(payload)
            case _:
                said = spoken(event, payload)
                if said is not None or before is None or before.state is not self._run.state:
                    self._set_status(said)
                if isinstance(payload, Replied):
                    self.reply = said

    def _set_status(self, said: Said | None) -> None:
        if self._status.said is not None:
            self._history.append(self._status.said)
        if said is not None:
            self._note_blobs(said.parts)
        self._status = Status(self.run.state, self.run.status_at, said)

    def _hear(self, message: Message) -> None:
        """What the agent said before an input stands before it in the history."""
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
    InputRequired: State.INPUT_REQUIRED, AuthRequired: State.AUTH_REQUIRED, Completed: State.COMPLETED,
    Replied: State.COMPLETED, Failed: State.FAILED, Canceled: State.CANCELED, Rejected: State.REJECTED,
}  # fmt: skip
"""The state after an event, whatever it was before."""
STATUS_TYPES = frozenset(
    str(cls.__struct_config__.tag)
    for cls in (*_STATES, Submitted, InputReceived, Progress, Planned, Stepped, Steered)
)  # fmt: skip
"""Types of the events that say something, or may change the state. All others leave status and history as they are."""


class _Tail:
    """Status and history by the end of a log, where the state before it is not known."""

    def __init__(self) -> None:
        self.history: list[Said] = []
        self.said: Said | None = None
        self.reply: Said | None = None
        self.metadata: Raw | UnsetType = UNSET
        self.certain = False
        """Whether `said` is what the status says. If not, it may be the last message of the history."""
        self._state: State | None = None

    def apply(self, event: Event, payload: Payload) -> bool:
        """False for an event that does not belong here."""
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

    def _set(self, said: Said | None) -> None:
        if self.said is not None:
            self.history.append(self.said)
        self.said, self.certain = said, True


class _Snapshot(Struct, frozen=True, omit_defaults=True):
    run: Run
    status: Status
    history: list[Said]
    artifacts: list[Artifact]
    reply: Said | None
    talk: tuple[transcripts.Said, ...] = ()
    orchestration: Orchestration | None = None
    metadata: Raw | UnsetType = UNSET


class _Kept(Struct, frozen=True):
    """A snapshot, of which messages are read one at a time: they may be many, and a thread that decodes them in one
    call would hold up all others."""

    run: Run
    status: Status
    history: list[Raw]
    artifacts: list[Artifact]
    reply: Said | None
    orchestration: Orchestration | None = None
    metadata: Raw | UnsetType = UNSET


class _Talk(Struct, frozen=True):
    talk: list[Raw] = []


def talk_in(snapshot: bytes) -> tuple[transcripts.Said, ...]:
    """The messages that were kept when the events were forgotten."""
    return tuple([_decode_talk(said) for said in _decode_talks(readable(snapshot)).talk])


_encode_snapshot = msgspec.json.Encoder().encode
_decode_kept = msgspec.json.Decoder(_Kept).decode
_decode_said = msgspec.json.Decoder(Said).decode
_decode_talks = msgspec.json.Decoder(_Talk).decode
_decode_talk = msgspec.json.Decoder(transcripts.Said).decode


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


def _heard(message: Message) -> Said:
    return Said("user", message.id, message.parts, message.metadata, message.extensions, message.references)


def spoken(event: Event, payload: Payload) -> Said | None:
    """What the agent says with an event. Its id follows from its place, so that every reader sees the same."""
    parts = _words(payload)
    if not parts:
        return None
    return Said("agent", f"{event.run}.{event.seq}", parts, _about(payload))


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
        case Progress() | InputRequired() | AuthRequired() | Completed() | Replied() | TurnEnded():
            return payload.parts
        case _:
            return ()


def told(payload: Planned | Stepped | Steered) -> str:
    """What happens in an orchestration, in a sentence."""
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
