"""Any plan over the real engine: steps fail, the server is handed over, and somebody steers, at random moments."""

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley import Failed, Text, Turn, agent
from parley.drivers.workflow import WorkflowDriver
from parley.errors import Conflict
from parley.orchestrations.conductor import Conductor
from parley.orchestrations.rules.plan import Rules, Step
from parley.orchestrations.rules.state import Orchestration
from parley.orchestrations.service import Creation, OrchestrationService
from parley.runs.log import verify_run
from parley.runs.requests import Extensions
from parley.runs.rules.access import LOCAL
from parley.runs.rules.agents import Agent
from parley.runs.service import Exchange
from parley.runs.store import LogStore
from parley.runs.streams import read_all
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.memory import MemoryStore
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.sqlite import SqliteStore
from parley.testing.databases import fresh_database, give_back
from tests.orchestrations.plans import check_end, check_order, plans
from tests.orchestrations.test_service import message

pytestmark = pytest.mark.slow


class Theatre:
    def __init__(self, store: LogStore, steps: tuple[Step, ...], rules: Rules, dice: Random) -> None:
        self.store = store
        self.dice = dice
        self.succeeded: list[str] = []

        @agent("worker")
        async def worker(turn: Turn):
            await asyncio.sleep(dice.choice([0, 0, 0.001]))
            if dice.random() < 0.2:
                yield Failed("broken", "It broke.")
                return
            self.succeeded.append(turn.text)
            yield Text("done")

        named = tuple(Step(one.id, "worker", depends_on=one.depends_on) for one in steps)
        self._drivers = worker, WorkflowDriver(Agent("flow", "flow", "A workflow."), named, rules)

    async def open(self) -> Exchange:
        shared = isinstance(self.store, PostgresStore)
        exchange = Exchange(
            self.store,
            open_blobs("memory:"),
            Solo(self.store),
            NoSignals(),
            grace_s=1,
            shared=shared,
            extend=lambda made: Extensions(conduct=Conductor(made).conducted),
        )
        for driver in self._drivers:
            exchange.add(driver)
        await exchange.start()
        return exchange

    async def play(self, rules: Rules) -> Orchestration:
        exchange = await self.open()
        orchestrations = OrchestrationService(exchange)
        id_ = (await orchestrations.create(Creation("flow", LOCAL, message(), "c", rules))).id
        for _ in range(self.dice.randrange(12)):
            await asyncio.sleep(self.dice.choice([0, 0.001]))
            if self.dice.random() < 0.2:
                await exchange.execution.close()
                await exchange.membership.close()
                exchange = await self.open()
                orchestrations = OrchestrationService(exchange)
            with suppress(Conflict):
                await self._steer(orchestrations, id_)
        state = await self._end(exchange, orchestrations, id_)
        await exchange.execution.close()
        await exchange.membership.close()
        return state

    async def _steer(self, orchestrations: OrchestrationService, id_: str) -> None:
        match self.dice.randrange(20):
            case 0:
                await orchestrations.cancel(id_, LOCAL)
            case 1 | 2 | 3 | 4:
                await orchestrations.pause(id_, LOCAL)
            case 5 | 6 | 7 | 8 | 9:
                await orchestrations.resume(id_, LOCAL)
            case _:
                state = await orchestrations.read(id_, LOCAL)
                failed = [one.step.id for one in state.steps if one.status == "failed"]
                if failed:
                    await orchestrations.retry_step(id_, LOCAL, self.dice.choice(failed))

    async def _end(self, exchange: Exchange, orchestrations: OrchestrationService, id_: str) -> Orchestration:
        """Let it go on until it has ended."""
        with suppress(Conflict):
            await orchestrations.resume(id_, LOCAL)
        state = await orchestrations.read(id_, LOCAL)
        with await exchange.follow(state.run, state.version) as follower:
            while not state.ended:
                await asyncio.wait_for(follower.next(), 10)
                state = await orchestrations.read(id_, LOCAL)
        return state


PLAYS: Any = {
    "steps": plans(6), "seed": st.integers(0, 2**32), "parallel": st.integers(1, 3), "retries": st.integers(0, 2),
}  # fmt: skip


def _set(
    store: LogStore, steps: tuple[Step, ...], seed: int, parallel: int, retries: int
) -> tuple[Theatre, tuple[Step, ...], Rules]:
    rules = Rules(parallel, None, retries > 0, retries, 1)
    return Theatre(store, steps, rules, Random(seed)), steps, rules


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(**PLAYS)
def test_whatever_happens_every_orchestration_ends_as_its_steps_did(
    steps: tuple[Step, ...], seed: int, parallel: int, retries: int
) -> None:
    asyncio.run(_played(*_set(MemoryStore(), steps, seed, parallel, retries)))


async def _played(theatre: Theatre, steps: tuple[Step, ...], rules: Rules) -> None:
    state = await theatre.play(rules)
    await verify_run(theatre.store, state.run)
    events = await read_all(theatre.store, state.run)
    check_end(state, events)
    check_order(events, steps, rules.max_parallel)


SOME = settings(max_examples=12, suppress_health_check=list(HealthCheck))


@SOME
@given(**PLAYS)
def test_the_same_on_sqlite(
    tmp_path_factory: pytest.TempPathFactory, steps: tuple[Step, ...], seed: int, parallel: int, retries: int
) -> None:
    folder = tmp_path_factory.mktemp("played")

    async def play() -> None:
        store = SqliteStore(folder)
        try:
            await _played(*_set(store, steps, seed, parallel, retries))
        finally:
            await store.close()

    asyncio.run(play())


@SOME
@given(**PLAYS)
def test_the_same_on_postgres(postgres: str, steps: tuple[Step, ...], seed: int, parallel: int, retries: int) -> None:
    async def play() -> None:
        url = await fresh_database(postgres)
        store = PostgresStore(await open_pool(url))
        try:
            await _played(*_set(store, steps, seed, parallel, retries))
        finally:
            await store.close()
            await give_back(postgres, url)

    asyncio.run(play())
