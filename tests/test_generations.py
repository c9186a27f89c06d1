"""Kill -9 under readers of A2A 1.1: no reader sees a generation twice, misses one, or sees one step back."""

import asyncio
import random
import ssl
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from msgspec import Struct

from parley.client import Client, Json, Unreachable
from parley.client.a2a import RemoteError
from parley.client.generations import generation_in
from parley.ids import RunId
from parley.runs.rules.state import is_update
from parley.runs.store import Readable
from parley.runs.streams import read_all
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.sqlite import FILE, SqliteReader
from parley.testing.processes import ServerProcess, until

AGENTS = [Path(__file__).parent / "replica_agents.py"]
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
ENDED = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED")
TASKS = 6
STEPS = 20
"""Updates of a task, at least."""
READERS = 3
PATIENCE_S = 120.0
"""Time for a server to start, and for readers to see the ends of their tasks, also on a busy machine."""

pytestmark = pytest.mark.slow


class Site:
    """Servers on one store, of which one is killed again and again."""

    def __init__(self, directory: Path, count: int, env: dict[str, str]) -> None:
        self._directory = directory
        self._count = count
        self._env = {"PARLEY_LONG_POLL_S": "2", "PARLEY_LEASE_S": "1", **env}
        self._started = 0
        self.servers: list[ServerProcess] = []

    @property
    def url(self) -> str:
        """One of the servers that are up; an address where nothing listens if there is none."""
        return random.choice(self.servers).url if self.servers else "http://127.0.0.1:9"

    async def start(self) -> None:
        while len(self.servers) < self._count:
            self._started += 1
            data = self._directory / (f"server-{self._started}" if self._count > 1 else "data")
            self.servers.append(await ServerProcess.start(AGENTS, data, env=self._env, start_s=PATIENCE_S))

    async def kill(self) -> None:
        await self.servers.pop(random.randrange(len(self.servers))).kill()

    async def stop(self) -> None:
        for server in self.servers:
            await server.stop()


class Watch(Struct):
    """The generations of one task that its readers have seen, in the order in which they came."""

    task: str
    streamed: list[list[tuple[int, int]]] = []
    """For each reader of a stream: event numbers and generations."""
    polled: list[int] = []

    @property
    def seen(self) -> int:
        """Number of updates that its readers have seen."""
        return len(self.polled) + sum(map(len, self.streamed))


def client(site: Site, agent: str = "") -> Client:
    address = f"{site.url}/agents/{agent}" if agent else site.url + "/"
    return Client(address, version="1.1", http=httpx2.AsyncClient(verify=NO_TLS, timeout=30))


async def begin(site: Site) -> Watch:
    async with client(site, "walker") as one:
        return Watch((await one.send("go", configuration={"returnImmediately": True}))["task"]["id"])


async def read_stream(site: Site, watch: Watch) -> None:
    """Follow a task from its first event to its end, through killed servers."""
    seen: list[tuple[int, int]] = []
    watch.streamed.append(seen)
    cursor = 0
    while True:
        with suppress(httpx2.TransportError, Unreachable, RemoteError):
            async with client(site) as one:
                about = {"Last-Event-ID": str(cursor)}
                async for number, reply in one.events("SubscribeToTask", {"id": watch.task}, about):
                    result: Json = reply.get("result", {})
                    update = result.get("statusUpdate") or result.get("artifactUpdate")
                    assert update is not None, reply
                    assert number is not None
                    seen.append((number, generation_in(update)))
                    cursor = number
                    if update.get("status", {}).get("state") in ENDED:
                        return
        await asyncio.sleep(0.05)


async def poll(site: Site, watch: Watch) -> None:
    """Long-poll a task until it has ended, through killed servers."""
    while True:
        with suppress(httpx2.TransportError, Unreachable, RemoteError):
            async with client(site) as one:
                while True:
                    task = await one.poll(watch.task, watch.polled[-1] if watch.polled else 0)
                    watch.polled.append(generation_in(task))
                    if task["status"]["state"] in ENDED:
                        return
        await asyncio.sleep(0.05)


async def kill_again_and_again(site: Site, rounds: int) -> list[Watch]:
    watches: list[Watch] = []
    await site.start()
    for _ in range(rounds):
        fresh = [await begin(site) for _ in range(TASKS)]
        readers = [
            asyncio.ensure_future(read(site, watch)) for watch in fresh for read in (read_stream, read_stream, poll)
        ]
        moment = random.randrange(TASKS * READERS * STEPS // 2)
        await until(lambda fresh=fresh, moment=moment: sum(one.seen for one in fresh) >= moment, PATIENCE_S)
        await site.kill()
        await site.start()
        await asyncio.wait_for(asyncio.gather(*readers), PATIENCE_S)
        watches += fresh
    return watches


async def check(store: Readable, watches: list[Watch]) -> int:
    """Compare everything that was seen with the logs. Return the number of runs that were interrupted."""
    interrupted = 0
    for watch in watches:
        events = await read_all(store, RunId(watch.task))
        updates = [one.seq for one in events if one.payload and is_update(one.payload, one.seq, open=False)]
        numbered = [(seq, generation) for generation, seq in enumerate(updates, 2)]
        assert watch.streamed == [numbered, numbered], watch.task
        assert watch.polled == sorted(watch.polled), watch.task
        assert watch.polled[-1] == 1 + len(updates), watch.task
        head = await store.head(RunId(watch.task))
        assert head is not None
        assert head.run.generation == 1 + len(updates), watch.task
        interrupted += any(event.type == "rescued" for event in events) or events[-1].type == "failed"
    return interrupted


def report(what: str, watches: list[Watch], interrupted: int) -> None:
    kills, updates = len(watches) // TASKS, sum(one.seen for one in watches)
    print(f"{what}: {kills} kills, {len(watches)} tasks, {interrupted} interrupted, {updates} updates seen, none wrong")
    assert interrupted


async def test_generations_survive_kill_9_on_sqlite(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    site = Site(tmp_path, 1, {})
    try:
        watches = await kill_again_and_again(site, pytestconfig.getoption("--soak") or 4)
    finally:
        await site.stop()
    reader = SqliteReader(tmp_path / "data" / FILE)
    report("SQLite", watches, await check(reader, watches))
    await reader.close()


async def test_generations_survive_kill_9_of_a_replica(
    tmp_path: Path, database: str, pytestconfig: pytest.Config
) -> None:
    env = {
        "PARLEY_STORE": "postgres",
        "PARLEY_POSTGRES_URL": database,
        "PARLEY_BLOBS": str(tmp_path / "blobs"),
        "PARLEY_SECRET_KEY_FILE": str(tmp_path / "secret.key"),
    }
    site = Site(tmp_path, 2, env)
    try:
        watches = await kill_again_and_again(site, pytestconfig.getoption("--soak") or 4)
    finally:
        await site.stop()
    store = PostgresStore(await open_pool(database, phases=()))
    report("two replicas on PostgreSQL", watches, await check(store, watches))
    await store.close()
