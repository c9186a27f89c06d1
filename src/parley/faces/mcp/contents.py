"""Results of agents in the format of MCP: small content is included, large content is a link to a resource."""

from base64 import b64encode
from collections.abc import Collection
from urllib.parse import quote

from msgspec import UNSET
from msgspec.structs import replace

from parley.errors import NotFound, ParleyError
from parley.runs.attachments import Attachments
from parley.runs.rules.content import Artifact, Part, any_beside, is_beside, merged, text_of
from parley.runs.rules.state import WAITING, State
from parley.runs.rules.view import View
from parley.runs.service import Exchange

MOST_TEXT = 64 * 1024
"""Most characters of text in one result; the whole text is in its resource."""
MOST_BYTES = 64 * 1024
MOST_AT_ONCE = 256 * 1024
"""Most bytes of files in one result: the official client reads events of up to a megabyte."""

Block = dict[str, object]


class Room:
    """Remaining space of one result."""

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
    """Return the address of an artifact, or of one part if it has several."""
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
    """Return the artifact with all its text loaded, however long. Parts are numbered as they are afterwards."""
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
    """Render a loaded part as the content of a resource."""
    shown: Block = {"uri": uri}
    if media := media_of(part):
        shown["mimeType"] = media
    if part.text is not None:
        return shown | {"text": part.text}
    if part.data is not UNSET:
        return shown | {"text": bytes(part.data).decode()}
    if part.raw is not None:
        return shown | {"blob": b64encode(part.raw).decode()}
    raise NotFound("This artifact is not stored on this server; fetch it from the URL in the task.", uri=uri)


def _words(part: Part) -> str | None:
    """Return the text of a part, or its data as text; None for a file."""
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


# The outcome of a call as the result of a tool.

_NOTHING_SAID = {
    State.COMPLETED: "Done.",
    State.CANCELED: "The task was canceled.",
    State.INPUT_REQUIRED: "The agent waits for an answer.",
    State.AUTH_REQUIRED: "The agent waits for authorization.",
}
_WRONG = frozenset((State.FAILED, State.CANCELED, State.REJECTED))


def state_of(view: View) -> str:
    return view.run.state.value.replace("_", "-")


async def result_of(exchange: Exchange, view: View, made: Collection[str] | None) -> Block:
    """Return the result of a call. `made` has the ids of the artifacts that it made; None for all of the run."""
    run, room = view.run, Room()
    fresh = [await told(exchange.attachments, one) for one in view.artifacts if made is None or one.id in made]
    content: list[Block] = []
    for artifact in fresh:
        content += await blocks_of(exchange.attachments, run.id, artifact, room)
    said = await _said(exchange, view)
    if said or not content:
        content.append(text_block(room.cut(said or _NOTHING_SAID.get(run.state, run.state.value))))
    if run.state in WAITING:
        content.append(text_block(f'To answer, call {run.agent} again with "task": "{run.id}".'))
    return {
        "content": content,
        "structuredContent": structured(view, fresh, said),
        "isError": run.state in _WRONG,
    }


def structured(view: View, fresh: Collection[Artifact], said: str) -> Block:
    run = view.run
    words = [text for one in fresh if (text := _text(one))]
    if said and run.state not in WAITING:
        words.append(said)
    shown: Block = {
        "taskId": run.id,
        "conversationId": run.conversation,
        "agent": run.agent,
        "state": state_of(view),
        "text": "\n".join(words)[:MOST_TEXT],
        "artifacts": [_listed(run.id, one) for one in view.artifacts],
    }
    return shown | {"question": said[:MOST_TEXT]} if run.state in WAITING else shown


async def task_of(exchange: Exchange, view: View) -> Block:
    """Return the structured content of a task that is read as a resource."""
    made = [await told(exchange.attachments, one) for one in view.artifacts]
    return structured(view, made, await _said(exchange, view))


def refused(error: ParleyError) -> Block:
    """Return a tool result for a call that was refused, so that the model can correct its call."""
    return {"content": [text_block(error.message)], "isError": True, "_meta": {"parley/code": error.code}}


async def _said(exchange: Exchange, view: View) -> str:
    said = view.reply or view.status.said
    return text_of(await exchange.attachments.loaded(said.parts)) if said is not None else ""


def _text(artifact: Artifact) -> str:
    return text_of(part for part in artifact.parts if part.filename is None)


def _listed(task: str, artifact: Artifact) -> Block:
    shown: Block = {"artifactId": artifact.id, "uri": artifact_uri(task, artifact)}
    if artifact.name:
        shown["name"] = artifact.name
    media = media_of(artifact.parts[0]) if artifact.parts else None
    return shown | {"mimeType": media} if media else shown
