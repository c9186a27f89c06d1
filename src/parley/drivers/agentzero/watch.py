"""What both ways to work with Agent-Zero share: how long to wait, what reports say, and how the work ends."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from msgspec.structs import replace

from parley.core.events import Canceled, Failed
from parley.core.turns import Done, NeedInput, Note, Output, Status, Text
from parley.drivers.agentzero.files import artifact, fetched
from parley.drivers.agentzero.options import AgentZeroOptions, reports_folder, without_secrets
from parley.drivers.agentzero.reports import MARK, Bulletins
from parley.drivers.agentzero.shown import Course, kind_of
from parley.drivers.agentzero.wire import Ill
from parley.drivers.agentzero.words import Large
from parley.drivers.levels import Levels, failure_report
from parley.drivers.organised import Organised
from parley.drivers.remote.patience import Patience
from parley.drivers.remote.words import Lost, Refused
from parley.engine.turns import Turn
from parley.orgkernel.pace import Evidence, GivenUp, Guidance, Shown
from parley.orgkernel.salute import Activity, Report
from parley.orgkernel.state import shortened
from parley.telemetry import tell

START_S = 5.0
"""How long an Agent-Zero that cannot be reached is tried before it has begun anything."""
PACE_EMERGENCY = "pace_emergency"
MAX_SAID = 2_000
"""So much of an error is logged."""
MAX_SEARCHED = 64 * 1024
_POLLS_S = (0.1, 0.2, 0.5, 1.0, 2.0)

Found = TypeVar("Found")


class Source(Protocol):
    async def fetch(self, path: str) -> bytes | Large | None: ...


class Watch:
    """One piece of work, as it is seen from here."""

    def __init__(self, turn: Turn, options: AgentZeroOptions, source: Source, organised: Organised) -> None:
        marks = [int(mark) for mark in turn.marks if mark.isdigit()]
        self.turn = turn
        self.options = options
        self.course = Course(shown=max(marks, default=-1), items={})
        self.shaken = False
        """Whether Agent-Zero was gone in the meantime."""
        self.since = int(turn.notes.get("since", "0"))
        """When the newest message was sent (ms), and when the first one of this run was."""
        self.began = int(turn.notes.get("began", "0"))
        self._asked_at = int(turn.notes.get("asked", "0"))
        """How many failures there were in all when the client was last asked."""
        self._source = source
        self._bulletins = Bulletins(reports_folder(options), organised, turn.marks)
        self._levels = Levels(turn)
        self._looks = 0
        self._changed = time.monotonic()

    def sent(self) -> dict[str, str]:
        """A message is about to go: what is to be noted of it."""
        self.since = int(time.time() * 1000)
        self.began = self.began or self.since
        return {"since": str(self.since), "began": str(self.began)}

    def stirred(self) -> None:
        """There was a sign of work."""
        self._looks, self._changed = 0, time.monotonic()

    @property
    def is_silent(self) -> bool:
        return time.monotonic() - self._changed > self.options.silence_s

    async def wait(self) -> None:
        """Until the next look: soon after something has changed, later when nothing does."""
        pause = min(_POLLS_S[min(self._looks, len(_POLLS_S) - 1)], self.options.poll_s)
        self._looks += 1
        with suppress(TimeoutError):
            await asyncio.wait_for(self.turn.overtaken.wait(), pause)

    async def reported(self, *, may_ask: bool = True) -> AsyncGenerator[Output, None]:
        """What a new report says. A question ends the turn, where the answer can reach the work."""
        news = await self._bulletins.look(self.since, self.began)
        if news is None:
            return
        self.stirred()
        self._levels.heard(news.report)
        said = self._bulletins.told(news.report, self._evidence())
        if isinstance(said, Guidance) and 0 < _failures(news.report) <= self._asked_at:
            # The level still stems from before the client's answer: the work gets a chance to use it.
            yield Status(self._bulletins.working(news.report), f"{MARK}{news.at!r}")
        elif isinstance(said, GivenUp) or (isinstance(said, Guidance) and may_ask):
            async for output in self._escalated(said, ""):
                yield output
        else:
            yield Status(said.text, f"{MARK}{news.at!r}")

    async def ended(self, response: str | None) -> AsyncGenerator[Output, None]:
        """The last words, and the files that come with them; unless the last report says that this is no end."""
        await self._bulletins.look(self.since, self.began)
        report = self._bulletins.latest
        if report is not None:
            self._levels.heard(report.report)
        said = self._bulletins.told(report.report, self._evidence(response)) if report else None
        if isinstance(said, Guidance | GivenUp):
            ending = self._escalated(said, response or "")
        else:
            ending = self._answered(response)
        async for output in ending:
            yield output

    async def _escalated(self, said: Shown, answer: str) -> AsyncGenerator[Output, None]:
        async for file in self._files(answer):
            yield file
        if not isinstance(said, GivenUp):
            latest = self._bulletins.latest
            yield Note({"asked": str(_failures(latest.report) if latest else 0)})
            yield NeedInput(said.text)
            return
        yield failure_report(said)
        yield Failed(PACE_EMERGENCY, said.text)

    async def salvaged(self, ending: Failed | Canceled) -> AsyncGenerator[Output, None]:
        """The files so far; and of a failure the report, as an artifact and as the text of the failure."""
        if self.since:
            await self._bulletins.look(self.since, self.began)
        async for file in self._files("\n".join(self.course.responses)):
            yield file
        if isinstance(ending, Canceled):
            return
        latest = self._bulletins.latest
        report = latest.report if latest else Report(activity=Activity(shortened(self.turn.text)))
        said = self._bulletins.given_up(report, replace(self._evidence(), reason=ending.reason))
        yield failure_report(said)
        yield Failed(ending.code, said.text)

    async def _answered(self, response: str | None) -> AsyncGenerator[Output, None]:
        if response is None:
            yield self._broken_off()
            return
        async for file in self._files(response):
            yield file
        yield Text(response)
        yield Done()

    def _evidence(self, response: str | None = None) -> Evidence:
        course = self.course
        return Evidence(tuple(course.deeds), tuple(course.failures), (response,) if response else ())

    def _broken_off(self) -> Failed:
        error = self.course.error
        if error is not None:
            return self.failed(error)
        if self.shaken:
            return Failed("agentzero_lost", "Agent-Zero was restarted in the middle of its work, and did not go on.")
        return Failed("agentzero_no_answer", "Agent-Zero ended its work without an answer.")

    def failed(self, error: str) -> Failed:
        said = without_secrets(error[:MAX_SEARCHED], self.options)[:MAX_SAID]
        tell("agentzero.failed", run=self.turn.run_id, agent=self.turn.agent.slug, said=said)
        return Failed("agentzero_failed", f"Agent-Zero's work ended with an unexpected {kind_of(error)}.")

    async def _files(self, answer: str) -> AsyncGenerator[Output, None]:
        latest, roots = self._bulletins.latest, self.options.roots
        made = latest.report.location if latest else None
        listed = (made.files_modified, made.working_directory) if made else ((), "")
        for path in fetched(*listed, answer, roots):
            try:
                content = await self._source.fetch(path)
            except (Lost, Refused) as error:
                tell("agentzero.file_lost", run=self.turn.run_id, agent=self.turn.agent.slug, why=str(error))
                if isinstance(error, Lost) and not isinstance(error, Ill):
                    # It does not answer at all: the other files cannot be fetched either.
                    return
                continue
            if content is not None:
                yield artifact(path, content, roots)


def _failures(report: Report) -> int:
    return report.environment.tool_failures_total


async def patiently(seconds: float, ask: Callable[[], Awaitable[Found]], most_s: float | None = None) -> Found:
    """Ask again for some seconds while there is no answer; a call that hangs is given up after `most_s` in all."""
    patience, until = Patience(seconds), asyncio.get_running_loop().time() + (most_s or seconds)
    while True:
        try:
            return await answered(ask, until)
        except Hung:
            raise
        except Lost as lost:
            await patience.wait(lost)


async def answered(ask: Callable[[], Awaitable[Found]], until: float) -> Found:
    """One call, given up at a moment of the loop's clock."""
    try:
        async with asyncio.timeout_at(until):
            return await ask()
    except TimeoutError:
        raise Hung("it does not answer") from None


class Hung(Lost):
    """It takes connections, and does not answer."""


SILENT = Failed("agentzero_silent", "Agent-Zero has shown no sign of work for too long.")
FORGOTTEN = Failed(
    "agentzero_lost", "Agent-Zero does not know this work any more: it was restarted, or was told to forget it."
)
