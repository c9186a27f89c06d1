"""Entries of a run's log as the frames of the contract's stream; the `id` of a frame is the entry's number."""

from typing import Any, assert_never

import msgspec
from msgspec import UNSET

from parley.clock import iso
from parley.core.artifacts import Part, Parts, text_of
from parley.core.conversations import Message
from parley.core.events import (
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
    ToolCalled,
    ToolReturned,
    TurnEnded,
    type_of,
)
from parley.core.views import told

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode


def frames_of(event: Event) -> bytes:
    """One frame for each entry. What an agent says as it ends its turn, a question or a whole reply, comes before that
    as words of its own, for whoever shows only words must see it; `[DONE]` comes after any end."""
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
    """What the contract has no frame of its own for, under names in its manner."""
    match payload:
        case Submitted():
            return "run.created", {"thread_id": payload.conversation, "agent": payload.agent}
        case InputReceived(message):
            return "run.frame_consumed", _consumed(message)
        case Started():
            return "run.turn_started", {"started_at": iso(event.at)}
        case CancelRequested():
            return "run.cancel_requested", {
                "reason": payload.reason, "requested_by": "control_plane", "requested_at": iso(event.at),
            }  # fmt: skip
        case Rescued():
            return "run.executor_lost", {"attempt": payload.attempt, "recovery": payload.how}
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
        case Closing() | Noted() | Omitted() | Forked():
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
    """Text, data and links as they are; of bytes only how many, for a stream of words is no place for them."""
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
