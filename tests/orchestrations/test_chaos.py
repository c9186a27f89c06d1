"""Any plan on real servers: steps fail, somebody steers, and servers are killed, all at random moments."""

import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from parley.ids import ConversationId
from parley.orchestrations.rules.plan import Step
from parley.runs.log import verify_run
from parley.runs.rules.events import Event
from parley.runs.store import Listing, LogStore
from parley.runs.streams import read_all
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.sqlite import SqliteStore
from parley.testing.processes import ServerProcess, replicas
from tests.orchestrations.plans import check_end, check_order, fold

HERE = Path(__file__).parent
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
PREFIX = "/api/agent2agent/conversations"
MANY = 8
KILLS = 3
MOST = 3
END_S = 60.0

pytestmark = pytest.mark.slow

Json = dict[str, Any]


def plan(dice: random.Random) -> tuple[Step, ...]:
    """Any plan without circles."""
    ids = [f"s{number}" for number in range(dice.randint(2, 8))]
    steps = [
        Step(id_, "worker", depends_on=tuple(dice.sample(ids[:place], dice.randint(0, min(place, 3)))))
        for place, id_ in enumerate(ids)
    ]
    dice.shuffle(steps)
    return tuple(steps)


def written(folder: Path, name: str, steps: Sequence[Step], dice: random.Random) -> Path:
    shown = [
        {"id": one.id, "agent": one.agent, "depends_on": list(one.depends_on), "input": f"{name} {one.id}"}
        for one in steps
    ]
    flow = {"steps": shown, "max_parallel": MOST, "retries": dice.randint(0, 1), "retry_delay_s": 0.01}
    file = folder / f"{name}.yaml"
    file.write_bytes(msgspec.json.encode({"slug": name, "description": "d", "workflow": flow}))
    return file


class Crowd:
    """Callers that start orchestrations and control them, on any of the servers."""

    def __init__(self, urls: Callable[[], list[str]], dice: random.Random) -> None:
        self._urls, self._dice = urls, dice
        self._http = httpx2.AsyncClient(verify=NO_TLS, timeout=10)
        self.begun: dict[str, tuple[str, str]] = {}
        """By agent: the conversation and the orchestration."""

    async def post(self, path: str, body: Json, headers: Json | None = None) -> Json:
        """As a client does whose server may be gone: again, with the same key."""
        until = time.monotonic() + END_S
        while True:
            try:
                url = self._dice.choice(self._urls())
                return (await self._http.post(url + path, json=body, headers=headers)).json()
            except (httpx2.TransportError, ValueError):
                assert time.monotonic() < until
                await asyncio.sleep(0.05)

    async def ask(self, agent: str, action: str, conversation: str, **more: object) -> Json:
        body = {"mode": "orchestrate", "action": action, "agentSlug": agent, **more}
        key = {"Idempotency-Key": f"{conversation} {agent}"} if action == "create" else None
        return await self.post(f"{PREFIX}/{conversation}/tasks", body, key)

    async def begin(self, agent: str) -> None:
        conversation = f"c-{agent}"
        await self.post(PREFIX, {"agentSlug": agent, "id": conversation})
        made = await self.ask(agent, "create", conversation, message="go")
        self.begun[agent] = conversation, made["result"]["orchestration"]["id"]

    async def read(self, agent: str) -> Json:
        conversation, id_ = self.begun[agent]
        return (await self.ask(agent, "read", conversation, orchestrationId=id_))["result"]["orchestration"]

    async def steer(self) -> None:
        agent = self._dice.choice(list(self.begun))
        conversation, id_ = self.begun[agent]
        action = self._dice.choices(["pause", "resume", "cancel", "retry_step"], [4, 5, 1, 10])[0]
        more: Json = {"orchestrationId": id_}
        if action == "retry_step":
            failed = [one for one in (await self.read(agent))["plan"]["steps"] if one["status"] == "failed"]
            if not failed:
                return
            more["stepId"] = self._dice.choice(failed)["stepId"]
        await self.ask(agent, action, conversation, **more)

    async def steering(self) -> None:
        while True:
            await self.steer()
            await asyncio.sleep(self._dice.choice([0, 0.02]))

    async def ended(self, agent: str) -> None:
        """Wait for the end; the only further control is to resume."""
        conversation, id_ = self.begun[agent]
        until = time.monotonic() + END_S
        while (status := (await self.read(agent))["status"]) not in ("completed", "failed", "cancelled"):
            assert time.monotonic() < until, f"{agent} is still {status}"
            if status == "paused":
                await self.ask(agent, "resume", conversation, orchestrationId=id_)
            await asyncio.sleep(0.05)

    async def played(self, kill: Callable[[], Awaitable[None]]) -> None:
        """Everything at once, and kills in between."""
        steering = asyncio.get_running_loop().create_task(self.steering())
        for _ in range(KILLS):
            await asyncio.sleep(self._dice.uniform(0.05, 0.3))
            await kill()
        steering.cancel()
        with suppress(asyncio.CancelledError):
            await steering
        await asyncio.gather(*map(self.ended, self.begun))
        await self._http.aclose()


