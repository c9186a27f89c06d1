"""Language models: the port, and the content that can be sent to one."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Literal, Protocol, cast

import msgspec
from msgspec import UNSET, Struct

from parley.errors import ContentNotSupported
from parley.json_values import Fields
from parley.runs.rules.content import Part, Parts
from parley.tools.rules.mcp import Function, Returned, WantedCall


class Speech(Struct, frozen=True):
    """One message of the conversation that a model reads."""

    role: Literal["user", "agent"]
    parts: Parts
    calls: tuple[WantedCall, ...] = ()
    """Tool calls that the agent requested in this message."""
    results: tuple[Returned, ...] = ()
    """Results of the tool calls in the previous message."""


class Sampling(Struct, frozen=True):
    """Parameters of a request to a model. None means the vendor's default."""

    instructions: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    model: str | None = None
    """Another model of the same vendor, for this request only."""
    functions: tuple[Function, ...] = ()


class Delta(Struct, frozen=True):
    """The next piece of the answer's text."""

    text: str


class TokenUsage(Struct, frozen=True):
    """Token usage of the answer so far, as the vendor counts it; yielded again when it changes."""

    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    temperature: float | None = None
    """Temperature that was sent to the vendor; None if none was sent."""
    estimated: bool = False
    """True if the tokens are an estimate because the vendor reported none."""
    cached_tokens: int | None = None
    """Input tokens that the vendor read from its cache."""
    uncounted_tokens: int | None = None
    """Input tokens in the vendor's cache that `input_tokens` does not include, because the vendor counts them apart."""


class Finish(Struct, frozen=True):
    """The end of the model's answer. An answer without it was interrupted."""

    reason: str


Answered = Delta | WantedCall | TokenUsage | Finish
"""Elements of a model's answer."""


class Llm(Protocol):
    """A language model. Raises ModelError with a message for the caller and details for the operator."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Media types that the model accepts."""
        ...

    def stream(self, messages: Sequence[Speech], sampling: Sampling) -> AsyncGenerator[Answered, None]:
        """Stream an answer. Closing the generator ends the request to the vendor."""
        ...


# Content for a model: texts, and the kinds of files that vendors accept.

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = "application/pdf"
TEXTS = ("text/*", "application/json")
READS = (*TEXTS, *IMAGES, PDF)
_TEXTUAL = ("application/json", "application/yaml", "application/xml")


class TextContent(Struct, frozen=True):
    text: str


class ModelFile(Struct, frozen=True):
    """An image or a PDF: its bytes in base64, or its URL."""

    media_type: str
    base64: str | None = None
    url: str | None = None
    name: str | None = None

    @property
    def is_image(self) -> bool:
        return self.media_type in IMAGES

    @property
    def data_url(self) -> str:
        return f"data:{self.media_type};base64,{self.base64}"


Piece = TextContent | ModelFile


def pieces(parts: Iterable[Part]) -> list[Piece]:
    """Convert parts to content for a vendor. Empty texts are left out, because some vendors refuse them."""
    return [piece for part in parts for piece in _piece(part)]


def words(parts: Iterable[Part]) -> str:
    """Convert parts to one text, for a model that accepts only text."""
    found = pieces(parts)
    for piece in found:
        if isinstance(piece, ModelFile):
            raise ContentNotSupported(f"This agent's model does not accept {piece.media_type}.")
    return "\n".join(piece.text for piece in found if isinstance(piece, TextContent))


def _piece(part: Part) -> Iterator[Piece]:
    media_type = (part.media_type or "").split(";")[0].strip().lower()
    if part.text is not None:
        if part.text.strip():
            yield TextContent(part.text)
    elif part.data is not UNSET:
        yield TextContent(bytes(part.data).decode())
    elif part.raw is not None and (media_type.startswith("text/") or media_type in _TEXTUAL):
        yield TextContent(_named(part, _decoded(part.raw)))
    elif media_type in (*IMAGES, PDF):
        yield ModelFile(
            media_type, b64encode(part.raw).decode() if part.raw is not None else None, part.url, part.filename
        )
    else:
        raise ContentNotSupported(f"This agent's model does not accept {media_type or 'a file without a media type'}.")


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ContentNotSupported("A text file is not in UTF-8.") from None


def _named(part: Part, text: str) -> str:
    return f"{part.filename}:\n{text}" if part.filename else text


# Tool calls that a model streams in fragments.

MAX_INPUT = 1024 * 1024


class CallFragments:
    """Fragments of the tool calls of one answer, in the order in which the calls began."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._texts: dict[int, list[str]] = {}

    def begin(self, place: int, id_: str | None, name: str | None) -> None:
        """Start a call. If it was started before, add the id or name that was missing."""
        self._texts.setdefault(place, [])
        if id_:
            self._ids[place] = id_
        if name:
            self._names[place] = self._names.get(place) or name

    def more(self, place: int, text: str | None) -> None:
        self._texts.setdefault(place, []).append(text or "")
        if sum(map(len, self._texts[place])) > MAX_INPUT:
            raise ValueError("a tool's arguments are too long")

    def ended(self) -> list[WantedCall]:
        return [
            WantedCall(self._ids.get(place) or f"call_{place}", self._names[place], input_of("".join(texts)))
            for place, texts in self._texts.items()
            if self._names.get(place)
        ]


def schema_of(function: Function) -> Fields:
    """Return the schema of a function's input. Vendors require `type: object`, which some MCP servers leave out."""
    return {"type": "object", **cast(Fields, msgspec.json.decode(function.schema, type=dict))}


def input_of(text: str) -> Fields | None:
    """Parse the text; None if it is not a JSON object."""
    try:
        return cast(Fields, msgspec.json.decode(text or "{}", type=dict))
    except (msgspec.MsgspecError, RecursionError):
        return None
