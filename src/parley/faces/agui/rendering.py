"""The log of a run as events of AG-UI. Which events an entry of the log becomes follows from the log alone, so that a
stream can be resumed after any of them."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from parley.clock import iso
from parley.documents.rules import spoken
from parley.faces.agui.messages import (
    FRONT_END,
    PROTOCOL,
    TOOL_CALL,
    ActivitySnapshot,
    AguiEvent,
    Custom,
    HistoryMessage,
    Interrupt,
    ModelUsage,
    RunError,
    RunFinished,
    RunInput,
    RunOutcome,
    RunStarted,
    StateDelta,
    StateSnapshot,
    StepFinished,
    StepStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    question_id,
)
from parley.http import sse
from parley.json_values import Fields, fields_of
from parley.json_values import text_of as text_in
from parley.runs.rules.answers import Expected, schema_in
from parley.runs.rules.content import Message, Part, text_of
from parley.runs.rules.events import (
    ENDINGS,
    RESPONSE,
    ArtifactAdded,
    AuthRequired,
    Canceled,
    CancelRequested,
    ChildStarted,
    Completed,
    Event,
    Failed,
    InputReceived,
    InputRequired,
    Payload,
    Planned,
    Progress,
    Rejected,
    Replied,
    Rescued,
    Stepped,
    StepRecord,
    Suspended,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from parley.runs.rules.state import Run
from parley.runs.rules.usage import ModelTotals, Totals, added
from parley.runs.rules.view import told

STATE = "state"
"""Name of the artifact that is the state which an agent shares with the front end."""
JSON_PATCH = "application/json-patch+json"
"""Media type of a change of the state, as a JSON Patch."""
PROGRESS = "progress"
_FIRST_INPUT = 2
"""Number of the entry with the first input of a run that is started with one."""

Events = list[AguiEvent]

_encode = msgspec.json.Encoder().encode


def frames_of(seq: int, events: Events, skipped: int = 0) -> bytes:
    """Encode the events of an entry of the log. The last one has the number of the entry as its id, the others that
    number and their place: `12.1`, `12.2`, `12`."""
    ids = [*(f"{seq}.{place}" for place in range(1, len(events))), str(seq)]
    pairs = list(zip(events, ids, strict=False))[skipped:]
    return b"".join(sse.message(_encode(event), id_) for event, id_ in pairs)


class Rendering:
    """Renders one run, entry by entry. A run of AG-UI ends at a question, so a run of the log that asks becomes several
    of them. Each begins with an input, and has the id of that message."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._current = ""
        """Id of the current run of AG-UI; empty while there is none."""
        self._text = ""
        """Id of the text message that is being written."""
        self._texts: dict[str, str] = {}
        """Id of the text message of each response."""
        self._steps: dict[str, str] = {}
        """Names of the steps that are being carried out, by id."""
        self._used: Totals = {}

    def events(self, event: Event) -> Events:
        match event.payload:
            case None:
                return self._finished(event, RunOutcome("success")) if event.type in ENDINGS and self._current else []
            case InputReceived(message):
                return self._input(event, message)
            case InputRequired() | AuthRequired() as question:
                return [*self._begun(event), *self._asked(event, question)]
            case Completed(parts) | Replied(parts):
                return [
                    *self._begun(event),
                    *self._said(event, text_of(parts)),
                    *self._finished(event, RunOutcome("success")),
                ]
            case Canceled():
                return [*self._begun(event), *self._finished(event, RunOutcome("cancelled"))]
            case Failed(code, reason) | Rejected(code, reason):
                return [*self._begun(event), *self._failed(event, code, reason)]
            case payload:
                made = self._made(event, payload)
                return [*self._begun(event), *made] if made else []

    def _input(self, event: Event, message: Message) -> Events:
        """Begin a run of AG-UI, or show an input that arrives in the middle of one."""
        said = _history(message)
        if self._current:
            return _whole(event.at, said.id, said.content, "user")
        # The first run has the id of the log, whichever face it was started through.
        return [self._start(event, message.id if event.seq > _FIRST_INPUT else self._run.id, said)]

    def _begun(self, event: Event) -> Events:
        """Begin a run of AG-UI, if there is none, for an entry that no input led to."""
        return [] if self._current else [self._start(event, question_id(event.run, event.seq))]

    def _start(self, event: Event, id_: str, said: HistoryMessage | None = None) -> RunStarted:
        self._current = id_
        thread = self._run.conversation
        about = {"parley": {"task": self._run.id, "agent": self._run.agent}}
        return RunStarted(event.at, thread, id_, about, said and RunInput(thread, id_, (said,)), PROTOCOL)

    def _asked(self, event: Event, asked: InputRequired | AuthRequired) -> Events:
        id_, text = question_id(event.run, event.seq), text_of(asked.parts)
        call = _call_in(asked)
        if call is not None:
            made = _called(event.at, id_, text_in(call.get("name")), _encode(call.get("arguments", {})).decode())
            return [*made, *self._finished(event, RunOutcome("success", pending_tool_call_ids=(id_,)))]
        wanted = asked.expects if isinstance(asked, InputRequired) else None
        schema = _schema(wanted)
        reason = "auth_required" if isinstance(asked, AuthRequired) else "input_required"
        about = {
            "id": id_,
            "task": self._run.id,
            "reason": reason,
            "text": text,
            "choices": wanted.choices if wanted else (),
            "schema": schema,
        }
        outcome = RunOutcome("interrupt", (Interrupt(id_, reason, text, schema),))
        question = Custom(event.at, "parley.question", about)
        return [*self._said(event, text), question, *self._finished(event, outcome)]

    def _said(self, event: Event, text: str) -> Events:
        return _whole(event.at, f"{event.run}.{event.seq}", text, "assistant")

    def _finished(self, event: Event, outcome: RunOutcome) -> Events:
        finished = RunFinished(event.at, self._run.conversation, self._current, outcome, self._usage())
        return [*self._closed(event.at), finished]

    def _failed(self, event: Event, code: str, reason: str) -> Events:
        error = RunError(event.at, reason, code, self._usage())
        return [*self._closed(event.at), error]

    def _closed(self, at: int) -> Events:
        """End everything that a run of AG-UI may not leave open."""
        steps = [StepFinished(at, name) for name in self._steps.values()]
        ended = [*self._end_text(at), *steps]
        self._current, self._texts, self._steps = "", {}, {}
        return ended

    def _usage(self) -> tuple[ModelUsage, ...]:
        used, self._used = self._used, {}
        return tuple(_tokens(name, one) for name, one in used.items())

    def _made(self, event: Event, payload: Payload) -> Events:
        at = event.at
        match payload:
            case Progress():
                return self._progress(event, payload)
            case ArtifactAdded():
                return self._artifact(event, payload)
            case ToolCalled(call, tool, given):
                return _called(at, call, tool, bytes(given).decode())
            case ToolReturned(call):
                return [ToolCallResult(at, f"{event.run}.{event.seq}", call, _result(payload), "tool")]
            case TurnEnded(parts):
                return [*self._end_text(at), *self._said(event, text_of(parts))]
            case Stepped():
                return self._step(event, payload)
            case Planned(steps):
                return [Custom(at, "parley.plan", {"text": told(payload), "steps": steps})]
            case ChildStarted(child, agent):
                return [Custom(at, "parley.child", {"task": child, "agent": agent})]
            case Rescued(attempt=attempt, how=how):
                return [Custom(at, "parley.rescued", {"attempt": attempt, "how": how})]
            case Suspended(due):
                return [Custom(at, "parley.suspended", {"until": iso(due)})]
            case CancelRequested(reason=reason):
                return [Custom(at, "parley.cancel_requested", {"reason": reason})]
            case _:
                return []

    def _progress(self, event: Event, progress: Progress) -> Events:
        if progress.usage is not None:
            self._used = added(self._used, progress.usage)
        if progress.step is not None:
            return _recorded(event.at, progress.step)
        text = text_of(progress.parts)
        if not text:
            return []
        # One activity for the whole run: the next one replaces it.
        return [ActivitySnapshot(event.at, f"{event.run}.{PROGRESS}", PROGRESS, {"text": text})]

    def _step(self, event: Event, stepped: Stepped) -> Events:
        if stepped.status == "running" and stepped.step not in self._steps:
            name = stepped.name or stepped.step
            self._steps[stepped.step] = name = stepped.step if name in self._steps.values() else name
            return [StepStarted(event.at, name)]
        if stepped.status != "running" and stepped.step in self._steps:
            return [StepFinished(event.at, self._steps.pop(stepped.step))]
        return []

    def _artifact(self, event: Event, added: ArtifactAdded) -> Events:
        if added.name == RESPONSE and all(part.text is not None for part in added.parts):
            return self._response(event, added)
        part = added.parts[0] if added.parts else None
        if added.name == STATE and part is not None and part.data is not UNSET:
            return [_state(event.at, part)]
        about = {
            "task": self._run.id,
            "artifactId": added.artifact,
            "name": added.name,
            "description": added.description,
            "append": added.append,
            "last": added.last,
            "parts": [_shown(part) for part in added.parts],
        }
        return [Custom(event.at, "parley.artifact", about)]

    def _response(self, event: Event, added: ArtifactAdded) -> Events:
        """Write a text message. A response that begins again, after a crash, is another message in place of the one
        before."""
        at, made = event.at, Events()
        id_ = self._texts.get(added.artifact)
        if id_ is None or id_ != self._text or not added.append:
            before, id_ = id_, f"{event.run}.{event.seq}"
            made += self._end_text(at)
            if before is not None:
                made.append(Custom(at, "parley.replaced", {"messageId": before, "by": id_}))
            self._text = self._texts[added.artifact] = id_
            made.append(TextMessageStart(at, id_, "assistant"))
        if text := text_of(added.parts):
            made.append(TextMessageContent(at, id_, text))
        return [*made, *self._end_text(at)] if added.last else made

    def _end_text(self, at: int) -> Events:
        id_, self._text = self._text, ""
        return [TextMessageEnd(at, id_)] if id_ else []


