"""Trees of tasks over two servers that are killed: budgets, cancels and the kill switch reach every leaf."""

import asyncio
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.budgets.rules import TREE
from parley.runs.log import all_runs
from parley.runs.rules.state import Run
from parley.stores.postgres import PostgresStore, open_pool
from parley.testing.processes import ServerProcess, replicas
from parley.testing.waiting import until
from tests.tree_agents import TOKENS

AGENTS = [Path(__file__).parent / "tree_agents.py"]
TREES = 200
DEPTH = 5
BUDGET = 150
SETTLE_S = 3.0
"""Longest time after which a signal of a cancel has arrived, also if it was lost on its way."""

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


class Grove:
    """Two servers, of which one is killed from time to time, and the callers of both."""

    def __init__(self, servers: list[ServerProcess], directory: Path, env: dict[str, str], seed: int) -> None:
        self.servers = servers
        self.directory = directory
        self.env = env
        self.dice = random.Random(seed)
        self.http = httpx2.AsyncClient(timeout=10)
        self.killed: dict[int, float] = {}
        """Time at which each process was killed."""
        self.roots: dict[str, int] = {}
        self.canceled: dict[str, float] = {}

    async def request(self, method: str, path: str, **given: Any) -> httpx2.Response:
        """Ask any of the servers, until one answers."""
        while True:
            url = self.dice.choice(self.servers).url
            try:
                reply = await self.http.request(method, url + path, **given)
            except httpx2.TransportError:
                await asyncio.sleep(0.1)
                continue
            if reply.status_code < 500:
                return reply
            await asyncio.sleep(0.1)

    async def plant(self, tree: int) -> str:
        message = {"messageId": f"tree-{tree}", "role": "ROLE_USER", "parts": [{"text": f"{tree} {DEPTH - 1} r"}]}
        body = {"message": message, "configuration": {"returnImmediately": True}}
        headers = {"A2A-Version": "1.0", "Idempotency-Key": f"tree-{tree}"}
        reply = await self.request("POST", "/agents/node/message:send", json=body, headers=headers)
        assert reply.status_code == 200, reply.text
        task = reply.json()["task"]["id"]
        self.roots[task] = tree
        return task

    async def grow(self, tree: int) -> None:
        task = await self.plant(tree)
        if self.dice.random() < 0.3:
            await asyncio.sleep(self.dice.uniform(0.0, 1.5))
            reply = await self.request("POST", f"/agents/node/tasks/{task}:cancel", headers={"A2A-Version": "1.0"})
            if reply.status_code == 200:
                self.canceled[task] = time.monotonic()

    async def kill(self, number: int) -> None:
        """Kill a server, and start another one in its place."""
        server = self.servers[number]
        await server.kill()
        self.killed[server.pid] = time.monotonic()
        directory = self.directory / f"again-{len(self.killed)}"
        self.servers[number] = await ServerProcess.start(AGENTS, directory, env=self.env)


async def test_two_hundred_trees_keep_their_budgets_and_stop_while_servers_are_killed(
    tmp_path: Path, database: str
) -> None:
    calls = tmp_path / "calls"
    calls.touch()
    env = {
        "PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": database, "PARLEY_BLOBS": str(tmp_path / "blobs"),
        "PARLEY_LEASE_S": "1", "PARLEY_TEST_CALLS": str(calls), "PARLEY_LOG_LEVEL": "error",
        "PARLEY_LIMITS": f'{{"agent:node": {{"tree_tokens": {BUDGET}}}}}',
    }  # fmt: skip
    store = PostgresStore(await open_pool(database, phases=()))
    async with replicas(2, AGENTS, tmp_path, database, **env) as servers:
        grove = Grove(servers, tmp_path, env, seed=1)
        for first in range(0, TREES, 50):
            growing = [asyncio.ensure_future(grove.grow(tree)) for tree in range(first, first + 50)]
            await asyncio.sleep(grove.dice.uniform(0.5, 2.0))
            await grove.kill(first // 50 % 2)
            await asyncio.gather(*growing)
            if first + 50 < TREES:
                await _until_few(store, 60)
        stopped = await grove.request("POST", "/admin/stops", json={"kind": "agent", "name": "node"})
        assert stopped.status_code == 201, stopped.text
        await _until_few(store, 0)
        over = time.monotonic()
        await asyncio.sleep(SETTLE_S)
        body = {"message": {"messageId": "new", "role": "ROLE_USER", "parts": [{"text": "0 1 r"}]}}
        for server in grove.servers:
            url = f"{server.url}/agents/node/message:send"
            assert (await grove.http.post(url, json=body, headers={"A2A-Version": "1.0"})).status_code == 403
        await grove.http.aclose()
    runs = {run_id: head.run async for run_id in all_runs(store) if (head := await store.head(run_id)) is not None}
    spent = {task: await _spent(store, task) for task in grove.roots}
    await store.close()
    _check(grove, runs, spent, calls.read_text().splitlines(), over)


async def _spent(store: PostgresStore, task: str) -> int:
    """The tokens of a tree; 0 if it was canceled before its first call."""
    found = await store.spent([(f"{TREE}:{task}", TREE)])
    return sum(one.tokens for one in found.values())


async def _until_few(store: PostgresStore, most: int) -> None:
    async def few() -> bool:
        return await store.unfinished("local", most + 1) <= most

    await until(few, 120)


def _check(grove: Grove, runs: dict[Any, Run], spent: dict[str, int], lines: list[str], over: float) -> None:
    assert len(grove.roots) == TREES
    assert all(run.ended for run in runs.values())
    begun: defaultdict[str, dict[str, tuple[float, int]]] = defaultdict(dict)
    ended: dict[str, float] = {}
    for line in lines:
        at, pid, tree, what, call = line.split()
        if what == "begin":
            begun[tree][call] = float(at), int(pid)
        else:
            ended[call] = float(at)
    late = [call for found in begun.values() for call, (at, _) in found.items() if at > over]
    assert not late, f"{len(late)} calls began after everything was stopped"
    figures: list[tuple[int, int]] = []
    for task, tree in grove.roots.items():
        found = begun[str(tree)]
        lost = [call for call in found if call not in ended]
        spans = [(at, ended.get(call, grove.killed.get(pid, over))) for call, (at, pid) in found.items()]
        under_way = max((sum(one <= at < end for one, end in spans) for at, _ in spans), default=0)
        assert spent[task] >= (len(found) - len(lost)) * TOKENS, f"tree {tree}: a call was not counted"
        overspend = max(0, spent[task] - BUDGET)
        assert overspend <= under_way * TOKENS, f"tree {tree}: {overspend} tokens over, {under_way} calls under way"
        assert len(found) * TOKENS <= BUDGET + (under_way + len(lost)) * TOKENS
        figures.append((overspend // TOKENS, under_way))
        if (at := grove.canceled.get(task)) is not None and runs[task].state.value == "canceled":
            assert not [call for call, (began, _) in found.items() if began > at + SETTLE_S]
    print(
        f"{len(runs)} tasks in {TREES} trees, {len(lines)} notes, {len(grove.killed)} kills, "
        f"{len(grove.canceled)} cancels; at most {max(one for one, _ in figures)} calls over a budget, "
        f"{max(two for _, two in figures)} calls of a tree at once"
    )
