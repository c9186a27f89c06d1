"""`python -m dev.chaos`: see docs/chaos.md."""

import argparse
import asyncio
import json
import random
import shutil
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

from rich.console import Console

from dev.chaos import full, running
from dev.chaos.report import figures, show


def main() -> int:
    given = _arguments()
    folder = Path(mkdtemp(prefix="parley-chaos-"))
    folder.chmod(0o755)
    began = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {words}", file=sys.stderr, flush=True)

    say(f"seed {given.seed}, in {folder}")
    for name in ("replicas", "full"):
        (folder / name).mkdir()
    outcomes = {
        "replicas": asyncio.run(running.run(folder / "replicas", given.seed, given.seconds, say, given.workers)),
        "full file": asyncio.run(full.run(folder / "full", given.seed, say)),
    }
    found = {name: figures(outcome) for name, outcome in outcomes.items()}
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        for name, one in found.items():
            show(name, one, Console(width=120))
    if any(outcome.violations for outcome in outcomes.values()):
        for name, outcome in outcomes.items():
            outcome.history.save(folder / f"{name}.json")
        say(f"what led to it is in {folder}")
        return 1
    if not given.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m dev.chaos", description="Break everything, and look whether it holds."
    )
    parser.add_argument("--seconds", type=float, default=600, help="for how long; 600 if left out")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="the same faults at the same times")
    parser.add_argument(
        "--workers", type=int, default=1, help="workers of each server, which are killed and rolled too"
    )
    parser.add_argument("--json", action="store_true", help="the result for programs")
    parser.add_argument("--keep", action="store_true", help="leave the logs of the processes where they are")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
