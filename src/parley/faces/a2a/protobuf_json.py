"""Code that 1.0 and the HTTP binding of 0.3 share: both write protobuf's JSON, with nearly the same schema."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import UNSET, Raw, Struct, UnsetType

from parley.clock import iso
from parley.faces.a2a import messages
from parley.faces.a2a.messages import ReplyShown, Shown, TaskShown, UpdateShown
from parley.runs.rules.content import Artifact, Parts, names_in
from parley.runs.rules.events import ArtifactAdded, Rescued
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import RunStatus, StatusMessage

FORK = "urn:parley:extension:fork:1"
ROLES = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}


class Out(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base of messages that are sent; absent members are omitted."""


class StatusOut(Out, frozen=True):
    state: str
    timestamp: str
    message: object | None = None


class ArtifactOut(Out, frozen=True):
    artifact_id: str
    parts: Sequence[object]
    name: str | None = None
    description: str | None = None
    metadata: Raw | UnsetType = UNSET


class TaskOut(Out, frozen=True):
    id: str
    context_id: str
    status: StatusOut
    artifacts: list[ArtifactOut] = []
    history: list[Any] = []
    metadata: dict[str, object] | UnsetType = UNSET
    generation: int = 0
    """Used only by 1.1, like that of the updates."""


class StatusUpdate(Out, frozen=True):
    task_id: str
    context_id: str
    status: StatusOut
    final: bool = False
    """Used only by 0.3; in 1.0 the end of the stream shows it."""
    metadata: dict[str, object] | UnsetType = UNSET
    generation: int = 0


class ArtifactUpdate(Out, frozen=True):
    task_id: str
    context_id: str
    artifact: ArtifactOut
    append: bool = False
    last_chunk: bool = False
    generation: int = 0


class StreamResponse(Out, frozen=True):
    """Exactly one of the four members; also the result of a send, which has one of the first two."""

    task: TaskOut | None = None
    message: object | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


class ProtobufJson(ABC):
    """Base of dialects with protobuf's JSON. A subclass defines the names of states and the format of messages and
    parts."""

    states: ClassVar[dict[State, str]]
    says_final: ClassVar[bool] = False

    @abstractmethod
    def message_out(self, run: Run, said: StatusMessage, task: str | None) -> object: ...

    @abstractmethod
    def parts_out(self, parts: Parts) -> Sequence[object]: ...

    def sent(self, shown: TaskShown | ReplyShown) -> StreamResponse:
        if isinstance(shown, TaskShown):
            return StreamResponse(task=self.task(shown))
        return StreamResponse(message=self.message_out(shown.run, shown.said, None))

    def task(self, shown: TaskShown) -> TaskOut:
        run = shown.run
        return TaskOut(
            run.id,
            run.conversation,
            self._status_out(run, shown.status),
            [self._artifact_out(artifact) for artifact in shown.artifacts],
            [self.message_out(run, said, run.id) for said in shown.history],
            _task_metadata(shown) or UNSET,
        )

    def frame(self, shown: Shown, last: bool) -> StreamResponse | None:
        if isinstance(shown, UpdateShown):
            return self.update_out(shown, last)
        return self.sent(shown)

    def update_out(self, shown: UpdateShown, last: bool) -> StreamResponse | None:
        run, event, payload = shown.run, shown.event, shown.event.payload
        if isinstance(payload, ArtifactAdded):
            parts = self.parts_out(payload.parts)
            artifact = ArtifactOut(payload.artifact, parts, payload.name, payload.description, payload.metadata)
            update = ArtifactUpdate(run.id, run.conversation, artifact, payload.append, payload.last)
            return StreamResponse(artifact_update=update)
        status = self.status_after(shown)
        if status is None:
            return None
        given = messages.update_metadata(run, event)
        metadata: dict[str, object] | UnsetType = UNSET if given is UNSET else {**names_in(given)}
        if isinstance(payload, Rescued):
            metadata = {"rescued": payload.how, "attempt": payload.attempt}
        written, final = self._status_out(run, status), last and self.says_final
        return StreamResponse(status_update=StatusUpdate(run.id, run.conversation, written, final, metadata))

    def status_after(self, shown: UpdateShown) -> RunStatus | None:
        """Return the status that an update leads to; None if the dialect does not show it."""
        return messages.status_of(shown.event)

    def _status_out(self, run: Run, status: RunStatus) -> StatusOut:
        said = self.message_out(run, status.said, run.id) if status.said else None
        return StatusOut(self.states[status.state], iso(status.at), said)

    def _artifact_out(self, artifact: Artifact) -> ArtifactOut:
        parts = self.parts_out(artifact.parts)
        return ArtifactOut(artifact.id, parts, artifact.name, artifact.description, artifact.metadata)


def _task_metadata(shown: TaskShown) -> dict[str, object]:
    """Return the agent's metadata, and the task from which this one was forked."""
    given: dict[str, object] = {} if shown.metadata is UNSET else {**names_in(shown.metadata)}
    if (origin := shown.run.origin) is not None:
        given[FORK] = {"task": origin.run, "at": origin.seq}
    return given
