"""Our durable server beside other A2A servers, each a process of its own, under the same load."""

import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from dev.bench import peers
from dev.bench.data import BUILD, scratch
from dev.bench.rows import Case

HERE = Path(__file__).parent
VENVS = BUILD / "bench-peers"
PARLEY = Path(sys.executable).with_name("parley")
ECHO = str(HERE / "echo_agent.py")
CLIENTS = 32
WINDOW_S = 5.0
SLOW_WINDOW_S = 10.0
MAX_ERRORS = 0.01
ALLOWED_FIRST_MS = 10.0
FLOORS = {
    "send": {"sdk-memory": 4, "sdk-sqlite": 40, "fasta2a": 0.6},
    "stream": {"sdk-memory": 4, "sdk-sqlite": 40, "fasta2a": 1.0},
}
BESIDE = {"sdk-memory": "a2a-sdk, in memory", "sdk-sqlite": "a2a-sdk, SQLite", "fasta2a": "fasta2a, in memory"}
NOTES = {"fasta2a": "fasta2a by its 0.3 names, its fastest"}


def cases() -> list[Case]:
    rates = [_case(mode, peer, floor) for mode, floors in FLOORS.items() for peer, floor in floors.items()]
    return [
        *rates,
        Case("stream.first", "ms", first, "allowed", lambda: ALLOWED_FIRST_MS, "max", 1.0,
             note=lambda _: "p50, one client, a connection that is open already"),
        Case("stream.first.sdk", "ms", first, BESIDE["sdk-memory"], sdk_first),
    ]  # fmt: skip


def _case(mode: str, peer: str, floor: float) -> Case:
    measure = {"sdk-memory": sdk_memory, "sdk-sqlite": sdk_sqlite, "fasta2a": fasta2a}[peer]
    note = (lambda _: NOTES[peer]) if peer in NOTES else None
    return Case(
        f"{mode}.{peer}", f"{mode}s/s", partial(ours, mode), BESIDE[peer], partial(measure, mode), "min", floor, note
    )


def ours(mode: str) -> float:
    with _our_server() as url:
        return rate(peers.measure(url, mode, "1.0", CLIENTS, WINDOW_S))


def sdk_memory(mode: str) -> float:
    with _sdk_server() as url:
        return rate(peers.measure(url, mode, "1.0", CLIENTS, WINDOW_S))


def first() -> float:
    """From sending a message to the first event of its stream, without other load."""
    with _our_server() as url:
        return _first(url)


def sdk_first() -> float:
    with _sdk_server() as url:
        return _first(url)


def _first(url: str) -> float:
    result = peers.measure(url, "stream", "1.0", 1, WINDOW_S)
    rate(result)
    return float(result["first_p50_ms"])


@contextmanager
def _our_server() -> Generator[str, None, None]:
    with scratch() as directory, peers.start(PARLEY, "serve", ECHO, "--data-dir", str(directory)) as url:
        yield f"{url}agents/echo"


def _sdk_server() -> AbstractContextManager[str]:
    return peers.start(python("sdk"), HERE / "peers" / "sdk_server.py", "--store", "memory")


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
