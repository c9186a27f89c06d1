"""`GET /api/exports/{id}?name&exp&sig`: a file, for whoever has the link. No other credentials are asked for."""

from contextlib import aclosing
from urllib.parse import parse_qs, quote

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.engine.commands import Outcome
from parley.engine.conversations import Conversations, Exported
from parley.errors import LinkExpired, LinkRefused, NotFound, ParleyError, StoreUnavailable
from parley.faces.http import Endpoint, Headers, answer
from parley.security.links import Links

PREFIX = "/api/exports/"

_STATUSES: tuple[tuple[type[ParleyError], int], ...] = (
    (LinkRefused, 403),
    (LinkExpired, 410),
    (NotFound, 404),
    (StoreUnavailable, 503),
)
_ALONE = b"sandbox; default-src 'none'; style-src 'unsafe-inline'"
"""A page among the files has its styles and nothing else: no scripts, no requests, no origin."""


class Exports:
    def __init__(self, conversations: Conversations, links: Links, base_url: str) -> None:
        self._conversations = conversations
        self._links = links
        self._base_url = base_url

    def routes(self) -> list[Route]:
        return [Route(f"{PREFIX}{{id}}", Endpoint(self), methods=["GET", "HEAD"])]

    async def url(self, outcome: Outcome) -> tuple[str, Exported]:
        """The link to what an export has made, and what that is."""
        exported = await self._conversations.exported(outcome.run.id)
        return self.address(outcome.run.id, exported), exported

    def address(self, run_id: str, exported: Exported) -> str:
        link = self._links.link(run_id, exported.name, exported.expires_at)
        return f"{self._base_url.rstrip('/')}{link}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            exported = await self._exported(scope)
            pieces = self._conversations.content(exported)
            # A file that is gone is found out before anything is promised.
            first = await anext(pieces)
        except ParleyError as error:
            return await _refuse(send, error)
        async with aclosing(pieces):
            await _start(send, exported)
            if scope["method"] != "HEAD":
                await _send_piece(send, first)
                async for piece in pieces:
                    await _send_piece(send, piece)
            return await _send_piece(send, b"", last=True)

    async def _exported(self, scope: Scope) -> Exported:
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        name, expires, signature = (asked.get(key, [""])[0] for key in ("name", "exp", "sig"))
        id_: str = scope["path_params"]["id"]
        self._links.check(id_, name, expires, signature)
        return await self._conversations.exported(id_)


async def _start(send: Send, exported: Exported) -> None:
    headers: Headers = [
        (b"content-type", exported.media_type.encode()),
        (b"content-length", b"%d" % exported.size),
        (b"content-disposition", _disposition(exported)),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", _ALONE),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"private, no-store"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send_piece(send: Send, piece: bytes, *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": not last})


def _disposition(exported: Exported) -> bytes:
    """A page is looked at; everything else is saved."""
    how = "inline" if exported.format == "html" else "attachment"
    return f"{how}; filename*=UTF-8''{quote(exported.name, safe='')}".encode()


async def _refuse(send: Send, error: ParleyError) -> None:
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            said = {"error": {"code": error.code.upper(), "message": error.message}}
            return await answer(send, status, said, [(b"cache-control", b"no-store")])
    raise error
