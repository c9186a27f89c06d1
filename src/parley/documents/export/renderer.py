"""Export of a conversation to a file, written piece by piece so that its length does not matter, and stored for a
while."""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeVar, get_args

import msgspec
from msgspec import Struct

from parley.documents.rules import Conversation, Document, Kind, Provenance, Version
from parley.errors import Invalid
from parley.runs.attachments import PassingBlobs
from parley.runs.rules.transcript import Attachment, TranscriptMessage

T = TypeVar("T")
Format = Literal["json", "markdown", "html", "pdf"]
FORMATS: tuple[str, ...] = get_args(Format)

BATCH = 64
AT_ONCE = 2
"""Number of files that one process makes at the same time."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Cover(Struct, frozen=True):
    """Data for the beginning of an export: the conversation, its agent and the time."""

    id: str
    """Id of the export, so that no two exports have the same bytes."""
    conversation: Conversation
    agent: str
    """The agent's display name."""
    exported_at: int


class ExportedDocument(Struct, frozen=True):
    """A document with its current content and its versions, newest first; limited to a number that a person would
    read."""

    document: Document
    version: Version
    content: str
    versions: Sequence[Version]


class Bound(Struct, frozen=True):
    """A complete file, and sentences about content that could not be shown in it."""

    path: Path
    warnings: tuple[str, ...] = ()


class Renderer(Protocol):
    """Writes one file of one format. The methods are called in this order, outside the event loop."""

    @property
    def media_type(self) -> str: ...

    @property
    def extension(self) -> str: ...

    def opening(self, cover: Cover) -> str: ...

    def message(self, said: TranscriptMessage) -> str: ...

    def document(self, sheet: ExportedDocument) -> str: ...

    def closing(self, messages: int) -> str: ...

    def bound(self, written: Path) -> Bound:
        """Return the file to hand out, made from the one to which everything was written."""
        ...


class Printed(Struct, frozen=True):
    """A file that was made and stored."""

    sha256: str
    size: int
    media_type: str
    name: str
    messages: int
    documents: int
    warnings: tuple[str, ...] = ()


class ExportWriter:
    """Makes export files of conversations."""

    def __init__(self, renderers: Mapping[str, Callable[[], Renderer]], blobs: PassingBlobs) -> None:
        self._renderers = renderers
        self.blobs = blobs
        self._room = asyncio.Semaphore(AT_ONCE)

    def renderer(self, format_: str) -> Renderer:
        if format_ not in self._renderers:
            raise Invalid(f"format must be one of: {', '.join(self._renderers)}.", field="format")
        return self._renderers[format_]()

    async def print(
        self,
        renderer: Renderer,
        cover: Cover,
        messages: AsyncIterator[TranscriptMessage],
        sheets: AsyncIterator[ExportedDocument],
    ) -> Printed:
        async with self._room:
            with tempfile.TemporaryDirectory(prefix="parley-export-") as folder:
                path = Path(folder) / "written"
                with await asyncio.to_thread(path.open, "wb") as file:
                    told, shown = await _write(file, renderer, cover, messages, sheets)
                bound = await asyncio.to_thread(renderer.bound, path)
                size = bound.path.stat().st_size
                sha256 = await self.blobs.put_file(bound.path)
        name = f"{_safe(cover.conversation.id)}.{renderer.extension}"
        return Printed(sha256, size, renderer.media_type, name, told, shown, bound.warnings)


async def _write(
    file: BinaryIO,
    renderer: Renderer,
    cover: Cover,
    messages: AsyncIterator[TranscriptMessage],
    sheets: AsyncIterator[ExportedDocument],
) -> tuple[int, int]:
    """Write the whole export. Return the number of messages and of documents."""
    told = shown = 0
    await asyncio.to_thread(_put, file, renderer.opening, [cover])
    batch: list[TranscriptMessage] = []
    async for said in messages:
        batch.append(said)
        if len(batch) == BATCH:
            await asyncio.to_thread(_put, file, renderer.message, batch)
            told, batch = told + len(batch), []
    await asyncio.to_thread(_put, file, renderer.message, batch)
    told += len(batch)
    async for sheet in sheets:
        await asyncio.to_thread(_put, file, renderer.document, [sheet])
        shown += 1
    await asyncio.to_thread(_put, file, renderer.closing, [told])
    return told, shown


def _put(file: BinaryIO, render: Callable[[T], str], things: Sequence[T]) -> None:
    for one in things:
        file.write(render(one).encode())


def _safe(conversation: str) -> str:
    """Return a file name that every file system and every HTTP header accepts."""
    return f"conversation-{_UNSAFE.sub('-', conversation).strip('-.')[:64]}".rstrip("-.")


# Labels and texts that all formats for people share.

KINDS: dict[Kind, str] = {"plan": "Plan", "deliverable": "Deliverable"}
MADE: dict[Provenance, str] = {
    "conversation_task": "written by the agent",
    "manual_edit": "edited by hand",
    "llm_rerun": "written again",
    "merge_operation": "merged",
    "copy_operation": "copied",
}


NESTING = 100
"""Nesting limit of the parser, which leaves out anything nested deeper."""
_TOO_DEEP = re.compile(r"^(?:[ \t]*>){90}|^(?:[ \t]*[*+-][ \t]){45}", re.MULTILINE)


def kept(markdown: str) -> str:
    """Return Markdown of which the parser keeps every word: text that is nested too deeply is shown as it was typed."""
    return fenced(markdown, "") if _TOO_DEEP.search(markdown) else markdown


def fenced(text: str, language: str) -> str:
    """Return a block of code, with a fence that is longer than any fence in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


_encode = msgspec.json.Encoder().encode


class _About(Struct):
    attachments: tuple[Attachment, ...] = ()
    model: str = ""


def attachments(said: TranscriptMessage) -> tuple[Attachment, ...]:
    return _about(said).attachments


def model(said: TranscriptMessage) -> str:
    return _about(said).model


def _about(said: TranscriptMessage) -> _About:
    try:
        return msgspec.json.decode(said.metadata, type=_About)
    except msgspec.MsgspecError:
        # Agents may put anything into the metadata of their answers.
        return _About()


def moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%d %b %Y, %H:%M").lstrip("0") + " UTC"


def day(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%A, %d %B %Y").replace(", 0", ", ")


def hour(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%H:%M")


def described(one: Attachment) -> str:
    """Return a description such as `report.pdf (application/pdf, 12 kB)`."""
    name = one.name or one.url or {"file": "a file", "link": "a link", "data": "data"}[one.kind]
    more = [text for text in (one.media_type, _size(one.size)) if text]
    return f"{name} ({', '.join(more)})" if more else name


def edition(sheet: ExportedDocument) -> str:
    count = sheet.document.versions
    return f"version {sheet.version.number}" + (f", one of {count}" if count > 1 else "")


def counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}".replace(",", "\u202f")


def _size(size: int | None) -> str:
    if size is None:
        return ""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.0f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def is_web(url: str | None) -> bool:
    """Return whether a URL may become a link: only http and https, since a page must not follow other addresses."""
    return url is not None and url.lower().startswith(("https://", "http://"))


def as_json(value: object) -> str:
    return _encode(value).decode()


def comma(count: int) -> str:
    """Return the separator before item number `count` of a list with one item per line."""
    return ",\n" if count > 1 else ""
