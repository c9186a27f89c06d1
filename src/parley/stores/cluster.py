"""Replicas on one PostgreSQL: leases by the database's clock, slots, and NOTIFY for wakeups."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from parley.errors import ParleyError
from parley.execution.cluster import Heard, Interest
from parley.ids import RunId, new_id
from parley.runs.rules.state import ELSEWHERE, State
from parley.runs.store import Store
from parley.stores.postgres_pool import TROUBLE, Connection, Pool, Row, connect
from parley.telemetry import tell

_RENEW = """
UPDATE replicas SET alive_until = clock_timestamp() + $2 * interval '1 second'
WHERE id = $1 AND NOT buried RETURNING id"""
_BURY = "UPDATE replicas SET buried = true WHERE alive_until < clock_timestamp() AND NOT buried"
_DEAD = f"""
SELECT id FROM replicas WHERE buried
UNION SELECT owner FROM runs WHERE state = 'working' AND NOT starts_with(owner, '{ELSEWHERE}')
  AND NOT EXISTS (SELECT FROM replicas WHERE id = owner)
UNION SELECT replica FROM slots WHERE replica IS NOT NULL AND NOT EXISTS (SELECT FROM replicas WHERE id = replica)
ORDER BY 1"""
_TAKE_SLOT = """
UPDATE slots SET replica = $3 WHERE (agent, number) = (
  SELECT agent, number FROM slots WHERE agent = $1 AND number <= $2 AND replica IS NULL
  ORDER BY number LIMIT 1
  OFFSET (SELECT count(*) FROM slots WHERE agent = $1 AND number > $2 AND replica IS NOT NULL)
  FOR UPDATE SKIP LOCKED
) AND EXISTS (SELECT FROM replicas WHERE id = $3 AND NOT buried FOR SHARE) RETURNING number"""
"""Slots beyond the limit may be held since before it was lowered; as many free slots stay free in exchange. Taking a
slot and expiring its replica wait for each other, so that no slot of an expired replica stays taken."""
_KEEP_SLOTS = """
UPDATE slots SET replica = NULL WHERE (agent, number) IN (
  SELECT agent, number FROM slots WHERE agent = $1 AND replica = $2 ORDER BY number OFFSET $3 FOR UPDATE
)"""


class PostgresCluster:
    """Membership of a replica. A replica is alive as long as it renews its row; its id is new at every start, and after
    it was expired."""

    def __init__(self, pool: Pool, lease_s: float) -> None:
        self._pool = pool
        self._lease_s = lease_s
        self._replica = new_id()
        self._known_slots: dict[str, int] = {}

    @property
    def replica(self) -> str:
        return self._replica

    async def join(self) -> None:
        self._replica = new_id()
        await self._pool.fetch(
            "INSERT INTO replicas (id, alive_until) VALUES ($1, clock_timestamp() + $2 * interval '1 second')",
            self._replica,
            self._lease_s,
        )

    async def renew(self) -> list[str] | None:
        if not await self._pool.fetch(_RENEW, self._replica, self._lease_s):
            return None
        rows = await self._pool.fetch(
            "SELECT id FROM replicas WHERE NOT buried AND alive_until >= clock_timestamp() ORDER BY id"
        )
        return [row[0] for row in rows]

    async def expire_replicas(self) -> list[str]:
        """Expire silent replicas. Return the expired replicas whose work has not been taken over, and those already
        deleted that started work before they noticed."""
        await self._pool.fetch(_BURY)
        return [row[0] for row in await self._pool.fetch(_DEAD)]

    async def forget(self, replica: str) -> None:
        await self._pool.fetch("UPDATE slots SET replica = NULL WHERE replica = $1", replica)
        await self._pool.fetch("DELETE FROM replicas WHERE id = $1", replica)

    async def take_slot(self, agent: str, replica: str, limit: int) -> bool:
        if self._known_slots.get(agent) != limit:
            await self._pool.fetch(
                "INSERT INTO slots (agent, number) SELECT $1, n FROM generate_series(1, $2::integer) AS n "
                "ON CONFLICT DO NOTHING",
                agent,
                limit,
            )
            self._known_slots[agent] = limit
        return bool(await self._pool.fetch(_TAKE_SLOT, agent, limit, replica))

    async def keep_slots(self, agent: str, replica: str, count: int) -> None:
        await self._pool.fetch(_KEEP_SLOTS, agent, replica, count)

    async def leave(self) -> None:
        await self.forget(self._replica)


# A cluster of one: this process has the store for itself, and processes that worked before it are gone.


class Solo:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._taken: Counter[str] = Counter()
        self._replica = new_id()
        self._buried = False

    @property
    def replica(self) -> str:
        return self._replica

    async def join(self) -> None:
        return

    async def renew(self) -> list[str] | None:
        return [self._replica]

    async def expire_replicas(self) -> list[str]:
        """Return every replica that left work behind. No replica can join later: the store is locked."""
        if self._buried:
            return []
        self._buried = True
        owners = {run.owner for run in await self._store.runs_in(State.WORKING) if not run.at_runtime}
        return sorted(owners - {self._replica})

    async def forget(self, replica: str) -> None:
        return

    async def take_slot(self, agent: str, replica: str, limit: int) -> bool:
        if self._taken[agent] >= limit:
            return False
        self._taken[agent] += 1
        return True

    async def keep_slots(self, agent: str, replica: str, count: int) -> None:
        self._taken[agent] = min(self._taken[agent], count)

    async def leave(self) -> None:
        return


# Notify the other replicas of commits: PostgreSQL's NOTIFY after the commit, with many runs in one notification.
#
# A notification only wakes; the data is read from the store. A lost notification costs a moment, not an event.

CHANNEL = "parley"
MAX_PAYLOAD = 7900
RECONNECT_S = 0.5
CROWD, PAUSE_S = 4, 0.05
"""After a notification of so many runs, the growth of runs waits so long for the next one. Each notification costs
every replica a transaction and a message, and a busy replica would send one after each of its commits."""
LOOK_S = 1.0


Fetch = Callable[..., Awaitable[list[Row]]]


async def look(fetch: Fetch, heard: Heard, of_interest: Callable[[], list[RunId]]) -> None:
    """Read once per second everything of interest, so that a lost signal only causes a delay."""
    while True:
        await asyncio.sleep(LOOK_S)
        if runs := of_interest():
            try:
                rows = await fetch("SELECT run_id, version FROM runs WHERE run_id = ANY($1)", runs)
            except ParleyError as error:
                tell("signals.lost", error=error)
                continue
            heard([(RunId(row[0]), row[1]) for row in rows], [])


class NoSignals:
    """Signals of a single process: there are no other replicas."""

    def tell(self, run: RunId, version: int) -> None:
        return

    def wake(self, agent: str) -> None:
        return

    async def listen(self, heard: Heard, of_interest: Interest) -> None:
        return

    async def close(self) -> None:
        return


class PostgresSignals:
    def __init__(self, url: str, pool: Pool) -> None:
        self._url = url
        self._pool = pool
        self._sender = new_id()
        self._runs: dict[RunId, int] = {}
        self._agents: set[str] = set()
        self._pending = asyncio.Event()
        self._urgent = asyncio.Event()
        """Set while a name is pending: waiting work is announced at once."""
        self._connection: Connection = None
        self._tasks: list[asyncio.Task[None]] = []
        self._heard: Heard | None = None

    def tell(self, run: RunId, version: int) -> None:
        self._runs[run] = version
        self._pending.set()

    def wake(self, agent: str) -> None:
        self._agents.add(agent)
        self._pending.set()
        self._urgent.set()

    async def listen(self, heard: Heard, of_interest: Interest) -> None:
        self._heard = heard
        await self._connect()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._send()), loop.create_task(look(self._pool.fetch, heard, of_interest))]

    async def close(self) -> None:
        """Send pending notifications before closing: a replica may wait for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._connection is not None and not self._connection.is_closed():
            for payload in self._taken():
                await self._connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
            await self._connection.close()

    async def _connect(self) -> None:
        self._connection = await connect(self._url, synchronous_commit="off")
        await self._connection.add_listener(CHANNEL, self._receive)

    async def _send(self) -> None:
        """Send one notification at a time; whatever is added meanwhile goes into the next."""
        while True:
            await self._pending.wait()
            crowded = len(self._runs) >= CROWD
            await self._flush()
            if crowded:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._urgent.wait(), PAUSE_S)

    def _taken(self) -> list[str]:
        """Take everything that is pending, as payloads."""
        self._pending.clear()
        self._urgent.clear()
        words = [f"{run} {version}" for run, version in self._runs.items()] + [f"@{agent}" for agent in self._agents]
        self._runs, self._agents = {}, set()
        return _packed(self._sender, words)

    async def _flush(self) -> None:
        try:
            for payload in self._taken():
                await self._connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
        except TROUBLE as error:
            tell("signals.lost", error=error)
            await self._reconnect()

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(RECONNECT_S)
            try:
                return await self._connect()
            except TROUBLE:
                continue

    def _receive(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        sender, *words = str(payload).split("\n")
        if sender == self._sender or self._heard is None:
            return
        runs: list[tuple[RunId, int]] = []
        agents: list[str] = []
        for word in words:
            if word.startswith("@"):
                agents.append(word[1:])
            else:
                run, _, version = word.rpartition(" ")
                runs.append((RunId(run), int(version)))
        self._heard(runs, agents)


def _packed(sender: str, words: list[str]) -> list[str]:
    """Pack the words into as few payloads as the size limit of NOTIFY allows."""
    payloads: list[str] = []
    current = sender
    for word in words:
        if len(current) + len(word) + 1 > MAX_PAYLOAD:
            payloads.append(current)
            current = sender
        current += "\n" + word
    return [*payloads, current] if words else []
