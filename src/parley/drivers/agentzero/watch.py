"""Shared by both kinds of turns with Agent-Zero: waiting, SALUTE reports, and the end of the work."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec.structs import replace

from parley.drivers.agentzero.chat import Course, Large, artifact, fetched, kind_of
from parley.drivers.agentzero.client import Ill
from parley.drivers.agentzero.options import AgentZeroOptions, reports_folder, without_secrets
from parley.drivers.org.organisation import Levels, Organised, failure_report
from parley.drivers.remote.connections import Backoff
from parley.drivers.remote.translation import ConnectionLost, RemoteRefused
from parley.execution.rules import Done, NeedInput, Note, Output, Status, Text
from parley.execution.turn import Turn
from parley.orgkernel.definitions import Role, Workflow
from parley.orgkernel.pace import Evidence, GivenUp, Guidance, Shown, given_up, shown
from parley.orgkernel.salute import FoundReport, ReportFolder, SaluteActivity, SaluteReport, status_text
from parley.orgkernel.steps import shortened
from parley.runs.rules.events import Canceled, Failed
from parley.telemetry import tell

# SALUTE reports of the kernel next to an Agent-Zero, as far as they are about our work.

MARK = "salute:"
SLACK_S = 1.0
"""Tolerance when times are compared: reports may use whole seconds, and file times lag a few milliseconds."""
_FILE_SLACK_S = 0.05


class Bulletins:
    """Reads the folder of reports. Without a folder there are no reports."""

    def __init__(self, folder: Path | None, organised: Organised, marks: list[str]) -> None:
        self._reports = ReportFolder(folder) if folder else None
        self._organised = organised
        self._seen = max((float(mark.removeprefix(MARK)) for mark in marks if mark.startswith(MARK)), default=0.0)
        self.latest: FoundReport | None = None

    async def look(self, since_ms: int, began_ms: int) -> FoundReport | None:
        """Return the newest report of this work if it was not seen before. A half-written report is read next time."""
        if self._reports is None:
            return None
        found = await asyncio.to_thread(self._reports.since, since_ms / 1000 - _FILE_SLACK_S)
        mine = next((one for one in found if belongs(one.report, since_ms, began_ms)), None)
        if mine is not None:
            self.latest = mine
        if mine is None or mine.at <= self._seen:
            return None
        self._seen = mine.at
        return mine

    def told(self, report: SaluteReport, evidence: Evidence) -> Shown:
        """Return the report as shown to the client, with the names that the organisation uses."""
        return shown(report, *self._named(report), evidence)

    def working(self, report: SaluteReport) -> str:
        """Return the report as status text for the client, whatever its level is."""
        return status_text(report, self._named(report)[0])

    def given_up(self, report: SaluteReport, evidence: Evidence) -> GivenUp:
        """Return the failure report, whatever the report's level is."""
        return given_up(report, *self._named(report), evidence)

    def _named(self, report: SaluteReport) -> tuple[Workflow | None, Role | None]:
        found = self._organised.active
        if found is None:
            return None, None
        return found.workflow(report.activity.htn_plan), found.role(report.unit.role_id)


def belongs(report: SaluteReport, since_ms: int, began_ms: int) -> bool:
    """Tell whether a report is about our task. Reports do not name a task, so a report is ours if it was made after our
    message, its work started after our task, and its role is working at all: idle roles report too."""
    if report.status.state == "idle":
        return False
    made, started = moment(report.time.timestamp), moment(report.time.task_started or "")
    return (made is None or made >= since_ms / 1000 - SLACK_S) and (
        started is None or started >= began_ms / 1000 - SLACK_S
    )


