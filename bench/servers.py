"""Our durable server beside other A2A servers, each a process of its own, under the same load."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from bench import peers
from bench.data import BUILD, scratch
from bench.rows import Case

HERE = Path(__file__).parent
VENVS = BUILD / "bench-peers"
CLIENTS = 32
WINDOW_S = 5.0
SLOW_WINDOW_S = 10.0
MAX_ERRORS = 0.01
FLOORS = {
    "send": {"sdk-memory": 4, "sdk-sqlite": 40, "fasta2a": 0.6},
    "stream": {"sdk-memory": 4, "sdk-sqlite": 40, "fasta2a": 1.0},
}
BESIDE = {"sdk-memory": "a2a-sdk, in memory", "sdk-sqlite": "a2a-sdk, SQLite", "fasta2a": "fasta2a, in memory"}
NOTES = {"fasta2a": "fasta2a by its 0.3 names, its fastest"}


def cases() -> list[Case]:
    return [_case(mode, peer, floor) for mode, floors in FLOORS.items() for peer, floor in floors.items()]


def _case(mode: str, peer: str, floor: float) -> Case:
    measure = {"sdk-memory": sdk_memory, "sdk-sqlite": sdk_sqlite, "fasta2a": fasta2a}[peer]
    note = (lambda _: NOTES[peer]) if peer in NOTES else None
    return Case(
        f"{mode}.{peer}", f"{mode}s/s", partial(ours, mode), BESIDE[peer], partial(measure, mode), "min", floor, note
    )


def ours(mode: str) -> float:
    parley = Path(sys.executable).with_name("parley")
    with (
        scratch() as directory,
        peers.start(parley, "serve", str(HERE / "echo_agent.py"), "--data-dir", str(directory)) as url,
    ):
        return rate(peers.measure(f"{url}agents/echo", mode, "1.0", CLIENTS, WINDOW_S))


def sdk_memory(mode: str) -> float:
    with peers.start(python("sdk"), HERE / "peers" / "sdk_server.py", "--store", "memory") as url:
        return rate(peers.measure(url, mode, "1.0", CLIENTS, WINDOW_S))


def sdk_sqlite(mode: str) -> float:
    with scratch() as directory:
        options = ("--store", "sqlite", "--path", str(directory / "tasks.db"))
        with peers.start(python("sdk"), HERE / "peers" / "sdk_server.py", *options) as url:
            return rate(peers.measure(url, mode, "1.0", CLIENTS, SLOW_WINDOW_S))


def fasta2a(mode: str) -> float:
    # About one reply in two hundred comes while its task is still submitted; none is held against it.
    expect = "any-task" if mode == "send" else "completed"
    with peers.start(python("fasta2a"), HERE / "peers" / "fasta2a_server.py") as url:
        return rate(peers.measure(url, mode, "0.3", CLIENTS, WINDOW_S, expect))


def python(name: str) -> Path:
    return peers.ensure_venv(name, HERE / "peers" / f"requirements-{name}.txt", VENVS)


def rate(result: dict[str, Any]) -> float:
    """Good replies a second. Where more than a few went wrong, the rate says nothing."""
    if not result["count"] or result["errors"] > MAX_ERRORS * result["count"]:
        raise RuntimeError(f"{result['errors']} errors and {result['count']} replies: {result['first_error']}")
    return float(result["rate"])
