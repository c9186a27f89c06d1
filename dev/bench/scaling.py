"""Cost of a send, a stream and a long run with one to three replicas: `python -m dev.bench.scaling [SECONDS]`;
of a send with 1, 2 and 4 workers of one server: `python -m dev.bench.scaling workers [SECONDS]`. Processes slow each
other down where there are few cores, so servers with more and with fewer workers are loaded at the same time.

One, two and three replicas share one PostgreSQL, each with clients of its own; beside them stands one process on
SQLite. On a machine whose cores everything shares, rates say how many cores there are; the time that each process has
used a processor, divided by what was done, says what it costs, and holds wherever the processes run. So it is taken for
replicas, for PostgreSQL and for the clients, together with what PostgreSQL wrote.
"""

import asyncio
import json
import os
import resource
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from msgspec import Struct

from dev.bench.data import scratch
from dev.bench.peers import WARMUP
from dev.bench.postgres import server_url
from dev.bench.rows import Case
from dev.bench.servers import HERE, rate
from parley.stores.postgres_pool import Connection, connect
from parley.stores.sqlite import FILE
from parley.testing.databases import fresh_database
from parley.testing.processes import ServerProcess, replicas
from parley.testing.signals import NatsServer

AGENTS = HERE / "scaling_agents.py"
CLIENTS = 32
"""Clients per replica, so that each replica has as much load, and batches as large, as a single one."""
BY_RUNS = {"PARLEY_POSTGRES_BATCH": "1", "PARLEY_POSTGRES_WRITERS": "8"}
"""As for a distributed database: the rows of one run in each transaction."""
WINDOW_S = 5.0
STATISTICS_S = 1.5
"""Time after which a session of PostgreSQL has published its statistics."""
SCENES = {"send": ("echo", "send"), "stream": ("echo", "stream"), "run": ("long", "send")}
"""The agent that is asked, and how. A long run has a hundred events and more, each of them committed."""
COUNTS = (1, 2, 3)
WORKERS = (1, 2, 4)
ROUNDS = 3
MOST_RATIO = 1.15
_TICK = os.sysconf("SC_CLK_TCK")


class Written(Struct, frozen=True):
    """Counters of PostgreSQL since its start."""

    wal_bytes: int = 0
    commits: int = 0
    fsyncs: int = 0

    def since(self, before: "Written") -> "Written":
        return Written(
            self.wal_bytes - before.wal_bytes, self.commits - before.commits, self.fsyncs - before.fsyncs
        )  # fmt: skip


class Used(Struct, frozen=True):
    """Seconds of a processor."""

    replicas: float
    busiest: float
    """The replica that used most."""
    postgres: float
    session: float
    """The session of PostgreSQL that used most: a replica writes by one."""


class Cost(Struct, frozen=True):
    scene: str
    store: str
    done: int
    events: int
    seconds: float
    rate: float
    p50_ms: float
    used: Used
    clients_s: float
    written: Written
    load: float
    """Number of programs that wanted one of the machine's cores (load average)."""

    def micros(self, seconds: float) -> float:
        return seconds / self.done * 1e6

    @property
    def server_us(self) -> float:
        return self.micros(self.used.replicas + self.used.postgres)

    def line(self) -> str:
        each = self.written
        cells = [
            self.scene, self.store, f"{self.rate:,.0f}/s", f"{self.p50_ms:.1f}",
            f"{self.micros(self.used.replicas):.0f}",
            f"{self.micros(self.used.postgres):.0f}", f"{self.micros(self.clients_s):.0f}",
            f"{self.used.busiest / self.seconds:.0%}", f"{self.used.session / self.seconds:.0%}",
            f"{self.events / self.done:.1f}", f"{each.wal_bytes / self.done:,.0f}", f"{each.commits / self.done:.3f}",
            f"{each.fsyncs / self.done:.3f}", f"{self.load:.1f}",
        ]  # fmt: skip
        return "| " + " | ".join(cells) + " |"


HEAD = (
    "| scene | store | rate | p50 ms | replicas µs | PostgreSQL µs | clients µs | busiest replica | busiest session "
    "| events | WAL bytes | commits | fsyncs | load |\n" + "|---" * 14 + "|"
)


def cases() -> list[Case]:
    return [
        *(_growth(scene, count) for scene in SCENES for count in COUNTS[1:]),
        Case("scaling.store", "µs a send", partial(server_us, "send", 1), "SQLite", partial(server_us, "send", 0)),
        *(_growth_of_workers(count) for count in WORKERS[1:]),
        Case("scaling.by-runs", "µs a send", partial(server_us, "send", 1, **BY_RUNS), "many runs in a transaction",
             partial(server_us, "send", 1)),
    ]  # fmt: skip


