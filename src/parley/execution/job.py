"""State of a turn that is running, and the check of its budgets."""

import asyncio
from collections.abc import Callable, Sequence

from parley.budgets.service import BudgetCheck
from parley.errors import BudgetExceeded
from parley.execution.driver import Driver
from parley.execution.outbox import Outbox
from parley.execution.steps import Steps
from parley.execution.turn import Turn
from parley.execution.turn_order import Served
from parley.runs.rules.commands import Report
from parley.runs.rules.events import Failed
from parley.runs.rules.state import Run


class TurnSpending:
    """Ends a turn when a budget is used up. `used` returns the usage that the turn has recorded."""

    def __init__(self, check: BudgetCheck, run: Run, outbox: Outbox, used: Callable[[], Sequence[Report]]) -> None:
        self._check = check
        self._run = run
        self._outbox = outbox
        self._used = used
        self.refused: Failed | None = None
        """The end of the turn because a budget is used up, whatever the agent makes of it."""
        self._used_up = False
        """True if a budget was used up when the turn last recorded usage: more usage ends the turn."""

    async def guard(self) -> None:
        """Raise BudgetExceeded, and end the turn with it, if nothing more may be spent. Usage of the turn counts."""
        if not self._check:
            return
        await self._outbox.settle(*self._used())
        try:
            await self._check.check(self._run)
        except BudgetExceeded as error:
            self.refused = Failed(error.code, error.message)
            raise

    async def recorded(self) -> None:
        """Check the budgets when usage was recorded. An agent that calls models by itself is not asked before a call:
        the call after the one that used up a budget ends its turn."""
        if self._used_up:
            return await self.guard()
        if self._check:
            await self._outbox.settle()
            self._used_up = await used_up(self._check, self._run) is not None
        return None


async def used_up(check: BudgetCheck, run: Run) -> Failed | None:
    """Return the end of a turn that may spend nothing; None if it may."""
    try:
        await check.check(run)
    except BudgetExceeded as error:
        return Failed(error.code, error.message)
    return None


class TurnJob:
    """A running turn."""

    __slots__ = (
        "driver",
        "driving",
        "ending",
        "grace",
        "leaving",
        "overtaken",
        "run",
        "served",
        "slot_of",
        "spending",
        "steps",
        "task",
        "timer",
        "turn",
    )

    def __init__(self, run: Run, slot_of: str | None, served: Served | None = None) -> None:
        self.run = run
        self.served = served
        """The turn that the run gets from its agent's queue, if its agent has a limit."""
        self.spending: TurnSpending | None = None
        self.slot_of = slot_of
        """Id of the replica under which the turn holds a slot of its agent, if it holds one."""
        self.task: asyncio.Task[None] | None = None
        self.driver: Driver | None = None
        """The driver of this turn until its end, even if the agent is replaced or removed meanwhile."""
        self.driving = False
        """True while the agent's own code runs. Only then may the task be canceled; writing to the log is never
        interrupted."""
        self.ending: Report | None = None
        """The reason why the turn was asked to stop, if it was."""
        self.leaving = False
        """True when this process gives up the turn so that another process can take it over."""
        self.overtaken = asyncio.Event()
        """Set when there is new input that the running turn has not read."""
        self.turn: Turn | None = None
        """The turn that was passed to the driver, once it has been called."""
        self.steps: Steps | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.grace: asyncio.TimerHandle | None = None

    def clear(self) -> None:
        """Stop the timers of the turn."""
        for timer in (self.timer, self.grace):
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """Stop the timers, and drop what refers back to the job: then it is freed at once, not by the garbage
        collector."""
        self.clear()
        self.task = self.turn = self.steps = self.spending = None
