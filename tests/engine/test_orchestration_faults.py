"""Any plan over the real engine: steps fail, the server is handed over, and somebody steers, at random moments."""

import asyncio
from contextlib import suppress
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley import Failed, Text, Turn, agent
from parley.core.access import LOCAL
from parley.core.agents import Agent
from parley.core.events import Stepped
from parley.core.orchestrations import Orchestration
from parley.core.plans import Rules, Step, ancestors
from parley.drivers.workflow import WorkflowDriver
from parley.engine.audit import verify_run
from parley.engine.conducting import Conductor
from parley.engine.exchange import Exchange
from parley.engine.orchestrations import Creation, Orchestrations
from parley.engine.streams import read_all
from parley.errors import Conflict
from parley.stores.blobs import open_blobs
from parley.stores.memory import MemoryStore
from parley.stores.signals import NoSignals
from parley.stores.solo import Solo
from tests.core.plans import plans
from tests.engine.test_orchestrations import message

pytestmark = pytest.mark.slow


class Theatre:
    def __init__(self, steps: tuple[Step, ...], rules: Rules, dice: Random) -> None:
        self.store = MemoryStore()
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
        exchange = Exchange(self.store, open_blobs("memory:"), Solo(self.store), NoSignals(), grace_s=1)
        exchange.execution.conduct = Conductor(exchange).conducted
        for driver in self._drivers:
            exchange.add(driver)
        await exchange.start()
        return exchange

    async def play(self, rules: Rules) -> Orchestration:
        exchange = await self.open()
        orchestrations = Orchestrations(exchange)
        id_ = (await orchestrations.create(Creation("flow", LOCAL, message(), "c", rules))).id
        for _ in range(self.dice.randrange(12)):
            await asyncio.sleep(self.dice.choice([0, 0.001]))
            if self.dice.random() < 0.2:
                await exchange.execution.close()
                await exchange.membership.close()
                exchange = await self.open()
                orchestrations = Orchestrations(exchange)
            with suppress(Conflict):
                await self._steer(orchestrations, id_)
        state = await self._end(exchange, orchestrations, id_)
        await exchange.execution.close()
        await exchange.membership.close()
        return state

    async def _steer(self, orchestrations: Orchestrations, id_: str) -> None:
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

    async def _end(self, exchange: Exchange, orchestrations: Orchestrations, id_: str) -> Orchestration:
        """Let it go on until it has ended."""
        with suppress(Conflict):
            await orchestrations.resume(id_, LOCAL)
        state = await orchestrations.read(id_, LOCAL)
        with await exchange.follow(state.run, state.version) as follower:
            while not state.ended:
                await asyncio.wait_for(follower.next(), 10)
                state = await orchestrations.read(id_, LOCAL)
        return state


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=plans(6), seed=st.integers(0, 2**32), parallel=st.integers(1, 3), retries=st.integers(0, 2))
def test_whatever_happens_every_orchestration_ends_as_its_steps_did(
    steps: tuple[Step, ...], seed: int, parallel: int, retries: int
) -> None:
    rules = Rules(parallel, None, retries > 0, retries, 1)
    theatre = Theatre(steps, rules, Random(seed))
    asyncio.run(_played(theatre, steps, rules))


async def _played(theatre: Theatre, steps: tuple[Step, ...], rules: Rules) -> None:
    state = await theatre.play(rules)
    statuses = {one.status for one in state.steps}
    canceled = any(event.type == "canceled" for event in await read_all(theatre.store, state.run))
    # A cancel that is on record before the end is how it ends, also where every step was done by then.
    assert (state.status == "completed") == (statuses == {"completed"} and not canceled)
    if state.status != "completed":
        assert state.status == ("cancelled" if canceled else "failed")
        assert canceled or "failed" in statuses
    await verify_run(theatre.store, state.run)
    before, done, running = ancestors(steps), set[str](), set[str]()
    for event in await read_all(theatre.store, state.run):
        if not isinstance(event.payload, Stepped):
            continue
        stepped = event.payload
        running.discard(stepped.step)
        if stepped.status == "running":
            assert stepped.step not in done
            assert done >= before[stepped.step]
            running.add(stepped.step)
            assert len(running) <= rules.max_parallel
        elif stepped.status == "completed":
            done.add(stepped.step)
