"""Large bytes and large texts live beside the log: an event holds a reference, a reader gets them back."""

from collections.abc import Sequence

from msgspec.structs import replace

from parley.core.artifacts import BlobRef, Part, Parts, any_beside, is_beside
from parley.core.commands import Report
from parley.core.conversations import Message
from parley.core.events import SPOKEN, Event, content_of, with_content
from parley.engine.offload import paced
from parley.engine.ports import Blobs

INLINE_BYTES = 32 * 1024
SAID_BYTES = 64 * 1024
"""What is said is read in every turn, so more of it stays in the log; not all that would fit into an event, for a
message may have several such parts, and in JSON a character may take six bytes."""


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
        """The parts with their bytes in place."""
        if all(part.blob is None for part in parts):
            return parts
        return tuple([await self._get(part) for part in parts])

    async def told(self, events: Sequence[Event]) -> list[Event]:
        """The events with all that was said in place. Files stay where they are: they are asked for."""
        return [await self._told(event) async for some in paced(events) for event in some]

    async def _told(self, event: Event) -> Event:
        parts = content_of(event.payload)
        if not any_beside(parts):
            return event
        return with_content(event, tuple([await self._get(part) if is_beside(part) else part for part in parts]))

    def _has_large(self, parts: Parts) -> bool:
        return any(self._is_large(part) for part in parts)

    def _is_large(self, part: Part) -> bool:
        """Text without a filename is said."""
        if part.text is not None:
            limit = self._said if part.filename is None else self._inline
            return len(part.text) * 4 > limit and len(part.text.encode()) > limit
        return part.raw is not None and len(part.raw) > self._inline

    async def kept(self, parts: Parts) -> Parts:
        """The parts with references in place of what is large."""
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
