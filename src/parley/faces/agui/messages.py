"""Messages of AG-UI 1.0: the input of a run, which this face reads, and the events of a run, which it writes."""

from base64 import b64decode
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from parley.errors import Invalid
from parley.ids import is_id
from parley.runs.rules.content import CONTEXT, Message, Part, Parts, check_count, text_part

PROTOCOL = "1.0"
FRONT_END = "urn:parley:agui"
"""Metadata key of a message: what the front end sent along with it, for agents that use it."""
TOOL_CALL = "urn:parley:front-end-tool"
"""Metadata key of a question that is a call of a tool of the front end, as `{name, arguments}`."""

Text = Annotated[str, Meta(min_length=1)]


class _Wire(Struct, frozen=True, omit_defaults=True, rename="camel"):
    pass


# Input. Members that this face does not use are not checked, so that later versions of the protocol can add to them.


class Source(_Wire, frozen=True):
    """Content of a part: bytes as base64, a URL, or a file that only the front end's model vendor can read."""

    type: str
    value: str = ""
    mime_type: str | None = None


class ContentPart(_Wire, frozen=True):
    """A part of a message: text, or a medium. `mime_type`, `data` and `url` are those of a `binary` part of AG-UI 0."""

    type: str
    text: str = ""
    source: Source | None = None
    mime_type: str | None = None
    data: str | None = None
    url: str | None = None
    filename: str | None = None


class InputMessage(_Wire, frozen=True):
    id: str
    role: str
    content: str | list[ContentPart] | dict[str, Any] | None = None
    tool_call_id: str | None = None


class ContextItem(_Wire, frozen=True):
    description: str
    value: str


class FrontEndTool(_Wire, frozen=True):
    name: Text
    description: str = ""
    parameters: Raw | UnsetType = UNSET


class ResumeEntry(_Wire, frozen=True):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Raw | UnsetType = UNSET


class RunAgentInput(_Wire, frozen=True):
    thread_id: Text
    run_id: Text
    messages: list[InputMessage]
    state: Raw | UnsetType = UNSET
    tools: list[FrontEndTool] = []
    context: list[ContextItem] = []
    forwarded_props: Raw | UnsetType = UNSET
    resume: list[ResumeEntry] = []


class NamedQuestion(Struct, frozen=True):
    """The question that an input answers: its run, and the number of its event."""

    run: str
    seq: int


def question_id(run: str, seq: int) -> str:
    """Return the id of an interrupt or front-end tool call. An id of a run contains no `#`."""
    return f"{run}#{seq}"


def answered_in(id_: str, field: str) -> NamedQuestion:
    run, _, seq = id_.partition("#")
    if not is_id(run) or not (seq.isascii() and seq.isdigit() and len(seq) <= 18):
        raise Invalid(f"{field} must be an id from an event of this server.", field=field)
    return NamedQuestion(run, int(seq))


def check_ids(given: RunAgentInput) -> None:
    for name, value in (("threadId", given.thread_id), ("runId", given.run_id)):
        if not is_id(value):
            raise Invalid(f"{name} must have 1 to 128 letters, digits or ._:@/+=~-", field=name)
    if len(given.resume) > 1:
        raise Invalid("A run waits for one answer at a time: resume must have one entry.", field="resume")


def latest(given: RunAgentInput) -> list[InputMessage]:
    """Return the messages that are new: those after the last one of the agent. The log has the others."""
    found: list[InputMessage] = []
    for one in reversed(given.messages):
        if one.role not in ("user", "tool", "system", "developer"):
            break
        found.append(one)
    return found[::-1]


def tool_result(new: list[InputMessage]) -> InputMessage | None:
    """Return the result of a front-end tool; a tool of the server has one already, with an id of another form."""
    return next((one for one in reversed(new) if one.role == "tool" and "#" in (one.tool_call_id or "")), None)


def message_of(given: RunAgentInput) -> Message:
    """Return the message to the agent. Its id is the run's of AG-UI, by which a repeated request is recognised."""
    new = latest(given)
    if given.resume:
        return Message(given.run_id, _payload(given.resume[0]), _about(given))
    if result := tool_result(new):
        return Message(given.run_id, _parts([result]), _about(given, result))
    spoken = [one for one in new if one.role == "user"]
    if not spoken:
        raise Invalid("The last message must be one of the user, or the result of a tool.", field="messages")
    instructions = [one for one in new if one.role in ("system", "developer")]
    parts = (*_context(given.context, instructions), *_parts(spoken))
    return Message(given.run_id, parts, _about(given, spoken[-1]))


def _payload(entry: ResumeEntry) -> Parts:
    if entry.payload is UNSET:
        raise Invalid("An answer needs a payload.", field="resume[0].payload")
    value = msgspec.json.decode(entry.payload)
    return (text_part(value) if isinstance(value, str) else Part(data=entry.payload),)


def _context(items: list[ContextItem], instructions: list[InputMessage]) -> Parts:
    """Return what the front end says about the message as parts that are not the user's own words."""
    told = [*(part.text or "" for part in _parts(instructions)), *(f"{one.description}: {one.value}" for one in items)]
    about = Raw(msgspec.json.encode({CONTEXT: "front end"}))
    return (Part(text="\n".join(told) + "\n\n", metadata=about),) if told else ()


def _about(given: RunAgentInput, message: InputMessage | None = None) -> Raw:
    said: dict[str, object] = {"message": message.id if message else given.run_id}
    if message is not None and message.role == "tool":
        said["toolCall"] = message.tool_call_id
    said |= {"tools": given.tools} if given.tools else {}
    said |= {"context": given.context} if given.context else {}
    for name, value in (("state", given.state), ("forwardedProps", given.forwarded_props)):
        if value is not UNSET and bytes(value).strip() not in (b"null", b"{}"):
            said[name] = value
    return Raw(msgspec.json.encode({FRONT_END: said}))


