"""Admission: rate limits and limits of unfinished runs, checked before anything of a request is written."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.audit.service import record
from parley.budgets.rules import LimitValues, or_else
from parley.budgets.service import BudgetCheck, StoredLimits
from parley.cache import BoundedCache
from parley.clock import Clock, now_ms
from parley.errors import Invalid, NotFound, RateLimited, RunEnded, Stopping, TooManyUnfinished, WorkStopped
from parley.ids import RunId
from parley.limits import Bucket, Rate, filled, rate_of, taken, wait_s
from parley.records import Record, Records
from parley.runs.log import Outcome
from parley.runs.rules.access import Principal
from parley.runs.rules.agents import Agent
from parley.runs.rules.commands import Cancel, Start
from parley.runs.rules.state import TERMINAL, State
from parley.runs.store import Listing, LogStore, Tally
from parley.telemetry import tell

UNFINISHED_WAIT_S = 5
STOPPING_WAIT_S = 1
TOLD_EVERY_MS = 10_000


class Allowance(Struct, frozen=True):
    """The limits of every principal; None is unlimited."""

    per_second: float | None = None
    burst: int | None = None
    unfinished: int | None = None


UNLIMITED = Allowance()


class AdmissionRequest(Struct, frozen=True):
    """A request for work: its agent, its principal, and whether it begins a new run or adds an input."""

    agent: Agent
    principal: str
    begins: bool = True
    groups: Collection[str] = ()
    """Groups of the principal."""

    @staticmethod
    def of(agent: Agent, start: Start) -> "AdmissionRequest":
        """Return the request for a new run."""
        return AdmissionRequest(agent, start.principal, groups=start.tree.groups if start.tree is not None else ())


Before = Callable[[], Awaitable[Outcome | None]]
"""Returns the outcome of the same request if it was accepted before; otherwise None."""


# Why: docs/decisions/execution.md#enforce-rates-per-replica-as-a-share
class Admission:
    """Checks limits. Rates are this replica's share: a balancer spreads requests, so that all replicas together allow
    the configured rate."""

    def __init__(
        self,
        tally: Tally,
        allowance: Allowance,
        replicas: Callable[[], int],
        clock: Clock,
        budgets: BudgetCheck,
    ) -> None:
        """`allowance` holds for principals that have no limits of their own."""
        self._tally = tally
        self._budgets = budgets
        self._default = LimitValues(allowance.per_second, allowance.burst, allowance.unfinished)
        self._replicas = replicas
        self._clock = clock
        self._buckets: BoundedCache[tuple[str, str], Bucket | None] = BoundedCache(lambda: None)
        self._told: BoundedCache[tuple[str, str], tuple[int, int] | None] = BoundedCache(lambda: None)
        """Time of the last telemetry event about refusals, and the number of refusals since then."""
        self._beginning: Counter[tuple[str, str]] = Counter()
        self.stopping = False
        """Set when this process accepts no more work because it is about to stop."""

    # Why: docs/decisions/execution.md#refuse-requests-over-a-rate-but-record-a-full-queue
    async def admit(self, asked: AdmissionRequest, before: Before, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Do the work if the limits allow it. A request that was accepted before gets its earlier outcome in any
        case."""
        try:
            self._check_stopping()
            limits = self._limits(asked)
            with self._begun(asked, limits):
                await self._check_unfinished(asked, limits)
                if self._budgets:
                    await self._budgets.check_caller(asked.principal, asked.agent.slug, asked.groups)
                    await self._check_agent(asked)
                self._check_rates(asked, limits)
                return await work()
        except (RateLimited, Stopping) as error:
            if (earlier := await before()) is not None:
                return earlier
            self._refused(asked.agent.slug, error.code)
            raise

    def _limits(self, asked: AdmissionRequest) -> LimitValues:
        if not self._budgets:
            return self._default
        return or_else(self._budgets.book.of_caller(asked.principal, asked.groups), self._default)

    def _refused(self, agent: str, code: str) -> None:
        """Count every refusal. Log the first, and then, while refusals continue, their number from time to time."""
        tell("send.refused", agent=agent, code=code)
        now, place = self._clock(), (agent, code)
        since, count = self._told.get(place) or (0, 0)
        if now - since < TOLD_EVERY_MS:
            self._told.put(place, (since, count + 1))
            return
        self._told.put(place, (now, 0))
        tell("sends.refused", agent=agent, code=code, count=count + 1)

    def stop(self) -> None:
        """Refuse all requests from now on: this process is stopping."""
        self.stopping = True

    def _check_stopping(self) -> None:
        if self.stopping:
            raise Stopping("This server is about to stop; send the request again.", retry_after=STOPPING_WAIT_S)

    @contextmanager
    def _begun(self, asked: AdmissionRequest, limits: LimitValues) -> Generator[None, None, None]:
        """Count a run as unfinished while it is being created, until the store counts it."""
        if not asked.begins or (limits.unfinished is None and not self._budgets):
            yield
            return
        places = (("principal", asked.principal), ("agent", asked.agent.slug))
        self._beginning.update(places)
        try:
            yield
        finally:
            for place in places:
                self._beginning[place] -= 1
                if not self._beginning[place]:
                    del self._beginning[place]

    async def _check_unfinished(self, asked: AdmissionRequest, limits: LimitValues) -> None:
        most = limits.unfinished
        if most is None or not asked.begins:
            return
        known = await self._tally.unfinished(asked.principal, most)
        if known + self._beginning["principal", asked.principal] > most:
            raise TooManyUnfinished(
                f"You have {most} unfinished tasks, which is the limit; wait until some end, or cancel some.",
                retry_after=UNFINISHED_WAIT_S,
                limit=most,
            )

    async def _check_agent(self, asked: AdmissionRequest) -> None:
        """Check the number of unfinished runs of an agent, whoever began them."""
        slug = asked.agent.slug
        most = self._budgets.book.values("agent", slug).unfinished
        if most is None or not asked.begins:
            return
        known = await self._tally.unfinished_of(slug, most)
        if known + self._beginning["agent", slug] > most:
            raise TooManyUnfinished(
                f"Agent {slug} has {most} unfinished tasks, which is the limit; try again later.",
                retry_after=UNFINISHED_WAIT_S,
                limit=most,
            )

    def _check_rates(self, asked: AdmissionRequest, limits: LimitValues) -> None:
        """Take from all buckets, or from none if one of them is empty."""
        now, agent = self._clock(), asked.agent
        rated: list[tuple[tuple[str, str], Rate | None]] = []
        if asked.begins:
            rated.append((("agent", agent.slug), rate_of(agent.limits.max_per_second, agent.limits.max_burst)))
            if self._budgets:
                values = self._budgets.book.values("agent", agent.slug)
                rated.append((("agent", f"{agent.slug}/limit"), rate_of(values.per_second, values.burst)))
        rated.append((("principal", asked.principal), rate_of(limits.per_second, limits.burst)))
        buckets: list[tuple[tuple[str, str], Bucket]] = []
        for place, rate in rated:
            if rate is not None:
                buckets.append((place, self._with_room(place, rate.shared(self._replicas()), now)))
        for place, bucket in buckets:
            self._buckets.put(place, taken(bucket))

    def _with_room(self, place: tuple[str, str], rate: Rate, now: int) -> Bucket:
        bucket = filled(self._buckets.get(place), rate, now)
        if wait := wait_s(bucket, rate):
            whose, name = place
            who = f"Requests to agent {name.partition('/')[0]}" if whose == "agent" else "Your requests"
            raise RateLimited(f"{who} exceed the rate limit; try again in {wait} s.", retry_after=wait, limit=whose)
        return bucket


