"""Output of `start`: log lines, JSON lines for programs, or on a terminal lines with a live status below."""

import json
import os
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Protocol, TextIO

from parley_edge.runtime.jobs import Job
from parley_edge.system import printable

_WORDS = {
    "started": "{what}",
    "platform.connected": "connected to the platform",
    "platform.away": "platform unreachable, retrying: {reason}",
    "platform.back": "reconnected to the platform after {seconds} s",
    "task.started": "{run} started ({type})",
    "task.completed": "{run} completed in {seconds} s",
    "task.failed": "{run} failed after {seconds} s: {reason}",
    "task.canceled": "{run} canceled after {seconds} s",
    "task.released": "{run} handed back after {seconds} s",
    "task.lost": "{run} stopped: its lease was lost",
    "task.ended": "{run} had already ended on the platform; the result was dropped",
    "task.refused": "{run}: the platform refused the result; it was dropped",
    "task.dropped": "{run} dropped: {reason}",
    "task.given_back": "{run} was left unfinished by an earlier process; handed back",
    "task.left": "{run} was claimed by the process from which this profile was copied; left to that process",
    "task.recovered": "{run} was finished by an earlier process; delivering its result",
    "task.kept": "{run} is finished, but the platform is unreachable; start again to deliver the result",
    "artifact.failed": "{run}: {filename} could not be written: {reason}",
    "delivery.waits": "{run} is finished; the result waits for the platform: {reason}",
    "delivery.refused": "{run}: the platform refused ({code}): {reason}",
    "stopping": "stopping: {running} running, {grace_s:g} s to finish (interrupt again to hand tasks back at once)",
    "stopped": "stopped",
    "warning": "warning: {what}",
}


def sentence(name: str, fields: dict[str, object]) -> str:
    """The event as text; an event without a text is shown with its name and fields."""
    try:
        return printable(_WORDS[name].format(**fields))
    except KeyError:
        return printable(" ".join([name, *(f"{key}={value}" for key, value in fields.items())]))


class View(Protocol):
    def __call__(self, name: str, **fields: object) -> None: ...

    def refresh(self) -> None: ...

    def close(self) -> None: ...


class Lines:
    """Writes one line per event."""

    def __init__(self, out: TextIO) -> None:
        self._out: TextIO | None = out

    def __call__(self, name: str, **fields: object) -> None:
        self._write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S%z} {sentence(name, fields)}\n")

    def refresh(self) -> None:
        """Do nothing: a log is not redrawn."""

    def close(self) -> None:
        """Do nothing: there is no status to erase."""

    def _write(self, text: str) -> None:
        """Write, and continue silently when the reader has closed the output."""
        if self._out is None:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):
            self._out = None


class JsonLines(Lines):
    """Writes one JSON object per event."""

    def __call__(self, name: str, **fields: object) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._write(json.dumps({"at": at, "event": name, **fields}, ensure_ascii=True) + "\n")


class Live(Lines):
    """Writes lines, and below them a live status, redrawn at every change and every second. `standing` returns the
    lines of the status."""

    def __init__(self, out: TextIO, standing: Callable[[], Iterable[str]]) -> None:
        super().__init__(out)
        self._drawn = 0
        self._standing = standing

    def __call__(self, name: str, **fields: object) -> None:
        self._erase()
        self._write(f"{datetime.now():%H:%M:%S} {sentence(name, fields)}\n")
        self.refresh()

    def refresh(self) -> None:
        width, height = _size()
        lines = [printable(line)[: width - 1] for line in self._standing()][: max(1, height - 2)]
        self._erase()
        self._write("".join(f"\x1b[2m{line}\x1b[0m\n" for line in lines))
        self._drawn = len(lines)

    def close(self) -> None:
        self._erase()

    def _erase(self) -> None:
        if self._drawn:
            self._write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0


def foot(title: str, jobs: Iterable[Job], ended: dict[str, int], *, up: bool, seconds: float) -> list[str]:
    """Lines of the live status: connection, counts, and each task with its latest progress."""
    running = list(jobs)
    counts = ", ".join(f"{number} {how}" for how, number in sorted(ended.items())) or "no tasks done yet"
    state = "connected" if up else "not connected"
    rows = [f"── {title}", f"   {state} · {len(running)} running · {counts} · up {clock(seconds)}"]
    for job in running:
        said = f" · {job.note}" if job.note else ""
        rows.append(f"   {clock(job.seconds)}  {job.run}  {job.phase}{said}")
    return rows


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
        return max(20, size.columns), max(4, size.lines)
    except (OSError, ValueError):
        return 80, 24
