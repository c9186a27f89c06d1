"""Stream of a run's log in the contract's format: resumable after any event, open for a limited time, `[DONE]` at the
end."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing
from typing import Any, assert_never

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict
from starlette.types import Receive, Send

from parley.clock import iso
from parley.errors import Invalid
from parley.http.face import Request
from parley.http.sse import KEEP_ALIVE_S, Chunk, write
from parley.runs.rules.content import Message, Part, Parts, text_of
from parley.runs.rules.events import (
    ENDINGS,
    RESPONSE,
    ArtifactAdded,
    AuthRequired,
    Canceled,
    CancelRequested,
    ChildStarted,
    Closing,
    Completed,
    Event,
    Failed,
    Forked,
    InputReceived,
    InputRequired,
    Noted,
    Omitted,
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
    ToolCalled,
    ToolReturned,
    TurnEnded,
    Woken,
    type_of,
)
from parley.runs.rules.state import Run
from parley.runs.rules.usage import Usage
from parley.runs.rules.view import told
from parley.runs.service import Exchange
from parley.runs.streams import Follower

# Each event of a run's log becomes a frame of the contract's stream; the `id` of a frame is the event's number.

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode


def frames_of(event: Event) -> bytes:
    """Encode an event as a frame. The text that ends a turn (a question or a whole reply) is also sent before it as a
    text delta, so that clients that show only text deltas show it. `[DONE]` follows the end of the run."""
    if event.payload is None:
        return _frame(event, {"type": "event", "runId": event.run, "eventType": "run.erased", "payload": {}})
    frame = _frame(event, data_of(event, event.payload))
    match event.payload:
        case Replied(parts) if words := text_of(parts):
            return _frame(event, _delta(event, words)) + frame + done_frame(event.seq)
        case InputRequired(parts) | AuthRequired(parts) | TurnEnded(parts) if words := text_of(parts):
            return _frame(event, _delta(event, words)) + frame
        case Completed() | Replied() | Failed() | Canceled() | Rejected():
            return frame + done_frame(event.seq)
        case _:
            return frame


def done_frame(seq: int) -> bytes:
    return b"event: message\nid: %d\ndata: [DONE]\n\n" % seq


def data_of(event: Event, payload: Payload) -> Json:
    match payload:
        case Started(epoch=1):
            return {"type": "start", "runId": event.run, "meta": {"startedAt": iso(event.at)}}
        case ArtifactAdded(_, parts, name) if name == RESPONSE and _is_text(parts):
            return _delta(event, text_of(parts))
        case ToolCalled(call, tool, given):
            called = {"tool_call_id": call, "tool_name": tool, "input": given}
            return {"type": "tool-call", "runId": event.run, "toolCall": called}
        case ToolReturned():
            return {"type": "tool-result", "runId": event.run, "toolResult": _result(payload)}
        case Completed(parts) | Replied(parts):
            return _finish(event, "succeeded", "completed", text_of(parts) or None)
        case Failed(code, reason) | Rejected(code, reason):
            return _finish(event, "failed", code, reason)
        case Canceled(reason):
            return _finish(event, "canceled", "canceled", reason)
        case _:
            return {"type": "event", "runId": event.run, **_generic(event, payload)}


def _frame(event: Event, data: Json) -> bytes:
    return b"event: message\nid: %d\ndata: %b\n\n" % (event.seq, _encode(data))


def _delta(event: Event, words: str) -> Json:
    return {"type": "text-delta", "runId": event.run, "delta": words}


def _finish(event: Event, status: str, reason_class: str, reason: str | None) -> Json:
    meta = {"status": status, "reason_class": reason_class, "reason": reason}
    return {"type": "finish", "runId": event.run, "meta": meta}


def _result(returned: ToolReturned) -> Json:
    return {
        "tool_call_id": returned.call,
        "status": "failed" if returned.status == "blocked" else returned.status,
        "output": None if returned.output is UNSET else returned.output,
        "error_class": returned.code or None,
        "error_message": returned.reason or None,
    }


def _generic(event: Event, payload: Payload) -> Json:
    name, content = _named(event, payload)
    return {"eventType": name, "payload": content}


def _named(event: Event, payload: Payload) -> tuple[str, Json]:
    """Return the name and payload of an event for which the contract has no frame; names follow its style."""
    match payload:
        case Submitted():
            return "run.created", {"thread_id": payload.conversation, "agent": payload.agent}
        case InputReceived(message):
            return "run.frame_consumed", _consumed(message)
        case Started():
            return "run.turn_started", {"started_at": iso(event.at)}
        case CancelRequested():
            return "run.cancel_requested", {
                "reason": payload.reason,
                "requested_by": "control_plane",
                "requested_at": iso(event.at),
            }
        case Rescued():
            return "run.executor_lost", {"attempt": payload.attempt, "recovery": payload.how}
        case Progress((), usage=Usage() as usage):
            return "run.usage", asdict(usage)
        case Progress(parts) | TurnEnded(parts) | InputRequired(parts) | AuthRequired(parts):
            return f"run.{type_of(payload)}", {"text": text_of(parts), "parts": [_part(part) for part in parts]}
        case ArtifactAdded():
            return "run.artifact", _artifact(payload)
        case ChildStarted():
            return "run.child_started", {"run_id": payload.child, "agent": payload.agent}
        case Planned(steps):
            return "run.planned", {"text": told(payload), "steps": steps}
        case Stepped():
            return "run.step", {"text": told(payload), **_step(payload)}
        case Steered():
            return f"run.step_{payload.how}", {"text": told(payload), "step_id": payload.step or None}
        case Suspended():
            return "run.suspended", {"until": iso(payload.due)}
        case Closing() | Noted() | Omitted() | Forked() | Woken():
            return f"run.{type_of(payload)}", {}
        case ToolCalled() | ToolReturned() | Completed() | Replied() | Failed() | Canceled() | Rejected():
            raise AssertionError(f"{type_of(payload)} has a frame of its own")
        case _:
            assert_never(payload)


def _consumed(message: Message) -> Json:
    return {"frame_id": message.id, "parts": [_part(part) for part in message.parts]}


def _step(stepped: Stepped) -> Json:
    return {
        "step_id": stepped.step,
        "status": stepped.status,
        "attempt": stepped.attempt,
        "run_id": stepped.run,
        "output": [_part(part) for part in stepped.output],
        "error_class": stepped.code or None,
        "error_message": stepped.reason or None,
    }


def _artifact(chunk: ArtifactAdded) -> Json:
    return {
        "artifact_id": chunk.artifact,
        "name": chunk.name,
        "append": chunk.append,
        "last": chunk.last,
        "parts": [_part(part) for part in chunk.parts],
    }


def _part(part: Part) -> Json:
    """Render text, data and links unchanged; of bytes only the size, because a text stream cannot carry them."""
    about: Json = {"filename": part.filename, "media_type": part.media_type}
    shown: Json = {name: value for name, value in about.items() if value is not None}
    if part.text is not None:
        return {"text": part.text, **shown}
    if part.url is not None:
        return {"url": part.url, **shown}
    if part.data is not UNSET:
        return {"data": part.data, **shown}
    return {"size": part.blob.size if part.blob else len(part.raw or b""), **shown}


def _is_text(parts: Parts) -> bool:
    return all(part.text is not None for part in parts)


DEFAULT_TAIL_MS = 1000
MAX_TAIL_MS = 60_000


class _Step(Struct, frozen=True):
    data: bytes = b""
    last: bool = False


_SILENCE, _END = _Step(), _Step(last=True)


class Tail:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._latest: tuple[list[Event], _Step] = ([], _SILENCE)
        """The last step, cached: all followers of a run get the same list of events at the same moment."""

    async def open(self, request: Request[Any], run: Run) -> Follower:
        """Start following; raise for an invalid request before any of the stream is sent."""
        cursor = cursor_of(request)
        tail_ms_of(request)
        return await self._exchange.follow(run.id, run.version if cursor is None else cursor)

    async def write(self, request: Request[Any], run: Run, follower: Follower, receive: Receive, send: Send) -> None:
        with closing(follower):
            await write(receive, send, self._steps(run, follower, tail_ms_of(request) / 1000), _written)

    async def _steps(self, run: Run, follower: Follower, tail_s: float) -> AsyncGenerator[_Step, None]:
        """Yield all stored events, however long that takes; then new events until the tail ends."""
        while follower.cursor < run.version:
            step = await self._made(await follower.next())
            yield step
            if step.last:
                return
        if run.ended:
            yield _Step(done_frame(run.version), last=True)
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + tail_s
        step = _SILENCE
        while not step.last:
            left = deadline - loop.time()
            events = await follower.next(min(KEEP_ALIVE_S, left)) if left > 0 else []
            step = await self._made(events) if events else _SILENCE if loop.time() < deadline else _END
            yield step

    async def _made(self, events: list[Event]) -> _Step:
        made = self._latest[1]
        if self._latest[0] is not events:
            data = b"".join(map(frames_of, await self._exchange.attachments.told(events)))
            made = _Step(data, last=events[-1].type in ENDINGS)
            self._latest = events, made
        return made


def _written(step: _Step) -> Chunk:
    return step.data, step.last


def cursor_of(request: Request[Any]) -> int | None:
    """Return the number of the event to resume after; None when neither the header nor the query has it."""
    given = [value for value in (request.header(b"last-event-id"), request.query.get("cursor")) if value is not None]
    cursors = [_cursor(value) for value in given]
    if len(set(cursors)) > 1:
        raise Invalid("cursor query and Last-Event-ID must match")
    return cursors[0] if cursors else None


def _cursor(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise Invalid("cursor must be an integer >= 0")
    return int(value)


def tail_ms_of(request: Request[Any]) -> int:
    value = request.query.get("tail_ms")
    if value is None:
        return DEFAULT_TAIL_MS
    if not (value.isascii() and value.isdigit() and int(value[:18]) > 0):
        raise Invalid("tail_ms must be a positive integer")
    return min(int(value[:18]), MAX_TAIL_MS)
