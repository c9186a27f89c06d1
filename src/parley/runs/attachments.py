"""Attachments: large bytes and texts are stored as blobs outside the log. An event holds a reference to them."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from parley.offload import paced
from parley.runs.rules.commands import Report
from parley.runs.rules.content import BlobRef, Message, Part, Parts, any_beside, is_beside
from parley.runs.rules.events import SPOKEN, Event, content_of, with_content

# Blobs: bytes of any size, stored outside the log.


class Blobs(Protocol):
    """Store of bytes, addressed by their hash."""

    async def put(self, content: bytes) -> str:
        """Store bytes durably. Return their SHA-256 in hex."""
        ...

    async def put_file(self, path: Path) -> str:
        """Store a file of any size without holding it in memory. Return its SHA-256 in hex."""
        ...

    async def get(self, sha256: str) -> bytes: ...

    def stream(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """Yield the content in chunks. The last chunk is yielded only if the content as a whole matches the hash: the
        stream of a damaged blob breaks off."""
        ...


class PassingBlobs(Blobs, Protocol):
    """Store of temporary blobs, separate from the blobs that logs refer to."""

    async def delete(self, sha256: str) -> None:
        """Delete a blob; no error if it does not exist."""
        ...

    async def forget(self, before: int) -> int:
        """Delete the blobs that were stored before a time (ms). Return their number."""
        ...


INLINE_BYTES = 32 * 1024
SAID_BYTES = 64 * 1024
"""Limit for messages. It is higher than for files, because messages are read in every turn. It is lower than the limit
of an event, because a message may have several such parts, and one character can take six bytes in JSON."""


# Why: docs/decisions/runs.md#store-long-text-beside-the-log
class Attachments:
    def __init__(self, blobs: Blobs, inline_bytes: int = INLINE_BYTES, said_bytes: int = SAID_BYTES) -> None:
        self._blobs = blobs
        self._inline = inline_bytes
        self._said = said_bytes

    async def stored(self, report: Report) -> Report:
        if isinstance(report, SPOKEN) and self._has_large(report.parts):
            return replace(report, parts=await self.kept(report.parts))
        return report

    async def stored_message(self, message: Message) -> Message:
        if self._has_large(message.parts):
            return replace(message, parts=await self.kept(message.parts))
        return message

    async def loaded(self, parts: Parts) -> Parts:
        """Return the parts with their contents loaded."""
        if all(part.blob is None for part in parts):
            return parts
        return tuple([await self._get(part) for part in parts])

    async def told(self, events: Sequence[Event]) -> list[Event]:
        """Return the events with the contents of all messages loaded. Files are not loaded: readers fetch them on
        request."""
        return [await self._told(event) async for some in paced(events) for event in some]

    async def _told(self, event: Event) -> Event:
        parts = content_of(event.payload)
        if not any_beside(parts):
            return event
        return with_content(event, tuple([await self._get(part) if is_beside(part) else part for part in parts]))

    def _has_large(self, parts: Parts) -> bool:
        return any(self._is_large(part) for part in parts)

    def _is_large(self, part: Part) -> bool:
        """Return whether a part is stored as a blob. Text without a filename is a message, with its own limit."""
        if part.text is not None:
            limit = self._said if part.filename is None else self._inline
            return len(part.text) * 4 > limit and len(part.text.encode()) > limit
        return part.raw is not None and len(part.raw) > self._inline

    async def kept(self, parts: Parts) -> Parts:
        """Return the parts with references in place of large contents."""
        return tuple([await self._put_one(part) for part in parts])

    async def _put_one(self, part: Part) -> Part:
        if not self._is_large(part):
            return part
        content = part.raw if part.raw is not None else (part.text or "").encode()
        blob = BlobRef(await self._blobs.put(content), len(content), part.text is not None)
        return replace(part, raw=None, text=None, blob=blob)

    async def _get(self, part: Part) -> Part:
        if part.blob is None:
            return part
        content = await self._blobs.get(part.blob.sha256)
        if part.blob.text:
            return replace(part, text=content.decode(), blob=None)
        return replace(part, raw=content, blob=None)
