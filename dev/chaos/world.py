"""The system under test: three servers on one PostgreSQL behind a balancer, runtimes, nodes, organisation, hooks."""

import os
import random
import shutil
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal, Protocol

import httpx2

from dev.chaos.adapter import adapting
from dev.chaos.history import History
from dev.chaos.seats import Member, Runtime, Server
from dev.chaos.wire import NO_TLS
from parley.drivers.org.driver import sample_folder
from parley.runs.rules.state import Run, State
from parley.runs.store import Readable
from parley.security.secrets import new_key
from parley.stores.postgres import PostgresStore, open_pool, replica_connections
from parley.testing.balancers import Balancer, balancing
from parley.testing.databases import fresh_database, postgres_server, start_server, stop_server
from parley.testing.processes import until
from parley.testing.receivers import Mood, Receiver, receiving

HERE = Path(__file__).parent
SERVERS, NODES, RUNTIMES, RECEIVERS = 3, 3, 2, 4
LEASE_S = 2.0
CHECKER_CONNECTIONS = 20
FLOW = """
name: Flow
description: A few steps, some beside each other.
workflow:
  steps:
    - {id: one, agent: steps, input: "one of {{message}}"}
    - {id: two, agent: steps, depends_on: [one], input: "two of {{message}}"}
    - {id: three, agent: steps, depends_on: [one], input: "three of {{message}}"}
    - {id: four, agent: room, depends_on: [two, three], input: "four of {{message}}"}
  retries: 2
  retry_delay_s: 0.2
"""


class Logs(Readable, Protocol):
    async def runs_in(self, state: State) -> list[Run]: ...

    async def close(self) -> None: ...