def _growth(scene: str, count: int) -> Case:
    return Case(
        f"scaling.{scene}.{count}", f"µs a {scene}", partial(server_us, scene, count), "one replica",
        partial(server_us, scene, 1), note=lambda _: "processor time of all replicas and PostgreSQL",
    )  # fmt: skip


def _growth_of_workers(count: int) -> Case:
    pair = WorkerPair(count)
    return Case(
        f"scaling.workers.{count}", "µs a send", pair.several, "one worker at the same time", pair.one,
        "max", MOST_RATIO, note=lambda _: "processor time of workers and PostgreSQL",
    )  # fmt: skip


class WorkerPair:
    """A server with several workers and one with a single worker, loaded at the same time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._one = 0.0

    def several(self) -> float:
        one, several = uvloop.run(together((1, self._count), WINDOW_S))
        self._one = one.us
        return several.us

    def one(self) -> float:
        """Return the other server's figure in the last measurement."""
        return self._one


def server_us(scene: str, count: int, **env: str) -> float:
    return uvloop.run(measured(scene, count, WINDOW_S, **env)).server_us


async def measured(scene: str, count: int, seconds: float, **env: str) -> Cost:
    """With so many replicas on PostgreSQL; 0 is one process on SQLite."""
    with scratch() as directory:
        if not count:
            async with _alone(directory) as servers:
                return await _loaded(scene, "SQLite", servers, seconds, partial(_kept_by_sqlite, directory))
        url = await fresh_database(server_url())
        connection = await connect(url)
        try:
            async with replicas(count, [AGENTS], directory, url, **env) as servers:
                named = f"PostgreSQL × {count}{', run by run' if env else ''}"
                return await _loaded(scene, named, servers, seconds, partial(_kept, connection), connection)
        finally:
            await connection.close()


@asynccontextmanager
async def _alone(directory: Path) -> AsyncGenerator[list[ServerProcess], None]:
    server = await ServerProcess.start([AGENTS], directory)
    try:
        yield [server]
    finally:
        await server.stop()


class WorkersCost(Struct, frozen=True):
    """Cost of sends to one server."""

    workers: int
    done: int
    workers_us: float
    postgres_us: float
    """Processor time of the sessions of its database."""

    @property
    def us(self) -> float:
        return self.workers_us + self.postgres_us


