"""What can be read beside the tools: documents of conversations, and what tasks have made. Each principal its own."""

from datetime import UTC, datetime
from typing import get_args
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec

from parley.core.access import Principal, demand
from parley.core.documents import Document, Kind
from parley.core.runs import Run
from parley.engine.exchange import Exchange
from parley.engine.ports import Listing
from parley.errors import NotFound
from parley.faces.mcp.contents import Block, artifact_uri, media_of, resource_of, told
from parley.faces.mcp.results import task_of
from parley.ids import is_id

RECENT = 20
"""Documents, and tasks whose artifacts are listed."""

TEMPLATES: list[Block] = [
    {
        "uriTemplate": "parley://tasks/{task}",
        "name": "task",
        "description": "A task: its state, what its agent said, and what it has made.",
        "mimeType": "application/json",
    },
    {
        "uriTemplate": "parley://tasks/{task}/artifacts/{artifact}{?part}",
        "name": "artifact",
        "description": "What a task has made: all parts of it, or the one with this number, from 0.",
    },
    {
        "uriTemplate": "parley://conversations/{conversation}/{kind}",
        "name": "document",
        "description": "The current version of a conversation's plan or deliverable.",
    },
    {
        "uriTemplate": "parley://conversations/{conversation}/{kind}/versions/{version}",
        "name": "version",
        "description": "A version of a conversation's plan or deliverable.",
    },
]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_MEDIA = {
    "markdown": "text/markdown", "json": "application/json", "yaml": "application/yaml", "html": "text/html",
    "css": "text/css", "javascript": "text/javascript", "typescript": "text/x-typescript", "python": "text/x-python",
}  # fmt: skip


class Resources:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def recent(self, principal: Principal) -> list[Block]:
        demand(principal, "read")
        store = self._exchange.store
        documents = await store.library.documents(str(principal), RECENT)
        runs, _ = await store.list_runs(Listing(str(principal), limit=RECENT))
        return [*map(_document, documents), *[shown for run in runs for shown in await self._made(run)]]

    async def read(self, principal: Principal, uri: str) -> list[Block]:
        demand(principal, "read")
        try:
            contents = await self._read(principal, uri)
        except (NotFound, ValueError):
            # Which part of it is missing is the business of those who may see the rest.
            contents = None
        if contents is None:
            raise NotFound("Resource not found.", uri=uri[:500])
        return contents

    async def _read(self, principal: Principal, uri: str) -> list[Block] | None:
        match _steps(uri):
            case ["tasks", task]:
                run = await self._exchange.visible(task, principal)
                shown = await task_of(self._exchange, await self._exchange.view(run.id))
                return [{"uri": uri, "mimeType": "application/json", "text": msgspec.json.encode(shown).decode()}]
            case ["tasks", task, "artifacts", artifact]:
                run = await self._exchange.visible(task, principal)
                return await self._artifact(run, artifact, uri)
            case ["conversations", conversation, kind] if kind in _KINDS:
                return await self._version(principal, conversation, kind, None, uri)
            case ["conversations", conversation, kind, "versions", version] if kind in _KINDS:
                return await self._version(principal, conversation, kind, version, uri)
            case _:
                return None

    async def _artifact(self, run: Run, id_: str, uri: str) -> list[Block] | None:
        made = next((one for one in (await self._exchange.view(run.id)).artifacts if one.id == id_), None)
        if made is None:
            return None
        made = await told(self._exchange.attachments, made)
        asked = parse_qs(urlsplit(uri).query).get("part")
        numbers = range(len(made.parts)) if asked is None else [int(asked[0])]
        parts = {number: made.parts[number] for number in numbers if 0 <= number < len(made.parts)}
        loaded = await self._exchange.attachments.loaded(tuple(parts.values()))
        shown = zip(parts, loaded, strict=True)
        return [resource_of(artifact_uri(run.id, made, number), part) for number, part in shown] or None

    async def _version(
        self, principal: Principal, conversation: str, kind: Kind, version: str | None, uri: str
    ) -> list[Block] | None:
        if not is_id(conversation) or not (version is None or is_id(version)):
            return None
        found = await self._exchange.store.library.find(str(principal), conversation, kind, version)
        if found is None or found.version is None:
            return None
        return [{"uri": uri, "mimeType": _MEDIA.get(found.version.format, "text/plain"), "text": found.content}]

    async def _made(self, run: Run) -> list[Block]:
        made = (await self._exchange.view(run.id)).artifacts
        shown: list[Block] = []
        for one in made:
            entry: Block = {
                "uri": artifact_uri(run.id, one),
                "name": one.name or one.id,
                "description": one.description or f"Made by {run.agent} in task {run.id}.",
                "annotations": _changed(run.updated_at),
            }
            media = media_of(one.parts[0]) if one.parts else None
            shown.append(entry | {"mimeType": media} if media else entry)
        return shown


def _steps(uri: str) -> list[str]:
    """An id may hold a slash, which then is escaped."""
    place = urlsplit(uri)
    if place.scheme != "parley" or not uri.startswith("parley://"):
        return []
    return [unquote(step) for step in (place.netloc, *place.path.split("/")[1:])]


def _document(document: Document) -> Block:
    return {
        "uri": f"parley://conversations/{quote(document.conversation, safe='')}/{document.kind}",
        "name": document.title or document.kind,
        "description": f"The {document.kind} of conversation {document.conversation}, "
        f"by {document.agent}; versions: {document.versions}.",
        "annotations": _changed(document.updated_at),
    }


def _changed(at: int) -> Block:
    return {"lastModified": datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")}