# The kill switch: stop the work of a principal, a group or an agent, and refuse new work until it is allowed again.

StopKind = Literal["principal", "group", "agent"]

STOP = "stop"
MAX_STOPS = 1000
LOOK_S = 2.0
"""Interval at which a replica looks for switches that were set at another replica or by an older one."""
SWEEP_PAGE = 200
MAX_NAME = 256
MAX_REASON = 500
_UNFINISHED = (State.WORKING, *(state for state in State if state not in (State.WORKING, *TERMINAL)))
"""Working runs come first, the oldest first: a run is canceled before those that it started, and starts no more."""


class Stop(Struct, frozen=True):
    kind: StopKind
    name: str
    by: str
    at: int
    reason: str = ""


_encode_stop = msgspec.msgpack.Encoder().encode
_decode_stop = msgspec.msgpack.Decoder(Stop).decode


class WorkStops:
    """The switches that this process knows. Empty on most servers: then a request costs one look at it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Stop] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def replace(self, stops: Iterable[Stop]) -> None:
        self._known = {(stop.kind, stop.name): stop for stop in stops}

    def check(self, principal: Principal, agent: str) -> None:
        """Raise WorkStopped if new work of this principal by this agent is stopped."""
        places = [
            ("principal", str(principal)),
            ("agent", agent),
            *(("group", one) for one in sorted(principal.groups)),
        ]
        found = next((self._known[place] for place in places if place in self._known), None)
        if found is None:
            return
        whose = "Your work" if found.kind == "principal" else f"Work of {found.kind} {found.name}"
        raise WorkStopped(f"{whose} is stopped until an operator allows it again.", limit=found.kind)


class KillSwitch:
    """Stores switches, and cancels the unfinished runs that they concern. `members` returns the principals of a
    group."""

    def __init__(
        self,
        stops: WorkStops,
        records: Records,
        store: LogStore,
        cancel: Callable[[RunId, Cancel], Awaitable[object]],
        members: Callable[[str], Awaitable[Iterable[str]]],
        clock: Clock = now_ms,
    ) -> None:
        self._stops = stops
        self._records = records
        self._store = store
        self._cancel = cancel
        self._members = members
        self._clock = clock

    async def list(self) -> "list[Stop]":
        return [_decode_stop(record.body) for record in await self._records.list(STOP, limit=MAX_STOPS)]

    async def stop(self, kind: StopKind, name: str, by: str, reason: str = "") -> tuple[Stop, int]:
        """Refuse new work from now on, and cancel all unfinished runs. Return the switch and the number of these."""
        if not name or len(name) > MAX_NAME or len(reason) > MAX_REASON:
            raise Invalid(f"name must have 1 to {MAX_NAME} characters, reason at most {MAX_REASON}.", field="name")
        stops = await self.list()
        if len(stops) >= MAX_STOPS:
            raise Invalid(f"There are {MAX_STOPS} stops, which is the limit; remove some.", field="name")
        stop = Stop(kind, name, by, self._clock(), reason)
        await self._records.put(Record(STOP, kind, name, _encode_stop(stop), stop.at))
        await record("work.stopped", *_target(stop), person=_person(stop))
        self._stops.replace([*stops, stop])
        return stop, await self._sweep(stop)

    async def allow(self, kind: str, name: str) -> Stop:
        """Accept new work again. Canceled runs stay canceled."""
        kept = await self._records.get(STOP, kind, name)
        if kept is None:
            raise NotFound("There is no such stop.")
        stop = _decode_stop(kept.body)
        await self._records.delete(STOP, kind, name)
        await record("work.allowed", *_target(stop), person=_person(stop))
        self._stops.replace(await self.list())
        return stop

    async def tick(self) -> None:
        """Take over the switches that are stored, and cancel runs that were started before every replica knew."""
        stops = await self.list()
        self._stops.replace(stops)
        for stop in stops:
            await self._sweep(stop)

    async def _sweep(self, stop: Stop) -> int:
        if stop.kind == "agent":
            listings = [Listing(agent=stop.name)]
        else:
            names = [stop.name] if stop.kind == "principal" else await self._members(stop.name)
            listings = [Listing(name) for name in names]
        return sum([await self._cancel_all(listing, stop) for listing in listings])

    async def _cancel_all(self, listing: Listing, stop: Stop) -> int:
        """Cancel in two rounds or more, until one finds nothing: while a round looks for one state after another, a run
        can go from a state that is looked for later to one that was looked for before."""
        count = await self._cancel_each(listing, stop)
        while canceled := await self._cancel_each(listing, stop):
            count += canceled
        return count

    async def _cancel_each(self, listing: Listing, stop: Stop) -> int:
        count = 0
        for state in _UNFINISHED:
            asked = replace(listing, state=state, oldest=True, counted=False, limit=SWEEP_PAGE)
            while runs := (await self._store.list_runs(asked))[0]:
                for run in runs:
                    if not run.cancel_requested:
                        # A run that has ended meanwhile needs no cancel.
                        with suppress(RunEnded):
                            await self._cancel(run.id, Cancel(stop.by, stop.reason or "Stopped by an operator."))
                            count += 1
                asked = replace(asked, after=(runs[-1].created_at, runs[-1].id))
        return count


class WorkControl(Struct, frozen=True):
    """Controls of operators over the work of a server: limits, and the kill switch."""

    limits: StoredLimits
    switch: KillSwitch


def _target(stop: Stop) -> tuple[str, str]:
    """Return the target of an audit entry; a principal is a person, which is kept apart."""
    return stop.kind, "" if stop.kind == "principal" else stop.name


def _person(stop: Stop) -> str:
    return stop.name if stop.kind == "principal" else ""
