"""The vocabulary in which an agent says what happened during one turn, and how that becomes events."""

import json
from collections.abc import Mapping
from typing import get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core.artifacts import Part, Parts, merged, text_part
from parley.core.commands import Report
from parley.core.events import (
    RESPONSE,
    ArtifactAdded,
    AuthRequired,
    Completed,
    Failed,
    InputRequired,
    Noted,
    Progress,
    Rejected,
    Replied,
)
from parley.core.nesting import too_deep
from parley.errors import AgentError

MAX_JOINED = 64 * 1024
"""Chunks are joined up to this size: an event has a limit, and a reader wants to see something."""

MAX_NOTES = 4096
"""Notes are kept with the state of a run, which is written at every step."""

Content = str | bytes | Part | Mapping[str, object] | Parts | list[Part]


class Text(Struct, frozen=True):
    """A piece of the answer. Pieces of one turn grow one artifact, `response-N`.

    `metadata` tells something about the answer as a whole, such as which model made it; later pieces add to it.
    """

    text: str
    metadata: Mapping[str, object] | None = None


class Status(Struct, frozen=True):
    """What the agent is doing. A `mark` is kept with it, for a turn that is taken up again: `turn.marks`."""

    content: Content
    mark: str = ""


class ArtifactChunk(Struct, frozen=True):
    """A file or value the agent made: whole, or in pieces that share an `id`."""

    content: Content
    id: str = ""
    name: str | None = None
    description: str | None = None
    filename: str | None = None
    media_type: str | None = None
    append: bool = False
    last: bool = True
    metadata: Raw | UnsetType = UNSET
    mark: str = ""


class Note(Struct, frozen=True):
    """Something to remember in later turns of this run, shown to nobody: `turn.notes`. An equal name replaces."""

    notes: Mapping[str, str]


class NeedInput(Struct, frozen=True):
    """The turn ends with a question; the next input begins a new turn."""

    content: Content
    metadata: Mapping[str, object] | None = None
    task_metadata: Mapping[str, object] | None = None


class NeedAuth(Struct, frozen=True):
    content: Content
    metadata: Mapping[str, object] | None = None
    task_metadata: Mapping[str, object] | None = None


class Done(Struct, frozen=True):
    """The work is complete, with some last words if any. `metadata` is about these words, `task_metadata` about the
    task, such as its `usage`."""

    content: Content = ()
    metadata: Mapping[str, object] | None = None
    task_metadata: Mapping[str, object] | None = None


class Reply(Struct, frozen=True):
    """A direct answer instead of a task, for agents that declare `replies="message"`."""

    content: Content
    metadata: Mapping[str, object] | None = None


class Conclusion(Struct, frozen=True):
    """How an orchestration's turn ends, as decided when its log had come up to an event."""

    ending: Done | NeedInput | Failed
    upto: int


Output = Text | Status | ArtifactChunk | Note | NeedInput | NeedAuth | Done | Reply | Failed | Rejected | Conclusion
_OUTPUTS = get_args(Output)
Final = (InputRequired, AuthRequired, Completed, Replied, Failed, Rejected)


def parts_of(content: Content) -> Parts:
    """Content as people write it, as parts."""
    if isinstance(content, str):
        return (text_part(content),)
    if isinstance(content, bytes):
        return (Part(raw=content),)
    if isinstance(content, Part):
        return (content,)
    if isinstance(content, Mapping):
        return (Part(data=_json(content)),)
    return tuple(content)


def _json(value: Mapping[str, object]) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except RecursionError:
        raise too_deep() from None
    except (TypeError, msgspec.MsgspecError):
        return Raw(json.dumps(value, default=str).encode())


def _metadata(about: Mapping[str, object] | None) -> Raw | UnsetType:
    return _json(about) if about else UNSET


class Scribe:
    """Turns what one turn yields into reports, and joins pieces of text that wait together."""

    def __init__(self, turn: int) -> None:
        self._response = f"{RESPONSE}-{turn}"
        self._begun = False
        self._artifacts = 0
        self._turn = turn

    def report(self, output: Output) -> Report:
        if not isinstance(output, _OUTPUTS):
            raise AgentError(f"The agent answered with {type(output).__name__}, which is not part of a turn.")
        match output:
            case Text(text, about):
                append, self._begun = self._begun, True
                parts = (text_part(text),)
                return ArtifactAdded(self._response, parts, RESPONSE, append=append, metadata=_metadata(about))
            case Status(content, mark):
                return Progress(parts_of(content), mark)
            case ArtifactChunk():
                return self._artifact(output)
            case Note(notes):
                return Noted(_small(notes))
            case NeedInput(content, about, task):
                return InputRequired(parts_of(content), _metadata(about), _metadata(task))
            case NeedAuth(content, about, task):
                return AuthRequired(parts_of(content), _metadata(about), _metadata(task))
            case Done(content, about, task):
                return Completed(parts_of(content), _metadata(about), _metadata(task))
            case Reply(content, about):
                return Replied(parts_of(content), _metadata(about))
            case Failed() | Rejected():
                return output
            case Conclusion(ending):
                return self.report(ending)

    def _artifact(self, chunk: ArtifactChunk) -> ArtifactAdded:
        if not chunk.id:
            self._artifacts += 1
        parts = parts_of(chunk.content)
        if chunk.filename or chunk.media_type:
            parts = tuple(
                msgspec.structs.replace(
                    part,
                    filename=chunk.filename or part.filename,
                    media_type=chunk.media_type or part.media_type,
                )
                for part in parts
            )
        return ArtifactAdded(
            chunk.id or f"artifact-{self._turn}-{self._artifacts}",
            parts, chunk.name or chunk.filename, chunk.description, chunk.append, chunk.last,
            chunk.metadata, chunk.mark,
        )  # fmt: skip


def _small(notes: Mapping[str, str]) -> dict[str, str]:
    if sum(len(name) + len(value) for name, value in notes.items()) > MAX_NOTES:
        raise AgentError(f"The notes of a turn are over the limit of {MAX_NOTES} characters.")
    return dict(notes)


def is_delta(report: Report) -> bool:
    """Whether a report may wait a moment to be joined with the next."""
    return isinstance(report, ArtifactAdded) and not report.last


def size_of(report: Report) -> int:
    """About how much a report takes up in the log."""
    if not isinstance(report, ArtifactAdded):
        return 0
    return sum(len(part.text or "") + len(part.raw or b"") for part in report.parts)


def joined(reports: list[Report]) -> list[Report]:
    """Neighbouring chunks of one artifact, as one; everything else as it came."""
    result: list[Report] = []
    for report in reports:
        last = result[-1] if result else None
        if (
            isinstance(report, ArtifactAdded)
            and isinstance(last, ArtifactAdded)
            and report.append
            and not last.last
            and report.artifact == last.artifact
            and UNSET in (last.metadata, report.metadata)
            and size_of(last) + size_of(report) <= MAX_JOINED
        ):
            parts = merged((*last.parts, *report.parts))
            metadata = report.metadata if last.metadata is UNSET else last.metadata
            mark = report.mark or last.mark
            result[-1] = msgspec.structs.replace(last, parts=parts, last=report.last, metadata=metadata, mark=mark)
        else:
            result.append(report)
    return result


def closed(reports: list[Report]) -> list[Report]:
    """The same reports with the last chunk marked as the last, for a turn that ends here."""
    if reports and isinstance(chunk := reports[-1], ArtifactAdded):
        return [*reports[:-1], msgspec.structs.replace(chunk, last=True)]
    return reports
