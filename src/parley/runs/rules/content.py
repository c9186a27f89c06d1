"""Parts, artifacts and messages: the content of runs."""

from collections.abc import Iterable, Sized
from itertools import groupby

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.errors import ConversationMismatch, Invalid, TooManyParts
from parley.ids import ConversationId, is_id, new_conversation_id


class BlobRef(Struct, frozen=True, omit_defaults=True):
    """Reference to bytes that are stored outside the log, by their hash."""

    sha256: str
    size: int
    text: bool = False
    """True if the bytes are text. A text file (with a filename) is still a file."""


class Part(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One piece of content: exactly one of `text`, `raw`, `url`, `data`, `blob`.

    `data` and `metadata` are kept as the original JSON text, so that numbers keep their spelling.
    """

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: Raw | UnsetType = UNSET
    blob: BlobRef | None = None
    media_type: str | None = None
    filename: str | None = None
    metadata: Raw | UnsetType = UNSET


Parts = tuple[Part, ...]


class Artifact(Struct, frozen=True, omit_defaults=True, rename="camel"):
    id: str
    parts: Parts
    name: str | None = None
    description: str | None = None
    metadata: Raw | UnsetType = UNSET
    complete: bool = False


def text_part(text: str) -> Part:
    return Part(text=text)


MAX_PARTS = 1000
"""Maximum number of parts in one message. Each part is processed several times on its way in, so a request with many
small parts would keep the server busy for longer than its size suggests."""


def check_count(parts: Sized) -> None:
    """Raise TooManyParts for more than MAX_PARTS parts. Faces call this before they convert the parts."""
    if len(parts) > MAX_PARTS:
        raise TooManyParts(
            f"A message may have at most {MAX_PARTS} parts; this one has {len(parts)}. Join texts, or send a file.",
            field="message.parts",
            limit=MAX_PARTS,
        )


def check_parts(parts: Parts) -> None:
    """Raise Invalid for content that a face could not show again."""
    check_count(parts)
    if not parts:
        raise Invalid("A message needs at least one part.", field="parts")
    for index, part in enumerate(parts):
        given = sum(
            (
                part.text is not None,
                part.raw is not None,
                part.url is not None,
                part.data is not UNSET,
                part.blob is not None,
            )
        )
        if given != 1:
            raise Invalid(
                f"Part {index} needs exactly one of text, raw, url, data; it has {given}.",
                field=f"parts[{index}]",
            )


def is_beside(part: Part) -> bool:
    """Return whether a part is message text that is stored outside the log because of its size. Files are not included:
    readers fetch them on request."""
    return part.blob is not None and part.blob.text and part.filename is None


def any_beside(parts: Iterable[Part]) -> bool:
    # A loop, not `any` over a generator: this runs for every event of every log.
    for part in parts:  # noqa: SIM110
        if part.blob is not None and is_beside(part):
            return True
    return False


def text_of(parts: Iterable[Part]) -> str:
    """Return the text of some parts, in order."""
    return "".join(part.text for part in parts if part.text is not None)


MAX_EXCERPT = 200


def excerpt(parts: Iterable[Part], most: int = MAX_EXCERPT) -> str:
    """Return the beginning of some content in one line: its text, or else the names of its files."""
    parts = tuple(parts)
    text = text_of(part for part in parts if part.filename is None)
    if not text.strip():
        text = ", ".join(part.filename or part.url or part.media_type or "data" for part in parts[:10])
    return " ".join(text[: 4 * most].split())[:most]


def says_something(parts: Iterable[Part]) -> bool:
    """Return whether the parts contain more than empty text."""
    return any(part.text != "" for part in parts)


def combined(before: Raw | UnsetType, more: Raw | UnsetType) -> Raw | UnsetType:
    """Merge two metadata objects; later values win."""
    if before is UNSET or more is UNSET:
        return before if more is UNSET else more
    return Raw(msgspec.json.encode(names_in(before) | names_in(more)))


names_in = msgspec.json.Decoder(dict[str, Raw]).decode
"""Return the members of some metadata, each as its original JSON text."""


def merged(chunks: Iterable[Part]) -> Parts:
    """Return the parts that some chunks form: plain text extends one part instead of adding one per token."""
    result: list[Part] = []
    for kind, group in groupby(chunks, _plain_text_kind):
        parts = list(group)
        if kind is None or len(parts) == 1:
            result.extend(parts)
        else:
            result.append(replace(parts[0], text=text_of(parts)))
    return tuple(result)


def _plain_text_kind(part: Part) -> tuple[str | None] | None:
    """Return a key: neighbouring parts with the same key may be joined. None for parts that are never joined."""
    if part.text is None or part.filename is not None or part.metadata is not UNSET:
        return None
    return (part.media_type,)


# Messages of a conversation, and the conversation to which a message belongs.


class Forwarded(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Data of a request apart from its message, which a proxy passes on to the agent unchanged."""

    metadata: Raw | UnsetType = UNSET
    output_modes: tuple[str, ...] = ()
    context: str | None = None


class Message(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An input of a caller to a run."""

    id: str
    parts: Parts
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    forwarded: Forwarded | None = None


CONTEXT = "urn:parley:context"
"""Metadata key of a part that the server added as context for the agent; it is not part of the caller's message."""

SAMPLING = "urn:parley:sampling"
"""Metadata key of a message: options for the model for this message only, as `{model, temperature, maxTokens}`."""

_SAMPLED = {"model": "model", "temperature": "temperature", "maxTokens": "max_tokens"}


def sampling_of(message: Message) -> dict[str, object]:
    """Return the model options in a message's metadata, by their internal names."""
    if message.metadata is UNSET or SAMPLING.encode() not in bytes(message.metadata):
        return {}
    about = msgspec.json.decode(message.metadata, type=dict[str, object])
    told = msgspec.convert(about.get(SAMPLING), dict[str, object])
    return {ours: told[theirs] for theirs, ours in _SAMPLED.items() if told.get(theirs) is not None}


HOPS = "urn:parley:hops"
"""Metadata key of a message: the number of times it was passed on from server to server."""


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
    """Return the conversation of a message: that of its run; else the requested one; else a new one.

    A2A requires that a context which differs from the task's is rejected, and that a missing one is inferred.
    """
    if existing is not None:
        if asked and asked != existing:
            raise ConversationMismatch("The message names another conversation than its task.", field="contextId")
        return existing
    if not asked:
        return new_conversation_id()
    if not is_id(asked):
        raise Invalid("A conversation id must have 1 to 128 letters, digits or ._:@/+=~-", field="contextId")
    return ConversationId(asked)
