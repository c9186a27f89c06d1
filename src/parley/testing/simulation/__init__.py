"""Simulate agents on a cluster that breaks: replicas, database and clients in one process, decided by a seed.

def test_my_agent_survives():
    simulate([my_agent], {"my-agent": ["hello"]}, seeds=50)
"""

import gc
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from msgspec import Struct, structs

from parley.execution.driver import Driver
from parley.runs.rules.view import answer_of, view_of
from parley.testing.agents import AgentRun
from parley.testing.simulation.clients import ClientCommand, perform
from parley.testing.simulation.faults import drawn
from parley.testing.simulation.invariants import Violation
from parley.testing.simulation.shrink import WorldPlan, shrunk, story
from parley.testing.simulation.world import Universe, World

__all__ = ["Simulation", "SimulationFailed", "Violation", "simulate"]

WITHIN_S = 6.0
COPIES = 4


class Simulation(Struct, frozen=True):
    """The result of simulations without violations."""

    worlds: int
    runs: int
    events: int
    steps: int
    traces: tuple[str, ...]
    """One hash for each seed. It is the same whenever the same agents are simulated with the same seed."""


class SimulationFailed(AssertionError):
    """Raised when a promise did not hold. The message tells the story of the smallest world in which it fails."""

    def __init__(self, seed: int, violations: Sequence[Violation], told: str) -> None:
        super().__init__(told)
        self.seed = seed
        self.violations = violations


Check = Callable[[AgentRun], None]


def simulate(
    agents: Sequence[Driver],
    asks: Mapping[str, Sequence[str]],
    *,
    answers: Sequence[str] = ("yes",),
    seeds: int | Iterable[int] = 20,
    replicas: int = 3,
    faults: int = 6,
    check: Check | None = None,
) -> Simulation:
    """Simulate agents in one world per seed. `asks` holds the messages for each agent by its slug. Several clients send
    each message, while replicas crash, pause and lose their database; questions get the `answers` in order, and then
    the last one again. Raise SimulationFailed if a promise of the server does not hold, or if `check` raises
    AssertionError for the result of a run."""
    worlds, runs, events, steps, traces = 0, 0, 0, 0, list[str]()
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        plan = WorldPlan(seed, _commands(seed, asks, tuple(answers)), drawn(seed, faults, replicas, WITHIN_S))

        def play(plan: WorldPlan, told: bool) -> Universe:
            return _played(plan, agents, replicas, check, told)

        universe = play(plan, False)
        if universe.violations:
            small = shrunk(plan, play)
            raise SimulationFailed(seed, universe.violations, story(small, play(small, True)))
        worlds, runs, events = worlds + 1, runs + universe.runs, events + universe.events
        steps += universe.steps
        traces.append(universe.trace)
        gc.collect()
    return Simulation(worlds, runs, events, steps, tuple(traces))


def _commands(seed: int, asks: Mapping[str, Sequence[str]], answers: tuple[str, ...]) -> tuple[ClientCommand, ...]:
    dice = Random(f"{seed}/commands")
    asked = [(slug, text) for slug, texts in asks.items() for text in texts for _ in range(COPIES)]
    return tuple(
        ClientCommand(
            number,
            round(dice.uniform(0.0, WITHIN_S), 3),
            slug,
            text,
            streams=dice.random() < 0.5,
            answers=answers,
            key=f"#{number}",
        )
        for number, (slug, text) in enumerate(asked)
    )


def _played(plan: WorldPlan, agents: Sequence[Driver], replicas: int, check: Check | None, told: bool) -> Universe:
    world = World(plan.seed, lambda _world, _version: agents, plan.faults, replicas, told=told)

    def actors(world: World) -> Sequence[Coroutine[Any, Any, None]]:
        return [perform(world, command) for command in plan.commands]

    universe = world.play(actors)
    if check is not None and not universe.violations:
        universe.violations.extend(_checked(world, check))
    return universe


def _checked(world: World, check: Check) -> Iterable[Violation]:
    tables = world.database.tables
    for id_, head in tables.heads.items():
        if head.run.parent is None:
            events = tables.events(id_)
            questions = tuple(event.type for event in events if event.type == "input_required")
            result = AgentRun(**structs.asdict(answer_of(view_of(events))), questions=questions, events=tuple(events))
            try:
                check(result)
            except AssertionError as wrong:
                yield Violation("check", id_, str(wrong) or "assertion failed")
