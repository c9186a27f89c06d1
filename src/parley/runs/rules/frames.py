"""Frames: the inputs of the runtime control plane (003), and the effect of each type on a run."""

import hashlib
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from parley.errors import Invalid
from parley.runs.rules.content import Message, Part, Parts, text_part
from parley.tools.rules.redaction import sanitised

Effect = Literal["input", "cancel", "finish", "fail"]

FRAME = "urn:parley:frame"
"""Metadata key of a message: the type of its frame, and the rest of the frame's data."""

_EFFECTS: dict[str, Effect] = {
    "cancel": "cancel",
    "cancel_requested": "cancel",
    "finish": "finish",
    "complete": "finish",
    "run_complete": "finish",
    "fail": "fail",
    "error": "fail",
}
_WORDS = ("text", "delta")

Timestamp = Annotated[datetime, Meta(tz=True)]


def check_timestamp(text: str | None, field: str) -> None:
    """Raise Invalid unless the text is an RFC 3339 time with an offset, or absent."""
    try:
        msgspec.convert(text, Timestamp | None)
    except msgspec.ValidationError:
        raise Invalid(f"{field} must be an RFC 3339 time such as 2026-02-19T18:00:00Z", field=field) from None


class Frame(Struct, frozen=True):
    """A frame. `payload` is a JSON object; `id` is unique in its run."""

    id: str
    type: str
    payload: dict[str, Any]
    occurred_at: str | None = None

    @property
    def effect(self) -> Effect:
        return _EFFECTS.get(self.type, "input")

    @property
    def digest(self) -> bytes:
        """Hash of type and payload: equal for frames of the same type with an equivalent payload."""
        return hashlib.sha256(msgspec.json.encode([self.type, self.payload], order="sorted")).digest()

    def said(self, name: str) -> str | None:
        """Return a text of the payload, if there is one."""
        value = self.payload.get(name)
        return value if isinstance(value, str) and value else None


def message_of(frame: Frame) -> Message:
    """Return the message that the agent reads: the frame's text, or its whole payload if it has no text. Secrets are
    not written to the log; addresses are, because an agent may need them."""
    about: dict[str, object] = {"type": frame.type}
    if frame.occurred_at is not None:
        about["occurred_at"] = frame.occurred_at
    words, rest = _words(replace(frame, payload=sanitised(frame.payload, personal=False)))
    if rest:
        about["payload"] = rest
    return Message(frame.id, words, Raw(msgspec.json.encode({FRAME: about})))


def _words(frame: Frame) -> tuple[Parts, dict[str, Any]]:
    for name in _WORDS:
        if text := frame.said(name):
            return (text_part(text),), {key: value for key, value in frame.payload.items() if key != name}
    return (Part(data=Raw(msgspec.json.encode(frame.payload)), media_type="application/json"),), {}
