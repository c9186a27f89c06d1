"""What is said in a conversation, and which conversation a message belongs to."""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core.artifacts import Parts
from parley.errors import ConversationMismatch, Invalid
from parley.ids import ConversationId, is_id, new_conversation_id


class Forwarded(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Parts of a request beside its message, for a proxy to pass on to the agent as they came."""

    metadata: Raw | UnsetType = UNSET
    output_modes: tuple[str, ...] = ()
    context: str | None = None


class Message(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a caller gives a run."""

    id: str
    parts: Parts
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    forwarded: Forwarded | None = None


CONTEXT = "urn:parley:context"
"""In a part's metadata: it was put there by us so that an agent knows what the rest is about; nobody said it."""

SAMPLING = "urn:parley:sampling"
"""In a message's metadata: how a model is to be asked this once, as `{model, temperature, maxTokens}`."""

_SAMPLED = {"model": "model", "temperature": "temperature", "maxTokens": "max_tokens"}


def sampling_of(message: Message) -> dict[str, object]:
    """What a message says of how a model is to be asked, by the names that the engine has for it."""
    if message.metadata is UNSET or SAMPLING.encode() not in bytes(message.metadata):
        return {}
    about = msgspec.json.decode(message.metadata, type=dict[str, object])
    told = msgspec.convert(about.get(SAMPLING), dict[str, object])
    return {ours: told[theirs] for theirs, ours in _SAMPLED.items() if told.get(theirs) is not None}


HOPS = "urn:parley:hops"
"""In a message's metadata: how often it was passed on from server to server."""


def hops_of(message: Message) -> int:
    if message.metadata is UNSET:
        return 0
    try:
        found = msgspec.json.decode(message.metadata).get(HOPS, 0)
        return max(0, int(found))
    except (msgspec.MsgspecError, AttributeError, TypeError, ValueError, OverflowError):
        return 0


def hops_metadata(hops: int) -> Raw | UnsetType:
    return Raw(msgspec.json.encode({HOPS: hops})) if hops else UNSET


def conversation_for(asked: str | None, existing: ConversationId | None = None) -> ConversationId:
    """The conversation of a message: the run's own one; else the one asked for; else a new one.

    A2A: a context that differs from the task's must be rejected, and is inferred when left out.
    """
    if existing is not None:
        if asked and asked != existing:
            raise ConversationMismatch("The message names another conversation than its task.", field="contextId")
        return existing
    if not asked:
        return new_conversation_id()
    if not is_id(asked):
        raise Invalid("A conversation id has 1 to 128 letters, digits or ._:@/+=~-", field="contextId")
    return ConversationId(asked)
