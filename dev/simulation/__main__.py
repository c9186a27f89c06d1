"""`python -m dev.simulation`: simulate the standard scenario with one seed, or with the kept seeds and then as many
fresh ones as fit into a time."""

import argparse
import gc
import random
import secrets
import sys
import time
from collections import Counter
from itertools import chain, count

from dev.simulation.scenario import COMMANDS, FAULTS, plan, played
from dev.simulation.seeds import FAILED_ONCE, FIXED
from parley.testing.simulation.shrink import shrunk, story
from parley.testing.simulation.world import Universe


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this world, and print the hash of its trace")
    parser.add_argument("--seconds", type=float, default=60.0, help="play kept seeds, then fresh ones, for so long")
    parser.add_argument("--fresh", help="take fresh seeds that follow from this text, instead of random ones")
    parser.add_argument("--commands", type=int, default=COMMANDS)
    parser.add_argument("--faults", type=int, default=FAULTS)
    asked = parser.parse_args()
    sys.unraisablehook = _tell_unless_dead
    # No garbage is collected while a world is played, and all of it between two worlds.
    gc.freeze()
    gc.disable()
    if asked.seed is not None:
        universe = played(plan(asked.seed, asked.commands, asked.faults))
        print(_line(universe))
        return _told(universe, asked) if universe.violations else 0
    return _search(asked)


def _search(asked: argparse.Namespace) -> int:
    """Play worlds until the time is up or one fails: those of the kept seeds, then those of fresh ones."""
    began, until = time.process_time(), time.monotonic() + asked.seconds
    worlds, totals = 0, Counter[str]()
    fresh = random.Random(asked.fresh or secrets.token_hex())
    seeds = chain(FIXED, FAILED_ONCE, (fresh.randrange(2**31) for _ in count()))
    while time.monotonic() < until:
        universe = played(plan(next(seeds), asked.commands, asked.faults))
        if universe.violations:
            print(_line(universe))
            return _told(universe, asked)
        worlds += 1
        totals += Counter(runs=universe.runs, events=universe.events, steps=universe.steps)
        gc.collect()
    rate = worlds / (time.process_time() - began)
    found = ", ".join(f"{number:,} {name}" for name, number in totals.items())
    new = max(0, worlds - len(FIXED) - len(FAILED_ONCE))
    print(f"{worlds} worlds ({new} fresh) without a violation: {found}; {rate:.2f} worlds per second of one core.")
    return 0


def _line(universe: Universe) -> str:
    return (
        f"Seed {universe.seed}: trace {universe.trace}, {universe.steps} steps in {universe.seconds:.1f} simulated "
        f"seconds, {universe.runs} runs, {universe.events} events, {len(universe.violations)} violations."
    )


def _told(universe: Universe, asked: argparse.Namespace) -> int:
    """Shrink a failing world, and tell its story."""
    for violation in universe.violations:
        print(violation)
    print("Shrinking …", flush=True)
    small = shrunk(plan(universe.seed, asked.commands, asked.faults), played)
    print(story(small, played(small, True)))
    print(f"Repeat it with: make simulate SEED={universe.seed}")
    return 1


_OF_THE_DEAD = "coroutine ignored GeneratorExit", "no running event loop"


def _tell_unless_dead(unraisable: "sys.UnraisableHookArgs") -> None:
    """Print an error that nothing catches, unless it says that a coroutine of a dead process waits in a `finally` block
    when it is collected."""
    if not any(words in str(unraisable.exc_value) for words in _OF_THE_DEAD):
        sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    sys.exit(main())
