"""Rules that every version of A2A shares when a wire is read, and what a stream shows of an event."""

from datetime import UTC, datetime
from typing import Protocol

from msgspec import UNSET, Raw, UnsetType

from parley.core.artifacts import Parts
from parley.core.conversations import Message
from parley.core.events import (
    AuthRequired,
    Canceled,
    Completed,
    Event,
    Failed,
    Forked,
    InputRequired,
    Payload,
    Planned,
    Progress,
    Rejected,
    Rescued,
    Started,
    Steered,
    Stepped,
    TurnEnded,
)
from parley.core.runs import State
from parley.core.views import Status, spoken
from parley.errors import Invalid

MAX_PAGE = 100
MAX_MESSAGE_ID = 255
_STATES: dict[type[Payload], State] = {
    Started: State.WORKING,
    Progress: State.WORKING,
    Planned: State.WORKING,
    Stepped: State.WORKING,
    Steered: State.WORKING,
    InputRequired: State.INPUT_REQUIRED,
    AuthRequired: State.AUTH_REQUIRED,
    TurnEnded: State.SUBMITTED,
    Rescued: State.SUBMITTED,
    Forked: State.SUBMITTED,
    Completed: State.COMPLETED,
    Failed: State.FAILED,
    Canceled: State.CANCELED,
    Rejected: State.REJECTED,
}


def status_of(event: Event) -> Status | None:
    """The status that an event leads to, if it is one that a stream shows."""
    payload = event.payload
    state = _STATES.get(type(payload)) if payload is not None else None
    if payload is None or state is None:
        return None
    return Status(state, event.at, spoken(event, payload))


class MessageWire(Protocol):
    """What a message has in every version; its parts differ."""

    @property
    def message_id(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def metadata(self) -> Raw | UnsetType: ...

    @property
    def extensions(self) -> tuple[str, ...] | None: ...


def message(
    wire: MessageWire, parts: Parts, *users: str, references: tuple[str, ...] | None = None
) -> Message:  # fmt: skip
    """A client's message; `users` are the names of its role."""
    if wire.role not in users:
        raise Invalid(f"A client's message has the role {users[0]}.", field="message.role")
    if not 1 <= len(wire.message_id) <= MAX_MESSAGE_ID or not wire.message_id.isprintable():
        raise Invalid(f"messageId has 1 to {MAX_MESSAGE_ID} printable characters.", field="message.messageId")
    about = metadata(wire.metadata, "message.metadata")
    return Message(wire.message_id, parts, about, wire.extensions or (), references or ())


def metadata(value: Raw | UnsetType, field: str) -> Raw | UnsetType:
    if value is UNSET or bytes(value) == b"null":
        return UNSET
    if not bytes(value).lstrip().startswith(b"{"):
        raise Invalid("Metadata is a JSON object.", field=field)
    return value


def history_length(length: int | None) -> int | None:
    if length is not None and length < 0:
        raise Invalid("historyLength is zero or more.", field="historyLength")
    return length


def page_size(size: int | None) -> int:
    if size is None:
        return 50
    if not 1 <= size <= MAX_PAGE:
        raise Invalid(f"pageSize is between 1 and {MAX_PAGE}.", field="pageSize")
    return size


def time_ms(text: str, field: str) -> int:
    """The milliseconds of an ISO 8601 time; without an offset it counts as UTC."""
    try:
        at = datetime.fromisoformat(text)
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Invalid(f"{field} is not an ISO 8601 time.", field=field) from None
