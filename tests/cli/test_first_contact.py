"""A person at a terminal: the server is not there yet, the command is interrupted, the log goes to a file."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.testing.processes import ServerProcess
from tests.cli.test_cli import parley

AGENTS = """
import asyncio
from parley import Text, agent

@agent("slow")
async def slow(turn):
    yield Text("first\\n")
    await asyncio.Event().wait()
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    file = tmp_path / "agents.py"
    file.write_text(AGENTS)
    running = await ServerProcess.start([file], tmp_path / "data")
    yield running
    await running.stop()


@pytest.mark.slow
async def test_a_server_that_is_not_running_is_reported_at_once_and_tried_again() -> None:
    with socket.socket() as closed:  # bound and not listening: connecting is refused
        closed.bind(("127.0.0.1", 0))
        run = await parley("send", "echo", "hello", "--url", f"http://127.0.0.1:{closed.getsockname()[1]}")
    lines = run.err.splitlines()
    assert run.code == 1
    assert lines[0] == "cannot connect retrying in 0.5 s"
    assert [line for line in lines if "retrying in" in line] == lines[:3]
    assert lines[3].endswith("does not answer (cannot connect). [unreachable]")
    assert "`parley up`" in lines[4]


async def test_an_interrupted_command_says_that_its_task_continues(server: ServerProcess) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley", "send", "slow", "hello", "--url", server.url,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"first\n"
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 130
    *_, interrupted, follow, cancel = err.decode().splitlines()
    task = interrupted.removeprefix("Interrupted. The task continues on the server: ")
    assert follow == f"Follow: parley tail {task} --url {server.url}"
    assert cancel == f"Cancel: parley cancel {task} --url {server.url}"
    shown = await parley("show", task, "--json", "--url", server.url)
    assert json.loads(shown.out)["task"]["status"]["state"] == "TASK_STATE_WORKING"


async def test_the_banner_begins_with_the_console_and_is_plain_in_a_file(server: ServerProcess) -> None:
    await server.said("slow")
    banner = [line for line in server.said_all if server.url in line]
    assert banner[0].strip() == f"Console: {server.url}/console"
    assert banner[1].strip() == f"Parley listens on {server.url}"
    assert not any("\x1b" in line for line in server.said_all)
