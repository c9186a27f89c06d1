"""The exchange: what every face asks of the engine, in its own words and nobody's wire format."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.core.access import Principal, may_see, may_use
from parley.core.agents import Agent, check_content
from parley.core.artifacts import check_parts, text_part
from parley.core.commands import Adopt, Begin, Cancel, Close, Fail, Fork, Give, Start
from parley.core.conversations import Message, conversation_for, hops_metadata
from parley.core.events import Event, Rejected
from parley.core.runs import WAITING, Run, State
from parley.core.views import View
from parley.engine.admission import UNLIMITED, Admission, Allowance, Asked
from parley.engine.attachments import SAID_BYTES, Attachments
from parley.engine.bells import Bells
from parley.engine.commands import MAX_PAYLOAD, Commands, Outcome
from parley.engine.execution import GRACE_S, Execution
from parley.engine.forking import fork_of
from parley.engine.leavings import afterwards, clear_left
from parley.engine.membership import LEASE_S, Membership
from parley.engine.planning import StepRunner
from parley.engine.ports import Blobs, Cluster, Distant, Driver, Key, LogStore, Signals
from parley.engine.requests import Branch, Opening, Send, branch_key, same_run, send_key, start_of
from parley.engine.retention import Retention
from parley.engine.roster import Changed, Roster, Unlisted, no_agent
from parley.engine.streams import Follower, Streams
from parley.engine.views import folded, read_view, recent_view
from parley.errors import (
    Invalid,
    RunEnded,
    RunNotFound,
    VersionConflict,
)
from parley.ids import RunId, is_id, new_run_id
from parley.telemetry import span
from parley.telemetry.trace import entered, sent

_NEWCOMER = "*"
"""Told instead of an agent's slug by a replica that has joined: the others are no longer alone."""