def _whole(at: int, id_: str, text: str, role: str) -> Events:
    """Return a text message that is complete at once; nothing for an empty one."""
    if not text:
        return []
    return [TextMessageStart(at, id_, role), TextMessageContent(at, id_, text), TextMessageEnd(at, id_)]


def _called(at: int, call: str, tool: str, given: str) -> Events:
    return [ToolCallStart(at, call, tool), ToolCallArgs(at, call, given), ToolCallEnd(at, call)]


def _recorded(at: int, step: StepRecord) -> Events:
    name = step.name if step.attempt == 1 else f"{step.name} (attempt {step.attempt})"
    return [StepStarted(at, name), StepFinished(at, name)]


def _tokens(model: str, used: ModelTotals) -> ModelUsage:
    given, made = used.input_tokens, used.output_tokens
    return ModelUsage(model, given, made, given + made, used.cached_tokens)


def _state(at: int, part: Part) -> AguiEvent:
    data = Raw(b"" if part.data is UNSET else bytes(part.data))
    return StateDelta(at, data) if part.media_type == JSON_PATCH else StateSnapshot(at, data)


def _result(returned: ToolReturned) -> str:
    if returned.output is not UNSET:
        return bytes(returned.output).decode()
    return returned.reason or returned.status


def _schema(wanted: Expected | None) -> Fields | None:
    """Return the JSON Schema of the expected answer, from which a front end can make a form."""
    if wanted is None:
        return None
    if wanted.choices:
        return {"type": "string", "enum": list(wanted.choices)}
    return fields_of(schema_in(wanted)) or None