class _Loaded:
    """A server with some workers and a database of its own. Each worker gets as many clients as a single one."""

    def __init__(self, server: ServerProcess, workers: int, connection: Connection) -> None:
        self._server = server
        self._workers = workers
        self._connection = connection

    async def load(self, seconds: float) -> None:
        await _load("send", [self._server] * self._workers, seconds)

    async def figures(self) -> tuple[int, float, float]:
        """Return the runs so far, and the seconds that workers and sessions have used."""
        rows = await self._connection.fetch("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        seconds = (sum(_stat(pid)[2] for pid in pids) for pids in (_working(self._server), [row[0] for row in rows]))
        return (await _kept(self._connection))[0], *seconds

    def cost(self, before: tuple[int, float, float], after: tuple[int, float, float]) -> WorkersCost:
        done, workers, sessions = (now - then for now, then in zip(after, before, strict=True))
        return WorkersCost(self._workers, int(done), workers / done * 1e6, sessions / done * 1e6)


async def together(counts: Sequence[int], seconds: float, **env: str) -> list[WorkersCost]:
    """Load servers with so many workers at the same time: what slows one down slows down all of them."""
    async with AsyncExitStack() as stack:
        servers: list[_Loaded] = []
        for count in counts:
            url = await fresh_database(server_url())
            connection = await connect(url)
            stack.push_async_callback(connection.close)
            directory = stack.enter_context(scratch())
            opening = replicas(1, [AGENTS], directory, url, PARLEY_WORKERS=str(count), **env)
            servers.append(_Loaded((await stack.enter_async_context(opening))[0], count, connection))
        await asyncio.gather(*(one.load(0.5) for one in servers))
        before = [await one.figures() for one in servers]
        await asyncio.gather(*(one.load(seconds) for one in servers))
        after = [await one.figures() for one in servers]
        return [one.cost(*figures) for one, *figures in zip(servers, before, after, strict=True)]


def _working(server: ServerProcess) -> list[int]:
    """The processes of a server that answer requests: its workers, or itself."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [int(word) for word in children] or [server.pid]


async def _loaded(
    scene: str, store: str, servers: list[ServerProcess], seconds: float, kept: Callable[[], Any],
    connection: Connection = None,
) -> Cost:  # fmt: skip
    """Everything that can be counted is counted before and after the whole load, its first second too."""
    await _load(scene, servers, 0.5)
    pids = sorted({pid for server in servers for pid in _working(server)})
    main = await postmaster(connection) if connection else 0
    before, runs, used = await _written(connection), await kept(), times(pids, main)
    clients, began = _children_s(), time.monotonic()
    found = await _load(scene, servers, seconds)
    took, clients, after = time.monotonic() - began, _children_s() - clients, times(pids, main)
    await asyncio.sleep(STATISTICS_S if connection else 0)
    done, events = (now - then for now, then in zip(await kept(), runs, strict=True))
    return Cost(
        scene, store, done, events, took, sum(map(rate, found)), max(one["p50_ms"] for one in found),
        _used(used, after, pids), clients, (await _written(connection)).since(before), os.getloadavg()[0],
    )  # fmt: skip


async def _load(scene: str, servers: list[ServerProcess], seconds: float) -> list[dict[str, Any]]:
    """Clients spread by themselves: each replica has its own."""
    agent, mode = SCENES[scene]
    return await asyncio.gather(*(_clients(f"{one.url}/agents/{agent}", mode, CLIENTS, seconds) for one in servers))


async def _clients(url: str, mode: str, clients: int, seconds: float) -> dict[str, Any]:
    flags = {"--url": url, "--mode": mode, "--clients": clients, "--seconds": seconds, "--warmup": WARMUP}
    words = [str(word) for flag in flags.items() for word in flag]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "load.py"), *words, "--json", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    return json.loads(said)


async def _kept(connection: Connection) -> tuple[int, int]:
    row = await connection.fetchrow("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM events)")
    return int(row[0]), int(row[1])


async def _kept_by_sqlite(directory: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(f"file:{directory / FILE}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM events)").fetchone()


async def _written(connection: Connection) -> Written:
    if connection is None:
        return Written()
    row = await connection.fetchrow(
        "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn,"
        " (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),"
        " (SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal')"
    )
    return Written(int(row[0]), int(row[1]), int(row[2] or 0))


async def postmaster(connection: Connection) -> int:
    """The parent of all sessions."""
    return _stat(int(await connection.fetchval("SELECT pg_backend_pid()")))[1]


def _children_s() -> float:
    """Processor time of ended child processes, which are the clients."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def times(pids: list[int], main: int) -> dict[int, float]:
    """The seconds that each process has used; the parent's hold those of sessions that have ended."""
    found = {pid: _stat(pid)[2] for pid in pids}
    for entry in Path("/proc").iterdir() if main else ():
        if entry.name.isdigit() and (stat := _stat(int(entry.name)))[1] == main:
            found[stat[0]] = stat[2]
    return found | ({main: _stat(main, ended=True)[2]} if main else {})


def _stat(pid: int, *, ended: bool = False) -> tuple[int, int, float]:
    """The process, its parent, and the seconds that it used; with those of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return pid, -1, 0.0
    return pid, int(fields[1]), sum(map(int, fields[11 : 15 if ended else 13])) / _TICK


def _used(before: dict[int, float], after: dict[int, float], pids: list[int]) -> Used:
    grown = {pid: seconds - before.get(pid, 0.0) for pid, seconds in after.items()}
    ours = [grown[pid] for pid in pids]
    theirs = [seconds for pid, seconds in grown.items() if pid not in pids]
    return Used(sum(ours), max(ours), sum(theirs), max(theirs, default=0.0))


def main(seconds: float = WINDOW_S) -> None:
    print(HEAD)
    for scene in SCENES:
        for count in (0, *COUNTS):
            print(uvloop.run(measured(scene, count, seconds)).line(), flush=True)
        print(uvloop.run(measured(scene, 1, seconds, **BY_RUNS)).line(), flush=True)


def workers(seconds: float = WINDOW_S) -> None:
    uvloop.run(_workers(seconds))


async def _workers(seconds: float) -> None:
    print("| signals | workers | sends | workers, µs a send | PostgreSQL, µs a send | beside one worker |")
    print("|---" * 6 + "|", flush=True)
    nats = NatsServer()
    await nats.start()
    try:
        for _ in range(ROUNDS):
            for carrier, env in (("NATS", {"PARLEY_NATS_URL": nats.url}), ("NOTIFY", {})):
                costs = await together(WORKERS, seconds, **env)
                for cost in costs:
                    cells = (
                        f"{carrier} | {cost.workers} | {cost.done:,} | {cost.workers_us:.0f} | {cost.postgres_us:.0f}"
                    )
                    print(f"| {cells} | {cost.us / costs[0].us:.2f} |", flush=True)
    finally:
        await nats.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["workers"]:
        workers(*map(float, sys.argv[2:3]))
    else:
        main(*map(float, sys.argv[1:2]))
