"""Claims of paired runtimes: a runtime fetches a turn, holds it by a lease, and reports to any replica.

A claim is `Begin` with the runtime as owner. Its epoch is the run's epoch, so reports are fenced in the same way as
those of a replica. No replica keeps a claim in memory: the log stores which owner holds a run, and a record stores
until when, so any replica can answer. An expired lease is a rescue, at most twice. A cancel ends when the holder
confirms it, or after the grace period.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.errors import Conflict, KeyReused, LateResult, LeaseLost, ParleyError, RunNotFound, TaskRunEnded
from parley.execution.executor import GRACE_S
from parley.execution.membership import Loop
from parley.execution.rules import Output, Scribe, closed, joined
from parley.ids import RunId
from parley.paired.leases import Lease, Leases, Standing, lease_of, standing, time_left
from parley.records import Moment, Record, Records
from parley.runs.log import Outcome
from parley.runs.rules.agents import Agent
from parley.runs.rules.commands import Begin, Cancel, Command, Emit, Recover, Report
from parley.runs.rules.content import Message
from parley.runs.rules.events import Event, Failed, InputReceived
from parley.runs.rules.state import Run, State, lets_go
from parley.runs.service import Exchange
from parley.runs.store import LASTING, Key
from parley.runs.streams import pages
from parley.telemetry import tell
from parley.telemetry.trace import entered

LEASE_S = 60.0
SWEEP_S = 1.0
LOOK_S = 10.0
"""Seconds after which a waiting call looks for work without a signal, in case a signal between replicas was lost."""
MAX_ATTEMPTS = 3
MAX_LOOKS = 50

_GONE = "The runtime that worked on this task stopped responding."
_GIVEN_UP = Failed("edge_attempts_exhausted", f"Given up after {MAX_ATTEMPTS} attempts. {_GONE}")


class PairedClaim(Struct, frozen=True):
    """A claimed turn: its unread inputs with their contents loaded, and the agent that asked, if one did."""

    lease: Lease
    run: Run
    inputs: list[Message]
    asked_by: str
    until: int


class HeldClaim(Struct, frozen=True):
    """The standing of a claim, and the end of its lease if it is held."""

    lease: Lease
    standing: Standing
    until: int = 0


class PairedClaims:
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
        """Monotonic clock in seconds, which is never set."""
        self._overlong: dict[Record, float] = {}
        """Leases that end later than any lease can, with the time at which this was noticed."""
        self._choosing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._loop = Loop("leases", SWEEP_S, self.tick)

    def start(self) -> None:
        self._exchange.listeners.cancel.add(self.hasten)
        self._loop.start()

    async def close(self) -> None:
        self._exchange.listeners.cancel.remove(self.hasten)
        await self._loop.stop()

    # Why: docs/decisions/paired.md#record-paired-work-as-a-claim-in-the-log
    async def claim(self, owner: str, slug: str, most: int, instance: str = "") -> list[PairedClaim]:
        """Claim the turns that have waited longest. Each turn goes to one owner only: of rivals one wins, the others
        look again."""
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

    async def renew(self, leases: Sequence[Lease]) -> list[HeldClaim]:
        return list(await asyncio.gather(*map(self._renew, leases)))

    async def stands(self, owner: str, run_id: RunId, agent: str) -> Standing:
        run = await self._found(run_id)
        return standing(run if run is not None and run.agent == agent else None, owner)

    async def say(self, lease: Lease, output: Output, key: Key | None = None) -> Outcome:
        """Report something that does not end the turn."""
        run = await self._claimed(lease)
        report = await self._exchange.attachments.stored(Scribe(run.turns).report(output))
        return await self._executed(lease, [Emit(lease.epoch, report)], key)

    async def finish(self, lease: Lease, outputs: Sequence[Output], digest: bytes) -> Outcome:
        """Report the end of the turn and its outputs. Repeated reports with the same digest are applied once."""
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
        """Return the task to the queue. This does not count as a failure."""
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
        """Release the claims of one process of the owner; without an instance, the claims that name no process."""
        held = await self._held(owner)
        by = await asyncio.gather(*map(self._leases.claimed_by, held))
        await self.release_each(lease for lease, one in zip(held, by, strict=True) if one == instance)

    async def running(self, owner: str) -> int:
        return len(await self._store.runs_in(State.WORKING, owner=owner))

    async def hasten(self, run: Run) -> None:
        """Shorten the lease of a run that is to be canceled: its holder has the grace period to confirm that it
        stopped."""
        try:
            await self._leases.shorten(Lease(run.owner, run.id, run.epoch), self._clock() + self._grace_ms)
        except ParleyError as error:
            # Then the holder has until its lease expires: the lease of a run that is to be canceled is not renewed.
            tell("lease.not_shortened", run=run.id, code=error.code)

    async def tick(self) -> None:
        """Do one round: the leader ends the leases that have expired."""
        await self._end_overlong()
        after: Moment = (-1, "", "")
        while self._exchange.membership.leads and (page := await self._leases.due(after)):
            for record in page:
                if not self._excused(record):
                    await self._run_out_or_tell(record)
            after = (page[-1].due or 0, page[-1].scope, page[-1].id)

    async def _end_overlong(self) -> None:
        """End leases whose end time cannot be trusted, once they have not been renewed for the duration of a lease."""
        now, before = self._steady(), self._overlong
        found = await self._leases.overlong() if self._exchange.membership.leads else []
        self._overlong = {record: before.get(record, now) for record in found}
        for record, since in self._overlong.items():
            if (now - since) * 1000 >= self._leases.lease_ms:
                await self._run_out_or_tell(record)

    def _excused(self, record: Record) -> bool:
        """Return whether a lease expired before this process was started. Its holder could not renew it then, so it
        gets one more lease period."""
        return (record.due or 0) < self._since and self._clock() < self._since + self._leases.lease_ms

    async def _run_out_or_tell(self, record: Record) -> None:
        """End an expired lease. A run that cannot be written does not stop the others."""
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
        """Decide what happens to a run whose lease has expired: the agent has timed out, or the runtime is gone."""
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

    async def _take(self, owner: str, instance: str, agent: Agent, run: Run) -> PairedClaim | None:
        """Claim one turn; None when a rival was first. The expected version guarantees that the epoch is the one in the
        lease and that no input is missing."""
        lease = Lease(owner, run.id, run.epoch + 1, instance)
        until = self._leases.until(time_left(run, agent.limits.timeout_s))
        _, inputs, parent = await asyncio.gather(self._leases.hold(lease, until), self._unread(run), self._parent(run))
        if parent is not None and lets_go(parent):
            await self._exchange.stop(run.id, Cancel(run.principal, f"The parent task {parent.id} ended."))
            return None
        try:
            outcome = await self._commands.execute(run.id, Begin(owner), expected=run.version)
        except (Conflict, RunNotFound):
            return None
        await self._leases.name_holder(lease)
        return PairedClaim(lease, outcome.run, inputs, parent.agent if parent else "", until)

    async def _unread(self, run: Run) -> list[Message]:
        events = [event async for page in pages(self._store, run.id, types=("input",)) for event in page]
        given = _messages(events)[run.read : run.inputs]
        load = self._exchange.attachments.loaded
        return [replace(message, parts=await load(message.parts)) for message in given]

    async def _parent(self, run: Run) -> Run | None:
        return await self._found(run.parent) if run.parent else None

    async def _renew(self, lease: Lease) -> HeldClaim:
        run = await self._found(lease.run)
        how = standing(run, lease.owner, lease.epoch)
        if run is None or how != "held":
            return HeldClaim(lease, how)
        agent = self._exchange.agents.get(run.agent)
        left = time_left(run, agent.limits.timeout_s if agent else None)
        spent = self._clock() - run.started_at
        until = await self._leases.renew(lease, self._leases.until(None if left is None else max(0, left - spent)))
        return HeldClaim(lease, "lost") if until is None else HeldClaim(lease, "held", until)

    async def _claimed(self, lease: Lease) -> Run:
        """Return the run, unless this claim belongs to another owner. The append decides whether the claim is still
        held."""
        run = await self._commands.state(lease.run)
        if run.epoch == lease.epoch and run.state is State.WORKING and run.owner != lease.owner:
            raise _lost(run)
        await self._check_instance(lease)
        return run

    async def _check_instance(self, lease: Lease) -> None:
        """Raise LeaseLost if another process of the owner claimed the turn. A process that uses another one's
        credentials, such as a copied profile, must not end that one's work."""
        if await self._leases.is_foreign(lease):
            raise LeaseLost("Another process of this runtime holds the task.")

    async def _held(self, owner: str) -> list[Lease]:
        held = await self._store.runs_in(State.WORKING, owner=owner)
        return [Lease(owner, run.id, run.epoch) for run in held]

    async def _executed(self, lease: Lease, emits: Sequence[Emit], key: Key | None) -> Outcome:
        """Execute reports. A repeated report is found by its key, even when the run has moved on since."""
        try:
            return await self._commands.execute(lease.run, *emits, key=key)
        except (LateResult, KeyReused) as error:
            run = await self._commands.state(lease.run)
            if isinstance(error, LateResult) and run.epoch != lease.epoch:
                raise _lost(run) from None
            raise TaskRunEnded("The turn has already ended differently; this report was not accepted.") from None

    async def _ended(self, lease: Lease, run: Run) -> None:
        with entered(run.trace):
            tell(
                "turn.ended",
                run=run.id,
                agent=run.agent,
                state=run.state.value,
                epoch=lease.epoch,
                started_at=run.started_at,
                ended_at=run.updated_at,
            )
        agent = self._exchange.agents.get(run.agent)
        if run.ready or (agent is not None and agent.limits.max_concurrent is not None):
            self._exchange.offer(run.agent)
        try:
            await self._leases.drop(lease)
        except ParleyError as error:
            # The sweep finds the record when it is due, and drops it because the run does not match it.
            tell("lease.left", run=run.id, code=error.code)

    async def _found(self, run_id: RunId) -> Run | None:
        try:
            return await self._commands.state(run_id)
        except RunNotFound:
            return None


def _lost(run: Run) -> LeaseLost:
    return LeaseLost("The lease was lost; this runtime no longer holds the task.", epoch=run.epoch)


def _messages(events: Sequence[Event]) -> list[Message]:
    return [event.payload.message for event in events if isinstance(event.payload, InputReceived)]


def _ordered(reports: Sequence[Report]) -> list[Report]:
    """Return the reports with neighbouring chunks joined and the last chunk closed, and the end of the turn last."""
    return [*closed(joined(list(reports[:-1]))), reports[-1]]
