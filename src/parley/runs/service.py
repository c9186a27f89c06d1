"""The exchange: the operations that faces use, independent of any wire format."""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from msgspec.structs import replace

from parley.audit.service import note
from parley.budgets.rules import groups_of
from parley.budgets.service import BudgetCheck, LimitBook
from parley.clock import Clock, Monotonic, now_ms
from parley.errors import (
    AnswerInvalid,
    GenerationMismatch,
    InvalidState,
    RunNotFound,
    TreeTooLarge,
    VersionConflict,
)
from parley.execution.admission import UNLIMITED, Admission, AdmissionRequest, Allowance, WorkStops
from parley.execution.agents import Changed, Roster, Unlisted, cleanup_work, clear_ended_runs, no_agent, no_unlisted
from parley.execution.cluster import Cluster, Interest, Signals
from parley.execution.driver import Driver, PairedWork
from parley.execution.executor import GRACE_S, Executor
from parley.execution.membership import LEASE_S, Membership, ReplicaLease
from parley.ids import RunId, new_id, new_run_id
from parley.runs.attachments import SAID_BYTES, Attachments, Blobs
from parley.runs.children import Children
from parley.runs.listeners import RunListeners
from parley.runs.log import MAX_PAYLOAD, Commands, Outcome, noted
from parley.runs.requests import (
    Branch,
    Extensions,
    Opening,
    Send,
    branch_key,
    chosen_id,
    fork_of,
    same_run,
    send_key,
    start_of,
)
from parley.runs.retention import Retention
from parley.runs.rules.access import Principal, may_see, may_use
from parley.runs.rules.agents import Agent, check_content
from parley.runs.rules.answers import Expected, answer_in
from parley.runs.rules.commands import Adopt, Begin, Cancel, Close, Fail, Fork, Give, Start, check_generation
from parley.runs.rules.content import Message, check_parts, conversation_for, hops_metadata, text_part
from parley.runs.rules.events import Event, Rejected
from parley.runs.rules.state import WAITING, Run, State, lets_go
from parley.runs.rules.usage import Prices
from parley.runs.rules.view import View
from parley.runs.store import Key, LogStore
from parley.runs.streams import Follower, Streams, outgrown
from parley.runs.views import expected_answer, folded, read_view, recent_view
from parley.runs.wakeups import Wakeups
from parley.telemetry import span
from parley.telemetry.trace import entered, sent

_NEWCOMER = "*"
"""Sent in place of an agent's slug by a replica that has joined, so that the others know that they are not alone."""


Extend = Callable[["Exchange"], Extensions]
"""Builds the extensions of an exchange during its construction: they may store the exchange, but not use it yet."""