class Database:
    """The PostgreSQL server, which may be away for a while."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self.url = url

    def stop(self, how: Literal["fast", "immediate"]) -> None:
        stop_server(self._folder, how)

    def start(self) -> None:
        start_server(self._folder)


class Place:
    """Addresses of a world for its clients, and for reading its final state."""

    def __init__(self, folder: Path, history: History, url: str) -> None:
        self.folder = folder
        self.history = history
        self.url = url
        self.receivers: list[Receiver] = []

    @property
    def agents(self) -> dict[str, str]:
        """Address of each agent that answers by itself, by name."""
        return {name: f"/agents/{name}" for name in ("steps", "fragile", "room")}

    async def store(self) -> Logs:
        """Open the store of all servers for reading."""
        raise NotImplementedError

    def hook(self, dice: random.Random) -> str:
        """An address at a receiver that will misbehave a few times."""
        receiver = dice.choice(self.receivers)
        path = f"/{dice.getrandbits(48):012x}"
        bad: list[Mood] = [500, 503, 429, "reset"]
        moods = [*dice.choices(bad, k=dice.choice([0, 0, 1, 2])), *(["hang"] if dice.random() < 0.02 else [])]
        for place, mood in enumerate(moods):
            receiver.moods[path].extend([200] * (place + 1))
            receiver.moods[path].append(mood)
        receiver.delay_s[path] = dice.choice([0, 0, 0.01, 0.2])
        return receiver.url(path)


class World(Place):
    def __init__(self, folder: Path, history: History, database: Database, balancer: Balancer) -> None:
        super().__init__(folder, history, balancer.url)
        self.database = database
        self.balancer = balancer
        self.servers: list[Server] = []
        self.runtimes: list[Runtime] = []
        self.nodes: list[Member] = []
        self.node_ids: list[str] = []

    @property
    def agents(self) -> dict[str, str]:
        ours = ("house", *(seat.name for seat in self.runtimes))
        nodes = {f"node-{place}": f"/workspaces/{id_}/a2a" for place, id_ in enumerate(self.node_ids)}
        return {**super().agents, **{name: f"/agents/{name}" for name in ours}, **nodes}

    async def store(self) -> Logs:
        return PostgresStore(await open_pool(self.database.url, phases=()))


@asynccontextmanager
async def opened(folder: Path, history: History, workers: int = 1) -> AsyncGenerator[World, None]:
    """Open a world. With several `workers`, each server is a supervisor with so many replicas."""
    async with AsyncExitStack() as stack:
        (folder / "postgres").mkdir()
        os.environ["XDG_RUNTIME_DIR"] = str(_private(folder / "runtime"))
        # One worker more for each server: a roll starts the successor first.
        connections = SERVERS * (workers + 1) * replica_connections(writers=1) + CHECKER_CONNECTIONS
        server = postgres_server(folder / "postgres", durable=True, connections=connections)
        url = stack.enter_context(server)
        balancer = await stack.enter_async_context(balancing())
        database = Database(folder / "postgres", await fresh_database(url))
        world = World(folder, history, database, balancer)
        world.receivers = [await stack.enter_async_context(receiving()) for _ in range(RECEIVERS)]
        await _serve(world, stack, workers)
        await _pair(world, await stack.enter_async_context(adapting()), stack)
        await _join(world, stack)
        yield world


async def _serve(world: World, stack: AsyncExitStack, workers: int) -> None:
    secret = world.folder / "secret.key"
    secret.write_text(new_key() + "\n")
    secret.chmod(0o600)
    env = {
        "PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": world.database.url,
        "PARLEY_BLOBS": str(world.folder / "blobs"), "PARLEY_SECRET_KEY_FILE": str(secret),
        "PARLEY_PUBLIC_URL": world.balancer.url, "PARLEY_LEASE_S": str(LEASE_S), "PARLEY_EDGE_LEASE_S": "4",
        "PARLEY_RELOAD": "false", "CHAOS_MARKS": str(world.folder), "PARLEY_WORKERS": str(workers),
    }  # fmt: skip
    agents = [HERE / "agents.py", defined(world.folder / "agents")]
    for number in range(SERVERS):
        seat = Server(f"server-{number}", world.folder / f"server-{number}", world.history, agents, env)
        await seat.start()
        stack.push_async_callback(seat.stop)
        world.servers.append(seat)
        world.balancer.servers.append(seat.url)


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder


def defined(folder: Path) -> Path:
    """Agents defined in files: a workflow, the organisation, paired agents, and one that writes plans."""
    folder.mkdir()
    shutil.copytree(sample_folder(), folder.parent / "organizations")
    (folder / "flow.yaml").write_text(FLOW)
    (folder / "writer.yaml").write_text("driver: llm\nmodel: offline\n")
    options = f"folder: {folder.parent / 'organizations'}\n  work: {folder.parent / 'organised'}"
    (folder / "house.yaml").write_text(f"driver: org\norg:\n  {options}\nlimits: {{max_queued: 1000}}\n")
    for number in range(RUNTIMES):
        (folder / f"far-{number}.yaml").write_text("driver: edge\n")
    return folder


async def _pair(world: World, endpoint: str, stack: AsyncExitStack) -> None:
    async with httpx2.AsyncClient(verify=NO_TLS, base_url=world.balancer.url, timeout=20) as http:
        for number in range(RUNTIMES):
            name = f"far-{number}"
            reply = await http.post(f"/admin/agents/{name}/pairing", json={})
            seat = Runtime(name, world.folder / name, world.history, world.balancer.url, endpoint)
            await seat.pair(reply.raise_for_status().json()["pairing_token"])
            await seat.start()
            stack.push_async_callback(seat.stop)
            world.runtimes.append(seat)


async def _join(world: World, stack: AsyncExitStack) -> None:
    async with httpx2.AsyncClient(verify=NO_TLS, base_url=world.balancer.url, timeout=20) as http:
        for number in range(NODES):
            made = (await http.post("/workspaces", json={"name": f"Node {number}"})).raise_for_status().json()
            env = {
                "PARLEY_NODE_PLATFORM": world.balancer.url, "PARLEY_NODE_ID": made["id"],
                "PARLEY_NODE_HEARTBEAT_S": "1",
            }  # fmt: skip
            name = f"node-{number}"
            seat = Member(name, world.folder / name, world.history, ["dev.chaos.member"], env)
            await seat.start()
            stack.push_async_callback(seat.stop)
            world.nodes.append(seat)
            world.node_ids.append(made["id"])
            await until(lambda id_=made["id"]: _online(http, id_), 30)


async def _online(http: httpx2.AsyncClient, id_: str) -> bool:
    return (await http.get(f"/workspaces/{id_}")).json()["status"] == "online"
