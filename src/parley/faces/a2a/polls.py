"""Long polls of A2A 1.1: requests for a task that are answered when it has changed."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from msgspec import Struct

from parley.faces.a2a.messages import TaskShown
from parley.ids import RunId
from parley.runs.rules.state import Run
from parley.runs.service import Exchange

Read = Callable[[RunId, int | None], Coroutine[Any, Any, TaskShown]]
"""Reads a task with a limit to its history."""
Place = tuple[RunId, int, int | None]
"""A run, the generation that it must exceed, and the length of the history."""
Request = asyncio.Future[TaskShown | None]
"""Gets the task after the change, or None when its time is over."""


class LongPolls:
    """Requests that wait for the same change share one follower and what is read after the change, so that a thousand
    of them cost little more than one."""

    def __init__(self, exchange: Exchange, read: Read, limit_s: float) -> None:
        """`limit_s` is the longest time for which a request waits."""
        self._exchange = exchange
        self._read = read
        self._limit_s = limit_s
        self._waits: dict[Place, _Wait] = {}
        self._reading: dict[tuple[RunId, int | None], asyncio.Task[TaskShown]] = {}
        """Tasks that are being read for requests whose time is over."""

    async def outgrown(self, run: Run, generation: int, history_length: int | None) -> TaskShown:
        """Return the task as soon as it has a higher generation than this one, or as it is when the time is over."""
        place, loop = (run.id, generation, history_length), asyncio.get_running_loop()
        wait = self._waits.get(place) or self._begin(place, run)
        request: Request = loop.create_future()
        timer = loop.call_later(self._limit_s, _time_out, request)
        wait.requests.add(request)
        try:
            shown = await request
        finally:
            timer.cancel()
            wait.requests.discard(request)
            if not wait.requests:
                self._end(place, wait)
        return await self._unchanged(run.id, history_length) if shown is None else shown

    def _begin(self, place: Place, run: Run) -> "_Wait":
        task = asyncio.get_running_loop().create_task(self._read_after(run, *place[1:]))
        wait = self._waits[place] = _Wait(task)
        task.add_done_callback(partial(self._answer, place, wait))
        return wait

    def _end(self, place: Place, wait: "_Wait") -> None:
        wait.task.cancel()
        if self._waits.get(place) is wait:
            del self._waits[place]

    def _answer(self, place: Place, wait: "_Wait", task: asyncio.Task[TaskShown]) -> None:
        """Give the result of a wait to the requests that share it."""
        self._end(place, wait)
        if task.cancelled():
            return
        error = task.exception()
        for request in wait.requests:
            if request.done():
                continue
            if error is not None:
                request.set_exception(error)
            else:
                request.set_result(task.result())

    async def _read_after(self, run: Run, generation: int, history_length: int | None) -> TaskShown:
        await self._exchange.outgrown(run, generation, None)
        return await self._read(run.id, history_length)

    async def _unchanged(self, run_id: RunId, history_length: int | None) -> TaskShown:
        place = (run_id, history_length)
        reading = self._reading.get(place)
        if reading is None:
            reading = self._reading[place] = asyncio.get_running_loop().create_task(self._read(run_id, history_length))
            reading.add_done_callback(lambda _: self._reading.pop(place))
        return await asyncio.shield(reading)


class _Wait(Struct):
    task: asyncio.Task[TaskShown]
    requests: set[Request] = set()


def _time_out(request: Request) -> None:
    if not request.done():
        request.set_result(None)
