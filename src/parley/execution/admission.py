"""Admission: rate limits and limits of unfinished runs, checked before anything of a request is written."""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from msgspec import Struct

from parley.cache import BoundedCache
from parley.clock import Clock, now_ms
from parley.errors import RateLimited, Stopping, TooManyUnfinished
from parley.limits import Bucket, Rate, filled, rate_of, taken, wait_s
from parley.runs.log import Outcome
from parley.runs.rules.agents import Agent
from parley.runs.store import Tally
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
        clock: Clock = now_ms,
    ) -> None:
        self._tally = tally
        self._most = allowance.unfinished
        self._rate = rate_of(allowance.per_second, allowance.burst)
        self._replicas = replicas
        self._clock = clock
        self._buckets: BoundedCache[tuple[str, str], Bucket | None] = BoundedCache(lambda: None)
        self._told: BoundedCache[tuple[str, str], tuple[int, int] | None] = BoundedCache(lambda: None)
        """Time of the last telemetry event about refusals, and the number of refusals since then."""
        self._beginning: Counter[str] = Counter()
        self.stopping = False
        """Set when this process accepts no more work because it is about to stop."""

    # Why: docs/decisions/execution.md#refuse-requests-over-a-rate-but-record-a-full-queue
    async def admit(self, asked: AdmissionRequest, before: Before, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Do the work if the limits allow it. A request that was accepted before gets its earlier outcome in any
        case."""
        try:
            self._check_stopping()
            with self._begun(asked):
                await self._check_unfinished(asked)
                self._check_rates(asked)
                return await work()
        except (RateLimited, Stopping) as error:
            if (earlier := await before()) is not None:
                return earlier
            self._refused(asked.agent.slug, error.code)
            raise

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
    def _begun(self, asked: AdmissionRequest) -> Generator[None, None, None]:
        """Count a run as unfinished while it is being created, until the store counts it."""
        if self._most is None or not asked.begins:
            yield
            return
        self._beginning[asked.principal] += 1
        try:
            yield
        finally:
            self._beginning[asked.principal] -= 1
            if not self._beginning[asked.principal]:
                del self._beginning[asked.principal]

    async def _check_unfinished(self, asked: AdmissionRequest) -> None:
        if self._most is None or not asked.begins:
            return
        known = await self._tally.unfinished(asked.principal, self._most)
        if known + self._beginning[asked.principal] > self._most:
            raise TooManyUnfinished(
                f"You have {self._most} unfinished tasks, which is the limit; wait until some end, or cancel some.",
                retry_after=UNFINISHED_WAIT_S,
                limit=self._most,
            )

    def _check_rates(self, asked: AdmissionRequest) -> None:
        """Take from all buckets, or from none if one of them is empty."""
        now, agent = self._clock(), asked.agent
        limits = agent.limits
        rated = [(("agent", agent.slug), rate_of(limits.max_per_second, limits.max_burst))] if asked.begins else []
        rated.append((("principal", asked.principal), self._rate))
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
            who = f"Requests to agent {name}" if whose == "agent" else "Your requests"
            raise RateLimited(f"{who} exceed the rate limit; try again in {wait} s.", retry_after=wait, limit=whose)
        return bucket
