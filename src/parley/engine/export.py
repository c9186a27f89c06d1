"""A conversation as a file: written piece by piece, so that its length does not matter, and kept for a while."""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeVar, get_args

from msgspec import Struct

from parley.core.documents import Conversation, Document, Version
from parley.core.transcripts import Said
from parley.engine.ports import PassingBlobs
from parley.errors import Invalid

T = TypeVar("T")
Format = Literal["json", "markdown", "html", "pdf"]
FORMATS: tuple[str, ...] = get_args(Format)

BATCH = 64
AT_ONCE = 2
"""How many files one process makes at the same time."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Cover(Struct, frozen=True):
    """What stands before a conversation."""

    id: str
    """Of the export: no two of them are the same bytes."""
    conversation: Conversation
    agent: str
    """The agent's name, as people know it."""
    exported_at: int


class Sheet(Struct, frozen=True):
    """A document as it stands, and its versions, newest first; not more of them than a person would look through."""

    document: Document
    version: Version
    content: str
    versions: Sequence[Version]


class Renderer(Protocol):
    """Writes one file of one format. Its methods are called in this order, outside the event loop."""

    @property
    def media_type(self) -> str: ...

    @property
    def extension(self) -> str: ...

    def opening(self, cover: Cover) -> str: ...

    def message(self, said: Said) -> str: ...

    def document(self, sheet: Sheet) -> str: ...

    def closing(self, messages: int) -> str: ...

    def bound(self, written: Path) -> Path:
        """The file that is handed out, when all has been written to another."""
        ...


class Printed(Struct, frozen=True):
    """A file that was made."""

    sha256: str
    size: int
    media_type: str
    name: str
    messages: int
    documents: int


class Press:
    """Makes files of conversations."""

    def __init__(self, renderers: Mapping[str, Callable[[], Renderer]], blobs: PassingBlobs) -> None:
        self._renderers = renderers
        self.blobs = blobs
        self._room = asyncio.Semaphore(AT_ONCE)

    def renderer(self, format_: str) -> Renderer:
        if format_ not in self._renderers:
            raise Invalid(f"A conversation is exported as {', '.join(self._renderers)}.", field="format")
        return self._renderers[format_]()

    async def print(
        self, renderer: Renderer, cover: Cover, messages: AsyncIterator[Said], sheets: AsyncIterator[Sheet]
    ) -> Printed:
        async with self._room:
            with tempfile.TemporaryDirectory(prefix="parley-export-") as folder:
                path = Path(folder) / "written"
                with await asyncio.to_thread(path.open, "wb") as file:
                    told, shown = await _write(file, renderer, cover, messages, sheets)
                bound = await asyncio.to_thread(renderer.bound, path)
                size = bound.stat().st_size
                sha256 = await self.blobs.put_file(bound)
        name = f"{_safe(cover.conversation.id)}.{renderer.extension}"
        return Printed(sha256, size, renderer.media_type, name, told, shown)


async def _write(
    file: BinaryIO, renderer: Renderer, cover: Cover, messages: AsyncIterator[Said], sheets: AsyncIterator[Sheet]
) -> tuple[int, int]:
    """How many messages and documents there were."""
    told = shown = 0
    await asyncio.to_thread(_put, file, renderer.opening, [cover])
    batch: list[Said] = []
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
    """A name that every file system and every header takes."""
    return f"conversation-{_UNSAFE.sub('-', conversation).strip('-.')[:64]}".rstrip("-.")
