"""Parts, the pieces of content, and artifacts, the named outputs a run builds from them."""

from collections.abc import Iterable
from itertools import groupby

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.errors import Invalid


class BlobRef(Struct, frozen=True, omit_defaults=True):
    """Bytes that are kept beside the log, found by their content."""

    sha256: str
    size: int
    text: bool = False
    """Whether they are shown as text: a file of text is a file all the same."""


class Part(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One piece of content: exactly one of `text`, `raw`, `url`, `data`, `blob`.

    `data` and `metadata` stay the JSON text they came as, so that a number keeps its spelling.
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


def check_parts(parts: Parts) -> None:
    """Refuse content that no face could show again."""
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
    """Whether a part is something said that is kept beside the log for its size. A file is none: it is asked for."""
    return part.blob is not None and part.blob.text and part.filename is None


def any_beside(parts: Iterable[Part]) -> bool:
    # A loop, not `any` over a generator: this is asked for every event of every log.
    for part in parts:  # noqa: SIM110
        if part.blob is not None and is_beside(part):
            return True
    return False


def text_of(parts: Iterable[Part]) -> str:
    """The readable text of some parts, in order."""
    return "".join(part.text for part in parts if part.text is not None)


def says_something(parts: Iterable[Part]) -> bool:
    """Whether there is more in them than empty text."""
    return any(part.text != "" for part in parts)


def combined(before: Raw | UnsetType, more: Raw | UnsetType) -> Raw | UnsetType:
    """Both, name by name; where both have one, the later."""
    if before is UNSET or more is UNSET:
        return before if more is UNSET else more
    return Raw(msgspec.json.encode(names_in(before) | names_in(more)))


names_in = msgspec.json.Decoder(dict[str, Raw]).decode
"""The members of some metadata, each as it is spelled."""


def merged(chunks: Iterable[Part]) -> Parts:
    """The parts that some chunks make: plain text grows one part instead of adding one per token."""
    result: list[Part] = []
    for kind, group in groupby(chunks, _plain_text_kind):
        parts = list(group)
        if kind is None or len(parts) == 1:
            result.extend(parts)
        else:
            result.append(replace(parts[0], text=text_of(parts)))
    return tuple(result)


def _plain_text_kind(part: Part) -> tuple[str | None] | None:
    """Parts of equal kind may be joined; None never is."""
    if part.text is None or part.filename is not None or part.metadata is not UNSET:
        return None
    return (part.media_type,)
