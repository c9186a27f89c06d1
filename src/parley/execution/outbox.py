"""Writes the reports of a turn to the log: the first report at once, chunks of text together shortly after."""

import asyncio
from collections.abc import Callable, Sequence

from parley.errors import ParleyError
from parley.execution.rules import closed, is_delta, joined, size_of
from parley.ids import RunId
from parley.runs.attachments import Attachments
from parley.runs.log import Commands, Outcome
from parley.runs.rules.commands import Emit, Report
from parley.runs.rules.content import Parts
from parley.runs.rules.events import Progress
from parley.runs.rules.state import Run

LINGER_S = 0.020
MAX_WAITING = 256
MAX_SIZE = 1024 * 1024


class Outbox:
    def __init__(self, commands: Commands, run_id: RunId, epoch: int) -> None:
        self._commands = commands
        self._run_id = run_id
        self._epoch = epoch
        self._waiting: list[Report] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._flight: asyncio.Future[Outcome] | None = None
        self._last_flush = 0.0
        self.upto: int | None = None
        """Version of the log on which the end of the turn was decided, if that matters."""

    async def put(self, report: Report) -> None:
        """Accept a report. Waits only when the log is far behind; raises when this executor no longer holds the run."""
        self._check()
        self._waiting.append(report)
        self._size += size_of(report)
        if self._timer is None or not is_delta(report):
            self._schedule(report)
        if len(self._waiting) >= MAX_WAITING or self._size >= MAX_SIZE:
            # An agent that never pauses would otherwise fill the memory before anything is written.
            await asyncio.shield(self._flush())

    def commit(self, *reports: Report) -> "asyncio.Future[Outcome]":
        """Write some reports and all before them; awaiting the result waits until they are durable."""
        self._check()
        self._waiting.extend(reports)
        # Not shielded: the log writes commands also if the caller no longer waits for them.
        return self._flush()

    async def settle(self, *reports: Report) -> None:
        """Write some reports and all before them, if there are any. Return when everything is durable."""
        if reports or self._waiting:
            await self.commit(*reports)
        elif self._flight is not None:
            await asyncio.shield(self._flight)

    async def finish(self, ending: Report) -> Run:
        """Write everything, including the end of the turn. Return the resulting run."""
        self._check()
        self._waiting = [*closed(self._waiting), ending]
        return (await self._flush()).run

    async def abort(self, ending: Report) -> Run:
        """Discard the waiting reports and write only the end, because one of the reports cannot be written."""
        self._waiting = [ending]
        return (await self._flush()).run

    def _schedule(self, report: Report) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        pause = self._last_flush + LINGER_S - loop.time() if is_delta(report) else 0.0
        # `call_soon` instead of a direct call: outputs that the agent yields without a pause go into the same append.
        flush = self._flush_unawaited
        self._timer = loop.call_later(pause, flush) if pause > 0 else loop.call_soon(flush)

    def _flush_unawaited(self) -> None:
        self._flush().add_done_callback(_seen)

    def _flush(self) -> "asyncio.Future[Outcome]":
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        reports, self._waiting, self._size = self._waiting, [], 0
        if len(reports) == 1 and not is_delta(reports[0]):
            # The usual case of a step.
            self._flight = self._commands.submit(self._run_id, Emit(self._epoch, reports[0], self.upto))
            return self._flight
        if any(map(is_delta, reports)):
            # The first text after a step is not delayed.
            self._last_flush = asyncio.get_running_loop().time()
        emits = [Emit(self._epoch, report, self.upto) for report in joined(reports)]
        self._flight = self._commands.submit(self._run_id, *emits)
        return self._flight

    def _check(self) -> None:
        if self._flight is not None and self._flight.done() and not self._flight.cancelled():
            error = self._flight.exception()
            if error is not None:
                raise error


def _seen(flight: "asyncio.Future[Outcome]") -> None:
    """Mark the error as retrieved: the next call of the outbox raises it."""
    if not flight.cancelled() and isinstance(flight.exception(), ParleyError):
        return


class TurnJournal:
    """Stores the records of a turn's steps, in order with its other reports."""

    def __init__(
        self, outbox: Outbox, attachments: Attachments, used: Callable[[], Sequence[Report]] = lambda: ()
    ) -> None:
        """`used` returns the usage that the turn has recorded. It is written together with the step that it belongs to,
        because a resumed turn does not record it again."""
        self._outbox = outbox
        self._attachments = attachments
        self._used = used

    def record(self, progress: Progress) -> "asyncio.Future[Outcome]":
        used = self._used()
        return self._outbox.commit(*used, progress) if used else self._outbox.commit(progress)

    async def kept(self, parts: Parts) -> Parts:
        return await self._attachments.kept(parts)

    async def loaded(self, parts: Parts) -> Parts:
        return await self._attachments.loaded(parts)
