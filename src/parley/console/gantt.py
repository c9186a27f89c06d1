"""Bars of a run in time: its turns, steps, tool calls, child runs and waits, with offset and duration."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from parley.console.timeline import entry_key
from parley.runs.rules.events import (
    AuthRequired,
    ChildStarted,
    Completed,
    Event,
    Failed,
    InputReceived,
    InputRequired,
    Progress,
    Rejected,
    Replied,
    Started,
    Stepped,
    Submitted,
    Suspended,
    ToolCalled,
    ToolReturned,
    Woken,
)
from parley.runs.rules.state import Run

TYPES = (
    "submitted", "input", "started", "progress", "child", "tool_call", "tool_result", "step", "turn_ended",
    "input_required", "auth_required", "rescued", "suspended", "woken", "forked", "completed", "replied", "failed",
    "canceled", "rejected",
)  # fmt: skip
"""Events that begin or end a bar."""
MOST_EVENTS = 1000
MOST_BARS = 150
WIDTH = 1000.0
_IDLE = ("queued", "wait", "sleep")
_IDLE_SHARE = 0.15
"""Most of the width that one wait takes, relative to the time worked: a run that waits a day for an answer still shows
its work."""
_SHORT_MS = 50
"""A queue that a run leaves sooner is not shown."""
_STEP_STATES = {"completed": "good", "failed": "bad", "cancelled": "idle"}


class Bar(Struct, frozen=True):
    kind: str
    """`turn`, `tool`, `step`, `child`, `queued`, `wait` or `sleep`."""
    name: str
    start: int
    end: int | None = None
    """None while it goes on."""
    state: str = "busy"
    entry: str = ""
    """Id of the timeline entry with the details."""
    run: str = ""
    x: float = 0.0
    width: float = 0.0


class Gantt(Struct, frozen=True):
    bars: list[Bar]
    begin: int
    end: int
    more: int = 0
    """Bars that are not shown."""


class GanttFold:
    """Folds events, fed in order, into bars."""

    def __init__(self) -> None:
        self.bars: list[Bar] = []
        self._open: dict[str, int] = {}
        """Positions of the bars that have not ended, by a key."""
        self._turns = 0

    def feed(self, event: Event) -> None:
        payload, at = event.payload, event.at
        match payload:
            case Submitted():
                self._begin("idle", Bar("queued", "Queued", at, state="idle"))
            case Started():
                self._close("idle", at)
                self._turns += 1
                self._begin("turn", Bar("turn", f"Turn {self._turns}", at))
            case ToolCalled(call, tool):
                self._begin(f"tool {call}", Bar("tool", tool, at, entry=entry_key("tool", call)))
            case ToolReturned(call, status=status):
                self._close(f"tool {call}", at, "good" if status == "succeeded" else "bad")
            case ChildStarted(child, agent):
                self.bars.append(Bar("child", agent, at, run=child, entry=f"event-{event.seq}"))
            case Progress(step=step) if step is not None and not step.due:
                state, entry = "bad" if step.code else "good", f"event-{event.seq}"
                self.bars.append(Bar("step", step.name, at - step.duration_ms, at, state, entry))
            case Stepped(step, status, name=name):
                self._close(f"step {step}", at, _STEP_STATES.get(status, "idle"))
                if status == "running":
                    self._begin(f"step {step}", Bar("step", name or step, at, run=payload.run or ""))
            case InputReceived() | Woken():
                self._close("idle", at)
            case Progress():
                pass
            case _:
                self._end_turn(event)

    def _end_turn(self, event: Event) -> None:
        payload, at = event.payload, event.at
        state = "bad" if isinstance(payload, Failed | Rejected) else "good"
        self._close("idle", at)
        self._close("turn", at, state)
        if isinstance(payload, Failed | Rejected | Completed | Replied):
            for key in list(self._open):
                self._close(key, at, "idle")
        if isinstance(payload, InputRequired | AuthRequired):
            self._begin("idle", Bar("wait", "Waiting for input", at, state="wait", entry=f"event-{event.seq}"))
        if isinstance(payload, Suspended):
            self._begin("idle", Bar("sleep", "Sleeping", at, state="idle", entry=f"event-{event.seq}"))

    def _begin(self, key: str, bar: Bar) -> None:
        self._open[key] = len(self.bars)
        self.bars.append(bar)

    def _close(self, key: str, at: int, state: str = "") -> None:
        place = self._open.pop(key, None)
        if place is not None:
            bar = self.bars[place]
            self.bars[place] = replace(bar, end=at, state=state or bar.state)


def drawn(events: Iterable[Event], run: Run, children: dict[str, Run], now: int) -> Gantt:
    """The bars of a run, placed on an axis on which long waits are shortened."""
    fold = GanttFold()
    for event in events:
        fold.feed(event)
    end = run.updated_at if run.ended else max(now, run.updated_at)
    bars = [bar for bar in fold.bars if bar.kind != "queued" or (bar.end or end) - bar.start > _SHORT_MS]
    shown = [_ended(bar, run, children.get(bar.run)) for bar in bars[:MOST_BARS]]
    begin = min([run.created_at, *(bar.start for bar in shown)])
    return Gantt(_placed(shown, begin, end), begin, end, len(bars) - len(shown))


def _ended(bar: Bar, run: Run, child: Run | None) -> Bar:
    """A bar of a child run ends with that run, and any other bar at the latest with its own."""
    if bar.kind == "child" and child is not None and child.ended:
        return replace(bar, end=child.updated_at, state="good" if child.state == "completed" else "bad")
    if bar.end is None and run.ended:
        return replace(bar, end=run.updated_at, state="idle" if bar.state == "busy" else bar.state)
    return bar


def _placed(bars: list[Bar], begin: int, end: int) -> list[Bar]:
    waits = sorted((bar.start, bar.end or end) for bar in bars if bar.kind in _IDLE)
    worked = max(1, end - begin - sum(upto - since for since, upto in waits))
    cap = worked * _IDLE_SHARE

    def passed(at: int) -> float:
        """Length of the axis up to a time: all the time worked, and of each wait at most its cap."""
        total = float(at - begin)
        for since, upto in waits:
            waited = min(at, upto) - since
            if waited > 0 and upto - since > cap:
                total -= waited - cap * waited / (upto - since)
        return total

    scale = WIDTH / max(1.0, passed(end))
    placed: list[Bar] = []
    for bar in bars:
        x = passed(bar.start) * scale
        width = max(3.0, passed(bar.end or end) * scale - x)
        placed.append(replace(bar, x=min(x, WIDTH - width), width=width))
    return placed
