"""`python -m dev.simulation`: simulate the standard scenario, with one seed or with as many as fit into a time."""

import argparse
import gc
import secrets
import sys
import time
from collections import Counter

from dev.simulation.scenario import COMMANDS, FAULTS, plan, played
from parley.testing.simulation.shrink import shrunk, story
from parley.testing.simulation.world import Universe


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this world, and print the hash of its trace")
    parser.add_argument("--seconds", type=float, default=60.0, help="play worlds with fresh seeds for so long")
    parser.add_argument("--commands", type=int, default=COMMANDS)
    parser.add_argument("--faults", type=int, default=FAULTS)
    asked = parser.parse_args()
    gc.freeze()
    if asked.seed is not None:
        universe = played(plan(asked.seed, asked.commands, asked.faults))
        print(_line(universe))
        return _told(universe, asked) if universe.violations else 0
    return _search(asked)


def _search(asked: argparse.Namespace) -> int:
    """Play worlds with fresh seeds until the time is up or one fails."""
    began, until = time.process_time(), time.monotonic() + asked.seconds
    count, totals = 0, Counter[str]()
    while time.monotonic() < until:
        universe = played(plan(secrets.randbelow(2**31), asked.commands, asked.faults))
        if universe.violations:
            print(_line(universe))
            return _told(universe, asked)
        count += 1
        totals += Counter(runs=universe.runs, events=universe.events, steps=universe.steps)
        gc.collect()
    rate = count / (time.process_time() - began)
    found = ", ".join(f"{number:,} {name}" for name, number in totals.items())
    print(f"{count} worlds without a violation: {found}; {rate:.2f} worlds per second of one core.")
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


if __name__ == "__main__":
    sys.exit(main())