async def history(store: LogStore, conversation: str, id_: str) -> list[Event]:
    """The log of the run in which it ended, which holds all that was before."""
    runs, _ = await store.list_runs(Listing(conversation=ConversationId(conversation)))
    found = [run.id for run in runs if run.orchestration == id_]
    for run in found:
        await verify_run(store, run)
    return await read_all(store, max(found))


def marks(folder: Path) -> Counter[str]:
    """Number of executions of each step."""
    file = folder / "done"
    return Counter(file.read_text().split("\n")) if file.exists() else Counter[str]()


async def check(store: LogStore, crowd: Crowd, plans: dict[str, tuple[Step, ...]], done: Counter[str]) -> None:
    for agent, steps in plans.items():
        conversation, id_ = crowd.begun[agent]
        events = await history(store, conversation, id_)
        state = fold(events)
        assert state is not None
        assert state.ended
        check_order(events, steps, MOST)
        check_end(state, events)
        for one in state.steps:
            times = done[f"{agent} {one.step.id}"]
            assert times >= 1 or one.status != "completed"
            assert times <= 1 + KILLS, "work is done again only where a kill broke it off"


def scene(folder: Path, seed: int) -> tuple[random.Random, dict[str, tuple[Step, ...]], list[Path]]:
    print(f"seed {seed}")
    dice = random.Random(seed)
    plans = {f"flow{number}": plan(dice) for number in range(MANY)}
    files = [written(folder, name, steps, dice) for name, steps in plans.items()]
    return dice, plans, [HERE / "chaos_agents.py", *files]


async def test_whatever_happens_on_sqlite(tmp_path: Path) -> None:
    dice, plans, agents = scene(tmp_path, random.randrange(2**32))
    env = {"PARLEY_TEST_MARKS": str(tmp_path)}
    servers = [await ServerProcess.start(agents, tmp_path / "data", env=env)]
    crowd = Crowd(lambda: [server.url for server in servers], dice)
    await asyncio.gather(*map(crowd.begin, plans))

    async def kill() -> None:
        await servers[0].kill()
        servers[0] = await ServerProcess.start(agents, tmp_path / "data", env=env)

    await crowd.played(kill)
    assert await servers[0].stop() == 0
    store = SqliteStore(tmp_path / "data")
    await check(store, crowd, plans, marks(tmp_path))
    await store.close()


async def test_whatever_happens_with_two_replicas(tmp_path: Path, database: str) -> None:
    dice, plans, agents = scene(tmp_path, random.randrange(2**32))
    env = {"PARLEY_TEST_MARKS": str(tmp_path), "PARLEY_LEASE_S": "1"}
    shared = {**env, "PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": database}
    async with replicas(2, agents, tmp_path, database, **env) as servers:
        crowd = Crowd(lambda: [server.url for server in servers], dice)
        await asyncio.gather(*map(crowd.begin, plans))

        async def kill() -> None:
            place = dice.randrange(2)
            await servers[place].kill()
            more = {**shared, "PARLEY_BLOBS": str(tmp_path / "blobs")}
            servers[place] = await ServerProcess.start(agents, tmp_path / f"replica-{place}", env=more)

        await crowd.played(kill)
    store = PostgresStore(await open_pool(database, phases=()))
    await check(store, crowd, plans, marks(tmp_path))
    await store.close()
