"""Registration of a node and its heartbeats, and the error rate that they report."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import httpx2

from parley.node.messages import Json, PlatformRefused, PlatformUnreachable
from parley.node.platform import PlatformClient
from parley.telemetry import tell

RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SOONEST_S = 1.0
"""Changes are reported at once, but at most once in this time."""
_UNKNOWN = (401, 404, 410)

Describe = Callable[[], Awaitable[Json]]
Report = Callable[[], Json]


class Registration:
    """Registers the node and sends heartbeats. Retries forever, so that the node is registered when the platform is
    back."""

    def __init__(
        self, platform: PlatformClient, url: str, name: str | None, describe: Describe, report: Report, every_s: float
    ) -> None:
        self._platform = platform
        self._url = url
        self._name = name
        self._describe = describe
        self._report = report
        self._every_s = every_s
        self._wanted = asyncio.Event()
        self._card: Json = {}
        self._task: asyncio.Task[None] | None = None
        self._since = time.monotonic()
        self.registered = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def report_soon(self) -> None:
        """Send a heartbeat before the next one is due, because something has changed."""
        self._wanted.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        tries = 0
        while True:
            try:
                await self._report_once()
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

    async def _report_once(self) -> None:
        card = await self._describe()
        # The card is signed again from time to time, which does not count as a change.
        unsigned = {name: value for name, value in card.items() if name != "signatures"}
        if not self.registered.is_set():
            await self._platform.register(self._url, card, self._name)
            self.registered.set()
            tell("node.registered", node=self._platform.id, url=self._url)
        elif unsigned != self._card:
            await self._platform.update_card(card)
        self._card = unsigned
        self._wanted.clear()
        await self._platform.heartbeat({**self._report(), "uptime_seconds": int(time.monotonic() - self._since)})

    async def _wait(self, tries: int) -> None:
        if tries:
            return await asyncio.sleep(min(RETRY_S[min(tries, len(RETRY_S)) - 1], self._every_s))
        await asyncio.sleep(min(SOONEST_S, self._every_s))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._every_s - SOONEST_S)):
                await self._wanted.wait()
        return None


# Error rate of a node, for its heartbeat: the last minute, and only failures of the node itself.

WINDOW_S = 60.0
MAX_SAMPLE = 300


class ErrorWindow:
    """Attempts of the last seconds, and how many of them failed. The registry contract (004) counts answers of 500 and
    above, timeouts and broken connections. Errors of a caller count as success."""

    def __init__(self, seconds: float = WINDOW_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._tries: deque[tuple[float, str]] = deque()
        self._failed = 0

    def answered(self, status: int, what: str = "") -> None:
        """Count an answer, of this node or of a peer."""
        self._note(f"{what} answered {status}".strip() if status >= 500 else "")

    def raised(self, error: BaseException, what: str = "") -> None:
        """Count a call that ended with an error. Only connection errors and timeouts count as failures."""
        broke = isinstance(error, OSError | httpx2.TransportError)
        self._note(f"{what}: {type(error).__name__}".lstrip(": ") if broke else "")

    def failed(self, why: str) -> None:
        self._note(why or "failed")

    @property
    def rate(self) -> float:
        self._forget()
        return self._failed / len(self._tries) if self._tries else 0.0

    @property
    def sample(self) -> str:
        """The latest failure; empty if there was none."""
        self._forget()
        return next((why for _, why in reversed(self._tries) if why), "") if self._failed else ""

    def _note(self, why: str) -> None:
        self._forget()
        self._tries.append((self._clock(), why[:MAX_SAMPLE]))
        self._failed += bool(why)

    def _forget(self) -> None:
        since = self._clock() - self._seconds
        while self._tries and self._tries[0][0] <= since:
            _, why = self._tries.popleft()
            self._failed -= bool(why)