class Exchange:
    def __init__(
        self,
        store: LogStore,
        blobs: Blobs,
        cluster: Cluster,
        signals: Signals,
        *,
        clock: Clock = now_ms,
        max_payload: int = MAX_PAYLOAD,
        grace_s: float = GRACE_S,
        lease_s: float = LEASE_S,
        keep_ms: int | None = None,
        shared: bool = False,
        allowance: Allowance = UNLIMITED,
    ) -> None:
        self.agents = Roster()
        self._signals = signals
        self.store = store
        self.streams = Streams(store)
        self.attachments = Attachments(blobs, said_bytes=min(SAID_BYTES, max_payload // 16))
        self.commands = Commands(store, self._published, clock, max_payload, shared=shared)
        self.execution = Execution(self.commands, store, cluster, self.attachments, self._ask_child, grace_s)
        self.retention = Retention(store, keep_ms, clock)
        self.membership = Membership(store, cluster, self.execution, self.agents, self.retention, lease_s, shared)
        self.admission = Admission(store, allowance, lambda: len(self.membership.alive), clock)
        self.on_growth: Callable[[RunId], None] | None = None
        """Called for every run that has grown, here or elsewhere; must not wait."""
        self.on_change: Callable[[Run, Sequence[Event]], None] | None = None
        """Called with what a run has grown by here; must not wait."""
        self.on_cancel: Callable[[Run], Coroutine[None, None, None]] | None = None
        """Begun for a run that is to be canceled and is worked on elsewhere."""
        self.steps: StepRunner | None = None
        """Who carries out the steps of orchestrations, if not their agents alone."""
        self.offers = Bells()
        """Rung for an agent whose work waits for somebody to come for it."""
        self.growth = Bells()
        """Rung for a run that has grown, here or elsewhere."""
        self._tasks: set[asyncio.Task[None]] = set()

    def agent(self, slug: str) -> Agent:
        return self.agents.agent(slug)

    def usable(self, slug: str, principal: Principal) -> Agent:
        """The agent, if the principal may start runs of it; else AgentNotFound, as for one that does not exist."""
        agent = self.agents.agent(slug)
        if not may_use(principal, agent):
            raise no_agent(slug)
        return agent

    def permits(self, run: Run, principal: Principal) -> bool:
        """Whether a run exists for a principal: it is theirs, and they may use its agent, if that is still served."""
        if run.gone or not may_see(principal, run.principal):
            return False
        driver = self.agents.driver(run.agent)
        return driver is None or may_use(principal, driver.agent)

    def _check(self, run: Run, principal: Principal) -> None:
        if not self.permits(run, principal):
            raise RunNotFound("Task not found.")

    def driver(self, slug: str) -> Driver | None:
        return self.agents.driver(slug)

    def add(self, driver: Driver) -> None:
        self.agents.add(driver)
        self._employ(driver)

    def serve_unlisted(self, find: Unlisted) -> None:
        """Serve also agents that are in no list: whoever knows the slug of one can ask it."""
        self.agents.unlisted = self.execution.unlisted = find

    def replace(self, drivers: Sequence[Driver]) -> Changed:
        """Serve exactly these agents and the guests, all or none of the change.

        A turn under way ends with the driver it began with. What waits for a removed agent waits until it is back.
        """
        changed = self.agents.replace(drivers)
        for slug in changed.removed:
            self.execution.unregister(slug)
        for slug in (*changed.added, *changed.replaced):
            if driver := self.agents.driver(slug):
                self._employ(driver)
            self.offer(slug)
        return changed

    def offer(self, slug: str) -> None:
        """Work of this agent waits: it is begun here, or those who come for it are told, on every replica."""
        if self.execution.employs(slug):
            return self.execution.dispatch(slug)
        self.offers.ring(slug)
        if not self.membership.alone:
            self._signals.wake(slug)
        return None

    async def start(self) -> None:
        """Join the replicas of this store, and take up what the dead have left behind."""
        await self._signals.listen(self._heard, self._of_interest)
        await self.membership.start()
        self._signals.wake(_NEWCOMER)
        self._spawn(clear_left(self.agents, self.store))

    async def close(self) -> None:
        """Hand over what is unfinished, and leave."""
        await self.execution.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for slug in self.agents:
            self._signals.wake(slug)
        await self.membership.close()
        await self._signals.close()
        await self.store.close()

    async def send(self, send: Send) -> Outcome:
        """Durable when it returns: the run exists, and will be worked on whatever happens to this process."""
        with span("runtime.ingest", agent=send.agent):
            check_parts(send.message.parts)
            agent = self.usable(send.agent, send.principal)
            check_content(agent, send.message.parts)
            run = await self.visible(send.run, send.principal, agent.slug) if send.run else None
            conversation = conversation_for(send.conversation, run.conversation if run else None)
            key = send_key(send)
            if run is not None:
                return await self.give(run, send.principal, send.message, key)
            start = Start(
                agent.slug, conversation, str(send.principal), send.message, trace=sent(), rules=send.rules,
                reach=send.principal.reach,
            )  # fmt: skip
            return await self._admitted(agent, start, key)

    async def assign(self, start: Start, key: Key | None, run_id: RunId | None = None) -> Outcome:
        """A run that was made for something: its message is what we ask its agent. One of this id is begun once."""
        with span("runtime.ingest", agent=start.agent):
            agent = self.usable(start.agent, start.caller)
            if start.message is not None:
                check_content(agent, start.message.parts)
                start = replace(start, trace=start.trace or sent())
            if run_id is not None:
                return await self.begin(run_id, await self._stored(start))
            return await self._admitted(agent, start, key)

    async def fork(self, branch: Branch) -> Outcome:
        """A new run of the same owner in the same conversation; the other one is not touched."""
        with span("runtime.ingest", agent=branch.agent or ""):
            run = await self.visible(branch.run, branch.principal, branch.agent)
            agent = self.usable(run.agent, branch.principal)
            conversation_for(branch.conversation, run.conversation)
            key = branch_key(branch, run)
            asked, before = Asked(agent, str(branch.principal)), partial(self._before, key)
            return await before() or await self.admission.admit(
                asked, before, partial(self._fork, run, agent, branch, key)
            )

    async def _fork(self, run: Run, agent: Agent, branch: Branch, key: Key | None) -> Outcome:
        fork = await fork_of(self.store, self.attachments, agent, run, branch)
        return await self._begun(new_run_id(), agent, fork, key)

    async def open(self, opening: Opening) -> Outcome:
        agent = self.usable(opening.agent, opening.principal)
        if opening.run is not None and not is_id(opening.run):
            raise Invalid("A run id has 1 to 128 letters, digits or ._:@/+=~-", field="run_id")
        run_id = RunId(opening.run) if opening.run else new_run_id()
        rules = None if opening.assignment else self.agents.rules(agent.slug)
        start = start_of(opening, conversation_for(opening.conversation), rules)
        if opening.parent is not None:
            return await self._opened(run_id, start, opening.key)

        async def before() -> Outcome | None:
            known = opening.run is not None and await self.store.head(run_id) is not None
            return await self._opened(run_id, start, None) if known else await self._before(opening.key)

        asked = Asked(agent, start.principal)
        return await self.admission.admit(asked, before, partial(self._opened, run_id, start, opening.key))

    async def _opened(self, run_id: RunId, start: Start, key: Key | None) -> Outcome:
        try:
            return await self.commands.execute(run_id, start, key=key)
        except VersionConflict:
            return Outcome(same_run(await self.commands.state(run_id), start), [], replayed=True)

    async def give(self, run: Run, principal: Principal, message: Message, key: Key | None) -> Outcome:
        """Give a run one more input."""
        self._check(run, principal)
        check_parts(message.parts)
        agent = self.agent(run.agent)
        check_content(agent, message.parts)
        asked, limits = Asked(agent, run.principal, begins=False), principal.reach
        give = Give(message, trace=sent(), agents=limits.agents if limits else ())
        return await self.admission.admit(asked, partial(self._before, key), partial(self._give, run, give, key))

    async def _give(self, run: Run, give: Give, key: Key | None) -> Outcome:
        message = await self.attachments.stored_message(give.message)
        how = await self.execution.admit(self.agent(run.agent)) if run.state in WAITING else None
        give = replace(give, message=message, begin=how if isinstance(how, Begin) else None)
        return await self._accept(run.id, give, key)

    async def close_run(self, run: Run, principal: Principal, key: Key | None = None) -> Outcome:
        """No further input: the run completes when what was given is done."""
        self._check(run, principal)
        return await self.commands.execute(run.id, Close(str(principal)), key=key)

    async def fail(self, run: Run, principal: Principal, fail: Fail, key: Key | None = None) -> Outcome:
        """End a run at once because its caller says that it failed."""
        self._check(run, principal)
        return await self.give_up(run, fail, key)

    async def give_up(self, run: Run, fail: Fail, key: Key | None = None) -> Outcome:
        """End a run at once and stop its agent, whoever owns it: for what this server decides itself."""
        outcome = await self.commands.execute(run.id, fail, key=key)
        self.execution.cancel(outcome.run)
        return outcome

    async def sent_before(self, send: Send) -> Outcome | None:
        """What this very send led to when it was made for the first time, if it was."""
        return await self._before(send_key(send))

    async def _before(self, key: Key | None) -> Outcome | None:
        return await self.commands.replayed(key) if key is not None else None

    async def cancel(
        self, run_id: str, principal: Principal, agent: str | None = None, reason: str | None = None,
        key: Key | None = None,
    ) -> Outcome:  # fmt: skip
        """Durable first; then the executor is told. A run that is not being worked on ends at once."""
        with span("runtime.persist", agent=agent or ""):
            run = await self.visible(run_id, principal, agent)
            return await self.stop(run.id, Cancel(str(principal), reason), key)

    async def visible(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        """The run, if it exists for this principal (and at this agent's address)."""
        run = await self.commands.stored(run_id)
        if run is None or agent not in (None, run.agent) or not self.permits(run, principal):
            raise RunNotFound("Task not found.")
        return run

    async def view(
        self, run_id: RunId, *, upto: int | None = None, told: bool = False, history: int | None = None,
        artifacts: bool = True,
    ) -> View:  # fmt: skip
        """What can be seen of a run, up to an event; `told`: with what was said in place, however long it is.

        `history` messages and `artifacts` are needed at least; a long log is not read for more.
        """
        head = await self.store.head(run_id)
        if head is None or head.run.gone:
            raise RunNotFound("Task not found.")
        if history is not None and upto is None and not told:
            recent = await recent_view(self.store, head, history, artifacts=artifacts)
            if recent is not None:
                return recent
        return await read_view(self.store, head, upto, self.attachments if told else None)

    async def follow(self, run_id: RunId, after: int) -> Follower:
        return await self.streams.follow(run_id, after)

    def continue_from(self, outcome: Outcome) -> Follower:
        """Follow what happens after a command of this process."""
        return self.streams.begin(outcome.run.id, outcome.run.version)

    async def settled(self, outcome: Outcome, *, ended: bool = False) -> View:
        """Wait until the run has ended or, unless only its end will do, waits for somebody; what it is then."""
        if not outcome.replayed and outcome.events and outcome.events[0].seq == 1:
            follower = self.continue_from(outcome)
            view = await folded(outcome.events)
        else:
            view = await self.view(outcome.run.id)
            follower = await self.follow(outcome.run.id, view.run.version)
        with follower:
            while not (view.run.ended if ended else view.run.settled):
                view.feed(await follower.next())
        return view

    async def begin(self, run_id: RunId, start: Start) -> Outcome:
        """Begin a run whose id follows from what it is for, or find the one that was begun for the same."""
        try:
            return await self._begun(run_id, self.usable(start.agent, start.caller), start, None)
        except VersionConflict:
            return Outcome(await self.commands.state(run_id), [], replayed=True)

    async def _admitted(self, agent: Agent, start: Start, key: Key | None) -> Outcome:
        """A new run, unless too much is asked for. What a run of ours asks for was admitted with that run."""

        async def work() -> Outcome:
            return await self._begun(new_run_id(), agent, await self._stored(start), key)

        if start.parent is not None:
            return await work()
        return await self.admission.admit(Asked(agent, start.principal), partial(self._before, key), work)

    async def _stored(self, start: Start) -> Start:
        if start.message is None:
            return start
        return replace(start, message=await self.attachments.stored_message(start.message))

    async def _begun(self, run_id: RunId, agent: Agent, command: Start | Fork, key: Key | None) -> Outcome:
        if isinstance(command, Start) and command.message is not None and (rules := self.agents.rules(agent.slug)):
            command = replace(command, rules=command.rules or rules)
        how = await self.execution.admit(agent, at_once=command.orchestrates)
        if isinstance(how, Rejected):
            # Nothing is done for it, so its key is not used up: who asks again with it is asked anew.
            return await self._before(key) or await self.commands.execute(run_id, replace(command, reject=how))
        return await self._accept(run_id, replace(command, begin=how), key)

    async def _accept(self, run_id: RunId, command: Start | Fork | Give, key: Key | None) -> Outcome:
        """Write the input; then work on it, or let it wait for its turn."""
        outcome = await self.commands.execute(run_id, command, key=key)
        if any(event.type == "started" for event in outcome.events):
            self.execution.launch(outcome.run, outcome.events if outcome.events[0].seq == 1 else None)
        elif outcome.run.ready and not outcome.replayed:
            self.offer(outcome.run.agent)
        return outcome

    async def stop(self, run_id: RunId, cancel: Cancel, key: Key | None = None) -> Outcome:
        """Cancel a run, whoever owns it: for what this server decides itself."""
        outcome = await self.commands.execute(run_id, cancel, key=key)
        self.execution.cancel(outcome.run)
        if outcome.run.elsewhere and self.on_cancel is not None:
            self._spawn(self.on_cancel(outcome.run))
        return outcome

    async def _ask_child(
        self, parent: Run, caller: Principal, number: int, slug: str, text: str, hops: int
    ) -> View:  # fmt: skip
        """Start a child, or find the one that this very question started before the process died. `caller` is on whose
        behalf the parent works, with the limits that its log knows."""
        self.usable(slug, caller)
        question = f"{parent.id}/{parent.turns}/{number}/{slug}/{text}"
        child = RunId(str(uuid.uuid5(uuid.NAMESPACE_URL, question)))
        await self.commands.execute(parent.id, Adopt(parent.epoch, child, slug))
        asked = Message(f"{child}.0", (text_part(text),), hops_metadata(hops))
        message = await self.attachments.stored_message(asked)
        trace = sent() or parent.trace
        start = Start(
            slug, parent.conversation, parent.principal, message, parent.id, trace=trace, reach=caller.reach
        )  # fmt: skip
        view = await self.settled(await self.begin(child, start))
        return await self.view(child, told=True) if view.run.beside else view

    def _published(self, run: Run, events: list[Event]) -> None:
        self.execution.logs.heard(run.id, events)
        self.streams.publish(run.id, events)
        self.growth.ring(run.id, run.version)
        if self.on_growth is not None:
            self.on_growth(run.id)
        if self.on_change is not None:
            self.on_change(run, events)
        if not self.membership.alone:
            self._signals.tell(run.id, run.version)
        if run.inputs > run.read and run.state is State.WORKING:
            self.execution.given(run)
        if run.cancel_requested and not run.ended:
            # Another replica may have recorded it, and this append have taken it in before the signal came.
            self.execution.cancel(run)
        if run.children and (run.cancel_requested or run.state is State.FAILED):
            self._spawn(self._cancel_children(run))
        if run.notes and run.ended:
            self._see_to(run)

    def _heard(self, runs: list[tuple[RunId, int]], agents: list[str]) -> None:
        """What other replicas have done."""
        for run_id, version in runs:
            self.streams.reach(run_id, version)
            self.growth.ring(run_id, version)
            if self.on_growth is not None:
                self.on_growth(run_id)
            if self.execution.works_on(run_id) and version > self.commands.version(run_id):
                self._spawn(self.execution.heard(run_id))
        for slug in agents:
            if slug == _NEWCOMER:
                self._spawn(self.membership.renew())
            self.offers.ring(slug)
            self.execution.dispatch(slug)

    def _employ(self, driver: Driver) -> None:
        """Turns begin here, unless they are done elsewhere."""
        if isinstance(driver, Distant):
            self.execution.unregister(driver.agent.slug)
        else:
            self.execution.register(driver)

    def _of_interest(self) -> list[RunId]:
        """The runs of which this replica must not miss anything for long."""
        return [*self.streams.followed, *self.execution.under_way, *map(RunId, self.growth.awaited)]

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _see_to(self, run: Run) -> None:
        """What its agent noted may go on elsewhere, or lie about here."""
        with entered(run.trace):
            for work in afterwards(self.agents.driver(run.agent), run):
                self._spawn(work)

    async def _cancel_children(self, run: Run) -> None:
        for child in run.children:
            try:
                await self.stop(child, Cancel(run.principal, f"Its parent task {run.id} ended."))
            except (RunEnded, RunNotFound):
                continue
