"""Operations on orchestrations for faces and other callers: create, read, pause, answer, cancel, retry, delete."""

import asyncio
import hashlib
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from parley.audit.service import note
from parley.errors import CannotPlan, InvalidState, OrchestrationNotFound, PlanningFailed, RunNotFound, VersionConflict
from parley.execution.driver import Planner
from parley.ids import RunId, is_id, new_id
from parley.orchestrations.rules.commands import Command, Pause, Resume, Retry, decide
from parley.orchestrations.rules.plan import Rules, check_rules
from parley.orchestrations.rules.state import Orchestration, OrchestrationStatus
from parley.runs.log import Outcome
from parley.runs.requests import Branch, Send, keyed
from parley.runs.rules.access import Principal
from parley.runs.rules.commands import Steer
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import Steered
from parley.runs.rules.state import WAITING, Run
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.runs.store import Listing

PAGE = 100
PATIENCE_S = 2.0
TRIES = 50


class Creation(Struct, frozen=True):
    """Request to create an orchestration by an agent. The same `key` returns the same orchestration."""

    agent: str
    principal: Principal
    message: Message
    conversation: str | None = None
    rules: Rules = Rules()
    key: str | None = None


def creation_key(principal: Principal, agent: str, conversation: str, key: str | None) -> tuple[str | None, str]:
    """Return the key of an orchestration and the id of its message. The task that creates it has the given key, so the
    orchestration needs another."""
    if key is None:
        return None, new_id()
    whose = f"{principal}\n{agent}\n{conversation}\n{key}"
    return f"orchestrate:{hashlib.sha256(whose.encode()).hexdigest()}", str(uuid.uuid5(uuid.NAMESPACE_URL, whose))


class OrchestrationPage(Struct, frozen=True):
    orchestrations: list[Orchestration]
    total: int


class OrchestrationService:
    """Operations on orchestrations by id. An orchestration that a principal may not see is reported as not found."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def create(self, creation: Creation) -> Orchestration:
        """Start an orchestration. Returns when there is a plan, or a reason why there is none (status `failed`)."""
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

    async def create_planned(self, creation: Creation) -> Orchestration:
        """Like `create`, but raise PlanningFailed if there is no plan."""
        state = await self.create(creation)
        if not state.steps:
            raise PlanningFailed(state.reason or "No plan was made.", orchestration=state.id, reason=state.code)
        return state

    async def read(self, id_: str, principal: Principal) -> Orchestration:
        return _found(await self._view(id_, principal))

    async def list(
        self,
        conversation: str,
        principal: Principal,
        *,
        agent: str | None = None,
        status: OrchestrationStatus | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> OrchestrationPage:
        """Return a page of a conversation's orchestrations, newest first."""
        found = [one for one in await self._all(conversation, principal, agent) if status in (None, one.status)]
        return OrchestrationPage(found[offset : offset + limit], len(found))

    async def current(self, conversation: str, principal: Principal, agent: str | None = None) -> Orchestration:
        """Return the newest orchestration of a conversation that has not ended; else the newest."""
        found = await self._all(conversation, principal, agent)
        if not found:
            raise OrchestrationNotFound("There is no orchestration in this conversation.")
        return next((one for one in found if not one.ended), found[0])

    async def chosen(self, conversation: str, principal: Principal, id_: str | None) -> Orchestration:
        """Return the orchestration with this id in a conversation; without an id, the current one."""
        if id_ is None:
            return await self.current(conversation, principal)
        state = await self.read(id_, principal) if is_id(id_) else None
        if state is None or state.conversation != conversation:
            raise OrchestrationNotFound("There is no such orchestration.")
        return state

    async def pause(self, id_: str, principal: Principal) -> Orchestration:
        """Start no further steps; running steps continue to their end."""
        return await self._steer(id_, principal, Pause(str(principal)))

    async def resume(self, id_: str, principal: Principal) -> Orchestration:
        state = await self._steer(id_, principal, Resume(str(principal)))
        note("run.resumed", principal, "task", state.id)
        return state

    async def answer(
        self, id_: str, principal: Principal, text: str, step: str | None = None, key: str | None = None
    ) -> Orchestration:
        """Answer the question of a checkpoint, or of one of the steps; this also ends a pause."""
        state = await self.read(id_, principal)
        run = state.run if step is None else state.step(step).run
        once = keyed(key, principal, state.agent, [text, step])
        if once is not None and await self._exchange.commands.replayed(once) is not None:
            return state
        if run is None or (step is None and state.status != "paused"):
            status = state.status if step is None else state.step(step).status
            raise InvalidState(f"Status is {status}: it is not waiting for an answer.", state=status)
        asked = await self._exchange.commands.state(run)
        if step is None:
            # Other steps may still be running when a checkpoint asks: then the current turn receives the answer.
            await self._exchange.give(asked, principal, Message(new_id(), (text_part(text),)), once)
            if asked.state not in WAITING:
                note("run.answered", principal, "task", asked.id)
        else:
            await self._exchange.answer(asked, principal, text, once)
        return await self.read(id_, principal)

    async def cancel(self, id_: str, principal: Principal, reason: str | None = None) -> Orchestration:
        """Cancel the orchestration and all runs that it started. Returns when it has ended."""
        state = await self.read(id_, principal)
        if state.ended:
            raise InvalidState(f"The orchestration is {state.status}; it cannot be canceled.", state=state.status)
        outcome = await self._exchange.cancel(state.run, principal, reason=reason)
        return _found(await self._exchange.settled(outcome, ended=True))

    # Why: docs/decisions/orchestrations.md#continue-an-ended-orchestration-in-a-fork
    async def retry_step(self, id_: str, principal: Principal, step: str) -> Orchestration:
        """Retry a failed step. An orchestration that has ended continues as a new run, and keeps its id."""
        state = await self.read(id_, principal)
        if not state.ended:
            return await self._steer(id_, principal, Retry(step, str(principal)))
        (steered,) = decide(state, Retry(step, str(principal)))
        assert isinstance(steered, Steered)
        # Of several concurrent requests one starts the new run, and the others steer that run.
        key = f"orch:{state.run}:retry"
        branch = Branch(state.run, principal, key=key, continues=state.id, steered=steered)
        outcome = await self._exchange.fork(branch)
        state = _found(await self._exchange.view(outcome.run.id))
        if outcome.replayed and not state.ended and state.step(step).status == "failed":
            return await self._steer(id_, principal, Retry(step, str(principal)))
        return state

    async def delete(self, id_: str, principal: Principal) -> RunId:
        """Erase the orchestration and the runs of its steps. Refused while it is active."""
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
        note("orchestration.deleted", principal, "task", state.id)
        return state.id

    async def _stopped(self, run: Run) -> None:
        """Wait until the steps of a canceled orchestration have ended too."""
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
        raise VersionConflict("The orchestration is changing too fast for this request; try again.")

    async def _steered(self, state: Orchestration, event: Steered) -> Orchestration:
        exchange = self._exchange
        outcome = await exchange.commands.execute(state.run, Steer(event), expected=state.version)
        if outcome.run.ready:
            exchange.offer(outcome.run.agent)
        return _found(await exchange.view(state.run, upto=outcome.run.version))

    async def _view(self, id_: str, principal: Principal) -> View:
        """Return the newest run of the orchestration: after a failure there may be more than one."""
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
        """Return the runs of orchestrations, newest first."""
        listing = Listing(
            principal=None if principal.may("operate") else str(principal),
            agent=agent,
            conversation=conversation,
            limit=PAGE,
        )
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
