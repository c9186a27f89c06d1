"""Download of an artifact as a file: `GET /agents/{slug}/tasks/{id}/artifacts/{artifact}`, with credentials."""

import re
from urllib.parse import parse_qs, quote

from msgspec import UNSET
from starlette.types import Receive, Scope, Send

from parley.errors import AgentNotFound, Invalid, NotFound, ParleyError, Unauthenticated
from parley.http.problems import refuse
from parley.http.requests import Headers, answer
from parley.ids import RunId
from parley.runs.rules.access import Principal, demand, may_use
from parley.runs.rules.content import Part
from parley.runs.service import Exchange

_STEP = "artifacts"
_TEXT, _JSON, _BYTES = "text/plain; charset=utf-8", "application/json", "application/octet-stream"


def artifact_of(rest: str) -> tuple[str, str] | None:
    """Return the task and the artifact of a path below an agent's address; None if the path is another."""
    steps = rest.split("/", 3)
    return (steps[1], steps[3]) if len(steps) == 4 and steps[0] == "tasks" and steps[2] == _STEP else None


class Downloads:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            part = await self._part(scope)
            content, media = content_of_part(part)
        except ParleyError as error:
            return await refuse(send, error)
        return await answer(send, 200, content, saved(part), media)

    async def _part(self, scope: Scope) -> Part:
        principal: Principal | None = scope["principal"]
        if principal is None:
            raise Unauthenticated("Credentials are required.")
        demand(principal, "read")
        slug: str | None = scope["path_params"]["slug"]
        agent = self._exchange.agents.get(slug or "")
        if slug is not None and (agent is None or not may_use(principal, agent)):
            raise AgentNotFound(f"There is no agent {slug!r} on this server.")
        task, artifact = artifact_of(scope["path_params"]["rest"]) or ("", "")
        run = await self._exchange.visible(task, principal, slug)
        return await self._loaded(run.id, artifact, _number(scope))

    async def _loaded(self, run_id: RunId, artifact: str, number: int) -> Part:
        made = {one.id: one for one in (await self._exchange.view(run_id)).artifacts}
        if artifact not in made or number >= len(made[artifact].parts):
            raise NotFound("The task has no such artifact, or the artifact has no such part.")
        return (await self._exchange.attachments.loaded((made[artifact].parts[number],)))[0]


def _number(scope: Scope) -> int:
    """Return the number of the requested part, from 0; most artifacts have one part."""
    asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("part", ["0"])[0]
    if not (asked.isascii() and asked.isdigit() and len(asked) < 6):
        raise Invalid("part must be the number of a part, counted from 0.", field="part")
    return int(asked)


def content_of_part(part: Part) -> tuple[bytes, bytes]:
    """Return the bytes of a part and their media type."""
    content, media = _content(part)
    return content, _safe(media)


def _content(part: Part) -> tuple[bytes, str]:
    if part.text is not None:
        return part.text.encode(), part.media_type or _TEXT
    if part.data is not UNSET:
        return bytes(part.data), part.media_type or _JSON
    if part.raw is not None:
        return part.raw, part.media_type or _BYTES
    raise NotFound("This artifact is not stored on this server; fetch it from the URL in the task.")


def _safe(media: str) -> bytes:
    """Return a media type that is safe as a header: it comes from an agent, and a line break would end the header."""
    return media.encode() if media.isascii() and media.isprintable() else _BYTES.encode()


def saved(part: Part) -> Headers:
    """Return headers that make browsers save the file and never show it: an agent's file must not run as a page of this
    server."""
    name = re.split(r"[/\\]", part.filename or "")[-1]
    name = name if name.strip(". ") else "artifact"
    return [
        (b"content-disposition", f"attachment; filename*=UTF-8''{quote(name, safe='')}".encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"sandbox; default-src 'none'"),
        (b"cache-control", b"private, no-cache"),
    ]
