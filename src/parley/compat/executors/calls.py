"""One call of an executor, and what it enqueues meanwhile."""

import asyncio
from collections.abc import AsyncGenerator

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import Event, EventQueue

WAITING = 64
"""An executor that is faster than the log waits."""


class Events(EventQueue):
    def __init__(self) -> None:
        self._queue = asyncio.Queue[Event | None](WAITING)
        self._closed = False

    async def enqueue_event(self, event: Event) -> None:
        """What comes when nobody listens any more goes nowhere, as with the SDK."""
        if not self._closed:
            await self._queue.put(event)

    async def finish(self) -> None:
        if not self._closed:
            await self._queue.put(None)

    async def next(self) -> Event | None:
        return await self._queue.get()

    def close(self) -> None:
        """Whoever waits to be heard goes on."""
        self._closed = True
        while not self._queue.empty():
            self._queue.get_nowait()


class Call:
    def __init__(self, executor: AgentExecutor, context: RequestContext) -> None:
        self._events = Events()
        self.task = asyncio.get_running_loop().create_task(self._execute(executor, context))

    async def _execute(self, executor: AgentExecutor, context: RequestContext) -> None:
        try:
            await executor.execute(context, self._events)
        except Exception:
            await self._events.finish()
            raise
        await self._events.finish()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Until the executor has returned. What it raises is raised here, after what it had to say before."""
        while (event := await self._events.next()) is not None:
            yield event
        await self.task

    async def returns(self, within_s: float) -> bool:
        """Whether it has nothing more to do."""
        await asyncio.wait({self.task}, timeout=within_s)
        return self.task.done()

    def leave(self) -> None:
        """Let it return by itself: its turn is over."""
        self._events.close()

    async def stop(self, within_s: float) -> None:
        self.leave()
        self.task.cancel()
        await asyncio.wait({self.task}, timeout=within_s)
