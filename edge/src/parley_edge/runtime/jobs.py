"""Task runs held by this runtime, and the timing of lease renewals."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from parley_edge.errors import Unreachable
from parley_edge.json_values import Json
from parley_edge.runtime.ledger import Entry
from parley_edge.runtime.platform import TaskRun

Phase = Literal["working", "delivering"]
Ended = Literal["canceled", "lost", "released"]

SHORTEST_BEAT_S = 0.1
ALL_TOLD = 20
"""The first reports of progress of a task, up to this number, are all sent; later ones are limited in rate."""


class Tell(Protocol):
    """Receives the events of a runtime and writes them to a terminal, a log or a program."""

    def __call__(self, name: str, **fields: object) -> None: ...


@dataclass(slots=True)
class Job:
    run: str
    lease: str
    payload: Json
    lease_until: float = 0.0
    """Lease end by the platform's clock; 0 if unknown."""
    instance: str = ""
    """Instance that claimed the task, if it was another one."""
    phase: Phase = "working"
    ended: Ended | None = None
    """Reason why the local call was stopped."""
    note: str = ""
    unsaid: deque[Json] = field(default_factory=deque[Json])
    """Progress not yet sent to the platform."""
    told: int = 0
    """Number of progress reports sent."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    since: float = field(default_factory=time.monotonic)
    calling: asyncio.Task[Any] | None = None
    reporting: asyncio.Task[None] | None = None

    @staticmethod
    def of(run: TaskRun) -> "Job":
        return Job(run.id, run.lease_id, run.payload, run.lease_expires_at)

    @staticmethod
    def kept(entry: Entry) -> "Job":
        """A job whose result was stored by an earlier process."""
        return Job(entry.run, entry.lease, {}, phase="delivering", instance=entry.instance)

    @property
    def at_work(self) -> bool:
        return self.phase == "working" and self.ended is None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    def give_up(self, why: Ended) -> None:
        """Stop the local call at once by closing its connection. A result that has arrived is still delivered."""
        if self.at_work:
            self.ended = why
            if self.calling is not None:
                self.calling.cancel()

    def add(self, note: Json) -> None:
        """Queue a progress report; once there are too many, it replaces the last one in the queue."""
        if self.unsaid and self.told + len(self.unsaid) >= ALL_TOLD:
            self.unsaid.pop()
        self.unsaid.append(note)

    def stop_reporting(self) -> None:
        if self.reporting is not None:
            self.reporting.cancel()


def next_beat(interval_s: float, left_s: Iterable[float]) -> float:
    """Seconds until the next renewal: the platform's interval, but before half of any lease is over. Expired leases do
    not count: renewing more often would not help them."""
    return max(SHORTEST_BEAT_S, min([interval_s, *(left / 2 for left in left_s if left > 0)]))


class Hands:
    """The task runs that this runtime holds."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.jobs: dict[str, Job] = {}
        self.ended: dict[str, int] = {}
        """Number of ended task runs by outcome."""
        self.changed, self.claimed, self.freed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def at_work(self) -> list[str]:
        return [job.run for job in self.jobs.values() if job.at_work]

    @property
    def leases(self) -> list[tuple[str, str]]:
        return [(job.run, job.lease) for job in self.jobs.values()]

    def take(self, job: Job) -> None:
        self.jobs[job.run] = job
        self.changed.set()
        self.claimed.set()

    def lay_down(self, job: Job, how: str, **more: object) -> None:
        del self.jobs[job.run]
        self.ended[how] = self.ended.get(how, 0) + 1
        self.freed.set()
        self._tell(f"task.{how}", run=job.run, seconds=round(job.seconds, 3), **more)

    def renewed(self, leases: dict[str, float]) -> None:
        for run in leases.keys() & self.jobs.keys():
            self.jobs[run].lease_until = leases[run]

    def told(self, lost: frozenset[str], canceled: frozenset[str]) -> None:
        """Stop the task runs that the platform reports as lost or canceled."""
        for run in lost & self.jobs.keys():
            self.jobs[run].give_up("lost")
        for run in canceled & self.jobs.keys():
            self.jobs[run].give_up("canceled")

    async def room(self, most: int) -> int:
        """Wait until at least one more task run can be held; return how many more."""
        while len(self.jobs) >= most:
            self.freed.clear()
            await self.freed.wait()
        return most - len(self.jobs)


class Link:
    """Tracks if the platform is reachable, and reports changes."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._away_since: float | None = None
        self.ready = asyncio.Event()
        """Set once the platform has accepted this runtime."""

    @property
    def up(self) -> bool:
        return self.ready.is_set() and self._away_since is None

    def gone(self, fault: Unreachable) -> None:
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._tell("platform.away", reason=fault.message)

    def back(self) -> None:
        if not self.ready.is_set():
            self._tell("platform.connected")
            self.ready.set()
        elif self._away_since is not None:
            self._tell("platform.back", seconds=round(time.monotonic() - self._away_since, 1))
        self._away_since = None
