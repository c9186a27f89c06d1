"""Children: the runs that a run has started. They are canceled with it, even if a process dies meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from parley.errors import RunEnded, RunNotFound, StoreUnavailable
from parley.ids import RunId
from parley.runs.log import Commands, Outcome
from parley.runs.rules.commands import Cancel, Fail
from parley.runs.rules.state import Run, State, lets_go
from parley.runs.store import Key

TRIES = 10
PATIENCE_S = 1.0
"""Seconds before a store that could not be reached is tried again."""

Stop = Callable[[RunId, Cancel], Awaitable[Outcome]]


class Children:
    def __init__(self, commands: Commands, stop: Stop) -> None:
        self._commands = commands
        self._stop = stop

    async def cancel(self, run: Run) -> None:
        """Cancel the children of a run. Return when that is durable."""
        for child in run.children:
            try:
                await self._stop(child, Cancel(run.principal, f"The parent task {run.id} ended."))
            except (RunEnded, RunNotFound):
                continue

    async def cancel_surely(self, run: Run) -> None:
        """Cancel the children of a run, and try again for some time if the store cannot be reached."""
        for _ in range(TRIES):
            try:
                return await self.cancel(run)
            except StoreUnavailable:
                await asyncio.sleep(PATIENCE_S)
        return None

    async def end(self, run_id: RunId, command: Cancel | Fail, key: Key | None) -> Outcome:
        """Execute a command that ends a run unless a turn of it is running. The children of the run are canceled
        first, including those that it gets meanwhile."""
        while True:
            stopped = await self._cancel_before_end(run_id)
            outcome = await self._commands.execute(run_id, replace(command, stopped=stopped), key=key)
            run = outcome.run
            if outcome.events or outcome.replayed or run.state is State.WORKING or stopped >= len(run.children):
                return outcome

    async def _cancel_before_end(self, run_id: RunId) -> int:
        """Cancel the children of a run that is about to end without a turn, and return their number. After its end is
        written, a lost answer of the store or a crash would leave them. A repeated cancel does it again."""
        run = await self._commands.stored(run_id)
        if run is not None and run.children and run.state is not State.WORKING and (not run.ended or lets_go(run)):
            await self.cancel(run)
            return len(run.children)
        return 0