def _call_in(asked: InputRequired | AuthRequired) -> Fields | None:
    """Return the call of a front-end tool that a question stands for; None for any other question."""
    if asked.metadata is UNSET or TOOL_CALL.encode() not in bytes(asked.metadata):
        return None
    call = fields_of(fields_of(msgspec.json.decode(asked.metadata)).get(TOOL_CALL))
    return call if text_in(call.get("name")) else None


def _history(message: Message) -> HistoryMessage:
    """Return an input as a message of AG-UI, with the id that the front end gave it."""
    about: Fields = {}
    if message.metadata is not UNSET and FRONT_END.encode() in bytes(message.metadata):
        about = fields_of(fields_of(msgspec.json.decode(message.metadata)).get(FRONT_END))
    content = "".join(_words(part) for part in spoken(message.parts))
    id_, call = text_in(about.get("message")) or message.id, text_in(about.get("toolCall"))
    return HistoryMessage(id_, "tool", content, call) if call else HistoryMessage(id_, "user", content)


def _words(part: Part) -> str:
    if part.text is not None:
        return part.text
    if part.data is not UNSET:
        return bytes(part.data).decode()
    return f"[{part.filename or part.url or part.media_type or 'file'}]"


def _shown(part: Part) -> dict[str, Any]:
    """Render a part of an artifact. Files are not included: `GET …/tasks/{task}/artifacts/{artifact}` returns them."""
    content: dict[str, Any] = {"filename": part.filename, "mediaType": part.media_type, "text": part.text}
    content |= {"url": part.url, "data": None if part.data is UNSET else part.data}
    if part.raw is not None or part.blob is not None:
        content["size"] = part.blob.size if part.blob else len(part.raw or b"")
    return {name: value for name, value in content.items() if value is not None}
