"""Orchestrations of ten trivial steps, beside the same runs begun one by one by clients that wait for each."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from time import perf_counter

import uvloop

from dev.bench.data import scratch
from dev.bench.rows import Case
from parley import Text, Turn, agent
from parley.app import open_exchange
from parley.drivers.workflow import WorkflowDriver
from parley.ids import new_id
from parley.orchestrations.rules.plan import Step
from parley.runs.requests import Send
from parley.runs.rules.access import LOCAL
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import ENDINGS
from parley.runs.service import Exchange
from parley.settings import load

ORCHESTRATIONS = 200
STEPS = 10
CLIENTS = 32
FLOOR = 0.6


@agent("trivial")
async def trivial(turn: Turn):
    """Says a word."""
    yield Text("ok")


def _step(number: int) -> Step:
    return Step(f"s{number}", "trivial", depends_on=(f"s{number - 1}",) if number else ())


CHAIN = WorkflowDriver(Agent("chain", "Chain", "Ten steps."), tuple(_step(number) for number in range(STEPS)))


def cases() -> list[Case]:
    note = f"{ORCHESTRATIONS} of {STEPS} steps, one after another; {CLIENTS} at a time"
    return [
        Case(
            "orchestrations",
            "steps/s",
            steps_rate,
            f"the same runs, {CLIENTS} at a time",
            runs_rate,
            "min",
            FLOOR,
            note=lambda _: note,
        )
    ]


def steps_rate() -> float:
    return _measured("chain", ORCHESTRATIONS) * STEPS


def runs_rate() -> float:
    return _measured("trivial", ORCHESTRATIONS * STEPS)


def _measured(slug: str, runs: int) -> float:
    with scratch() as directory:
        return uvloop.run(_rate(directory, slug, runs))


async def _rate(directory: Path, slug: str, runs: int) -> float:
    """Runs a second, of so many."""
    async with open_exchange(load(data_dir=directory, store="sqlite"), [trivial, CHAIN]) as exchange:
        await _all(CLIENTS, lambda: _done(exchange, slug))
        begun = perf_counter()
        await _all(runs, lambda: _done(exchange, slug))
        return runs / (perf_counter() - begun)


async def _all(runs: int, run: Callable[[], Awaitable[None]]) -> None:
    """Each client begins its next when the last one has ended, until there were enough."""
    numbers = count()

    async def client() -> None:
        while next(numbers) < runs:
            await run()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def _done(exchange: Exchange, slug: str) -> None:
    outcome = await exchange.send(Send(slug, LOCAL, Message(new_id(), (text_part("go"),))))
    with exchange.continue_from(outcome) as follower:
        while (last := (await follower.next())[-1].type) not in ENDINGS:
            pass
    if last != "completed":
        raise RuntimeError(f"a run has {last}")
