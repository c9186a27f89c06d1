"""An artifact as a file: `GET /agents/{slug}/tasks/{id}/artifacts/{artifact}`, with the caller's own credentials."""

import re
from urllib.parse import parse_qs, quote

from msgspec import UNSET
from starlette.types import Receive, Scope, Send

from parley.core.access import Principal, demand, may_use
from parley.core.artifacts import Part
from parley.engine.exchange import Exchange
from parley.errors import AgentNotFound, Invalid, NotFound, ParleyError, Unauthenticated
from parley.faces.http import Headers, answer
from parley.faces.refusals import refuse
from parley.ids import RunId

_STEP = "artifacts"
_TEXT, _JSON, _BYTES = "text/plain; charset=utf-8", "application/json", "application/octet-stream"


def artifact_of(rest: str) -> tuple[str, str] | None:
    """The task and the artifact that a path behind an agent's address names, if it does."""
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
            raise Unauthenticated("This needs credentials.")
        demand(principal, "read")
        slug: str | None = scope["path_params"]["slug"]
        agent = self._exchange.agents.get(slug or "")
        if slug is not None and (agent is None or not may_use(principal, agent)):
            raise AgentNotFound(f"There is no agent {slug!r} here.")
        task, artifact = artifact_of(scope["path_params"]["rest"]) or ("", "")
        run = await self._exchange.visible(task, principal, slug)
        return await self._loaded(run.id, artifact, _number(scope))

    async def _loaded(self, run_id: RunId, artifact: str, number: int) -> Part:
        made = {one.id: one for one in (await self._exchange.view(run_id)).artifacts}
        if artifact not in made or number >= len(made[artifact].parts):
            raise NotFound("The task has no such artifact, or the artifact no such part.")
        return (await self._exchange.attachments.loaded((made[artifact].parts[number],)))[0]


def _number(scope: Scope) -> int:
    """Which part is meant, from 0; most artifacts have one."""
    asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("part", ["0"])[0]
    if not (asked.isascii() and asked.isdigit() and len(asked) < 6):
        raise Invalid("part is the number of a part, from 0.", field="part")
    return int(asked)


def content_of_part(part: Part) -> tuple[bytes, bytes]:
    """The bytes of a part, and what they are."""
    content, media = _content(part)
    return content, _safe(media)


def _content(part: Part) -> tuple[bytes, str]:
    if part.text is not None:
        return part.text.encode(), part.media_type or _TEXT
    if part.data is not UNSET:
        return bytes(part.data), part.media_type or _JSON
    if part.raw is not None:
        return part.raw, part.media_type or _BYTES
    raise NotFound("This artifact lies at another address; the task says where.")


def _safe(media: str) -> bytes:
    """An agent's words; a line break in them would end the header."""
    return media.encode() if media.isascii() and media.isprintable() else _BYTES.encode()


def saved(part: Part) -> Headers:
    """Saved and never shown: what an agent made must not run as a page of this server."""
    name = re.split(r"[/\\]", part.filename or "")[-1]
    name = name if name.strip(". ") else "artifact"
    return [
        (b"content-disposition", f"attachment; filename*=UTF-8''{quote(name, safe='')}".encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"sandbox; default-src 'none'"),
        (b"cache-control", b"private, no-cache"),
    ]
