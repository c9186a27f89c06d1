"""A run's log as the contract's stream: resumable from any event, open for a while, `[DONE]` at the end."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing

from msgspec import Struct
from starlette.types import Receive, Send

from parley.core.events import ENDINGS, Event
from parley.core.runs import Run
from parley.engine.exchange import Exchange
from parley.engine.streams import Follower
from parley.errors import Invalid
from parley.faces.runtime.events import done_frame, frames_of
from parley.faces.runtime.requests import Request
from parley.faces.sse import KEEP_ALIVE_S, Chunk, write

DEFAULT_TAIL_MS = 1000
MAX_TAIL_MS = 60_000


class _Step(Struct, frozen=True):
    data: bytes = b""
    last: bool = False


_SILENCE, _END = _Step(), _Step(last=True)


class Tail:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._latest: tuple[list[Event], _Step] = ([], _SILENCE)
        """What was made last: all who follow a run are offered the same list of events at the same moment."""

    async def open(self, request: Request, run: Run) -> Follower:
        """Refuses before anything of the stream is sent."""
        cursor = cursor_of(request)
        tail_ms_of(request)
        return await self._exchange.follow(run.id, run.version if cursor is None else cursor)

    async def write(self, request: Request, run: Run, follower: Follower, receive: Receive, send: Send) -> None:
        with closing(follower):
            await write(receive, send, self._steps(run, follower, tail_ms_of(request) / 1000), _written)

    async def _steps(self, run: Run, follower: Follower, tail_s: float) -> AsyncGenerator[_Step, None]:
        """First what is stored, however long that takes; then what comes within the tail."""
        while follower.cursor < run.version:
            step = await self._made(await follower.next())
            yield step
            if step.last:
                return
        if run.ended:
            yield _Step(done_frame(run.version), last=True)
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + tail_s
        step = _SILENCE
        while not step.last:
            left = deadline - loop.time()
            events = await follower.next(min(KEEP_ALIVE_S, left)) if left > 0 else []
            step = await self._made(events) if events else _SILENCE if loop.time() < deadline else _END
            yield step

    async def _made(self, events: list[Event]) -> _Step:
        made = self._latest[1]
        if self._latest[0] is not events:
            data = b"".join(map(frames_of, await self._exchange.attachments.told(events)))
            made = _Step(data, last=events[-1].type in ENDINGS)
            self._latest = events, made
        return made


def _written(step: _Step) -> Chunk:
    return step.data, step.last


def cursor_of(request: Request) -> int | None:
    """Where to go on: after the event of this number; None when neither the header nor the query says."""
    given = [value for value in (request.header(b"last-event-id"), request.query.get("cursor")) if value is not None]
    cursors = [_cursor(value) for value in given]
    if len(set(cursors)) > 1:
        raise Invalid("cursor query and Last-Event-ID must match")
    return cursors[0] if cursors else None


def _cursor(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise Invalid("cursor must be an integer >= 0")
    return int(value)


def tail_ms_of(request: Request) -> int:
    value = request.query.get("tail_ms")
    if value is None:
        return DEFAULT_TAIL_MS
    if not (value.isascii() and value.isdigit() and int(value[:18]) > 0):
        raise Invalid("tail_ms must be a positive integer")
    return min(int(value[:18]), MAX_TAIL_MS)
