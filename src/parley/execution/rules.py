"""The outputs that an agent yields during one turn, and their conversion to events."""

import json
from collections.abc import Mapping, Sequence
from typing import cast, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.errors import AgentError, Invalid
from parley.json_values import Fields, too_deep
from parley.runs.rules.answers import Expected, expected
from parley.runs.rules.commands import Report
from parley.runs.rules.content import Part, Parts, merged, text_part
from parley.runs.rules.events import (
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
    is_usage,
)
from parley.runs.rules.usage import ModelTotals, Prices, Usage, added, priced, problem, total
from parley.typed import schema_of

MAX_JOINED = 64 * 1024
"""Chunks are joined up to this size: events have a limit, and readers want to see progress."""

MAX_NOTES = 4096
"""Maximum number of characters in notes. Notes are part of a run's state, which is written at every step."""

Content = str | bytes | Part | Mapping[str, object] | Parts | list[Part]


class Text(Struct, frozen=True):
    """A piece of the answer. The pieces of one turn form one artifact, `response-N`.

    `metadata` describes the answer as a whole, such as the model that made it; later pieces add to it.
    """

    text: str
    metadata: Mapping[str, object] | None = None


class Status(Struct, frozen=True):
    """Progress of the work. A `mark` is stored with it, for a turn that is resumed: `turn.marks`."""

    content: Content
    mark: str = ""


class ArtifactChunk(Struct, frozen=True):
    """A file or value that the agent made: complete, or in chunks that share an `id`."""

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


# Why: docs/decisions/runs.md#store-a-drivers-notes-as-events
class Note(Struct, frozen=True):
    """Something to remember in later turns of this run, never shown: `turn.notes`. A note replaces an earlier one with
    the same name."""

    notes: Mapping[str, str]


class NeedInput(Struct, frozen=True):
    """Ends the turn with a question; the next input begins a new turn.

    With `choices` or a `schema` (a JSON Schema, or a class that describes JSON), only an answer that fits is accepted:
    `turn.answer`.
    """

    content: Content
    metadata: Mapping[str, object] | None = None
    task_metadata: Mapping[str, object] | None = None
    choices: Sequence[str] = ()
    schema: Mapping[str, object] | type | None = None


class NeedAuth(Struct, frozen=True):
    """Ends the turn until the caller has provided a credential; the next input begins a new turn."""

    content: Content
    metadata: Mapping[str, object] | None = None
    task_metadata: Mapping[str, object] | None = None


class Done(Struct, frozen=True):
    """Completes the work, optionally with a final message. `metadata` describes this message, `task_metadata` the task,
    such as its `usage`."""

    content: Content = ()
    metadata: Mapping[str, object] | None = None
    task_metadata: Mapping[str, object] | None = None


class Reply(Struct, frozen=True):
    """A direct answer instead of a task, for agents that declare `replies="message"`."""

    content: Content
    metadata: Mapping[str, object] | None = None


class Conclusion(Struct, frozen=True):
    """The end of an orchestration's turn, as decided when its log had reached event `upto`."""

    ending: Done | NeedInput | Failed
    upto: int


Output = (
    Text | Status | ArtifactChunk | Note | Usage | NeedInput | NeedAuth | Done | Reply | Failed | Rejected | Conclusion
)
_OUTPUTS = get_args(Output)
Final = (InputRequired, AuthRequired, Completed, Replied, Failed, Rejected)


def parts_of(content: Content) -> Parts:
    """Convert content, in any of the accepted forms, to parts."""
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


def _expected(question: NeedInput) -> Expected | None:
    schema = question.schema
    described = schema_of(schema) if isinstance(schema, type) else None if schema is None else dict(schema)
    try:
        return expected(question.choices, cast("Fields | None", described))
    except (Invalid, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise AgentError(f"The agent asked a question whose answer cannot be checked: {error}") from None


class Scribe:
    """Converts the outputs of one turn into reports."""

    def __init__(self, turn: int, prices: Prices | None = None) -> None:
        self._prices = prices or {}
        self._used: dict[str, ModelTotals] = {}
        self._response = f"{RESPONSE}-{turn}"
        self._begun = False
        self._artifacts = 0
        self._turn = turn

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens that the turn used so far, as fields of its span; empty if none were reported."""
        used = total(self._used)
        counts = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
        return {**counts, "cached_tokens": used.cached_tokens} if self._used else {}

    def report(self, output: Output) -> Report:
        if not isinstance(output, _OUTPUTS):
            raise AgentError(f"The agent yielded {type(output).__name__}, which is not an output of a turn.")
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
            case Usage():
                self._used = added(self._used, checked_usage(output))
                return Progress((), usage=priced(output, self._prices))
            case NeedInput(content, about, task):
                return InputRequired(parts_of(content), _metadata(about), _metadata(task), _expected(output))
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
            parts,
            chunk.name or chunk.filename,
            chunk.description,
            chunk.append,
            chunk.last,
            chunk.metadata,
            chunk.mark,
        )


def checked_usage(usage: Usage) -> Usage:
    if (why := problem(usage)) is not None:
        raise AgentError(f"The agent reported a Usage that cannot be recorded: {why}")
    return usage


def _small(notes: Mapping[str, str]) -> dict[str, str]:
    if sum(len(name) + len(value) for name, value in notes.items()) > MAX_NOTES:
        raise AgentError(f"The notes of a turn exceed the limit of {MAX_NOTES} characters.")
    return dict(notes)


def is_delta(report: Report) -> bool:
    """Return whether a report may wait a moment to be joined with the next one."""
    return isinstance(report, ArtifactAdded) and not report.last


def size_of(report: Report) -> int:
    """Return the approximate size of a report in the log."""
    if not isinstance(report, ArtifactAdded):
        return 0
    return sum(len(part.text or "") + len(part.raw or b"") for part in report.parts)


def joined(reports: list[Report]) -> list[Report]:
    """Join neighbouring chunks of one artifact; leave everything else unchanged."""
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
    """Return the reports with the last chunk marked as the last, for a turn that ends here."""
    place = len(reports) - 1
    while place >= 0 and is_usage(reports[place]):
        place -= 1
    if place >= 0 and isinstance(chunk := reports[place], ArtifactAdded):
        return [*reports[:place], msgspec.structs.replace(chunk, last=True), *reports[place + 1 :]]
    return reports
