"""Replicas on one PostgreSQL: who is alive, by the database's clock, and who holds which slot."""

from parley.core.runs import ELSEWHERE
from parley.ids import new_id
from parley.stores.pool import Pool

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
"""Slots beyond the limit are held since before it was lowered: as many of the free ones stay free. Whoever is being
buried meanwhile waits: then the slot is freed with all of its others."""
_KEEP_SLOTS = """
UPDATE slots SET replica = NULL WHERE (agent, number) IN (
  SELECT agent, number FROM slots WHERE agent = $1 AND replica = $2 ORDER BY number OFFSET $3 FOR UPDATE
)"""


class PostgresCluster:
    """A replica lives as long as it renews its row; its id is new at every boot, and after every burial."""

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
            self._replica, self._lease_s,
        )  # fmt: skip

    async def renew(self) -> list[str] | None:
        if not await self._pool.fetch(_RENEW, self._replica, self._lease_s):
            return None
        rows = await self._pool.fetch(
            "SELECT id FROM replicas WHERE NOT buried AND alive_until >= clock_timestamp() ORDER BY id"
        )
        return [row[0] for row in rows]

    async def bury(self) -> list[str]:
        """Those buried whose work nobody has taken up yet, the ones that died just now included, and those forgotten
        who began something before they knew."""
        await self._pool.fetch(_BURY)
        return [row[0] for row in await self._pool.fetch(_DEAD)]

    async def forget(self, replica: str) -> None:
        await self._pool.fetch("UPDATE slots SET replica = NULL WHERE replica = $1", replica)
        await self._pool.fetch("DELETE FROM replicas WHERE id = $1", replica)

    async def take_slot(self, agent: str, limit: int) -> bool:
        if self._known_slots.get(agent) != limit:
            await self._pool.fetch(
                "INSERT INTO slots (agent, number) SELECT $1, n FROM generate_series(1, $2::integer) AS n "
                "ON CONFLICT DO NOTHING",
                agent, limit,
            )  # fmt: skip
            self._known_slots[agent] = limit
        return bool(await self._pool.fetch(_TAKE_SLOT, agent, limit, self._replica))

    async def keep_slots(self, agent: str, replica: str, count: int) -> None:
        await self._pool.fetch(_KEEP_SLOTS, agent, replica, count)

    async def leave(self) -> None:
        await self.forget(self._replica)
