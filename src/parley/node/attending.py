"""Being there: a node registers, and says every half minute that it lives and how it is."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from parley.node.platform import Platform
from parley.node.words import Json, PlatformRefused, PlatformUnreachable
from parley.telemetry import tell

RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SOONEST_S = 1.0
"""What has changed is told at once, but not more often than this."""
_UNKNOWN = (401, 404, 410)

Describe = Callable[[], Awaitable[Json]]
Report = Callable[[], Json]


class Attendance:
    """Never gives up: a platform that is away finds the node again when it is back."""

    def __init__(
        self, platform: Platform, url: str, name: str | None, describe: Describe, report: Report, every_s: float
    ) -> None:
        self._platform = platform
        self._url = url
        self._name = name
        self._describe = describe
        self._report = report
        self._every_s = every_s
        self._nudged = asyncio.Event()
        self._said: Json = {}
        self._task: asyncio.Task[None] | None = None
        self._since = time.monotonic()
        self.registered = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._attend())

    def nudge(self) -> None:
        """Something has changed that the platform should know of before the next time."""
        self._nudged.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _attend(self) -> None:
        tries = 0
        while True:
            try:
                await self._tell()
                tries = 0
            except PlatformRefused as error:
                tell("node.refused", node=self._platform.id, status=error.status, why=error.message)
                if error.status in _UNKNOWN:
                    self.registered.clear()
                tries += 1
            except PlatformUnreachable as error:
                tell("node.platform_away", node=self._platform.id, why=error.message)
                tries += 1
            await self._wait(tries)

    async def _tell(self) -> None:
        card = await self._describe()
        # It is signed anew from time to time, which is no news to anybody.
        said = {name: value for name, value in card.items() if name != "signatures"}
        if not self.registered.is_set():
            await self._platform.register(self._url, card, self._name)
            self.registered.set()
            tell("node.registered", node=self._platform.id, url=self._url)
        elif said != self._said:
            await self._platform.update_card(card)
        self._said = said
        self._nudged.clear()
        await self._platform.beat({**self._report(), "uptime_seconds": int(time.monotonic() - self._since)})

    async def _wait(self, tries: int) -> None:
        if tries:
            return await asyncio.sleep(min(RETRY_S[min(tries, len(RETRY_S)) - 1], self._every_s))
        await asyncio.sleep(min(SOONEST_S, self._every_s))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._every_s - SOONEST_S)):
                await self._nudged.wait()
        return None
