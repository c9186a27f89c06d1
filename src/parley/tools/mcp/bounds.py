"""What a server may send: so much at once, and so many messages that nobody asked for.

A session holds to it by reading through `Bounded`; what is over the bounds ends the session and not the process.
"""

import asyncio
import time
from types import TracebackType
from typing import Protocol

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from parley.core.circuits import Minute
from parley.tools.mcp.faults import Fault, Flooded, Gone

PER_MINUTE = 3_000
"""Messages that are no answers."""
_OF_INTEREST = (
    "notifications/progress", "notifications/cancelled", "notifications/tools/", "notifications/subscriptions/",
)  # fmt: skip

Item = SessionMessage | Exception


class Source(Protocol):
    """Where messages come from; anyio.EndOfStream at their end, Fault when they break the bounds."""

    async def receive(self) -> Item: ...

    async def aclose(self) -> None: ...


def wire_limit(max_output: int) -> int:
    """A tool's answer can be in a message twice (as text and as a value), and the text with every quote escaped."""
    return 4 * max_output + 64 * 1024


class Bounded:
    """Messages of one server for its session. `ended` is set when there are no more, and `fault` says why."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._unasked = Minute()
        self.ended = asyncio.Event()
        self.fault: Fault | None = None
        self.last_context = None

    async def receive(self) -> Item:
        while True:
            # Whoever sends without a pause must not keep the others waiting.
            await asyncio.sleep(0)
            try:
                item = await self._source.receive()
                if self._is_wanted(item):
                    self.last_context = getattr(self._source, "last_context", None)
                    return item
            except Fault as fault:
                self._end(fault)
                raise anyio.EndOfStream from None
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._end(Gone("The server ended."))
                raise

    def _is_wanted(self, item: Item) -> bool:
        if isinstance(item, Exception):
            self._count()
            return False
        message = item.message
        if isinstance(message, JSONRPCNotification):
            self._count()
            return message.method.startswith(_OF_INTEREST)
        if isinstance(message, JSONRPCRequest):
            self._count()
        return True

    def _count(self) -> None:
        if not self._unasked.admits(PER_MINUTE, int(time.monotonic() * 1000)):
            raise Flooded("The server sent too many messages that nobody asked for.")

    def _end(self, fault: Fault) -> None:
        if self.fault is None:
            self.fault = fault
        self.ended.set()

    async def aclose(self) -> None:
        await self._source.aclose()

    def __aiter__(self) -> "Bounded":
        return self

    async def __anext__(self) -> Item:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "Bounded":
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()
