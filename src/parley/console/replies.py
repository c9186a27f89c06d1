"""What a page gives back: bytes with their headers, or a stream."""

import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import quote

from msgspec import Struct
from starlette.types import Receive, Send

from parley.console.workers import off_loop
from parley.engine.streams import Follower
from parley.faces.http import Headers
from parley.faces.sse import Chunk, write

PREFIX = "/console"
HTML = b"text/html; charset=utf-8"
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
GUARDED: Headers = [
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_SMALL = 1000
_LEVEL = 5


@dataclass(slots=True)
class Reply:
    body: bytes | Callable[[], bytes] = b""
    """Bytes, or a function that renders them: it is called in a thread."""
    status: int = 200
    media: bytes = HTML
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    """Beside those that every answer has. A `cache-control` replaces `no-store`."""

    async def give(self, send: Send, accepts: str, more: Headers) -> None:
        headers = [*GUARDED, *self.headers, *more]
        names = {name for name, _ in self.headers}
        if b"cache-control" not in names:
            headers.append((b"cache-control", b"no-store"))
        zips = b"content-encoding" not in names and "gzip" in accepts and _is_text(self.media)
        if isinstance(self.body, bytes) and len(self.body) <= _SMALL:
            body, zipped = self.body, False
        else:
            body, zipped = await off_loop(partial(_made, self.body, zips))
        if zipped:
            headers += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
        headers += [(b"content-type", self.media), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Stream(Struct):
    """Frames of a run, or of anything else that is followed; `follower` is closed when its reader has left."""

    frames: AsyncIterator[Chunk]
    follower: Follower | None = None

    async def write(self, receive: Receive, send: Send, more: Headers) -> None:
        if self.follower is None:
            return await write(receive, send, self.frames, _as_it_is, [*GUARDED, *more])
        with closing(self.follower):
            return await write(receive, send, self.frames, _as_it_is, [*GUARDED, *more])


def redirect(path: str, status: int = 303) -> Reply:
    """To another page of the console."""
    return Reply(status=status, headers=[(b"location", f"{PREFIX}{path}".encode())])


def path_of(*steps: str) -> str:
    """A path below the console, each step quoted: ids are other people's words."""
    return "".join(f"/{quote(step, safe='')}" for step in steps)


def _made(body: bytes | Callable[[], bytes], zips: bool) -> tuple[bytes, bool]:
    """Render a body, and compress it where that is worth something; returns whether it was."""
    content = body if isinstance(body, bytes) else body()
    zips = zips and len(content) > _SMALL
    return gzip.compress(content, _LEVEL, mtime=0) if zips else content, zips


def _as_it_is(chunk: Chunk) -> Chunk:
    return chunk


def _is_text(media: bytes) -> bool:
    return media.startswith((b"text/", b"application/json"))
