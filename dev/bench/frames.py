"""Frames of the runtime contract: how many are accepted, and how soon a reader sees what became of one."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from dev.bench import peers
from dev.bench.data import scratch
from dev.bench.rows import Case
from dev.bench.servers import CLIENTS, ECHO, HERE, PARLEY, WINDOW_S, rate

FLOOR = 0.25

Figures = dict[str, Any]


def cases() -> list[Case]:
    return [
        Case("frames.accepted", "frames/s", accepted, "a signature checked", bare, "min", FLOOR,
             note=lambda _: f"{CLIENTS} clients with a run each; every frame drives a turn"),
        Case("frames.first", "ms", lambda: first()["p50_ms"], "the post's answer", lambda: first()["answer_p50_ms"],
             note=lambda _: "p50, post to the first event after it, one frame at a time"),
        Case("frames.first.p99", "ms", lambda: first()["p99_ms"], "p50", lambda: first()["p50_ms"]),
    ]  # fmt: skip


def accepted() -> float:
    with _our_server() as url:
        return rate(_measured(url, "accepted"))


def bare() -> float:
    with peers.start(sys.executable, HERE / "peers" / "signed_server.py") as url:
        return rate(_measured(url, "accepted"))


def first() -> Figures:
    with _our_server() as url:
        return _measured(url, "first")


@contextmanager
def _our_server() -> Generator[str, None, None]:
    with scratch() as directory, peers.start(PARLEY, "serve", ECHO, "--data-dir", str(directory)) as url:
        yield url


def _measured(url: str, mode: str) -> Figures:
    options = {"--url": url, "--mode": mode, "--clients": CLIENTS, "--seconds": WINDOW_S, "--warmup": peers.WARMUP}
    flags = [str(word) for option in options.items() for word in option]
    command = [sys.executable, str(HERE / "frame_load.py"), *flags]
    finished = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=WINDOW_S + peers.WARMUP + 60)
    result: Figures = json.loads(finished.stdout)
    return result
