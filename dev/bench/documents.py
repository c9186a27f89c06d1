"""Plans (the actions contract, 002): how many are read and edited, beside one that only answers with the same JSON."""

import json
import subprocess
import sys
from functools import partial

from dev.bench import peers
from dev.bench.data import scratch
from dev.bench.rows import Case
from dev.bench.servers import CLIENTS, ECHO, HERE, PARLEY, WINDOW_S, rate

FLOORS = {"read": 0.2, "edit": 0.1}


def cases() -> list[Case]:
    return [
        Case(f"documents.{action}", f"{action}s/s", partial(ours, action), "a bare Starlette handler",
             partial(bare, action), "min", floor, note=lambda _: f"{CLIENTS} clients with a plan of 1 kB each")
        for action, floor in FLOORS.items()
    ]  # fmt: skip


def ours(action: str) -> float:
    with scratch() as directory, peers.start(PARLEY, "serve", ECHO, "--data-dir", str(directory)) as url:
        return _measured(url, action)


def bare(action: str) -> float:
    with peers.start(sys.executable, HERE / "peers" / "plain_server.py") as url:
        return _measured(url, action)


def _measured(url: str, action: str) -> float:
    options = {"--url": url, "--action": action, "--clients": CLIENTS, "--seconds": WINDOW_S, "--warmup": peers.WARMUP}
    flags = [str(word) for option in options.items() for word in option]
    command = [sys.executable, str(HERE / "document_load.py"), *flags]
    finished = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=WINDOW_S + peers.WARMUP + 60)
    return rate(json.loads(finished.stdout))
