"""What both ways to work with Agent-Zero share: how long to wait, and how the work ends."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from parley.core.events import Failed
from parley.core.turns import Done, Output, Text
from parley.drivers.agentzero.files import artifact, fetched
from parley.drivers.agentzero.options import AgentZeroOptions
from parley.drivers.agentzero.shown import Course, kind_of
from parley.drivers.agentzero.words import Large
from parley.drivers.remote.patience import Patience
from parley.drivers.remote.words import Lost, Refused
from parley.engine.turns import Turn
from parley.telemetry import tell

START_S = 5.0
"""How long an Agent-Zero that cannot be reached is tried before it has begun anything."""
_POLLS_S = (0.1, 0.2, 0.5, 1.0, 2.0)

Found = TypeVar("Found")


class Source(Protocol):
    async def fetch(self, path: str) -> bytes | Large | None: ...


class Watch:
    """One piece of work, as it is seen from here."""

    def __init__(self, turn: Turn, options: AgentZeroOptions) -> None:
        marks = [int(mark) for mark in turn.marks if mark.isdigit()]
        self.turn = turn
        self.options = options
        self.course = Course(shown=max(marks, default=-1), items={})
        self.shaken = False
        """Whether Agent-Zero was gone in the meantime."""
        self._looks = 0
        self._changed = time.monotonic()

    def stirred(self) -> None:
        """There was a sign of work."""
        self._looks, self._changed = 0, time.monotonic()

    @property
    def is_silent(self) -> bool:
        return time.monotonic() - self._changed > self.options.silence_s

    @property
    def pause_s(self) -> float:
        """Until the next look: soon after something has changed, later when nothing does."""
        pause = _POLLS_S[min(self._looks, len(_POLLS_S) - 1)]
        self._looks += 1
        return min(pause, self.options.poll_s)

    async def wait(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.turn.overtaken.wait(), self.pause_s)

    async def ended(self, response: str | None, source: Source) -> AsyncGenerator[Output, None]:
        """The last words, and the files that come with them."""
        if response is None:
            yield self._broken_off()
            return
        async for file in self._files(response, source):
            yield file
        yield Text(response)
        yield Done()

    def _broken_off(self) -> Failed:
        error = self.course.error
        if error is not None:
            return self.failed(error)
        if self.shaken:
            return Failed("agentzero_lost", "Agent-Zero was restarted in the middle of its work, and did not go on.")
        return Failed("agentzero_no_answer", "Agent-Zero ended its work without an answer.")

    def failed(self, error: str) -> Failed:
        tell("agentzero.failed", run=self.turn.run_id, agent=self.turn.agent.slug, said=error[:2000])
        return Failed("agentzero_failed", f"Agent-Zero's work ended with an unexpected {kind_of(error)}.")

    async def _files(self, response: str, source: Source) -> AsyncGenerator[Output, None]:
        for path in fetched((), "", response, self.options.roots):
            try:
                content = await source.fetch(path)
            except (Lost, Refused) as error:
                tell("agentzero.file_lost", run=self.turn.run_id, agent=self.turn.agent.slug, why=str(error))
                continue
            if content is not None:
                yield artifact(path, content)


async def patiently(seconds: float, ask: Callable[[], Awaitable[Found]]) -> Found:
    """Ask again and again, while there is no answer."""
    patience = Patience(seconds)
    while True:
        try:
            return await ask()
        except Lost as lost:
            await patience.wait(lost)


SILENT = Failed("agentzero_silent", "Agent-Zero has shown no sign of work for too long.")
FORGOTTEN = Failed(
    "agentzero_lost", "Agent-Zero does not know this work any more: it was restarted, or was told to forget it."
)
