"""Live lists: a stream that reads a page of runs again when any run has changed, and sends the rows that differ."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec
from msgspec import Struct

from parley.console.responses import PageStream, off_loop
from parley.errors import Stopping
from parley.http.sse import KEEP_ALIVE_S, Chunk, message
from parley.ids import RunId
from parley.runs.service import Exchange

PAUSE_S = 1.0
"""Minimum time between two reads of a list, however often runs change."""


class LiveRow(Struct, frozen=True):
    """A row of a list: the id of its HTML element, a version that changes with its content, and its HTML."""

    key: str
    version: object
    render: Callable[[], str]


class LiveRows(Struct, frozen=True):
    rows: list[LiveRow]
    more: dict[str, object] = {}
    """Further values for the page, such as counts."""


def live_list(exchange: Exchange, read: Callable[[], Awaitable[LiveRows]]) -> PageStream:
    return PageStream(_frames(exchange, read))


async def _frames(exchange: Exchange, read: Callable[[], Awaitable[LiveRows]]) -> AsyncGenerator[Chunk, None]:
    changed = asyncio.Event()
    shown: tuple[object, ...] = ()
    sent: dict[str, object] = {}

    def hear(_: RunId) -> None:
        changed.set()

    with exchange.listeners.growth.listening(hear):
        while True:
            changed.clear()
            found = await read()
            state = (*((row.key, row.version) for row in found.rows), found.more)
            if state != shown:
                fresh = [row for row in found.rows if sent.get(row.key) != row.version]
                html = await off_loop(lambda fresh=fresh: {row.key: row.render() for row in fresh})
                told = {"order": [row.key for row in found.rows], "rows": html, **found.more}
                yield message(msgspec.json.encode(told)), False
                shown, sent = state, {row.key: row.version for row in found.rows}
            await asyncio.sleep(PAUSE_S)
            while not changed.is_set():
                yield b"", False
                await _until(changed)
                if exchange.admission.stopping:
                    raise Stopping("The server is stopping.")


async def _until(changed: asyncio.Event) -> None:
    """Wait for a change, for as long as a stream may be silent."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            await changed.wait()
    except TimeoutError:
        return
