"""The hands that break things do break them: connections at the balancer, clocks and files of a process."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dev.chaos.launched import Control
from parley.testing.balancers import Balancer, balancing
from parley.testing.processes import until

SIDES: "list[Ends]" = []
"""Connections opened by clients, to be closed at the end of a test."""
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PROBE = """
import sqlite3, sys, time
from pathlib import Path
from dev.chaos.launched import Control, limit_pages, step_clock
control = Control(Path(sys.argv[1]))
step_clock(control)
limit_pages(control)
from parley.clock import now_ms
connection = sqlite3.connect(sys.argv[2])
connection.execute("CREATE TABLE IF NOT EXISTS t (x)")
try:
    connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    said = "written"
except sqlite3.OperationalError as error:
    said = str(error)
print(now_ms(), time.monotonic(), said, sep="|")
"""


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Balancer, list[Ends]]]:
    """A balancer before a server that says everything again."""
    served: list[Ends] = []
    SIDES.clear()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append((reader, writer))
        with suppress(ConnectionError):
            while some := await reader.read(100):
                writer.write(some)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with balancing(url) as balancer:
        yield balancer, served
        for _, writer in SIDES:
            writer.transport.abort()
    server.close()
    for _, writer in served:
        writer.transport.abort()
    await asyncio.sleep(0)


async def opened(balancer: Balancer) -> Ends:
    place = urlsplit(balancer.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    SIDES.append((reader, writer))
    return reader, writer


async def test_a_cut_connection_is_over_for_both_and_the_others_go_on() -> None:
    async with echoing() as (balancer, served):
        (first, _), (second, writer) = await opened(balancer), await opened(balancer)
        assert balancer.cut(0.5) == 1
        with pytest.raises(ConnectionResetError):
            await first.read(1)
        await until(lambda: served[0][0].exception() is not None)
        writer.write(b"more")
        assert await second.readexactly(4) == b"more"


async def test_a_forgotten_connection_says_nothing_to_anybody() -> None:
    async with echoing() as (balancer, served):
        reader, writer = await opened(balancer)
        assert (balancer.forget(), balancer.open) == (1, 0)
        writer.write(b"lost")
        served[0][1].write(b"lost")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        assert not served[0][0].at_eof()
        assert (await opened(balancer))[0] is not None


def probed(folder: Path) -> tuple[float, str]:
    """By how many seconds the clock of another process is ahead, and what became of a write there."""
    command = [sys.executable, "-c", PROBE, str(folder / "control"), str(folder / "file.db")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    at_ms, steady, what = said.stdout.strip().split("|")
    return float(at_ms) / 1000 - float(steady) - (time.time() - time.monotonic()), what


def test_a_process_can_be_given_a_wrong_clock_and_a_full_file(tmp_path: Path) -> None:
    control = Control(tmp_path / "control")
    ahead, said = probed(tmp_path)
    assert (abs(ahead) < 1, said) == (True, "written")
    control.set(clock_s=-300, pages=os.stat(tmp_path / "file.db").st_size // 4096)
    ahead, said = probed(tmp_path)
    assert (abs(ahead + 300) < 1, said) == (True, "database or disk is full")
    control.set()
    assert probed(tmp_path)[1] == "written"
    with closing(sqlite3.connect(tmp_path / "file.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
