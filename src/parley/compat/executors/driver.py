"""An executor as a driver: each input is one call of `execute`, and what it enqueues becomes our log."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from a2a.server.agent_execution import AgentExecutor

from parley.compat.executors.calls import Call, Events
from parley.compat.executors.contexts import cancel_context_of, context_of
from parley.compat.executors.telling import Ids, Telling
from parley.core.agents import Agent
from parley.core.runs import Run, State
from parley.core.turns import Done, NeedAuth, NeedInput, Note, Output, Status
from parley.drivers.remote.endings import ENDS, Ends
from parley.engine.turns import Turn
from parley.errors import AgentError
from parley.ids import RunId
from parley.telemetry import tell

AUTH_S = 1.0
"""One that asks for authorization either returns, or waits for it elsewhere and goes on."""
STOP_S = 4.0
CANCEL_S = 5.0
_ANSWERED = (Done, NeedInput, NeedAuth)
"""How a turn does not end as long as there is input that came after."""


class ExecutorDriver:
    def __init__(self, agent: Agent, executor: AgentExecutor) -> None:
        self._agent = agent
        self._executor = executor
        self._leaving: dict[RunId, Call] = {}

    @property
    def agent(self) -> Agent:
        return self._agent

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        if (before := self._leaving.get(turn.run_id)) is not None:
            await asyncio.wait({before.task})
        if not turn.notes:
            # Only a run of which something is noted is one whose cancel its driver hears of.
            yield Note({"executor": type(self._executor).__name__})
        ids = Ids(turn.number, turn.marks, [artifact.id for artifact in turn.artifacts])
        for place in range(len(turn.inputs)):
            async with aclosing(self._executed(turn, place, ids)) as outputs:
                async for output in outputs:
                    if not isinstance(output, _ANSWERED) or place == len(turn.inputs) - 1:
                        yield output

    async def _executed(self, turn: Turn, place: int, ids: Ids) -> AsyncGenerator[Output, None]:
        telling = Telling(ids, begun=turn.number > 1 or place > 0)
        call, over = Call(self._executor, await context_of(turn, place)), False
        try:
            async with aclosing(call.events()) as events:
                async for event in events:
                    for output in telling.outputs(event):
                        if isinstance(output, NeedAuth) and not await call.returns(AUTH_S):
                            yield Status(output.content)
                        elif isinstance(output, ENDS):
                            over = True
                            yield self._left(turn.run_id, call, output)
                            return
                        else:
                            yield output
            over = True
            if not telling.is_task:
                raise AgentError("The executor returned and had enqueued nothing.")
            yield Done()
        finally:
            if not over:
                await call.stop(STOP_S)

    def _left(self, run_id: RunId, call: Call, end: Ends) -> Ends:
        """The turn is over; the executor may still put its things away, and is not called again before."""

        def returned(task: asyncio.Task[None]) -> None:
            if self._leaving.get(run_id) is call:
                del self._leaving[run_id]
            if not task.cancelled() and (error := task.exception()) is not None:
                tell("executor.raised", run=run_id, agent=self._agent.slug, error=error)

        call.leave()
        self._leaving[run_id] = call
        call.task.add_done_callback(returned)
        return end

    async def forsake(self, run: Run) -> None:
        """Tell the executor that its task was canceled. It has been, whatever the executor makes of it."""
        if run.state is not State.CANCELED:
            return
        heard = Events()
        heard.close()
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._executor.cancel(cancel_context_of(run), heard)
        except Exception as error:  # noqa: BLE001 - many executors raise here to say that they cannot
            tell("executor.not_canceled", run=run.id, agent=self._agent.slug, error=error)
