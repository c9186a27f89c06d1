"""Logs of a node process: plain text in a file, and on a terminal with NO_COLOR."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from parley.testing.processes import until
from parley.testing.servers import serving
from tests.faces.registry.fleet import Fleet
from tests.faces.registry.targets import say


@asynccontextmanager
async def node_process(output: int, **env: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.node.member", stdout=output, stderr=output,
        env={**{name: value for name, value in os.environ.items() if name != "NO_COLOR"}, **env},
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.slow
async def test_redirected_logs_carry_no_colour_codes(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    async with serving(tmp_path / "platform", [], store="memory") as platform, httpx2.AsyncClient() as http:
        fleet = Fleet(http, platform.url)
        seat = await fleet.create("Member")
        env = {
            "PARLEY_NODE_PLATFORM": platform.url, "PARLEY_NODE_ID": seat.id, "TERM": "xterm-256color",
            "PARLEY_NODE_DATA_DIR": str(tmp_path / "node"), "FORCE_COLOR": "1",
        }  # fmt: skip
        with log.open("wb") as file:
            async with node_process(file.fileno(), **env):
                await until(lambda: b"node.registered" in log.read_bytes(), 20)
                assert (await say(fleet, seat, "crash"))["status"]["state"] == "failed"
                await until(lambda: b"agent.raised" in log.read_bytes())
    written = log.read_text()
    assert "RuntimeError" in written
    assert "\x1b" not in written


@pytest.mark.slow
async def test_no_color_is_honoured_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    env = {
        "PARLEY_NODE_PLATFORM": "http://127.0.0.1:9", "PARLEY_NODE_DATA_DIR": str(tmp_path), "NO_COLOR": "1",
        "TERM": "xterm-256color",
    }  # fmt: skip
    shown = b""
    async with node_process(theirs, **env):
        os.close(theirs)  # so that reading fails when the process ends
        while b"node.platform_away" not in shown:
            shown += await asyncio.to_thread(os.read, ours, 4096)
    os.close(ours)
    assert b"\x1b" not in shown
