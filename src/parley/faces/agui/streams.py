"""Streams of AG-UI: the events of a run after any of them, until it has ended or waits for an answer."""

import re
from collections.abc import AsyncGenerator
from contextlib import closing
from functools import partial

from msgspec import Struct
from starlette.types import Receive, Send

from parley.errors import Invalid, ParleyError
from parley.faces.agui.messages import (
    HistoryMessage,
    MessagesSnapshot,
    RunStarted,
    TextMessageContent,
    TextMessageStart,
)
from parley.faces.agui.rendering import Events, Rendering, frames_of
from parley.http import sse
from parley.http.face import Streamed
from parley.runs.rules.events import ENDINGS, QUESTIONS, Event, InputReceived
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.runs.store import Listing
from parley.runs.streams import Follower, pages
from parley.telemetry import span, tell

MOST_RUNS = 20
"""Number of earlier runs of a thread whose messages a snapshot has."""
MOST_ENTRIES = 20_000
"""Number of entries of their logs that are read for a snapshot."""
_CURSOR = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6}))?")


# Why: docs/decisions/faces.md#number-the-events-of-ag-ui-by-entry-and-place
class Cursor(Struct, frozen=True):
    """A place in a stream: the entry of the log up to which it is complete, and the number of events of the next entry
    that were received too."""

    seq: int = 0
    skipped: int = 0

    @staticmethod
    def parse(text: str | None) -> "Cursor | None":
        if text is None:
            return None
        found = _CURSOR.fullmatch(text)
        if found is None or (found[2] and not int(found[1])):
            raise Invalid("Last-Event-ID must be the id of an event of this server.", field="Last-Event-ID")
        return Cursor(int(found[1]) - 1, int(found[2])) if found[2] else Cursor(int(found[1]))


class AguiStreams:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def input_of(self, run: Run, id_: str) -> int:
        """Return the number of the entry with the input of this id; 0 if there is none."""
        async for page in pages(self._exchange.store, run.id, 0, ("input",)):
            for event in page:
                if isinstance(event.payload, InputReceived) and event.payload.message.id == id_:
                    return event.seq
        return 0

    async def beginning(self, run: Run, id_: str) -> Cursor:
        """Return the place at which a run of AG-UI begins in the log."""
        if run.id == id_:
            return Cursor()
        seq = await self.input_of(run, id_)
        return Cursor(seq - 1 if seq else await self._boundary(run, run.version))

    async def open(self, run: Run, cursor: Cursor, *, snapshot: bool = False) -> Streamed:
        """Start to follow a run; raise for an invalid cursor before any of the stream is sent. With `snapshot`, the
        first event is followed by the messages of the thread so far, for a front end that has none of them."""
        follower = await self._exchange.follow(run.id, cursor.seq)
        try:
            rendering = await self._rendered(run, cursor.seq)
        except BaseException:
            follower.close()
            raise
        return partial(self._write, run, follower, self._chunks(run, follower, rendering, cursor, snapshot))

    async def _write(
        self, run: Run, follower: Follower, chunks: AsyncGenerator[sse.Chunk, None], receive: Receive, send: Send
    ) -> None:
        with span("runtime.stream", agent=run.agent) as streamed, closing(follower):
            try:
                await sse.write(receive, send, chunks, _same)
            except ParleyError as error:
                # Not an error of the run: the front end reconnects, and is told what is wrong.
                tell("stream.broken", code=error.code)
                streamed.outcome = "error"
                await sse.end(send, b"")

    async def _chunks(
        self, run: Run, follower: Follower, rendering: Rendering, cursor: Cursor, snapshot: bool
    ) -> AsyncGenerator[sse.Chunk, None]:
        if run.ended and cursor.seq >= run.version:
            yield b"", True
            return
        last = False
        while not last:
            events = await self._exchange.attachments.told(await follower.next(sse.KEEP_ALIVE_S))
            data: list[bytes] = []
            for event in events:
                shown = rendering.events(event)
                if snapshot and shown and isinstance(shown[0], RunStarted) and shown[0].run_id == run.id:
                    shown.insert(1, await self._snapshot(run, event, shown[0]))
                data.append(frames_of(event.seq, shown, cursor.skipped if event.seq == cursor.seq + 1 else 0))
            last = bool(events) and await self._settled(events[-1])
            yield b"".join(data), last

    async def _settled(self, event: Event) -> bool:
        """Return whether nothing follows an entry until the caller acts."""
        if event.type in QUESTIONS:
            return (await self._exchange.commands.state(event.run)).version == event.seq
        return event.type in ENDINGS

    async def _rendered(self, run: Run, upto: int) -> Rendering:
        """Return the rendering of a run as it is after an entry. It starts anew after each question."""
        rendering = Rendering(run)
        if not upto:
            return rendering
        async for page in pages(self._exchange.store, run.id, await self._boundary(run, upto)):
            for event in page:
                if event.seq > upto:
                    return rendering
                rendering.events(event)
        return rendering

    async def _boundary(self, run: Run, upto: int) -> int:
        """Return the number of the last question up to an entry; 0 if there is none."""
        asked = pages(self._exchange.store, run.id, 0, QUESTIONS)
        return max([event.seq async for page in asked for event in page if event.seq <= upto], default=0)

    async def _snapshot(self, run: Run, event: Event, started: RunStarted) -> MessagesSnapshot:
        """Return the messages of the thread up to the first input of a run."""
        listing = Listing(
            run.principal,
            run.agent,
            run.conversation,
            after=(run.created_at, run.id),
            limit=MOST_RUNS,
            newest=True,
            counted=False,
        )
        earlier, _ = await self._exchange.store.list_runs(listing)
        messages: list[HistoryMessage] = []
        left = MOST_ENTRIES
        for one in earlier:
            left -= one.version
            if left < 0:
                break
            messages = [*await self._messages(one), *messages]
        return MessagesSnapshot(event.at, (*messages, *(started.input.messages if started.input else ())))

    async def _messages(self, run: Run) -> list[HistoryMessage]:
        rendering, found = Rendering(run), dict[str, HistoryMessage]()
        async for page in pages(self._exchange.store, run.id):
            for event in await self._exchange.attachments.told(page):
                _collect(found, rendering.events(event))
        return list(found.values())


def _collect(found: dict[str, HistoryMessage], events: Events) -> None:
    """Add the texts of some events to the messages that they form."""
    for event in events:
        match event:
            case RunStarted(input=given) if given is not None:
                found.update((one.id, one) for one in given.messages if one.role == "user")
            case TextMessageStart(message_id=id_, role=role):
                found[id_] = HistoryMessage(id_, "user" if role == "user" else "assistant", "")
            case TextMessageContent(message_id=id_, delta=delta) if id_ in found:
                found[id_] = HistoryMessage(id_, found[id_].role, found[id_].content + delta)
            case _:
                pass


def _same(chunk: sse.Chunk) -> sse.Chunk:
    return chunk
