"""Two loops next to the work: one renews leases, the other receives cancellations and lost leases."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from parley_edge.errors import Unreachable
from parley_edge.runtime.backoff import Backoff
from parley_edge.runtime.jobs import Hands, Link, next_beat
from parley_edge.runtime.platform import Platform

RETRY_CAP_S = 5.0


class Leases:
    def __init__(self, platform: Platform, hands: Hands, link: Link, interval_s: float) -> None:
        self._platform = platform
        self._hands = hands
        self._link = link
        self._interval_s = interval_s
        self._clock_offset = 0.0
        self.draining = False

    async def keep(self) -> None:
        """Send heartbeats: they renew the leases in time and keep the runtime online."""
        backoff = Backoff(RETRY_CAP_S)
        while True:
            try:
                pause = await self.renew()
                backoff.reset()
            except Unreachable as fault:
                self._link.gone(fault)
                pause = backoff.next(fault.retry_after_s)
            await self._rest(pause)

    async def renew(self) -> float:
        """Send one heartbeat; return the seconds until the next one is due."""
        beat = await self._platform.heartbeat(self._hands.leases, draining=self.draining)
        if beat.server_time:
            self._clock_offset = beat.server_time - time.time()
        self._hands.renewed(beat.renewed)
        self._hands.told(beat.lost, beat.canceled)
        self._link.back()
        return self._due()

    def _due(self) -> float:
        clock = time.time() + self._clock_offset
        known = (job.lease_until for job in self._hands.jobs.values() if job.lease_until)
        return next_beat(self._interval_s, (until - clock for until in known))

    async def _rest(self, pause_s: float) -> None:
        """Sleep; wake up earlier if a lease claimed meanwhile is due sooner."""
        until = time.monotonic() + pause_s
        while (left := until - time.monotonic()) > 0:
            self._hands.claimed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._hands.claimed.wait()
                    until = min(until, time.monotonic() + self._due())


class Listening:
    def __init__(self, platform: Platform, hands: Hands, link: Link, shortest_s: float) -> None:
        self._platform = platform
        self._hands = hands
        self._link = link
        self._shortest_s = shortest_s

    async def listen(self) -> None:
        """While tasks run, wait for cancellations with long polls."""
        backoff = Backoff(RETRY_CAP_S)
        while True:
            self._hands.changed.clear()
            runs = self._hands.at_work
            if not runs:
                await self._hands.changed.wait()
                continue
            try:
                await self._until_changed(self._told(runs))
                backoff.reset()
            except Unreachable as fault:
                self._link.gone(fault)
                await asyncio.sleep(backoff.next(fault.retry_after_s))

    async def _told(self, runs: list[str]) -> None:
        began = time.monotonic()
        control = await self._platform.control(runs)
        self._hands.told(control.lost, control.canceled)
        if not (control.lost or control.canceled):
            await asyncio.sleep(max(0.0, began + self._shortest_s - time.monotonic()))

    async def _until_changed(self, told: Coroutine[Any, Any, None]) -> None:
        """Poll until the set of tasks changes; then the poll is repeated with the new set."""
        asked = asyncio.create_task(told)
        changed = asyncio.create_task(self._hands.changed.wait())
        try:
            await asyncio.wait((asked, changed), return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                asked.result()
        finally:
            asked.cancel()
            changed.cancel()
