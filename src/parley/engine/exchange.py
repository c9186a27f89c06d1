"""The exchange: what every face asks of the engine, in its own words and nobody's wire format."""

import asyncio
import hashlib
import uuid

import msgspec
from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.core.access import Principal, may_see
from parley.core.agents import Agent, check_agent
from parley.core.artifacts import check_parts, text_part
from parley.core.conversations import Message, conversation_for
from parley.core.events import Event, Rejected
from parley.core.runs import WAITING, Adopt, Begin, Cancel, Give, Run, Start, State
from parley.core.views import View, view_of
from parley.engine.attachments import Attachments
from parley.engine.commands import MAX_PAYLOAD, Commands, Outcome
from parley.engine.execution import GRACE_S, Execution
from parley.engine.ports import Blobs, Driver, Key, Store
from parley.engine.streams import Follower, Streams, read_all
from parley.errors import AgentNotFound, Invalid, RunEnded, RunNotFound, VersionConflict
from parley.ids import RunId, is_id, new_id, new_run_id


class Send(Struct, frozen=True):
    """Ask an agent: a new run, or one more input to `run`."""

    agent: str
    principal: Principal
    message: Message
    run: str | None = None
    conversation: str | None = None
    key: str | None = None


class Exchange:
    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        *,
        clock: Clock = now_ms,
        max_payload: int = MAX_PAYLOAD,
        grace_s: float = GRACE_S,
    ) -> None:
        self.store = store
        self.streams = Streams(store)
        self.attachments = Attachments(blobs)
        self.commands = Commands(store, self._published, clock, max_payload)
        self.execution = Execution(
            self.commands,
            store,
            self.attachments,
            self._ask_child,
            replica=new_id(),
            clock=clock,
            grace_s=grace_s,
        )
        self._agents: dict[str, Agent] = {}
        self._cascades: set[asyncio.Task[None]] = set()

    @property
    def agents(self) -> dict[str, Agent]:
        return self._agents

    def agent(self, slug: str) -> Agent:
        try:
            return self._agents[slug]
        except KeyError:
            raise AgentNotFound(f"There is no agent {slug!r} here.") from None

    def add(self, driver: Driver) -> None:
        check_agent(driver.agent)
        if driver.agent.slug in self._agents:
            raise Invalid(f"There are two agents with the slug {driver.agent.slug!r}.", field="slug")
        self._agents[driver.agent.slug] = driver.agent
        self.execution.register(driver)

    async def start(self) -> None:
        """Take up what an earlier process left behind."""
        await self.execution.recover()

    async def close(self) -> None:
        await self.execution.close()
        await asyncio.gather(*self._cascades, return_exceptions=True)
        await self.store.close()

    async def send(self, send: Send) -> Outcome:
        """Durable when it returns: the run exists, and will be worked on whatever happens to this process."""
        check_parts(send.message.parts)
        agent = self.agent(send.agent)
        run = await self.visible(send.run, send.principal, agent.slug) if send.run else None
        conversation = conversation_for(send.conversation, run.conversation if run else None)
        key = _key(send)
        message = await self.attachments.stored_message(send.message)
        if run is not None:
            return await self._give(run, message, key)
        return await self._start(new_run_id(), Start(agent.slug, conversation, str(send.principal), message), key)

    async def cancel(
        self, run_id: str, principal: Principal, agent: str | None = None, reason: str | None = None
    ) -> Outcome:
        """Durable first; then the executor is told. A run that is not being worked on ends at once."""
        run = await self.visible(run_id, principal, agent)
        return await self._cancel(run.id, Cancel(str(principal), reason))

    async def visible(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        """The run, if it exists for this principal (and at this agent's address)."""
        run = await self.commands.state(RunId(run_id)) if is_id(run_id) else None
        if run is None or not may_see(principal, run.principal) or agent not in (None, run.agent):
            raise RunNotFound("No such run.")
        return run

    async def view(self, run_id: RunId, *, upto: int | None = None) -> View:
        events = await read_all(self.store, run_id)
        return view_of(event for event in events if upto is None or event.seq <= upto)

    async def follow(self, run_id: RunId, after: int) -> Follower:
        return await self.streams.follow(run_id, after)

    def continue_from(self, outcome: Outcome) -> Follower:
        """Follow what happens after a command of this process."""
        return self.streams.begin(outcome.run.id, outcome.run.version)

    async def settled(self, outcome: Outcome) -> View:
        """Wait until the run has ended or waits for somebody; what it is then."""
        if not outcome.replayed and outcome.events and outcome.events[0].seq == 1:
            view, follower = view_of(outcome.events), self.continue_from(outcome)
        else:
            view, follower = await self.view(outcome.run.id), await self.follow(outcome.run.id, 0)
            follower.cursor = view.run.version
        with follower:
            while not view.run.settled:
                view.feed(await follower.next())
        return view

    async def _start(self, run_id: RunId, start: Start, key: Key | None) -> Outcome:
        slot = self.execution.reserve(start.agent)
        if isinstance(slot, Rejected):
            return await self.commands.execute(run_id, msgspec.structs.replace(start, reject=slot), key=key)
        return await self._into(slot, start.agent, run_id, msgspec.structs.replace(start, begin=slot), key)

    async def _give(self, run: Run, message: Message, key: Key | None) -> Outcome:
        slot = self.execution.reserve(run.agent) if run.state in WAITING else None
        begin = slot if isinstance(slot, Begin) else None
        return await self._into(begin, run.agent, run.id, Give(message, begin), key)

    async def _into(
        self, slot: Begin | None, agent: str, run_id: RunId, command: Start | Give, key: Key | None
    ) -> Outcome:
        """Write the input; then work on it in the slot, or queue it. A slot that was not used is given back."""
        begun = False
        try:
            outcome = await self.commands.execute(run_id, command, key=key)
            begun = any(event.type == "started" for event in outcome.events)
        finally:
            if slot is not None and not begun:
                self.execution.release(agent)
        if begun:
            self.execution.launch(outcome.run, outcome.events if outcome.events[0].seq == 1 else None)
        elif outcome.run.ready and not outcome.replayed:
            self.execution.enqueue(outcome.run)
        return outcome

    async def _cancel(self, run_id: RunId, cancel: Cancel) -> Outcome:
        outcome = await self.commands.execute(run_id, cancel)
        self.execution.cancel(outcome.run)
        return outcome

    async def _ask_child(self, parent: Run, number: int, slug: str, text: str) -> View:
        """Start a child, or find the one that this very question started before the process died."""
        self.agent(slug)
        question = f"{parent.id}/{parent.turns}/{number}/{slug}/{text}"
        child = RunId(str(uuid.uuid5(uuid.NAMESPACE_URL, question)))
        await self.commands.execute(parent.id, Adopt(parent.epoch, child, slug))
        message = Message(f"{child}.0", (text_part(text),))
        start = Start(slug, parent.conversation, parent.principal, message, parent.id)
        try:
            outcome = await self._start(child, start, None)
        except VersionConflict:
            outcome = Outcome(await self.commands.state(child), [], replayed=True)
        return await self.settled(outcome)

    def _published(self, run: Run, events: list[Event]) -> None:
        self.streams.publish(run, events)
        if run.children and (run.cancel_requested or run.state is State.FAILED):
            task = asyncio.get_running_loop().create_task(self._cancel_children(run))
            self._cascades.add(task)
            task.add_done_callback(self._cascades.discard)

    async def _cancel_children(self, run: Run) -> None:
        for child in run.children:
            try:
                await self._cancel(child, Cancel(run.principal, f"Its parent task {run.id} ended."))
            except (RunEnded, RunNotFound):
                continue


def _key(send: Send) -> Key | None:
    """The scope of a key is who asks whom; its digest covers the message and nothing else."""
    if send.key is None:
        return None
    if not 1 <= len(send.key) <= 255:
        raise Invalid("An idempotency key has 1 to 255 characters.", field="Idempotency-Key")
    digest = hashlib.sha256(msgspec.json.encode([send.message, send.run, send.conversation])).digest()
    return Key(f"{send.principal}>{send.agent}", send.key, digest)