def _parts(messages: list[InputMessage]) -> Parts:
    made: list[Part] = []
    for one in messages:
        content = [] if one.content is None else one.content
        if isinstance(content, dict):
            raise Invalid("The content of a message must be a string or an array of parts.", field="messages.content")
        check_count(content if isinstance(content, list) else ())
        made += [text_part(content)] if isinstance(content, str) else [_part(part) for part in content]
    check_count(made)
    return tuple(made)


def _part(part: ContentPart) -> Part:
    if part.type == "text":
        return text_part(part.text)
    if part.source is None:
        return _media(part.data, part.url, part.mime_type, part.filename)
    value, media = part.source.value, part.source.mime_type
    match part.source.type:
        case "data":
            return _media(value, None, media, part.filename)
        case "url":
            return _media(None, value, media, part.filename)
        case _:
            reason = "A file of a model vendor cannot be read here: send its bytes or a URL."
            raise Invalid(reason, field="messages.content.source")


def _media(data: str | None, url: str | None, media: str | None, filename: str | None) -> Part:
    if data is None:
        return Part(url=url or "", media_type=media, filename=filename)
    try:
        return Part(raw=b64decode(data, validate=True), media_type=media, filename=filename)
    except ValueError:
        raise Invalid("The bytes of a part must be base64.", field="messages.content.source.value") from None


# Events. `timestamp` is the time of the log's event in Unix milliseconds.


class _Event(_Wire, frozen=True, tag_field="type"):
    pass


class HistoryMessage(_Wire, frozen=True):
    id: str
    role: Literal["user", "tool", "assistant"]
    content: str
    tool_call_id: str | None = None


class RunInput(Struct, frozen=True, rename="camel"):
    """The input of a run as its first event repeats it, for front ends that did not start the run."""

    thread_id: str
    run_id: str
    messages: tuple[HistoryMessage, ...]
    tools: tuple[()] = ()
    context: tuple[()] = ()


class RunStarted(_Event, frozen=True, tag="RUN_STARTED"):
    timestamp: int
    thread_id: str
    run_id: str
    metadata: dict[str, Any]
    input: RunInput | None = None
    protocol_version: str = ""


class Interrupt(_Wire, frozen=True):
    id: str
    reason: str
    message: str = ""
    response_schema: Any = None


class RunOutcome(_Wire, frozen=True):
    type: Literal["success", "interrupt", "cancelled"]
    interrupts: tuple[Interrupt, ...] = ()
    pending_tool_call_ids: tuple[str, ...] = ()


class ModelUsage(_Wire, frozen=True):
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_input_tokens: int = 0


class RunFinished(_Event, frozen=True, tag="RUN_FINISHED"):
    timestamp: int
    thread_id: str
    run_id: str
    outcome: RunOutcome
    usage: tuple[ModelUsage, ...] = ()


class RunError(_Event, frozen=True, tag="RUN_ERROR"):
    timestamp: int
    message: str
    code: str
    usage: tuple[ModelUsage, ...] = ()


class TextMessageStart(_Event, frozen=True, tag="TEXT_MESSAGE_START"):
    timestamp: int
    message_id: str
    role: str


class TextMessageContent(_Event, frozen=True, tag="TEXT_MESSAGE_CONTENT"):
    timestamp: int
    message_id: str
    delta: str


class TextMessageEnd(_Event, frozen=True, tag="TEXT_MESSAGE_END"):
    timestamp: int
    message_id: str


class ToolCallStart(_Event, frozen=True, tag="TOOL_CALL_START"):
    timestamp: int
    tool_call_id: str
    tool_call_name: str


class ToolCallArgs(_Event, frozen=True, tag="TOOL_CALL_ARGS"):
    timestamp: int
    tool_call_id: str
    delta: str


class ToolCallEnd(_Event, frozen=True, tag="TOOL_CALL_END"):
    timestamp: int
    tool_call_id: str


class ToolCallResult(_Event, frozen=True, tag="TOOL_CALL_RESULT"):
    timestamp: int
    message_id: str
    tool_call_id: str
    content: str
    role: str = ""


class StepStarted(_Event, frozen=True, tag="STEP_STARTED"):
    timestamp: int
    step_name: str


class StepFinished(_Event, frozen=True, tag="STEP_FINISHED"):
    timestamp: int
    step_name: str


class StateSnapshot(_Event, frozen=True, tag="STATE_SNAPSHOT"):
    timestamp: int
    snapshot: Raw


class StateDelta(_Event, frozen=True, tag="STATE_DELTA"):
    timestamp: int
    delta: Raw


class MessagesSnapshot(_Event, frozen=True, tag="MESSAGES_SNAPSHOT"):
    timestamp: int
    messages: tuple[HistoryMessage, ...]


class ActivitySnapshot(_Event, frozen=True, tag="ACTIVITY_SNAPSHOT"):
    timestamp: int
    message_id: str
    activity_type: str
    content: dict[str, Any]


class Custom(_Event, frozen=True, tag="CUSTOM"):
    timestamp: int
    name: str
    value: Any


AguiEvent = (
    RunStarted
    | RunFinished
    | RunError
    | TextMessageStart
    | TextMessageContent
    | TextMessageEnd
    | ToolCallStart
    | ToolCallArgs
    | ToolCallEnd
    | ToolCallResult
    | StepStarted
    | StepFinished
    | StateSnapshot
    | StateDelta
    | MessagesSnapshot
    | ActivitySnapshot
    | Custom
)