def moment(text: str) -> float | None:
    """Parse a time to seconds. A time without a zone is in UTC, as the kernel writes it."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


START_S = 5.0
"""Time to retry an unreachable Agent-Zero before it has started any work."""
PACE_EMERGENCY = "pace_emergency"
MAX_SAID = 2_000
"""Maximum number of characters of an error that are logged."""
MAX_SEARCHED = 64 * 1024
_POLLS_S = (0.1, 0.2, 0.5, 1.0, 2.0)

Found = TypeVar("Found")


class ReportSource(Protocol):
    async def fetch(self, path: str) -> bytes | Large | None: ...


class Watch:
    """Watches one piece of work in Agent-Zero."""

    def __init__(self, turn: Turn, options: AgentZeroOptions, source: ReportSource, organised: Organised) -> None:
        marks = [int(mark) for mark in turn.marks if mark.isdigit()]
        self.turn = turn
        self.options = options
        self.course = Course(shown=max(marks, default=-1), items={})
        self.shaken = False
        """True if Agent-Zero was unreachable at some time during the work."""
        self.since = int(turn.notes.get("since", "0"))
        """Time of the newest message (ms); `began` is the time of this run's first message."""
        self.began = int(turn.notes.get("began", "0"))
        self._asked_at = int(turn.notes.get("asked", "0"))
        """Total number of failures when the client was last asked."""
        self._source = source
        self._bulletins = Bulletins(reports_folder(options), organised, turn.marks)
        self._levels = Levels(turn)
        self._looks = 0
        self._changed = time.monotonic()

    def sent(self) -> dict[str, str]:
        """Record that a message is about to be sent. Returns the notes for it."""
        self.since = int(time.time() * 1000)
        self.began = self.began or self.since
        return {"since": str(self.since), "began": str(self.began)}

    def record_activity(self) -> None:
        """Record that there was progress."""
        self._looks, self._changed = 0, time.monotonic()

    @property
    def is_silent(self) -> bool:
        return time.monotonic() - self._changed > self.options.silence_s

    async def wait(self) -> None:
        """Wait until the next poll: briefly after a change, longer while nothing changes."""
        pause = min(_POLLS_S[min(self._looks, len(_POLLS_S) - 1)], self.options.poll_s)
        self._looks += 1
        with suppress(TimeoutError):
            await asyncio.wait_for(self.turn.overtaken.wait(), pause)

    async def reported(self, *, may_ask: bool = True) -> AsyncGenerator[Output, None]:
        """Yield the outputs of a new report. A question ends the turn, if the answer can still reach the work."""
        news = await self._bulletins.look(self.since, self.began)
        if news is None:
            return
        self.record_activity()
        self._levels.heard(news.report)
        said = self._bulletins.told(news.report, self._evidence())
        if isinstance(said, Guidance) and 0 < _failures(news.report) <= self._asked_at:
            # The level is from before the client's answer: give the work a chance to use that answer.
            yield Status(self._bulletins.working(news.report), f"{MARK}{news.at!r}")
        elif isinstance(said, GivenUp) or (isinstance(said, Guidance) and may_ask):
            async for output in self._escalated(said, ""):
                yield output
        else:
            yield Status(said.text, f"{MARK}{news.at!r}")

    async def ended(self, response: str | None) -> AsyncGenerator[Output, None]:
        """Yield the final answer and its files, unless the last report shows that the work has not ended."""
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
        """Yield the files so far. For a failure, also yield the failure report as an artifact and as the failure's
        text."""
        if self.since:
            await self._bulletins.look(self.since, self.began)
        async for file in self._files("\n".join(self.course.responses)):
            yield file
        if isinstance(ending, Canceled):
            return
        latest = self._bulletins.latest
        report = latest.report if latest else SaluteReport(activity=SaluteActivity(shortened(self.turn.text)))
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
        return Evidence(tuple(course.steps_taken), tuple(course.failures), (response,) if response else ())

    def _broken_off(self) -> Failed:
        error = self.course.error
        if error is not None:
            return self.failed(error)
        if self.shaken:
            return Failed("agentzero_lost", "Agent-Zero was restarted during its work and did not continue.")
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
            except (ConnectionLost, RemoteRefused) as error:
                tell("agentzero.file_lost", run=self.turn.run_id, agent=self.turn.agent.slug, why=str(error))
                if isinstance(error, ConnectionLost) and not isinstance(error, Ill):
                    # Agent-Zero does not answer, so the other files cannot be fetched either.
                    return
                continue
            if content is not None:
                yield artifact(path, content, roots)


def _failures(report: SaluteReport) -> int:
    return report.environment.tool_failures_total


async def patiently(seconds: float, ask: Callable[[], Awaitable[Found]], most_s: float | None = None) -> Found:
    """Repeat a call for some seconds while there is no answer. A call without an answer ends after `most_s` in all."""
    patience, until = Backoff(seconds), asyncio.get_running_loop().time() + (most_s or seconds)
    while True:
        try:
            return await answered(ask, until)
        except Hung:
            raise
        except ConnectionLost as lost:
            await patience.wait(lost)


async def answered(ask: Callable[[], Awaitable[Found]], until: float) -> Found:
    """Make one call that times out at `until`, a time of the event loop's clock."""
    try:
        async with asyncio.timeout_at(until):
            return await ask()
    except TimeoutError:
        raise Hung("it does not answer") from None


class Hung(ConnectionLost):
    """Agent-Zero accepts connections but does not answer."""


SILENT = Failed("agentzero_silent", "Agent-Zero showed no progress for too long.")
FORGOTTEN = Failed("agentzero_lost", "Agent-Zero no longer knows this work: it was restarted, or the chat was deleted.")
