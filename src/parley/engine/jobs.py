"""What an executor keeps of a turn while it is under way."""

import asyncio

from parley.core.commands import Report
from parley.core.runs import Run
from parley.engine.ports import Driver
from parley.engine.turns import Turn


class Job:
    """One turn under way."""

    __slots__ = (
        "driver", "driving", "ending", "grace", "leaving", "overtaken", "run", "slot_of", "task", "timer", "turn",
    )  # fmt: skip

    def __init__(self, run: Run, slot_of: str | None) -> None:
        self.run = run
        self.slot_of = slot_of
        """The replica in whose name it holds a slot of its agent, if it does."""
        self.task: asyncio.Task[None] | None = None
        self.driver: Driver | None = None
        """Whose turn it is: it stays so to the end of the turn, whatever becomes of its agent meanwhile."""
        self.driving = False
        """Only while the agent's own code runs may the task be interrupted; the log is always written to the end."""
        self.ending: Report | None = None
        """Why it was told to stop, if it was."""
        self.leaving = False
        """Whether this process gives it up, so that another can take it."""
        self.overtaken = asyncio.Event()
        """Set when input has come that the turn under way has not read."""
        self.turn: Turn | None = None
        """What its driver was given, once it was called."""
        self.timer: asyncio.TimerHandle | None = None
        self.grace: asyncio.TimerHandle | None = None

    def clear(self) -> None:
        for timer in (self.timer, self.grace):
            if timer is not None:
                timer.cancel()
