"""`python -m tests.dev.simulation.measure`: count the worlds that find each planted fault, over several tries."""

import gc
import sys
import time

import pytest

from dev.simulation.scenario import plan, played
from parley.testing.simulation.faults import KINDS
from tests.dev.simulation.mutations import FAULTS, FOCUS, MUTATIONS, Mutation

MOST_SEEDS = 40
TRIES = 3
APART = 1000
COMMANDS = 120


def seeds_needed(mutation: Mutation, first: int = 0) -> int | None:
    """Return the number of worlds, from a first seed on, until one shows the fault; None if so many do not."""
    agents, kinds = FOCUS.get(mutation.__name__), FAULTS.get(mutation.__name__, KINDS)
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        for seed in range(first, first + MOST_SEEDS):
            found = played(plan(seed, COMMANDS, agents=agents, kinds=kinds)).violations
            gc.collect()
            if found:
                return seed - first + 1
    return None


def main() -> None:
    began, counts, missed = time.process_time(), list[int](), 0
    for mutation in MUTATIONS:
        needed = [seeds_needed(mutation, APART * number) for number in range(TRIES)]
        missed += needed.count(None)
        counts += [one for one in needed if one is not None]
        print(mutation.__name__, needed, flush=True)
    mean = sum(counts) / len(counts)
    print(f"{len(MUTATIONS)} faults, {TRIES} tries each: {missed} tries missed, else {mean:.2f} worlds on average.")
    print(f"{max(counts)} at most; {time.process_time() - began:.0f} s of processor time.")


if __name__ == "__main__":
    sys.exit(main())