class Exchange:
    def __init__(
        self,
        store: LogStore,
        blobs: Blobs,
        cluster: Cluster,
        signals: Signals,
        *,
        clock: Clock = now_ms,
        monotonic: Monotonic = time.monotonic,
        max_payload: int = MAX_PAYLOAD,
        grace_s: float = GRACE_S,
        lease_s: float = LEASE_S,
        keep_ms: int | None = None,
        shared: bool = False,
        allowance: Allowance = UNLIMITED,
        listeners: RunListeners | None = None,
        unlisted: Unlisted = no_unlisted,
        extend: Extend | None = None,
        prices: Prices | None = None,
        limits: LimitBook | None = None,
    ) -> None:
        self.agents, self.listeners = Roster(unlisted), listeners or RunListeners()
        self.store, self._signals = store, signals
        self.streams = Streams(store, self._followed)
        self.attachments = Attachments(blobs, said_bytes=min(SAID_BYTES, max_payload // 16))
        self.extensions = extensions = extend(self) if extend else Extensions()
        self.limits, self.stops = limits or LimitBook(), WorkStops()
        self.budgets = BudgetCheck(self.limits, store, clock)
        fulfil, counting = extensions.fulfil, self.limits.counting
        self.commands = Commands(
            store, self._published, clock, max_payload, shared=shared, fulfil=fulfil, counts_runs=counting
        )
        self._children = Children(self.commands, self.stop)
        lease = ReplicaLease(lease_s, shared=shared, monotonic=monotonic)
        self.execution = Executor(
            self.commands,
            store,
            cluster,
            self.attachments,
            self._ask_child,
            self._children.cancel,
            grace_s,
            clock=clock,
            monotonic=monotonic,
            sure=lease.is_sure,
            unlisted=self.agents.unlisted,
            toolcalls=extensions.toolcalls,
            conduct=extensions.conduct,
            prices=prices,
            raised=self.listeners.raised,
            budgets=self.budgets,
        )
        self.retention = Retention(store, keep_ms, clock, self.listeners.forget, monotonic)
        self.membership = Membership(store, cluster, self.execution, self.agents, self.retention, lease)
        self.admission = Admission(store, allowance, lambda: len(self.membership.alive), clock, self.budgets)
        self.offers, self.growth = Wakeups(lambda name: self._interest.add("name", name)), Wakeups(self._followed)
        """Woken for an agent whose work waits for a paired runtime to pull it; for a run that has grown anywhere."""
        self._interest = Interest(self._of_interest, self._names, self.listeners.hear_all)
        self._tasks: set[asyncio.Task[None]] = set()

    def agent(self, slug: str) -> Agent:
        return self.agents.agent(slug)

    def usable(self, slug: str, principal: Principal) -> Agent:
        """Return the agent. Raise AgentNotFound if it is missing, or the principal may not start runs of it."""
        agent = self.agents.agent(slug)
        if not may_use(principal, agent):
            raise no_agent(slug)
        if self.stops:
            self.stops.check(principal, slug)
        return agent

    def permits(self, run: Run, principal: Principal) -> bool:
        """Return whether a run exists for a principal: the principal owns it, and may use its agent if that is still
        served."""
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
        self._register(driver)

    def serve_unlisted(self, find: Unlisted) -> None:
        """Also serve agents that are in no list: callers that know the slug of one can use it."""
        self.agents.serve_unlisted(find)

    def replace(self, drivers: Sequence[Driver]) -> Changed:
        """Serve exactly these agents and the guests, as one change.

        A running turn ends with the driver with which it began. Work for a removed agent waits until the agent is back.
        """
        changed = self.agents.replace(drivers)
        for slug in changed.removed:
            self.execution.unregister(slug)
        for slug in (*changed.added, *changed.replaced):
            if driver := self.agents.driver(slug):
                self._register(driver)
            self.offer(slug)
        return changed

    def offer(self, slug: str) -> None:
        """Announce waiting work of an agent: it begins here, or runtimes that wait for it are woken on every
        replica."""
        if self.execution.has_driver(slug):
            return self.execution.dispatch(slug)
        self.offers.wake(slug)
        if not self.membership.alone:
            self._signals.wake(slug)
        return None

    async def start(self) -> None:
        """Join the replicas of this store, and take over the work of dead replicas."""
        await self._signals.listen(self._apply_signals, self._interest)
        await self.membership.start()
        self._signals.wake(_NEWCOMER)
        self._spawn(clear_ended_runs(self.agents, self.store))

    async def close(self) -> None:
        """Hand over unfinished work, and leave the replicas."""
        await self.execution.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for slug in self.agents:
            self._signals.wake(slug)
        await self.membership.close()
        await self._signals.close()
        await self.store.close()

    async def send(self, send: Send) -> Outcome:
        """Accept a message durably: when this returns, the run exists and will be processed even if this process
        dies."""
        with span("runtime.ingest", agent=send.agent) as ingest:
            check_parts(send.message.parts)
            agent = self.usable(send.agent, send.principal)
            check_content(agent, send.message.parts)
            run = await self.visible(send.run, send.principal, agent.slug) if send.run else None
            conversation = conversation_for(send.conversation, run.conversation if run else None)
            key = send_key(send)
            if run is not None:
                return noted(ingest, await self.give(run, send.principal, send.message, key, send.generation))
            start = Start(
                agent.slug,
                conversation,
                str(send.principal),
                send.message,
                trace=sent(),
                rules=send.rules,
                reach=send.principal.reach,
                tree=self.budgets.first_place(send.principal),
            )
            if send.id is not None:
                return noted(ingest, await self._identified(agent, start, chosen_id(send.id)))
            return noted(ingest, await self._admitted(agent, start, key))

    async def assign(self, start: Start, key: Key | None, run_id: RunId | None = None) -> Outcome:
        """Start a run for a purpose, such as a document; its message is the server's request to the agent. With
        `run_id`, a run is started only once."""
        with span("runtime.ingest", agent=start.agent) as ingest:
            agent = self.usable(start.agent, start.caller)
            if start.message is not None:
                check_content(agent, start.message.parts)
                start = replace(start, trace=start.trace or sent())
            if run_id is not None:
                return noted(ingest, await self.begin(run_id, await self._stored(start)))
            return noted(ingest, await self._admitted(agent, start, key))

    async def fork(self, branch: Branch) -> Outcome:
        """Start a copy of a run, with the same owner and conversation; the original is not changed."""
        with span("runtime.ingest", agent=branch.agent or "") as ingest:
            run = await self.visible(branch.run, branch.principal, branch.agent)
            agent = self.usable(run.agent, branch.principal)
            conversation_for(branch.conversation, run.conversation)
            key = branch_key(branch, run)
            asked = AdmissionRequest(agent, str(branch.principal), groups=branch.principal.groups)
            before = partial(self._before, key)
            copy = partial(self._fork, run, agent, branch, key)
            return noted(ingest, await before() or await self.admission.admit(asked, before, copy))

    async def retry(self, run_id: str, principal: Principal, key: str | None = None) -> Outcome:
        """Start a copy of a run that has ended, from its last input on."""
        run = await self.visible(run_id, principal)
        if not run.ended:
            raise InvalidState(f"The task is {run.state.value}; only an ended task can be retried.", state=run.state)
        inputs = await self.store.read_last(run.id, ("input",), 1)
        if not inputs:
            raise InvalidState("The events of the task have expired, so it cannot be retried. Send the message again.")
        return await self.fork(Branch(run.id, principal, at=inputs[0].seq, key=key))

    async def _fork(self, run: Run, agent: Agent, branch: Branch, key: Key | None) -> Outcome:
        fork = await fork_of(self.store, self.attachments, agent, run, branch)
        return await self._begun(new_run_id(), agent, fork, key)

    async def open(self, opening: Opening) -> Outcome:
        agent = self.usable(opening.agent, opening.principal)
        run_id = chosen_id(opening.run) if opening.run is not None else new_run_id()
        rules = None if opening.assignment else self.agents.rules(agent.slug)
        start = start_of(opening, conversation_for(opening.conversation), rules)
        start = replace(start, tree=self.budgets.first_place(opening.principal))
        if opening.parent is not None:
            return await self._opened(run_id, start, opening.key)

        async def before() -> Outcome | None:
            known = opening.run is not None and await self.store.head(run_id) is not None
            return await self._opened(run_id, start, None) if known else await self._before(opening.key)

        asked = AdmissionRequest.of(agent, start)
        return await self.admission.admit(asked, before, partial(self._opened, run_id, start, opening.key))

    async def _opened(self, run_id: RunId, start: Start, key: Key | None) -> Outcome:
        try:
            return await self.commands.execute(run_id, await self._placed(start), key=key)
        except VersionConflict:
            return Outcome(same_run(await self.commands.state(run_id), start), [], replayed=True)

    async def give(
        self, run: Run, principal: Principal, message: Message, key: Key | None, generation: int | None = None
    ) -> Outcome:
        """Add an input to a run; with `generation`, only if the run still has this one."""
        self._check(run, principal)
        check_parts(message.parts)
        if self.stops:
            self.stops.check(principal, run.agent)
        agent = self.agent(run.agent)
        check_content(agent, message.parts)
        asked, limits = AdmissionRequest(agent, run.principal, False, groups_of(run)), principal.reach
        give = Give(message, trace=sent(), agents=limits.agents if limits else (), generation=generation)
        outcome = await self.admission.admit(asked, partial(self._before, key), partial(self._give, run, give, key))
        if run.state in WAITING and not outcome.replayed:
            note("run.answered", principal, "task", run.id)
        return outcome

    async def answer(self, run: Run, principal: Principal, text: str, key: Key | None = None) -> Outcome:
        """Answer the question of a waiting run."""
        if run.state not in WAITING:
            raise InvalidState(f"The task is {run.state.value}; it does not wait for an answer.", state=run.state.value)
        return await self.give(run, principal, Message(new_id(), (text_part(text),)), key)

    async def _give(self, run: Run, give: Give, key: Key | None) -> Outcome:
        try:
            check_generation(run, give.generation)
            await self._check_answer(run, give.message)
            return await self._accept_input(run, give, key)
        except (AnswerInvalid, GenerationMismatch):
            # The same request may have been accepted before, as the answer to an earlier question.
            if before := await self._before(key):
                return before
            raise

    async def _accept_input(self, run: Run, give: Give, key: Key | None) -> Outcome:
        message = await self.attachments.stored_message(give.message)
        how = await self.execution.admit(self.agent(run.agent)) if run.state in WAITING else None
        begin = how if isinstance(how, Begin) else None
        give = replace(give, message=message, begin=begin, checked=run.epoch if run.state in WAITING else 0)
        try:
            return await self._accept(run.id, give, key)
        except VersionConflict:
            now = await self.commands.state(run.id)
            if (now.state, now.epoch) == (run.state, run.epoch):
                raise
            return await self._give(now, give, key)

    async def _check_answer(self, run: Run, message: Message) -> None:
        """Raise AnswerInvalid for an answer that the open question of a run does not expect."""
        expects = await self.expected_answer(run)
        if expects is not None:
            answer_in(expects, message.parts)

    async def expected_answer(self, run: Run) -> Expected | None:
        return await expected_answer(self.store, self.execution.logs, run)

    async def close_run(self, run: Run, principal: Principal, key: Key | None = None) -> Outcome:
        """Accept no further input: the run completes when all input has been processed."""
        self._check(run, principal)
        return await self.commands.execute(run.id, Close(str(principal)), key=key)

    async def fail(self, run: Run, principal: Principal, fail: Fail, key: Key | None = None) -> Outcome:
        """End a run at once because its caller reported a failure."""
        self._check(run, principal)
        return await self.give_up(run, fail, key)

    async def give_up(self, run: Run, fail: Fail, key: Key | None = None) -> Outcome:
        """End a run at once and stop its agent, regardless of its owner: for decisions of this server."""
        outcome = await self._children.end(run.id, fail, key)
        self.execution.cancel(outcome.run)
        return outcome

    async def sent_before(self, send: Send) -> Outcome | None:
        """Return the outcome of the same send, if it was made before."""
        return await self._before(send_key(send))

    async def _before(self, key: Key | None) -> Outcome | None:
        return await self.commands.replayed(key) if key is not None else None

    async def cancel(
        self,
        run_id: str,
        principal: Principal,
        agent: str | None = None,
        reason: str | None = None,
        key: Key | None = None,
    ) -> Outcome:
        """Record the cancel request durably, then notify the executor. A run that is not being worked on ends at
        once."""
        with span("runtime.persist", agent=agent or ""):
            run = await self.visible(run_id, principal, agent)
            outcome = await self.stop(run.id, Cancel(str(principal), reason), key)
            note("run.canceled", principal, "task", run.id)
            return outcome

    async def visible(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        """Return the run, if it exists for this principal (and at this agent's address)."""
        run = await self.commands.stored(run_id)
        if run is None or agent not in (None, run.agent) or not self.permits(run, principal):
            raise RunNotFound("Task not found.")
        return run

    async def view(
        self,
        run_id: RunId,
        *,
        upto: int | None = None,
        told: bool = False,
        history: int | None = None,
        artifacts: bool = True,
    ) -> View:
        """Return the view of a run up to an event. `told`: with all message texts loaded, however long they are.

        `history` is the number of messages needed, `artifacts` whether artifacts are; of a long log, no more is read.
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

    async def outgrown(self, run: Run, generation: int, limit_s: float | None) -> Run:
        """Wait until a run has a higher generation than this one, for at most `limit_s` seconds if given. Return the
        run as it is then."""
        return await outgrown(self.streams, run, generation, limit_s)

    def continue_from(self, outcome: Outcome) -> Follower:
        """Follow the events after a command of this process."""
        return self.streams.begin(outcome.run.id, outcome.run.version)

    async def settled(self, outcome: Outcome, *, ended: bool = False) -> View:
        """Wait until the run has ended or waits for the caller; with `ended`, only for its end. Return its view."""
        if not outcome.replayed and outcome.events and outcome.events[0].seq == 1:
            follower = self.continue_from(outcome)
            view = await folded(outcome.events, outcome.run)
        else:
            view = await self.view(outcome.run.id)
            follower = await self.follow(outcome.run.id, view.run.version)
        with follower:
            while not (view.run.ended if ended else view.run.settled):
                view.feed(await follower.next(), follower.run)
        return view

    async def answered(self, outcome: Outcome) -> View:
        """Wait as `settled` does. Return the view with all message texts loaded, however long they are."""
        view = await self.settled(outcome)
        return await self.view(view.run.id, told=True) if view.run.beside else view

    async def begin(self, run_id: RunId, start: Start) -> Outcome:
        """Start a run whose id is derived from its purpose, or return the run that was started for the same purpose."""
        try:
            return await self._begun(run_id, self.usable(start.agent, start.caller), start, None)
        except (VersionConflict, TreeTooLarge):
            # The run may be one of those that made its tree as large as it is.
            if (known := await self.commands.stored(run_id)) is None:
                raise
            return Outcome(known, [], replayed=True)

    async def _placed(self, start: Start) -> Start:
        """Put a run that another one starts in the tree of that run, if the tree has room."""
        parent = await self.commands.stored(start.parent) if start.parent is not None else None
        if parent is None:
            return start
        return replace(start, tree=await self.budgets.place_child(parent, start.agent))

    async def _admitted(self, agent: Agent, start: Start, key: Key | None) -> Outcome:
        """Start a new run if the limits allow it. A run that was started by another run was admitted with that run."""

        async def work() -> Outcome:
            return await self._begun(new_run_id(), agent, await self._stored(start), key)

        if start.parent is not None:
            return await work()
        return await self.admission.admit(AdmissionRequest.of(agent, start), partial(self._before, key), work)

    async def _identified(self, agent: Agent, start: Start, run_id: RunId) -> Outcome:
        """Start a run under an id that the caller chose, or return the run that the same request started."""

        async def before() -> Outcome | None:
            known = await self.commands.stored(run_id)
            return known and Outcome(same_run(known, start), [], replayed=True)

        async def work() -> Outcome:
            try:
                return await self._begun(run_id, agent, await self._stored(start), None)
            except VersionConflict:
                return Outcome(same_run(await self.commands.state(run_id), start), [], replayed=True)

        return await before() or await self.admission.admit(AdmissionRequest.of(agent, start), before, work)

    async def _stored(self, start: Start) -> Start:
        if start.message is None:
            return start
        return replace(start, message=await self.attachments.stored_message(start.message))

    async def _begun(self, run_id: RunId, agent: Agent, command: Start | Fork, key: Key | None) -> Outcome:
        if isinstance(command, Start) and command.message is not None and (rules := self.agents.rules(agent.slug)):
            command = replace(command, rules=command.rules or rules)
        if isinstance(command, Start):
            command = await self._placed(command)
        how = await self.execution.admit(agent, at_once=command.orchestrates)
        if isinstance(how, Rejected):
            # The rejected run does no work, so its key is not used up: a repeated request with the key is decided anew.
            return await self._before(key) or await self.commands.execute(run_id, replace(command, reject=how))
        return await self._accept(run_id, replace(command, begin=how), key)

    async def _accept(self, run_id: RunId, command: Start | Fork | Give, key: Key | None) -> Outcome:
        """Write the input; then begin the turn, or let the run wait in the queue."""
        outcome = await self.commands.execute(run_id, command, key=key)
        if any(event.type == "started" for event in outcome.events):
            self.execution.launch(outcome.run, outcome.events if outcome.events[0].seq == 1 else None)
        elif outcome.run.ready and not outcome.replayed:
            self.offer(outcome.run.agent)
        return outcome

    async def stop(self, run_id: RunId, cancel: Cancel, key: Key | None = None) -> Outcome:
        """Cancel a run regardless of its owner: for decisions of this server."""
        outcome = await self._children.end(run_id, cancel, key)
        self.execution.cancel(outcome.run)
        if outcome.run.at_runtime:
            for listener in self.listeners.cancel:
                self._spawn(listener(outcome.run))
        return outcome

    async def _ask_child(self, parent: Run, caller: Principal, number: int, slug: str, text: str, hops: int) -> View:
        """Start a child run, or find the one that the same question started before a crash. `caller` is the principal
        of the parent, with the limits in its log."""
        self.usable(slug, caller)
        question = f"{parent.id}/{parent.turns}/{number}/{slug}/{text}"
        child = RunId(str(uuid.uuid5(uuid.NAMESPACE_URL, question)))
        await self.commands.execute(parent.id, Adopt(parent.epoch, child, slug))
        asked = Message(f"{child}.0", (text_part(text),), hops_metadata(hops))
        message = await self.attachments.stored_message(asked)
        trace = sent() or parent.trace
        start = Start(slug, parent.conversation, parent.principal, message, parent.id, trace=trace, reach=caller.reach)
        begun = await self.begin(child, start)
        if lets_go(asking := await self.commands.state(parent.id)):
            # Recorded after the child was announced and before it existed: nothing else cancels the child.
            await self._children.cancel(asking)
        return await self.answered(begun)

    def _published(self, run: Run, events: list[Event]) -> None:
        self.execution.logs.heard(run.id, events)
        self.streams.publish(run.id, events, run)
        self.growth.wake(run.id, run.version)
        self.listeners.grown(run.id)
        for told in self.listeners.change:
            told(run, events)
        if not self.membership.alone:
            self._signals.tell(run.id, run.version)
        if run.inputs > run.read and run.state is State.WORKING:
            self.execution.given(run)
        if run.cancel_requested and not run.ended:
            # Another replica may have recorded the cancel request, and this append may have loaded it before the signal
            # came.
            self.execution.cancel(run)
        if run.children and lets_go(run):
            self._spawn(self._children.cancel_surely(run))
        if run.notes and run.ended:
            with entered(run.trace):
                for work in cleanup_work(self.agents.driver(run.agent), run):
                    self._spawn(work)

    def _apply_signals(self, runs: list[tuple[RunId, int]], agents: list[str]) -> None:
        """Apply the signals of other replicas."""
        for run_id, version in runs:
            self.streams.reach(run_id, version)
            self.growth.wake(run_id, version)
            self.listeners.grown(run_id)
            if self.execution.works_on(run_id) and version > self.commands.written(run_id):
                self._spawn(self.execution.heard(run_id))
        for slug in agents:
            if slug == _NEWCOMER:
                self._spawn(self.membership.renew())
            self.offers.wake(slug)
            self.execution.dispatch(slug)

    def _register(self, driver: Driver) -> None:
        """Begin the agent's turns here, unless a paired runtime does its work."""
        if isinstance(driver, PairedWork):
            self.execution.unregister(driver.agent.slug)
        else:
            self.execution.register(driver)

    def _of_interest(self) -> list[RunId]:
        """Return the runs whose growth this replica must notice soon."""
        return [*self.streams.followed, *self.execution.under_way, *map(RunId, self.growth.awaited)]

    def _names(self) -> list[str]:
        return [*self.agents, *self.offers.awaited, _NEWCOMER]

    def _followed(self, run_id: str) -> None:
        """Note that the growth of a run matters here from now on. Of a run that works here, it is seen anyway."""
        if not self.membership.alone and not self.execution.works_on(RunId(run_id)):
            self._interest.add("run", run_id)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
