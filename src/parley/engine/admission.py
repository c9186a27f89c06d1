"""Who may ask for how much: looked at where work comes in, before anything of it is written."""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.core.admission import Bucket, Rate, filled, rate_of, taken, wait_s
from parley.core.agents import Agent
from parley.engine.commands import Outcome
from parley.engine.gates import Kept
from parley.engine.ports import Tally
from parley.errors import RateLimited, Stopping, TooManyUnfinished
from parley.telemetry import tell

UNFINISHED_WAIT_S = 5
STOPPING_WAIT_S = 1
TOLD_EVERY_MS = 10_000


class Allowance(Struct, frozen=True):
    """What every principal may ask for; None is without limit."""

    per_second: float | None = None
    burst: int | None = None
    unfinished: int | None = None


UNLIMITED = Allowance()


class Asked(Struct, frozen=True):
    """Something that comes in: for whom, by whom, and whether it is a new run or one more input."""

    agent: Agent
    principal: str
    begins: bool = True


Before = Callable[[], Awaitable[Outcome | None]]
"""What the same request led to when it came for the first time, if it did."""


class Admission:
    """Rates are this replica's share: the balancer spreads what is asked, so all together allow what was set."""

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
        self._buckets: Kept[tuple[str, str], Bucket | None] = Kept(lambda: None)
        self._told: Kept[tuple[str, str], tuple[int, int] | None] = Kept(lambda: None)
        """When refusals were last told about, and how many there were since."""
        self._beginning: Counter[str] = Counter()
        self.stopping = False
        """Whether this process takes nothing more, because it is about to end."""

    async def admit(self, asked: Asked, before: Before, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Do the work if it may be asked for. What was taken before is answered all the same."""
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
        """Each is counted, and the first told about; then, while it goes on, how many there were in a while."""
        tell("send.refused", agent=agent, code=code)
        now, place = self._clock(), (agent, code)
        since, count = self._told.get(place) or (0, 0)
        if now - since < TOLD_EVERY_MS:
            self._told.put(place, (since, count + 1))
            return
        self._told.put(place, (now, 0))
        tell("sends.refused", agent=agent, code=code, count=count + 1)

    def _check_stopping(self) -> None:
        if self.stopping:
            raise Stopping("This server is about to stop; ask again.", retry_after=STOPPING_WAIT_S)

    @contextmanager
    def _begun(self, asked: Asked) -> Generator[None, None, None]:
        """What is being begun counts as unfinished until the store counts it."""
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

    async def _check_unfinished(self, asked: Asked) -> None:
        if self._most is None or not asked.begins:
            return
        known = await self._tally.unfinished(asked.principal, self._most)
        if known + self._beginning[asked.principal] > self._most:
            raise TooManyUnfinished(
                f"You have {self._most} unfinished tasks, which is the most; let some end, or cancel them.",
                retry_after=UNFINISHED_WAIT_S, limit=self._most,
            )  # fmt: skip

    def _check_rates(self, asked: Asked) -> None:
        """Nothing is taken from one bucket when there is nothing left in the other."""
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
            who = f"Agent {name} is asked" if whose == "agent" else "You ask"
            raise RateLimited(
                f"{who} for more than the limit allows; try again in {wait} s.", retry_after=wait, limit=whose
            )
        return bucket
