"""Signals that a replica receives, by the number of replicas: `python -m dev.bench.signals`.

Each replica follows some runs that work at the next one. All runs that work anywhere grow, most of them followed by
nobody else. Each row says how many signals a replica received of runs that it does not follow, of those that it
follows, and the processor time of this process and of the carrier's for each growth that was told.
"""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from dev.bench.postgres import server_url
from dev.bench.scaling import postmaster, times
from parley.execution.cluster import Signals
from parley.ids import RunId, new_run_id
from parley.stores.cluster import PostgresSignals
from parley.stores.postgres import open_pool
from parley.stores.postgres_pool import Pool, connect
from parley.stores.signals import NatsSignals
from parley.testing.databases import fresh_database
from parley.testing.signals import NatsServer, SignalListener

COUNTS = (2, 4, 8)
FOLLOWED = 20
"""Runs that a replica follows and that work at the next one."""
RUNS = 200
"""Runs that work at a replica at a time; each grows in each round."""
ROUNDS = 50
PAUSE_S = 0.01
SETTLED_S = 1.5
Connect = Callable[[str, Pool, str], Signals]
CARRIERS: dict[str, Connect] = {
    "NOTIFY to all": lambda url, pool, _: PostgresSignals(url, pool),
    "NATS": lambda _, pool, nats: NatsSignals(nats, pool.fetch),
}
HEAD = (
    "| carrier | replicas | received of others' runs | received of followed runs | replica µs | carrier µs |\n"
    "|---|---|---|---|---|---|"
)


class _Replica(SignalListener):
    """Counts what it hears by whether it follows it."""

    foreign = ours = 0

    def _hear(self, runs: list[tuple[RunId, int]], names: list[str]) -> None:
        followed = set(self.runs)
        known = sum(run in followed for run, _ in runs)
        self.ours += known
        self.foreign += len(runs) - known


async def row(carrier: str, count: int, url: str, nats: NatsServer) -> str:
    pool, session = await open_pool(url, phases=()), await connect(url)
    replicas = [await _Replica(CARRIERS[carrier](url, pool, nats.url)).listen() for _ in range(count)]
    works = [[new_run_id() for _ in range(RUNS)] for _ in replicas]
    for replica, runs in zip(replicas, [*works[1:], works[0]], strict=True):
        for run in runs[:FOLLOWED]:
            replica.follow(run)
    await asyncio.sleep(SETTLED_S)
    main = await postmaster(session)
    before, began = _carrier_s(main, nats.pid), time.process_time()
    for version in range(1, ROUNDS + 1):
        for replica, runs in zip(replicas, works, strict=True):
            for run in runs:
                replica.signals.tell(run, version)
        await asyncio.sleep(PAUSE_S)
    await asyncio.sleep(SETTLED_S)
    used, carried = time.process_time() - began, _carrier_s(main, nats.pid) - before
    told = count * RUNS * ROUNDS
    foreign, ours = (sum(getattr(one, name) for one in replicas) / count for name in ("foreign", "ours"))
    for replica in replicas:
        await replica.signals.close()
    await session.close()
    await pool.close()
    return (
        f"| {carrier} | {count} | {foreign:,.0f} | {ours:,.0f} | {used / told * 1e6:.1f} | {carried / told * 1e6:.1f} |"
    )


def _carrier_s(main: int, nats: int) -> float:
    fields = Path(f"/proc/{nats}/stat").read_text().rpartition(")")[2].split()
    return sum(times([], main).values()) + sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


async def measure() -> None:
    nats = NatsServer()
    with TemporaryDirectory(prefix="parley-signals-"):
        await nats.start()
        url = await fresh_database(server_url())
        print(HEAD)
        for carrier in CARRIERS:
            for count in COUNTS:
                print(await row(carrier, count, url, nats), flush=True)
        await nats.stop()


if __name__ == "__main__":
    asyncio.run(measure())
