"""Plans of simulated worlds, and how a failing plan is shrunk to the fewest faults and commands and told as a story."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from parley.testing.simulation.clients import ClientCommand
from parley.testing.simulation.faults import WorldFault
from parley.testing.simulation.invariants import Violation
from parley.testing.simulation.world import Universe

T = TypeVar("T")

MAX_WORLDS = 300
MAX_LINES = 120


class WorldPlan(Struct, frozen=True):
    """The parts of a world that can be left out: the rest follows from the seed."""

    seed: int
    commands: tuple[ClientCommand, ...]
    faults: tuple[WorldFault, ...]


Play = Callable[[WorldPlan, bool], Universe]
"""Plays a world to its end; with True, it also tells what happens."""


def shrunk(plan: WorldPlan, play: Play, most: int = MAX_WORLDS) -> WorldPlan:
    """Return the smallest plan found that still violates the same rule, after at most so many worlds."""
    rules = {violation.rule for violation in play(plan, False).violations}
    left = most

    def fails(smaller: WorldPlan) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and any(one.rule in rules for one in play(smaller, False).violations)

    while left > 0:
        before = plan
        plan = _with_fewer_faults(plan, fails)
        plan = _with_fewer_commands(plan, fails)
        if plan == before:
            break
    return plan


Fails = Callable[[WorldPlan], bool]


def _with_fewer_faults(plan: WorldPlan, fails: Fails) -> WorldPlan:
    return replace(plan, faults=_fewer(plan.faults, lambda some: fails(replace(plan, faults=some))))


def _with_fewer_commands(plan: WorldPlan, fails: Fails) -> WorldPlan:
    return replace(plan, commands=_fewer(plan.commands, lambda some: fails(replace(plan, commands=some))))


def _fewer(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Leave out halves, then quarters, and so on, as long as it still fails."""
    size = max(1, len(items) // 2)
    while items:
        place = 0
        while place < len(items):
            fewer = items[:place] + items[place + size :]
            if fails(fewer):
                items = fewer
            else:
                place += size
        if size == 1:
            break
        size //= 2
    return items


def story(plan: WorldPlan, universe: Universe) -> str:
    """Tell what happened in a world that failed: the commands, the faults, and everything about the runs concerned."""
    concerned = _concerned(universe.violations, universe.story)
    told = [line for line in universe.story if any(word in line for word in concerned)]
    return "\n".join([
        f"Seed {plan.seed}: {len(plan.commands)} commands and {len(plan.faults)} faults lead to a violation.",
        "",
        *map(str, plan.commands),
        *map(str, plan.faults),
        "",
        *told[-MAX_LINES:],
        "",
        *map(str, universe.violations),
    ])  # fmt: skip


def _concerned(violations: Iterable[Violation], lines: Sequence[str]) -> list[str]:
    """Return words of the lines to show: the runs of the violations, and what happens to processes."""
    runs = [one.where[-12:] for one in violations if len(one.where) > 12]
    if not runs:
        return [""]
    return [*runs, "is dead", "is paused", "VIOLATION", "replica.", "slots.vacated", "FAULT"]
