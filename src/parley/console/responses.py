"""Responses of pages (bytes with headers, or a stream), and the templates that render them."""

import asyncio
import gzip
import hashlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct
from starlette.types import Receive, Send

from parley.clock import iso
from parley.documents.export.html import rendered, unformatted
from parley.documents.export.markdown import Budget
from parley.http.requests import Headers
from parley.http.sse import Chunk, write
from parley.json_values import is_deeper
from parley.runs.rules.usage import total
from parley.runs.streams import Follower

# Threads that render pages, so that text of agents or users cannot block the event loop.

T = TypeVar("T")

_workers = ThreadPoolExecutor(2, "parley-console")
"""Few threads, because each one takes processor time from the event loop."""


async def off_loop(work: Callable[[], T]) -> T:
    """Run slow work in one of the worker threads."""
    return await asyncio.get_running_loop().run_in_executor(_workers, work)


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
class PageReply:
    body: bytes | Callable[[], bytes] = b""
    """Bytes, or a function that renders them: it is called in a thread."""
    status: int = 200
    media: bytes = HTML
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    """Headers in addition to those of every response. A `cache-control` replaces `no-store`."""

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


class PageStream(Struct):
    """A stream of frames; `follower` is closed when the browser disconnects."""

    frames: AsyncIterator[Chunk]
    follower: Follower | None = None

    async def write(self, receive: Receive, send: Send, more: Headers) -> None:
        if self.follower is None:
            return await write(receive, send, self.frames, _as_it_is, [*GUARDED, *more])
        with closing(self.follower):
            return await write(receive, send, self.frames, _as_it_is, [*GUARDED, *more])


def redirect(path: str, status: int = 303) -> PageReply:
    """Redirect to another page of the console."""
    return PageReply(status=status, headers=[(b"location", f"{PREFIX}{path}".encode())])


def path_of(*steps: str) -> str:
    """A path below the console. Each step is quoted, because ids may contain any text."""
    return "".join(f"/{quote(step, safe='')}" for step in steps)


def _made(body: bytes | Callable[[], bytes], zips: bool) -> tuple[bytes, bool]:
    """Render a body, and compress it if it is large; the flag tells if it was compressed."""
    content = body if isinstance(body, bytes) else body()
    zips = zips and len(content) > _SMALL
    return gzip.compress(content, _LEVEL, mtime=0) if zips else content, zips


def _as_it_is(chunk: Chunk) -> Chunk:
    return chunk


def _is_text(media: bytes) -> bool:
    return media.startswith((b"text/", b"application/json"))


# Templates, and the filters that make text of agents and users safe to show.

MAX_MARKDOWN = 100_000
"""Longer texts are shown unformatted: their formatting is not worth the time."""

MAX_PAGE_CPU_S = 2.0
"""Limit of the processor time for formatting the Markdown of one page."""
MAX_PRETTY = 64 * 1024
"""Maximum bytes of JSON shown."""
MAX_INDENTED = 20
"""JSON nested deeper than this is not indented."""

_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)

_CONTROLS = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
_BIDI = dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))


def plain(text: object) -> str:
    """Text with visible control characters. Direction marks are kept: their effect ends with the HTML element."""
    return str(text).replace("\r\n", "\n").translate(_CONTROLS)


def label(text: object) -> str:
    """Text without direction marks, for places where no element limits their effect: titles, attributes."""
    return " ".join(str(text).translate(_BIDI).translate(_CONTROLS).split())


def markdown(text: str) -> Markup:
    """Format Markdown within the page's time limit; unformatted if the text is too long or the time is used up."""
    shown = plain(text)
    if len(shown) > MAX_MARKDOWN:
        return Markup(unformatted(shown))
    return Markup(rendered(shown, breaks=True, budget=_budget.get()))


def pretty(raw: msgspec.Raw | bytes | str) -> str:
    """Indented JSON; not indented if it is nested deeply, and cut if it is long."""
    body = raw.encode() if isinstance(raw, str) else bytes(raw)
    if len(body) > MAX_PRETTY:
        return plain(f"{body[:MAX_PRETTY].decode(errors='replace')}…")
    if is_deeper(body, MAX_INDENTED):
        return plain(body.decode(errors="replace"))
    try:
        return plain(msgspec.json.format(body, indent=2).decode())
    except msgspec.MsgspecError:
        return plain(body.decode(errors="replace"))


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%d %b %Y, %H:%M UTC")


def duration(ms: int) -> str:
    """A length of time, with the precision that a reader needs."""
    if ms < 1000:
        return f"{max(0, ms)} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def amount(count: int) -> str:
    """A large number in few characters: 1.2k, 3.4M."""
    for limit, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if count >= limit:
            return f"{count / (1000 if unit == 'k' else limit):.1f}{unit}"
    return f"{count:,}"


def money(cost: float | None) -> str:
    """An amount in USD; a dash if it is not known."""
    if cost is None:
        return "–"
    return f"${cost:,.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


@lru_cache(maxsize=1)
def assets() -> dict[str, bytes]:
    """Every file of `static/`, by name."""
    folder = files("parley.console") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@lru_cache(maxsize=1)
def edition() -> str:
    """Hash of all assets. It is part of their addresses, so that browsers can cache them forever."""
    digest = hashlib.sha256()
    for name, content in sorted(assets().items()):
        digest.update(b"%b\0%b\0" % (name.encode(), content))
    return digest.hexdigest()[:12]


def static(name: str) -> str:
    if name not in assets():
        raise KeyError(name)
    return f"{PREFIX}/static/{edition()}/{name}"


def to(path: str, **query: str | int | None) -> str:
    """The address of a page."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{PREFIX}{path}" + (f"?{urlencode(given)}" if given else "")


def run_path(run_id: str, *more: str) -> str:
    return path_of("runs", run_id, *more)


@lru_cache(maxsize=1)
def templates() -> Environment:
    made = Environment(
        loader=PackageLoader("parley.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for filter_ in (plain, label, markdown, pretty, cut, iso, moment, size, total, duration, amount, money):
        cast(dict[str, object], made.filters)[filter_.__name__] = filter_
    for function in (to, static, run_path, path_of):
        cast(dict[str, object], made.globals)[function.__name__] = function
    return made


def render(name: str, context: dict[str, Any]) -> str:
    """Render a template. Call it in a worker thread: text of agents and users may take long to format."""
    given = _budget.set(Budget(MAX_PAGE_CPU_S))
    try:
        return templates().get_template(name).render(context)
    finally:
        _budget.reset(given)
