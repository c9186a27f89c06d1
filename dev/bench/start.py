"""Time a user waits: for the import, for the help, from `make run` to the first answer, and for a test of an agent."""

import re
import resource
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from dev.bench.data import scratch
from dev.bench.echo_agent import echo
from dev.bench.rows import Case
from parley.testing import run

STARTS = 9
TESTS = 50
PARLEY = Path(sys.executable).with_name("parley")
HELP = [str(PARLEY), "--help"]
TYPER = [sys.executable, "-c", "import typer"]


def cases() -> list[Case]:
    return [
        Case("start.import", "ms", imported, "allowed", lambda: 100.0, "max", 1.0,
             note=lambda _: f"p50 of {STARTS} processes that import parley"),
        Case("start.help", "ms", helped, "allowed", lambda: 300.0, "max", 1.0,
             note=lambda _: f"p50 of {STARTS} times parley --help"),
        Case("start.help.cpu", "ms", partial(spent, HELP), "import typer", partial(spent, TYPER), "max", 1.5,
             note=lambda _: "processor time, which does not depend on what else the machine does"),
        Case("start.answer", "ms", answered, "allowed", lambda: 5000.0, "max", 1.0,
             note=lambda _: "from parley up, which is make run once installed, to the end of a parley send"),
        Case("start.testing-run", "ms", tested, "allowed", lambda: 20.0, "max", 1.0,
             note=lambda _: f"p50 of {TESTS} times parley.testing.run of an echo agent, once it is imported"),
    ]  # fmt: skip


def imported() -> float:
    return _p50([sys.executable, "-c", "import parley"])


def helped() -> float:
    return _p50(HELP)


def spent(command: list[str]) -> float:
    """The mean: the system counts in hundredths of a second."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _p50(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / STARTS * 1000


def _p50(command: list[str]) -> float:
    times: list[float] = []
    for _ in range(STARTS):
        begin = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.monotonic() - begin)
    return statistics.median(times) * 1000


def answered() -> float:
    with scratch() as directory:
        begin = time.monotonic()
        command = [str(PARLEY), "up", "--port", "0", "--data-dir", str(directory)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            try:
                subprocess.run(
                    [str(PARLEY), "send", "echo", "hello", "--url", _address(server)], check=True, capture_output=True
                )
                return (time.monotonic() - begin) * 1000
            finally:
                server.terminate()
                server.communicate()


def tested() -> float:
    times: list[float] = []
    for _ in range(TESTS + 1):
        begin = time.monotonic()
        run(echo, "hello")
        times.append(time.monotonic() - begin)
    # The first one imports what it needs.
    return statistics.median(times[1:]) * 1000


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    for line in server.stderr:
        if found := re.search(r"listens on (\S+)", line):
            return found[1]
    raise RuntimeError("The server ended too soon.")
