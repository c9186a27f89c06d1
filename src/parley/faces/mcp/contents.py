"""What an agent has made, as MCP shows it: whole where it is small, else by the address of a resource."""

from base64 import b64encode
from urllib.parse import quote

from msgspec import UNSET
from msgspec.structs import replace

from parley.core.artifacts import Artifact, Part, any_beside, is_beside, merged
from parley.engine.attachments import Attachments
from parley.errors import NotFound

MOST_TEXT = 64 * 1024
"""Characters of a text in one result; all of it is in its resource."""
MOST_BYTES = 64 * 1024
MOST_AT_ONCE = 256 * 1024
"""Bytes of files in one result: the official client reads events of up to a megabyte."""

Block = dict[str, object]


class Room:
    """What one result still has room for."""

    def __init__(self) -> None:
        self._bytes = MOST_AT_ONCE
        self._characters = MOST_TEXT

    def takes(self, size: int) -> bool:
        if size > min(MOST_BYTES, self._bytes):
            return False
        self._bytes -= size
        return True

    def cut(self, text: str) -> str:
        kept = text[: self._characters]
        self._characters -= len(kept)
        return kept if len(kept) == len(text) else f"{kept}…"


def task_uri(task: str) -> str:
    return f"parley://tasks/{quote(task, safe='')}"


def artifact_uri(task: str, artifact: Artifact, number: int | None = None) -> str:
    """Of one part, if it has several."""
    uri = f"{task_uri(task)}/artifacts/{quote(artifact.id, safe='')}"
    return uri if number is None or len(artifact.parts) == 1 else f"{uri}?part={number}"


def media_of(part: Part) -> str | None:
    if part.media_type is not None:
        return part.media_type
    if part.text is not None or (part.blob is not None and part.blob.text):
        return "text/plain"
    return "application/json" if part.data is not UNSET else None


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}


async def told(attachments: Attachments, artifact: Artifact) -> Artifact:
    """With all that was said in place, however long. By the parts that it has then they are numbered."""
    if not any_beside(artifact.parts):
        return artifact
    parts = [(await attachments.loaded((one,)))[0] if is_beside(one) else one for one in artifact.parts]
    return replace(artifact, parts=merged(parts))


async def blocks_of(attachments: Attachments, task: str, artifact: Artifact, room: Room) -> list[Block]:
    blocks: list[Block] = []
    for number, part in enumerate(artifact.parts):
        uri = artifact_uri(task, artifact, number)
        words = _words(part)
        if words is not None:
            shown = room.cut(words)
            blocks.append(text_block(shown))
            if shown == words:
                continue
        elif part.url is None and room.takes(_size(part)):
            blocks.append(_embedded(uri, (await attachments.loaded((part,)))[0]))
            continue
        blocks.append(_link(uri, artifact, part))
    return blocks


def resource_of(uri: str, part: Part) -> Block:
    """A part with its bytes in place, as what is read of a resource."""
    shown: Block = {"uri": uri}
    if media := media_of(part):
        shown["mimeType"] = media
    if part.text is not None:
        return shown | {"text": part.text}
    if part.data is not UNSET:
        return shown | {"text": bytes(part.data).decode()}
    if part.raw is not None:
        return shown | {"blob": b64encode(part.raw).decode()}
    raise NotFound("This artifact lies at another address; the task says where.", uri=uri)


def _words(part: Part) -> str | None:
    """What is said, or data that can be read like it; None for a file."""
    if part.filename is not None:
        return None
    return bytes(part.data).decode() if part.data is not UNSET else part.text


def _embedded(uri: str, part: Part) -> Block:
    kind = (part.media_type or "").partition("/")[0]
    if part.raw is not None and kind in ("image", "audio"):
        return {"type": kind, "data": b64encode(part.raw).decode(), "mimeType": part.media_type}
    return {"type": "resource", "resource": resource_of(uri, part)}


def _link(uri: str, artifact: Artifact, part: Part) -> Block:
    link: Block = {
        "type": "resource_link",
        "uri": part.url or uri,
        "name": part.filename or artifact.name or artifact.id,
    }
    if artifact.description:
        link["description"] = artifact.description
    if media := media_of(part):
        link["mimeType"] = media
    return link if part.url else link | {"size": _size(part)}


def _size(part: Part) -> int:
    if part.blob is not None:
        return part.blob.size
    if part.raw is not None:
        return len(part.raw)
    return len(part.data) if part.data is not UNSET else len((part.text or "").encode())
