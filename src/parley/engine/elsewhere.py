"""Work that is done elsewhere: somebody comes for it, holds it by a lease, and reports to whichever replica it reaches.

A claim is `Begin` in the name of who came; its epoch is the run's, so that reports are fenced as those of a replica
are. No replica keeps anything about it in memory: the log says who holds a run, a record until when, and one replica is
as good as another. A lease that runs out is a rescue, at most twice; a cancel ends with the holder's word or its grace.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.core.agents import Agent
from parley.core.commands import Begin, Command, Emit, Recover, Report
from parley.core.conversations import Message
from parley.core.events import Event, Failed, InputReceived
from parley.core.leases import Lease, Standing, standing, time_left
from parley.core.runs import Run, State
from parley.core.turns import Output, Scribe, closed, joined
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.execution import GRACE_S
from parley.engine.leases import Leases, lease_of
from parley.engine.membership import Loop
from parley.engine.ports import LASTING, Key, Moment, Record, Records
from parley.engine.streams import pages
from parley.errors import Conflict, KeyReused, LateResult, LeaseLost, ParleyError, RunNotFound, TaskRunEnded
from parley.ids import RunId
from parley.telemetry import tell
from parley.telemetry.trace import entered

LEASE_S = 60.0
SWEEP_S = 1.0
LOOK_S = 10.0
"""How often one who waits looks without having been called, in case a signal was lost between replicas."""
MAX_ATTEMPTS = 3
MAX_LOOKS = 50

_GONE = "The runtime that worked on this task was not heard of any more."
_GIVEN_UP = Failed("edge_attempts_exhausted", f"Given up after {MAX_ATTEMPTS} attempts. {_GONE}")


class Claim(Struct, frozen=True):
    """A turn that was handed out: the input to be read, with its bytes in place, and which agent asked, if one did."""

    lease: Lease
    run: Run
    inputs: list[Message]
    asked_by: str
    until: int


class Held(Struct, frozen=True):
    """How a claim stands, and until when it is held, if it is."""

    lease: Lease
    standing: Standing
    until: int = 0


class Elsewhere:
    def __init__(
        self,
        exchange: Exchange,
        records: Records,
        *,
        lease_s: float = LEASE_S,
        grace_s: float = GRACE_S,
        clock: Clock = now_ms,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exchange = exchange
        self._commands = exchange.commands
        self._store = exchange.store
        self._leases = Leases(records, lease_s, clock)
        self._grace_ms = int(grace_s * 1000)
        self._clock = clock
        self._since = clock()
        self._steady = steady
        """A clock that nobody sets, in seconds."""
        self._overlong: dict[Record, float] = {}
        """Leases whose end cannot be right, and since when they are known to be so."""
        self._choosing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._loop = Loop("leases", SWEEP_S, self.tick)

    def start(self) -> None:
        self._exchange.on_cancel = self.hasten
        self._loop.start()

    async def close(self) -> None:
        self._exchange.on_cancel = None
        await self._loop.stop()

    async def claim(self, owner: str, slug: str, most: int, instance: str = "") -> list[Claim]:
        """The turns that have waited longest, for this owner alone: of rivals one wins, the others look again."""
        agent = self._exchange.agent(slug)
        async with self._choosing[slug]:
            for _ in range(MAX_LOOKS):
                room = await self._room(agent, most)
                waiting = await self._store.runs_in(State.SUBMITTED, agent=slug, limit=room) if room > 0 else []
                claims = await asyncio.gather(*(self._take(owner, instance, agent, run) for run in waiting))
                taken = [claim for claim in claims if claim is not None]
                if taken or not waiting:
                    return taken
        return []

    async def renew(self, leases: Sequence[Lease]) -> list[Held]:
        return list(await asyncio.gather(*map(self._renew, leases)))

    async def stands(self, owner: str, run_id: RunId, agent: str) -> Standing:
        run = await self._found(run_id)
        return standing(run if run is not None and run.agent == agent else None, owner)

    async def say(self, lease: Lease, output: Output, key: Key | None = None) -> Outcome:
        """Something that does not end the turn."""
        run = await self._claimed(lease)
        report = await self._exchange.attachments.stored(Scribe(run.turns).report(output))
        return await self._executed(lease, [Emit(lease.epoch, report)], key)

    async def finish(self, lease: Lease, outputs: Sequence[Output], digest: bytes) -> Outcome:
        """The end of the turn, and what belongs to it; once, however often it is told with the same digest."""
        run = await self._claimed(lease)
        scribe = Scribe(run.turns)
        reports = [await self._exchange.attachments.stored(scribe.report(output)) for output in outputs]
        emits = [Emit(lease.epoch, report) for report in _ordered(reports)]
        key = Key(f"{LASTING}{run.id}", f"lease/{lease.epoch}", digest)
        outcome = await self._executed(lease, emits, key)
        if not outcome.replayed:
            await self._ended(lease, outcome.run)
        return outcome

    async def release(self, lease: Lease) -> Run:
        """Back to the queue, which counts as nobody's failure."""
        await self._check_instance(lease)
        outcome = await self._commands.execute(lease.run, Recover(lease.epoch, "restart", orderly=True))
        if not outcome.events:
            raise _lost(outcome.run)
        await self._ended(lease, outcome.run)
        return outcome.run

    async def release_each(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            try:
                await self.release(lease)
            except Conflict:
                continue

    async def release_all(self, owner: str) -> None:
        await self.release_each(await self._held(owner))

    async def release_instance(self, owner: str, instance: str) -> None:
        """Release what one process of the owner holds; without an instance, what was claimed without one."""
        held = await self._held(owner)
        by = await asyncio.gather(*map(self._leases.claimed_by, held))
        await self.release_each(lease for lease, one in zip(held, by, strict=True) if one == instance)

    async def running(self, owner: str) -> int:
        return len(await self._store.runs_in(State.WORKING, owner=owner))

    async def hasten(self, run: Run) -> None:
        """The run is to be canceled: its holder has the grace to say that it stopped."""
        try:
            await self._leases.shorten(Lease(run.owner, run.id, run.epoch), self._clock() + self._grace_ms)
        except ParleyError as error:
            # Then it has until its lease runs out: a lease of a run that is to be canceled is not renewed.
            tell("lease.not_shortened", run=run.id, code=error.code)

    async def tick(self) -> None:
        """One round: the leader ends the leases that have run out."""
        await self._end_overlong()
        after: Moment = (-1, "", "")
        while self._exchange.membership.leads and (page := await self._leases.due(after)):
            for record in page:
                if not self._excused(record):
                    await self._run_out_or_tell(record)
            after = (page[-1].due or 0, page[-1].scope, page[-1].id)

    async def _end_overlong(self) -> None:
        """A lease that ends by no clock to be trusted ends when nobody has renewed it for as long as a lease lasts."""
        now, before = self._steady(), self._overlong
        found = await self._leases.overlong() if self._exchange.membership.leads else []
        self._overlong = {record: before.get(record, now) for record in found}
        for record, since in self._overlong.items():
            if (now - since) * 1000 >= self._leases.lease_ms:
                await self._run_out_or_tell(record)

    def _excused(self, record: Record) -> bool:
        """Nobody could renew a lease that ran out before this process was up: its holder gets as long again."""
        return (record.due or 0) < self._since and self._clock() < self._since + self._leases.lease_ms

    async def _run_out_or_tell(self, record: Record) -> None:
        """One run that cannot be written does not hold up the others."""
        try:
            await self._run_out(record)
        except ParleyError as error:
            tell("lease.not_ended", lease=record.id, code=error.code)

    async def _run_out(self, record: Record) -> None:
        lease = lease_of(record)
        if not await self._leases.end(record):
            return
        run = await self._found(lease.run)
        if run is not None and standing(run, lease.owner, lease.epoch) in ("held", "canceled") and not run.ended:
            outcome = await self._commands.execute(run.id, self._verdict(run))
            tell("lease.ended", run=run.id, agent=run.agent, owner=lease.owner, state=outcome.run.state.value)
            await self._ended(lease, outcome.run)
        else:
            await self._leases.drop(lease)

    def _verdict(self, run: Run) -> Command:
        """What becomes of a run whose lease is over: its agent's time is, or its holder was not heard of."""
        agent = self._exchange.agents.get(run.agent)
        limit = agent.limits.timeout_s if agent else None
        left = time_left(run, limit)
        if left is not None and run.started_at + left <= self._clock():
            return Emit(run.epoch, Failed("timeout", f"The agent took longer than {limit:g} s."))
        how = agent.rescue if agent else "restart"
        return Recover(run.epoch, how, reason=_GONE, most=MAX_ATTEMPTS - 1, given_up=_GIVEN_UP)

    async def _room(self, agent: Agent, most: int) -> int:
        limit = agent.limits.max_concurrent
        if limit is None:
            return most
        busy = await self._store.runs_in(State.WORKING, agent=agent.slug, limit=limit)
        return min(most, limit - len(busy))

    async def _take(self, owner: str, instance: str, agent: Agent, run: Run) -> Claim | None:
        """None when a rival was first. The version makes sure that the epoch is the one that is held, and the input all
        there is."""
        lease = Lease(owner, run.id, run.epoch + 1, instance)
        until = self._leases.until(time_left(run, agent.limits.timeout_s))
        _, inputs, asked_by = await asyncio.gather(
            self._leases.hold(lease, until), self._unread(run), self._asked_by(run)
        )
        try:
            outcome = await self._commands.execute(run.id, Begin(owner), expected=run.version)
        except (Conflict, RunNotFound):
            return None
        await self._leases.name_holder(lease)
        return Claim(lease, outcome.run, inputs, asked_by, until)

    async def _unread(self, run: Run) -> list[Message]:
        events = [event async for page in pages(self._store, run.id, types=("input",)) for event in page]
        given = _messages(events)[run.read : run.inputs]
        load = self._exchange.attachments.loaded
        return [replace(message, parts=await load(message.parts)) for message in given]

    async def _asked_by(self, run: Run) -> str:
        parent = await self._found(run.parent) if run.parent else None
        return parent.agent if parent else ""

    async def _renew(self, lease: Lease) -> Held:
        run = await self._found(lease.run)
        how = standing(run, lease.owner, lease.epoch)
        if run is None or how != "held":
            return Held(lease, how)
        agent = self._exchange.agents.get(run.agent)
        left = time_left(run, agent.limits.timeout_s if agent else None)
        spent = self._clock() - run.started_at
        until = await self._leases.renew(lease, self._leases.until(None if left is None else max(0, left - spent)))
        return Held(lease, "lost") if until is None else Held(lease, "held", until)

    async def _claimed(self, lease: Lease) -> Run:
        """The run, unless this very claim is somebody else's. Whether it still holds is decided where it is written."""
        run = await self._commands.state(lease.run)
        if run.epoch == lease.epoch and run.state is State.WORKING and run.owner != lease.owner:
            raise _lost(run)
        await self._check_instance(lease)
        return run

    async def _check_instance(self, lease: Lease) -> None:
        """One who uses another process's credentials, such as a copied profile, must not end that one's work."""
        if await self._leases.is_foreign(lease):
            raise LeaseLost("Another process of this runtime holds the task.")

    async def _held(self, owner: str) -> list[Lease]:
        held = await self._store.runs_in(State.WORKING, owner=owner)
        return [Lease(owner, run.id, run.epoch) for run in held]

    async def _executed(self, lease: Lease, emits: Sequence[Emit], key: Key | None) -> Outcome:
        """What is told again is found by its key, also when the run has moved on since."""
        try:
            return await self._commands.execute(lease.run, *emits, key=key)
        except (LateResult, KeyReused) as error:
            run = await self._commands.state(lease.run)
            if isinstance(error, LateResult) and run.epoch != lease.epoch:
                raise _lost(run) from None
            raise TaskRunEnded("The turn has ended otherwise; this was not taken.") from None

    async def _ended(self, lease: Lease, run: Run) -> None:
        with entered(run.trace):
            tell(
                "turn.ended", run=run.id, agent=run.agent, state=run.state.value, epoch=lease.epoch,
                started_at=run.started_at, ended_at=run.updated_at,
            )  # fmt: skip
        agent = self._exchange.agents.get(run.agent)
        if run.ready or (agent is not None and agent.limits.max_concurrent is not None):
            self._exchange.offer(run.agent)
        try:
            await self._leases.drop(lease)
        except ParleyError as error:
            # It is found when its time is up, and its run is not as it says.
            tell("lease.left", run=run.id, code=error.code)

    async def _found(self, run_id: RunId) -> Run | None:
        try:
            return await self._commands.state(run_id)
        except RunNotFound:
            return None


def _lost(run: Run) -> LeaseLost:
    return LeaseLost("The lease was lost; the task is not this runtime's any more.", epoch=run.epoch)


def _messages(events: Sequence[Event]) -> list[Message]:
    return [event.payload.message for event in events if isinstance(event.payload, InputReceived)]


def _ordered(reports: Sequence[Report]) -> list[Report]:
    """What is said, with the last of it closed; then the end."""
    return [*closed(joined(list(reports[:-1]))), reports[-1]]
