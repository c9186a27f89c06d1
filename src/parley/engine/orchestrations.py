"""Orchestrations as those ask for them who are not the log: begin one, look at it, and say how it goes on."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from parley.core.access import Principal
from parley.core.commands import Steer
from parley.core.conversations import Message
from parley.core.events import Steered
from parley.core.orchestrations import Orchestration, OrchestrationStatus
from parley.core.plans import Rules, check_rules
from parley.core.runs import Run
from parley.core.steps import Command, Pause, Resume, Retry, decide
from parley.core.views import View
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.planning import Planner
from parley.engine.ports import Listing
from parley.engine.requests import Branch, Send
from parley.errors import CannotPlan, InvalidState, OrchestrationNotFound, RunNotFound, VersionConflict
from parley.ids import RunId

PAGE = 100
PATIENCE_S = 2.0
TRIES = 50


class Creation(Struct, frozen=True):
    """What to orchestrate, and by which agent; the answer to the same `key` is the same orchestration."""

    agent: str
    principal: Principal
    message: Message
    conversation: str | None = None
    rules: Rules = Rules()
    key: str | None = None


class Page(Struct, frozen=True):
    orchestrations: list[Orchestration]
    total: int


class Orchestrations:
    """An orchestration is told by its id. What a principal may not see does not exist for it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def create(self, creation: Creation) -> Orchestration:
        """Begin one. Answers when there is a plan, or the reason why there is none (`failed`)."""
        check_rules(creation.rules)
        driver = self._exchange.driver(self._exchange.agent(creation.agent).slug)
        if not isinstance(driver, Planner):
            raise CannotPlan(f"Agent {creation.agent} has neither a workflow nor a model that could make a plan.")
        outcome = await self._exchange.send(
            Send(
                creation.agent,
                creation.principal,
                creation.message,
                conversation=creation.conversation,
                key=creation.key,
                rules=creation.rules,
            )
        )
        return await self._until(outcome.run.id, lambda state: bool(state.steps) or state.ended)

    async def read(self, id_: str, principal: Principal) -> Orchestration:
        return _found(await self._view(id_, principal))

    async def list(
        self, conversation: str, principal: Principal, *, agent: str | None = None,
        status: OrchestrationStatus | None = None, limit: int = 50, offset: int = 0,
    ) -> Page:  # fmt: skip
        """Those of a conversation, newest first."""
        found = [one for one in await self._all(conversation, principal, agent) if status in (None, one.status)]
        return Page(found[offset : offset + limit], len(found))

    async def current(self, conversation: str, principal: Principal, agent: str | None = None) -> Orchestration:
        """The newest of a conversation that has not ended; else the newest."""
        found = await self._all(conversation, principal, agent)
        if not found:
            raise OrchestrationNotFound("There is no orchestration in this conversation.")
        return next((one for one in found if not one.ended), found[0])

    async def pause(self, id_: str, principal: Principal) -> Orchestration:
        """No further step begins; those under way come to their end."""
        return await self._steer(id_, principal, Pause(str(principal)))

    async def resume(self, id_: str, principal: Principal) -> Orchestration:
        return await self._steer(id_, principal, Resume(str(principal)))

    async def cancel(self, id_: str, principal: Principal, reason: str | None = None) -> Orchestration:
        """For good, and with all runs that it began. Answers when it has ended."""
        state = await self.read(id_, principal)
        if state.ended:
            raise InvalidState(f"The orchestration is {state.status}; it cannot be canceled.", state=state.status)
        outcome = await self._exchange.cancel(state.run, principal, reason=reason)
        return _found(await self._exchange.settled(outcome, ended=True))

    async def retry_step(self, id_: str, principal: Principal, step: str) -> Orchestration:
        """Try a failed step again. One that has ended goes on as a new run, which keeps its id."""
        state = await self.read(id_, principal)
        if not state.ended:
            return await self._steer(id_, principal, Retry(step, str(principal)))
        (steered,) = decide(state, Retry(step, str(principal)))
        assert isinstance(steered, Steered)
        # Of all who ask at the same time one goes on, and the others steer what goes on.
        key = f"orch:{state.run}:retry"
        branch = Branch(state.run, principal, key=key, continues=state.id, steered=steered)
        outcome = await self._exchange.fork(branch)
        state = _found(await self._exchange.view(outcome.run.id))
        if outcome.replayed and not state.ended and state.step(step).status == "failed":
            return await self._steer(id_, principal, Retry(step, str(principal)))
        return state

    async def delete(self, id_: str, principal: Principal) -> RunId:
        """Erase it and the runs of its steps. Not while it is at work."""
        state = await self.read(id_, principal)
        if state.status == "paused":
            state = await self.cancel(id_, principal, "Deleted.")
        if not state.ended:
            raise InvalidState(f"The orchestration is {state.status}; cancel it first.", state=state.status)
        for run in await self._runs(state.conversation, principal, state.agent):
            if run.orchestration == state.id:
                await self._stopped(run)
                await self._exchange.retention.erase(run.id)
                if (tools := self._exchange.execution.toolcalls) is not None:
                    await tools.forget_steps(run)
        return state.id

    async def _stopped(self, run: Run) -> None:
        """Wait until the steps of one that was canceled have ended, too."""
        try:
            async with asyncio.timeout(PATIENCE_S + self._exchange.execution.grace_s):
                for child in run.children:
                    with suppress(RunNotFound):
                        step = await self._exchange.commands.state(child)
                        await self._exchange.settled(Outcome(step, [], replayed=True), ended=True)
        except TimeoutError:
            raise InvalidState("A step has not stopped yet; try again.", state="canceling") from None

    async def _steer(self, id_: str, principal: Principal, command: Command) -> Orchestration:
        for _ in range(TRIES):
            state = await self.read(id_, principal)
            told = [event for event in decide(state, command) if isinstance(event, Steered)]
            if not told:
                return state
            try:
                return await self._steered(state, told[0])
            except VersionConflict:
                continue
        raise VersionConflict("The orchestration changes too fast to be steered.")

    async def _steered(self, state: Orchestration, event: Steered) -> Orchestration:
        exchange = self._exchange
        outcome = await exchange.commands.execute(state.run, Steer(event), expected=state.version)
        if outcome.run.ready:
            exchange.offer(outcome.run.agent)
        return _found(await exchange.view(state.run, upto=outcome.run.version))

    async def _view(self, id_: str, principal: Principal) -> View:
        """The newest run that carries it: after a failure there may be another one."""
        try:
            run = await self._exchange.visible(id_, principal)
        except RunNotFound:
            raise OrchestrationNotFound("There is no such orchestration.") from None
        if run.orchestration != run.id:
            raise OrchestrationNotFound("There is no such orchestration.")
        if run.ended:
            runs = await self._runs(run.conversation, principal, run.agent)
            run = next((one for one in runs if one.orchestration == run.id), run)
        return await self._exchange.view(run.id)

    async def _all(self, conversation: str, principal: Principal, agent: str | None) -> Sequence[Orchestration]:
        latest: dict[RunId, Run] = {}
        for run in await self._runs(conversation, principal, agent):
            latest.setdefault(run.orchestration or run.id, run)
        views = [await self._exchange.view(run.id) for run in latest.values()]
        found = [view.orchestration for view in views if view.orchestration is not None]
        return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)

    async def _runs(self, conversation: str, principal: Principal, agent: str | None) -> Sequence[Run]:
        """The runs that carry orchestrations, newest first."""
        listing = Listing(
            principal=None if principal.may("admin") else str(principal), agent=agent, conversation=conversation,
            limit=PAGE,
        )  # fmt: skip
        found: list[Run] = []
        while page := (await self._exchange.store.list_runs(listing))[0]:
            found += [run for run in page if run.orchestration is not None]
            listing = replace(listing, after=(page[-1].status_at, page[-1].id))
        return sorted(found, key=lambda run: (run.created_at, run.id), reverse=True)

    async def _until(self, run_id: RunId, holds: Callable[[Orchestration], bool]) -> Orchestration:
        view = await self._exchange.view(run_id)
        with await self._exchange.follow(run_id, view.run.version) as follower:
            while not holds(_found(view)):
                view.feed(await follower.next())
        return _found(view)


def _found(view: View) -> Orchestration:
    if view.orchestration is None:
        raise OrchestrationNotFound("There is no such orchestration.")
    return view.orchestration
