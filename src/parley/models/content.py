"""What can be shown to a model: words, and files as the vendors know them."""

from base64 import b64encode
from collections.abc import Iterable, Iterator

from msgspec import UNSET, Struct

from parley.core.artifacts import Part
from parley.errors import ContentNotSupported

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = "application/pdf"
TEXTS = ("text/*", "application/json")
READS = (*TEXTS, *IMAGES, PDF)
_TEXTUAL = ("application/json", "application/yaml", "application/xml")


class Words(Struct, frozen=True):
    text: str


class File(Struct, frozen=True):
    """An image or a PDF: its bytes in base64, or where it is."""

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


Piece = Words | File


def pieces(parts: Iterable[Part]) -> list[Piece]:
    """The parts in a vendor's terms. Empty words are left out: some vendors refuse them."""
    return [piece for part in parts for piece in _piece(part)]


def words(parts: Iterable[Part]) -> str:
    """The same for a model that reads nothing but text."""
    found = pieces(parts)
    for piece in found:
        if isinstance(piece, File):
            raise ContentNotSupported(f"This agent's model does not read {piece.media_type}.")
    return "\n".join(piece.text for piece in found if isinstance(piece, Words))


def _piece(part: Part) -> Iterator[Piece]:
    media_type = (part.media_type or "").split(";")[0].strip().lower()
    if part.text is not None:
        if part.text.strip():
            yield Words(part.text)
    elif part.data is not UNSET:
        yield Words(bytes(part.data).decode())
    elif part.raw is not None and (media_type.startswith("text/") or media_type in _TEXTUAL):
        yield Words(_named(part, _decoded(part.raw)))
    elif media_type in (*IMAGES, PDF):
        yield File(media_type, b64encode(part.raw).decode() if part.raw is not None else None, part.url, part.filename)
    else:
        raise ContentNotSupported(f"This agent's model does not read {media_type or 'a file without a media type'}.")


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ContentNotSupported("A text file is not in UTF-8.") from None


def _named(part: Part, text: str) -> str:
    return f"{part.filename}:\n{text}" if part.filename else text
